package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/shoal-dev/shoal/hub/internal/rollout"
)

func TestGrow(t *testing.T) {
	place := func(member rollout.MemberID, revision rollout.Revision, n int32, drain ...rollout.ProxyName) rollout.Placement {
		p := rollout.Placement{Key: rollout.Key{Member: member, Revision: revision}, Replicas: n}
		for _, name := range drain {
			p.Drain = append(p.Drain, rollout.Drain{Name: name})
		}
		return p
	}
	tests := map[string]struct {
		in             rollout.Input
		want           []rollout.Placement
		ordered, short int32
	}{
		"NothingYet": {
			rollout.Input{Members: []rollout.Member{{ID: "east", Desired: 2}, {ID: "west", Desired: 1}}},
			[]rollout.Placement{place("east", "new", 2), place("west", "new", 1)},
			3, 0,
		},
		"GrowsTheCurrentRevision": {
			rollout.Input{
				Members:    []rollout.Member{{ID: "east", Desired: 5}},
				Placements: []rollout.Placement{place("east", "old", 2), place("east", "new", 1)},
			},
			[]rollout.Placement{place("east", "old", 2), place("east", "new", 3)},
			2, 0,
		},
		"RemovesNothing": {
			rollout.Input{
				Members:    []rollout.Member{{ID: "east", Desired: 1}},
				Placements: []rollout.Placement{place("east", "old", 4, "a"), place("west", "new", 2)},
			},
			[]rollout.Placement{place("east", "old", 4, "a"), place("west", "new", 2)},
			0, 0,
		},
		// What is unknown must not grow on top of what may be there.
		"NotOnFrozenMembers": {
			rollout.Input{Members: []rollout.Member{{ID: "east", Desired: 2, Frozen: true}, {ID: "west", Desired: 1}}},
			[]rollout.Placement{place("west", "new", 1)},
			1, 0,
		},
		// What should have left west first may not be made on east yet.
		"NotBeyondSurge": {
			rollout.Input{
				Members:    []rollout.Member{{ID: "east", Desired: 4}, {ID: "west", Desired: 0}},
				Placements: []rollout.Placement{place("west", "new", 4)}, Budget: rollout.Budget{MaxSurge: 1},
			},
			[]rollout.Placement{place("west", "new", 4), place("east", "new", 1)},
			1, 3,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.in.Current = "new"
			plan := grow(test.in)
			if diff := cmp.Diff(test.want, plan.Placements); diff != "" {
				t.Error(diff)
			}
			if plan.Ordered != test.ordered || plan.Short != test.short {
				t.Errorf("ordered %d, short %d", plan.Ordered, plan.Short)
			}
		})
	}
}

// TestGrowNeverShrinks holds the promise for any input.
func TestGrowNeverShrinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rollout.Input{Current: "new", Budget: rollout.Budget{MaxSurge: rapid.Int32Range(0, 3).Draw(t, "surge")}}
		var desired, before int32
		for _, id := range []rollout.MemberID{"a", "b", "c"} {
			m := rollout.Member{ID: id, Desired: rapid.Int32Range(0, 5).Draw(t, "desired"), Frozen: rapid.Bool().Draw(t, "frozen")}
			in.Members = append(in.Members, m)
			desired += m.Desired
			for _, revision := range []rollout.Revision{"new", "old"} {
				if n := rapid.Int32Range(0, 5).Draw(t, "replicas"); n > 0 {
					in.Placements = append(in.Placements, rollout.Placement{Key: rollout.Key{Member: id, Revision: revision}, Replicas: n})
					before += n
				}
			}
		}
		plan := grow(in)
		after := map[rollout.Key]int32{}
		var total int32
		for _, p := range plan.Placements {
			after[p.Key] = p.Replicas
			total += p.Replicas
		}
		for _, p := range in.Placements {
			if after[p.Key] < p.Replicas {
				t.Fatalf("%v shrank from %d to %d", p.Key, p.Replicas, after[p.Key])
			}
		}
		if total > max(before, desired+in.Budget.MaxSurge) {
			t.Fatalf("%d in all, with %d before and %d wanted", total, before, desired)
		}
	})
}
