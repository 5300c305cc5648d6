package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/external"
	"github.com/shoal-dev/shoal/hub/internal/placement"
)

// handOverAfter is how long a member may be missed before others probe its endpoints. Moving them costs no instance, but
// a member that is only cut off from the hub goes on probing, and the leases on its proxies are not renewed by others.
const handOverAfter = 2 * time.Minute

// Credentials are those of proxies that someone else runs. *external.Store is one.
type Credentials interface {
	// Refresh reads those of one fleet, or says what is to be mended.
	Refresh(ctx context.Context, fleet *v1alpha1.ProxyFleet, placed []string) (*external.Problem, error)
	// Key names the version of a Secret's credentials.
	Key(fleet types.NamespacedName, secret string) string
	// Forget drops those of one fleet.
	Forget(fleet types.NamespacedName)
}

// outside is what one pass knows of proxies that someone else runs; nil for a fleet of our own.
type outside struct {
	// problem is why the credentials cannot be used; nil if they can.
	problem *external.Problem
	// wanted are the endpoints of the spec, by name, as placements list them.
	wanted map[string]v1alpha1.PlacedEndpoint
	// member is the member that has each endpoint now and is not draining it, by the endpoint's name.
	member map[string]string
	// assigned is by plan: the member that each endpoint is for.
	assigned map[placement.EndpointID]placement.MemberID
	// next is by roll: what the placements are to list.
	next map[string]*v1alpha1.PlacedExternal
}

// gatherOutside reads the credentials of the fleet's endpoints and finds out who probes them.
func (r *Reconciler) gatherOutside(ctx context.Context, s *scope) error {
	spec := s.fleet.Spec.External
	id := client.ObjectKeyFromObject(s.fleet)
	if spec == nil {
		if !slices.ContainsFunc(s.placements, func(p *placed) bool { return p.Spec.External != nil }) {
			r.opts.Credentials.Forget(id)
		}
		return nil
	}
	o := &outside{wanted: map[string]v1alpha1.PlacedEndpoint{}, member: map[string]string{}}
	s.outside = o
	var addresses []string
	for _, p := range s.placements {
		if p.Spec.External == nil {
			continue
		}
		draining := p.drainingEndpoints()
		for i := range p.Spec.External.Endpoints {
			e := &p.Spec.External.Endpoints[i]
			addresses = append(addresses, (&v1alpha1.ExternalEndpoint{Host: e.Host, Port: e.Port}).Address())
			if _, drains := draining[e.Name]; !drains && o.member[e.Name] == "" {
				o.member[e.Name] = p.Spec.Member
			}
		}
	}
	var err error
	if o.problem, err = r.opts.Credentials.Refresh(ctx, s.fleet, addresses); err != nil {
		return err
	}
	for i := range spec.Endpoints {
		e := &spec.Endpoints[i]
		placed := v1alpha1.PlacedEndpoint{Name: e.Name(), Host: e.Host, Port: e.Port, Region: e.Region, Country: e.Country}
		if len(spec.Labels)+len(e.Labels) > 0 {
			placed.Labels = map[string]string{}
			maps.Copy(placed.Labels, spec.Labels)
			maps.Copy(placed.Labels, e.Labels)
		}
		if secret := spec.SecretOf(e); secret != "" {
			placed.Credentials = r.opts.Credentials.Key(id, secret)
		}
		o.wanted[placed.Name] = placed
	}
	return nil
}

// objection says what of the spec or its Secrets is to be mended.
func (o *outside) objection(spec *v1alpha1.ExternalProxies) (reason, message string) {
	for i := range spec.Endpoints {
		for key := range spec.Endpoints[i].Labels {
			if strings.HasPrefix(key, "shoal.dev/") {
				return v1alpha1.ReasonInvalidSpec, fmt.Sprintf(
					"spec.external.endpoints: %s has label %s; labels that begin with shoal.dev/ are set by Shoal itself, choose another prefix",
					spec.Endpoints[i].Address(), key)
			}
		}
	}
	if o.problem != nil {
		return o.problem.Reason, o.problem.Message
	}
	return "", ""
}

// holds is how many endpoints a member has that are not draining.
func (o *outside) holds(member string) int32 {
	var n int32
	for name := range o.member {
		if o.member[name] == member {
			n++
		}
	}
	return n
}

// assign gives every endpoint to a member and makes the plan speak of that.
func (s *scope) assign(snapshot placement.Snapshot, decision *placement.Decision) {
	o := s.outside
	var endpoints []placement.Endpoint
	for name := range o.wanted {
		endpoints = append(endpoints, placement.Endpoint{ID: placement.EndpointID(name), Member: placement.MemberID(o.member[name])})
	}
	o.assigned = placement.Assign(snapshot, *decision, endpoints)
	counts := map[placement.MemberID]int32{}
	for _, member := range o.assigned {
		counts[member]++
	}
	decision.Placed = int32(len(o.assigned)) //nolint:gosec // at most 1000, by validation
	for i := range decision.Members {
		row := &decision.Members[i]
		if more := counts[row.Member] - row.Wanted; more > 0 {
			row.Why += fmt.Sprintf("; %s with the member that has them", counted(more, "more stays", "more stay"))
		}
		row.Wanted = counts[row.Member]
	}
}

// handsOver tells whether others take over the endpoints of the member.
func (s *scope) handsOver(m *member) bool {
	return m == nil || m.view.Lost && s.now.Sub(m.view.LostSince) >= handOverAfter
}

// endpointOf is the name of the endpoint that a Proxy of a placement is for: the last part of its own.
func endpointOf(proxy string) string { return proxy[strings.LastIndexByte(proxy, '-')+1:] }

// drainingEndpoints are the endpoints whose proxies are on the drain list.
func (p *placed) drainingEndpoints() map[string]v1alpha1.Drain {
	list := make(map[string]v1alpha1.Drain, len(p.Spec.Drain))
	for _, d := range p.Spec.Drain {
		list[endpointOf(d.Name)] = d
	}
	return list
}

func byEndpointName(a, b v1alpha1.PlacedEndpoint) int { return cmp.Compare(a.Name, b.Name) }
