package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// credentialsRetry is how soon it is looked again for credentials that were not there: the hub sends them when it can.
const credentialsRetry = 5 * time.Second

// errNoCredentials is what a probe meets whose credentials have not come.
var errNoCredentials = errors.New("the owner's credentials have not come from the hub yet")

// owned are the credentials of a proxy that someone else runs.
type owned struct {
	ref        v1alpha1.SecretKeyRef
	user, pass string
}

// asItsOwner has a proxy that someone else runs probed with its owner's credentials, or with none where it asks for none:
// the agent's own are for its own proxies. It is never dialled at an address that the ceiling keeps closed.
func (r *Reconciler) asItsOwner(ctx context.Context, s *scope, p *probe.Proxy) (retry time.Duration, err error) {
	policy := s.policy
	p.External = true
	p.Allow = func(addr netip.Addr) error {
		if v := policy.Dial(addr); v != nil {
			return v
		}
		return nil
	}
	ref := s.proxy.Spec.Endpoint.CredentialsSecretRef
	if ref == nil {
		r.owners.Delete(s.proxy.UID)
		p.Credential = nil
		return 0, nil
	}
	c, err := r.ownedBy(ctx, s, *ref)
	if errors.Is(err, errNoCredentials) {
		p.Credential = func(time.Time) (user, pass string, err error) { return "", "", errNoCredentials }
		return credentialsRetry, nil
	}
	if err != nil {
		return 0, err
	}
	p.Credential = func(time.Time) (user, pass string, err error) { return c.user, c.pass, nil }
	return 0, nil
}

// ownedBy reads credentials, once for each version of them: a key never changes what it stands for.
func (r *Reconciler) ownedBy(ctx context.Context, s *scope, ref v1alpha1.SecretKeyRef) (owned, error) {
	if kept, ok := r.owners.Load(s.proxy.UID); ok {
		if c := kept.(owned); c.ref == ref { //nolint:forcetypeassert // nothing else is stored
			return c, nil
		}
	}
	secret := &corev1.Secret{}
	err := s.site.Reader.Get(ctx, types.NamespacedName{Namespace: s.proxy.Namespace, Name: ref.Name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return owned{}, errNoCredentials
	case err != nil:
		return owned{}, fmt.Errorf("read the owner's credentials: %w", err)
	case secret.Labels[v1alpha1.LabelComponent] != v1alpha1.ComponentCredentials:
		// A Proxy that somebody wrote by hand must not have the agent send another Secret to an address of theirs.
		return owned{}, fmt.Errorf("secret %s holds no credentials of proxies: it has no label %s=%s",
			ref.Name, v1alpha1.LabelComponent, v1alpha1.ComponentCredentials)
	}
	user, pass, ok := strings.Cut(string(secret.Data[ref.Key]), ":")
	if !ok {
		return owned{}, errNoCredentials
	}
	c := owned{ref: ref, user: user, pass: pass}
	r.owners.Store(s.proxy.UID, c)
	return c, nil
}
