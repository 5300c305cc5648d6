package fleet

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/placement"
	"github.com/shoal-dev/shoal/hub/internal/rollout"
)

// rollOutside takes the next step of a fleet of proxies that someone else runs. Nothing is made and nothing replaced, so
// there is no surge and no floor; what takes care of leases is the order:
//
//   - An endpoint that leaves the spec, or its member, goes on the drain list under its Proxy's name and stays listed
//     until the member no longer reports that Proxy.
//   - Only then another member gets it, so that no two probe one at a time. A member that is missed for handOverAfter is
//     not waited for: it learns of the drain when it returns.
//   - While the hub holds removals back, endpoints that nobody has are given out and nothing else changes place.
//   - New credentials, labels or regions change an endpoint where it is.
//
// Proxies of a template that the fleet had before drain as in any rollout.
func (s *scope) rollOutside() {
	step := s.rollTemplateAway()
	s.outside.next = map[string]*v1alpha1.PlacedExternal{}
	for _, m := range s.members {
		key := rollout.Key{Member: rollout.MemberID(m.Name), Revision: v1alpha1.RevisionExternal}
		p := s.find(key)
		wanted := map[string]v1alpha1.PlacedEndpoint{}
		for name, e := range s.outside.wanted {
			if s.outside.assigned[placement.EndpointID(name)] == placement.MemberID(m.Name) {
				wanted[name] = e
			}
		}
		next := s.nextOutside(m, p, wanted)
		switch {
		case p == nil && len(next.endpoints) == 0:
		case len(next.endpoints) == 0 && len(next.drain) == 0 && len(p.proxies) == 0 && m.view.Settled() && s.held == "":
			step.Finished = append(step.Finished, key)
		default:
			s.outside.next[m.Name] = next.external(s.fleet.Spec.External.HealthCheck)
			step.Placements = append(step.Placements, next.placement(key))
		}
	}
	s.step = &step
}

// rollTemplateAway drains the placements of a template.
func (s *scope) rollTemplateAway() rollout.Plan {
	in := rollout.Input{Now: s.now, Current: v1alpha1.RevisionExternal, DrainTimeout: s.drainTimeout()}
	for _, m := range s.members {
		in.Members = append(in.Members, rollout.Member{ID: rollout.MemberID(m.Name), Frozen: !m.view.Settled()})
	}
	for _, p := range s.placements {
		if p.Spec.External == nil {
			in.Placements = append(in.Placements, p.asRollout())
			in.Proxies = append(in.Proxies, s.asProxies(p)...)
		}
	}
	if s.held != "" {
		return rollout.Plan{Placements: in.Placements}
	}
	return rollout.Step(in)
}

// outsideList is what a placement is to list.
type outsideList struct {
	endpoints map[string]v1alpha1.PlacedEndpoint
	// drain is by the endpoint's name.
	drain map[string]rollout.Drain
}

func (l *outsideList) external(check v1alpha1.HealthCheck) *v1alpha1.PlacedExternal {
	return &v1alpha1.PlacedExternal{
		Endpoints: slices.SortedFunc(maps.Values(l.endpoints), byEndpointName), HealthCheck: check,
	}
}

func (l *outsideList) placement(key rollout.Key) rollout.Placement {
	p := rollout.Placement{Key: key}
	for name := range l.endpoints {
		if _, drains := l.drain[name]; !drains {
			p.Replicas++
		}
	}
	p.Drain = slices.SortedFunc(maps.Values(l.drain), func(a, b rollout.Drain) int { return cmp.Compare(a.Name, b.Name) })
	return p
}

// nextOutside says what a member's placement is to list next.
func (s *scope) nextOutside(m *member, p *placed, wanted map[string]v1alpha1.PlacedEndpoint) *outsideList {
	next := &outsideList{endpoints: map[string]v1alpha1.PlacedEndpoint{}, drain: map[string]rollout.Drain{}}
	settled := m.view.Settled() && !s.vacating(m.Name)
	if p != nil {
		s.keepOutside(m, p, wanted, next)
	}
	if !settled {
		return next
	}
	for name, e := range wanted {
		_, listed := next.endpoints[name]
		_, drains := next.drain[name]
		switch {
		case listed:
		case drains, s.busyElsewhere(name, m.Name):
			s.after(drainInterval) // somebody has to let it go first
		default:
			next.endpoints[name] = e
		}
	}
	return next
}

