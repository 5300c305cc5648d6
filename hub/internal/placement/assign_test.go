package placement

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// endpointsOf makes endpoints of what members have, and as many that nobody has as are missing to the fleet's replicas.
func endpointsOf(s *Snapshot) []Endpoint {
	var list []Endpoint
	for i := range s.Members {
		for range s.Members[i].Have {
			list = append(list, Endpoint{ID: EndpointID(fmt.Sprintf("e%03d", len(list))), Member: s.Members[i].ID})
		}
	}
	for int32(len(list)) < s.Fleet.Replicas {
		list = append(list, Endpoint{ID: EndpointID(fmt.Sprintf("e%03d", len(list)))})
	}
	s.Fleet.Replicas = int32(len(list))
	return list
}

func TestAssign(t *testing.T) {
	two := int32(2)
	member := func(id string, have int32) Member {
		return Member{ID: MemberID(id), UID: MemberUID(id), Eligible: true, Accepted: true, Liveness: Ready, Weight: 1, Have: have}
	}
	change := func(m Member, do func(*Member)) Member { do(&m); return m }
	tests := map[string]struct {
		members  []Member
		replicas int32
		want     map[MemberID]int
	}{
		"NewOnesAreSpread": {[]Member{member("a", 0), member("b", 0), member("c", 0)}, 9, map[MemberID]int{"a": 3, "b": 3, "c": 3}},
		"ByWeight": {
			[]Member{member("a", 0), change(member("b", 0), func(m *Member) { m.Weight = 3 })}, 8, map[MemberID]int{"a": 2, "b": 6},
		},
		"NobodyMovesToANewMember":   {[]Member{member("a", 6), member("b", 0)}, 6, map[MemberID]int{"a": 6}},
		"WhatIsNewGoesWhereItLacks": {[]Member{member("a", 6), member("b", 0)}, 9, map[MemberID]int{"a": 6, "b": 3}},
		"AnIneligibleMemberGivesUp": {
			[]Member{member("a", 1), change(member("b", 3), func(m *Member) { m.Eligible = false })}, 4, map[MemberID]int{"a": 4},
		},
		"ALostMemberKeepsItsOwn": {
			[]Member{member("a", 1), change(member("b", 3), func(m *Member) { m.Liveness = Unreachable })}, 6, map[MemberID]int{"a": 3, "b": 3},
		},
		"AMaximumIsKept": {
			[]Member{member("a", 0), change(member("b", 4), func(m *Member) { m.Max = &two })}, 4, map[MemberID]int{"a": 2, "b": 2},
		},
		"WithoutWeightItGivesUp": {
			[]Member{member("a", 0), change(member("b", 4), func(m *Member) { m.Weight = 0 })}, 4, map[MemberID]int{"a": 4},
		},
		"NoRoom": {
			[]Member{change(member("a", 0), func(m *Member) { m.Max = &two })}, 5, map[MemberID]int{"a": 2},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := Snapshot{Fleet: Fleet{UID: "f", Replicas: test.replicas}, Members: test.members}
			endpoints := endpointsOf(&s)
			got := map[MemberID]int{}
			for _, m := range Assign(s, Plan(s), endpoints) {
				got[m]++
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAssignProperties draws snapshots with everything in them.
func TestAssignProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t)
		endpoints := endpointsOf(&s)
		d := Plan(s)
		first := Assign(s, d, endpoints)
		counts := map[MemberID]int32{}
		for _, m := range first {
			counts[m]++
		}
		for i := range s.Members {
			m := &s.Members[i]
			n := counts[m.ID]
			switch {
			case n == 0:
			case !m.Eligible || !m.Accepted:
				t.Fatalf("%s takes no part and has %d", m.ID, n)
			case m.Max != nil && n > *m.Max:
				t.Fatalf("%s has %d, more than its maximum %d", m.ID, n, *m.Max)
			case m.Liveness != Ready && n > m.Have:
				t.Fatalf("%s is %s and grew from %d to %d", m.ID, m.Liveness, m.Have, n)
			}
			// As long as a member takes part, without a bound, nothing leaves it.
			if m.Eligible && m.Accepted && m.Max == nil && m.Weight > 0 && len(m.Taints) == 0 && n < m.Have {
				t.Fatalf("%s takes part and lost %d of %d", m.ID, m.Have-n, m.Have)
			}
		}
		if missing := int32(len(endpoints) - len(first)); missing > d.Unplaced {
			t.Fatalf("%d have no member, the plan has no place for %d", missing, d.Unplaced)
		}
		// The order in which they are listed does not show, and what is assigned stays.
		shuffled := rapid.Permutation(endpoints).Draw(t, "order")
		if diff := cmp.Diff(first, Assign(s, d, shuffled)); diff != "" {
			t.Fatalf("by order: %s", diff)
		}
		next := s
		next.Members = nil
		for _, m := range s.Members {
			m.Have = counts[m.ID]
			next.Members = append(next.Members, m)
		}
		var settled []Endpoint
		for _, e := range endpoints {
			settled = append(settled, Endpoint{ID: e.ID, Member: first[e.ID]})
		}
		again := Assign(next, Plan(next), settled)
		maps.DeleteFunc(again, func(id EndpointID, _ MemberID) bool { _, had := first[id]; return !had })
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatalf("what was assigned moved: %s", diff)
		}
	})
}
