package placement

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/dispatch"
	"github.com/shoal-dev/shoal/hub/internal/external"
)

const (
	// credentialsInterval is how often a placement is looked at while its credentials are not known.
	credentialsInterval = 5 * time.Second
	// credentialsTimeout bounds the reading of all Secrets at the start: members wait for it.
	credentialsTimeout = 10 * time.Second
)

// Credentials are those of proxies that someone else runs. *external.Store is one.
type Credentials interface {
	// Refresh reads those of one fleet, or says what is to be mended.
	Refresh(ctx context.Context, fleet *v1alpha1.ProxyFleet, placed []string) (*external.Problem, error)
	// ByKey gives one version of them; false if it is not known.
	ByKey(fleet types.NamespacedName, key string) (external.Credentials, bool)
}

// readCredentials reads those of every fleet, so that the first that members hear of a hub that has restarted is whole.
// What cannot be read is left to the fleets' own passes.
func (r *Reconciler) readCredentials(ctx context.Context) error {
	var fleets v1alpha1.ProxyFleetList
	if err := r.opts.Client.List(ctx, &fleets); err != nil {
		return fmt.Errorf("list fleets: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	for i := range fleets.Items {
		fleet := &fleets.Items[i]
		if fleet.Spec.External == nil || !fleet.DeletionTimestamp.IsZero() {
			continue
		}
		problem, err := r.opts.Credentials.Refresh(ctx, fleet, nil)
		switch {
		case err != nil:
			log.FromContext(ctx).Error(err, "cannot read a fleet's credentials yet", "fleet", client.ObjectKeyFromObject(fleet))
		case problem != nil:
			log.FromContext(ctx).Info("a fleet's credentials cannot be used", "fleet", client.ObjectKeyFromObject(fleet), "problem", problem.Message)
		}
	}
	return nil
}

// credentials gives what a placement's endpoints name, as far as it is known; whole says that nothing is missing.
func (r *Reconciler) credentials(pp *v1alpha1.ProxyPlacement) (known []dispatch.Credentials, whole bool) {
	whole = true
	if pp.Spec.External == nil {
		return nil, whole
	}
	fleet := types.NamespacedName{Namespace: pp.Namespace, Name: pp.Spec.Fleet.Name}
	seen := map[string]bool{"": true}
	for i := range pp.Spec.External.Endpoints {
		key := pp.Spec.External.Endpoints[i].Credentials
		if seen[key] {
			continue
		}
		seen[key] = true
		c, ok := r.opts.Credentials.ByKey(fleet, key)
		if !ok {
			whole = false
			continue
		}
		known = append(known, dispatch.Credentials{Key: c.Key, Username: c.Username, Password: c.Password})
	}
	return known, whole
}

// setExternal is what of a placement's endpoints a member has to know. Labels and regions stay here.
func setExternal(placed *v1alpha1.PlacedExternal) *v1alpha1.SetExternal {
	if placed == nil {
		return nil
	}
	set := &v1alpha1.SetExternal{HealthCheck: placed.HealthCheck}
	for i := range placed.Endpoints {
		e := &placed.Endpoints[i]
		set.Endpoints = append(set.Endpoints, v1alpha1.SetEndpoint{
			Name: e.Name, Host: e.Host, Port: e.Port, Credentials: e.Credentials,
		})
	}
	return set
}