// keepOutside carries over what a placement lists, and drains what is not wanted there any more.
func (s *scope) keepOutside(m *member, p *placed, wanted map[string]v1alpha1.PlacedEndpoint, next *outsideList) {
	reported := map[string]rollout.Proxy{}
	for _, proxy := range s.asProxies(p) {
		reported[endpointOf(string(proxy.Name))] = proxy
	}
	settled := m.view.Settled()
	over := map[string]bool{} // drained and gone
	for name, d := range p.drainingEndpoints() {
		if _, there := reported[name]; !there && settled && s.held == "" {
			over[name] = true
			continue
		}
		next.drain[name] = rollout.Drain{Name: rollout.ProxyName(d.Name), Deadline: d.Deadline.Time}
	}
	mayDrain := s.held == "" && (settled || s.handsOver(m))
	drain := func(name string, proxy rollout.Proxy) {
		next.drain[name] = rollout.Drain{Name: proxy.Name, Deadline: s.now.Add(s.drainTimeout())}
	}
	if p.Spec.External != nil {
		for _, e := range p.Spec.External.Endpoints {
			now, isWanted := wanted[e.Name]
			_, drains := next.drain[e.Name]
			proxy, there := reported[e.Name]
			switch {
			case drains && !isWanted:
				next.endpoints[e.Name] = e
			case over[e.Name]:
				// It is given out anew if it is wanted here again.
			case isWanted:
				next.endpoints[e.Name] = now
			case !mayDrain:
				next.endpoints[e.Name] = e
			case there:
				next.endpoints[e.Name] = e
				drain(e.Name, proxy)
			}
		}
	}
	if !mayDrain {
		return
	}
	// Proxies of endpoints that were taken off the list before they were reported.
	for name, proxy := range reported {
		_, drains := next.drain[name]
		if _, listed := next.endpoints[name]; !listed && !drains && !proxy.Terminating {
			drain(name, proxy)
		}
	}
}

// busyElsewhere tells whether another member that is to be waited for has the endpoint.
func (s *scope) busyElsewhere(name, here string) bool {
	for _, p := range slices.Concat(s.placements, s.going) {
		if p.Spec.Member == here || p.Spec.External == nil || s.handsOver(s.member(p.Spec.Member)) {
			continue
		}
		listed := slices.ContainsFunc(p.Spec.External.Endpoints, func(e v1alpha1.PlacedEndpoint) bool { return e.Name == name })
		for _, proxy := range p.proxies {
			listed = listed || endpointOf(proxy.Report.GetName()) == name
		}
		if listed {
			return true
		}
	}
	return false
}

// outsideOf is what a placement of proxies that someone else runs is to list after the step; nil for one of a template.
func (s *scope) outsideOf(p *placed, want rollout.Placement) *v1alpha1.PlacedExternal {
	if s.outside != nil && want.Revision == v1alpha1.RevisionExternal {
		return s.outside.next[string(want.Member)]
	}
	if p == nil || p.Spec.External == nil {
		return nil
	}
	// The fleet has a template now, and its rollout counts endpoints like any proxies of an older revision.
	draining := map[string]bool{}
	for _, d := range want.Drain {
		draining[endpointOf(string(d.Name))] = true
	}
	was, reported := p.drainingEndpoints(), map[string]bool{}
	for _, proxy := range p.proxies {
		reported[endpointOf(proxy.Report.GetName())] = true
	}
	next := p.Spec.External.DeepCopy()
	next.Endpoints = nil
	var kept int32
	for _, there := range []bool{true, false} {
		for _, e := range p.Spec.External.Endpoints {
			if reported[e.Name] != there {
				continue
			}
			_, drained := was[e.Name]
			if !draining[e.Name] {
				if drained || kept >= want.Replicas {
					continue
				}
				kept++
			}
			next.Endpoints = append(next.Endpoints, e)
		}
	}
	slices.SortFunc(next.Endpoints, byEndpointName)
	return next
}

// sameOutside tells whether a placement lists already what it is to list.
func (s *scope) sameOutside(p *placed, want rollout.Placement) bool {
	return equality.Semantic.DeepEqual(p.Spec.External, s.outsideOf(p, want))
}
