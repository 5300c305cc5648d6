package harness

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Count is how many proxies a fleet had at one moment, counted on its members. A proxy drains from the moment at which
// the hub's placement lists it, or it says so itself.
type Count struct {
	// At is when this count began to hold.
	At time.Time
	// Alive are the proxies that exist and do not drain, Available those of them that are ready.
	Alive, Available int
}

// Census counts a fleet's proxies over time, in the order in which this process heard of every change. Changes on several
// clusters are heard in their order but for what their watches differ by.
func Census(fleet types.UID, placements []Event[*v1alpha1.ProxyPlacement], members ...[]Event[*v1alpha1.Proxy]) []Count {
	type change struct {
		at    time.Time
		apply func(*state)
	}
	var changes []change
	for _, e := range placements {
		if e.Object.Spec.Fleet.UID == fleet {
			changes = append(changes, change{e.At, func(s *state) { s.placement(e) }})
		}
	}
	for _, events := range members {
		for _, e := range events {
			if e.Object.Labels[v1alpha1.LabelFleetUID] == string(fleet) {
				changes = append(changes, change{e.At, func(s *state) { s.proxy(e) }})
			}
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	s := &state{placements: map[types.UID]*v1alpha1.ProxyPlacement{}, proxies: map[types.UID]*v1alpha1.Proxy{}}
	var counts []Count
	for _, c := range changes {
		c.apply(s)
		count := s.count()
		count.At = c.at
		if n := len(counts); n == 0 || counts[n-1].Alive != count.Alive || counts[n-1].Available != count.Available {
			counts = append(counts, count)
		}
	}
	return counts
}

type state struct {
	placements map[types.UID]*v1alpha1.ProxyPlacement
	proxies    map[types.UID]*v1alpha1.Proxy
}

func (s *state) placement(e Event[*v1alpha1.ProxyPlacement]) {
	if e.Type == watch.Deleted {
		delete(s.placements, e.Object.UID)
		return
	}
	s.placements[e.Object.UID] = e.Object
}

func (s *state) proxy(e Event[*v1alpha1.Proxy]) {
	if e.Type == watch.Deleted {
		delete(s.proxies, e.Object.UID)
		return
	}
	s.proxies[e.Object.UID] = e.Object
}

func (s *state) count() Count {
	var c Count
	for _, p := range s.proxies {
		placement := s.placements[types.UID(p.Labels[v1alpha1.LabelPlacementUID])]
		listed := placement == nil || placement.DeletionTimestamp != nil || slices.ContainsFunc(placement.Spec.Drain, func(d v1alpha1.Drain) bool { return d.Name == p.Name })
		if listed || p.Spec.Drain != nil || p.DeletionTimestamp != nil {
			continue
		}
		c.Alive++
		if meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) {
			c.Available++
		}
	}
	return c
}

// Longest returns the count that broke a rule for the longest time without a pause, and for how long; the zero Count if
// none did. The last count holds until the end.
func Longest(counts []Count, end time.Time, breaks func(Count) bool) (Count, time.Duration) {
	var worst, first Count
	var longest time.Duration
	breaking := false
	for i, c := range counts {
		until := end
		if i+1 < len(counts) {
			until = counts[i+1].At
		}
		if !breaks(c) {
			breaking = false
			continue
		}
		if !breaking {
			breaking, first = true, c
		}
		if d := until.Sub(first.At); cmp.Compare(d, longest) >= 0 {
			worst, longest = c, d
		}
	}
	return worst, longest
}

// After cuts counts to those that hold from a time on: the first is the one that held then.
func After(counts []Count, from time.Time) []Count {
	for i := range counts {
		if counts[i].At.After(from) {
			if i > 0 {
				cut := slices.Clone(counts[i-1:])
				cut[0].At = from
				return cut
			}
			return counts
		}
	}
	if n := len(counts); n > 0 {
		return []Count{{At: from, Alive: counts[n-1].Alive, Available: counts[n-1].Available}}
	}
	return nil
}
