package placement

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// anySnapshot draws snapshots with everything in them.
func anySnapshot(t *rapid.T) Snapshot {
	s := Snapshot{Fleet: Fleet{
		UID:      FleetUID(rapid.StringN(1, 4, 4).Draw(t, "fleet")),
		Replicas: rapid.Int32Range(0, 60).Draw(t, "replicas"),
		Strategy: rapid.SampledFrom([]Strategy{"", Spread, Weighted, Pack}).Draw(t, "strategy"),
		Spread: SpreadRule{
			By:      rapid.SampledFrom([]Domain{"", ByMember, ByRegion}).Draw(t, "by"),
			MaxSkew: rapid.Int32Range(0, 3).Draw(t, "skew"),
		},
	}}
	for i := range rapid.IntRange(0, 8).Draw(t, "members") {
		m := Member{
			ID:       MemberID(fmt.Sprintf("m%d", i)),
			UID:      MemberUID(fmt.Sprintf("u%d", i)),
			Region:   rapid.SampledFrom([]string{"eu", "us", "ap"}).Draw(t, "region"),
			Eligible: rapid.IntRange(0, 9).Draw(t, "eligible") > 0,
			Accepted: rapid.IntRange(0, 9).Draw(t, "accepted") > 0,
			Liveness: rapid.SampledFrom([]Liveness{Ready, Ready, Ready, Suspect, Unreachable, NotJoined}).Draw(t, "liveness"),
			Weight:   rapid.Int32Range(0, 4).Draw(t, "weight"),
			Min:      rapid.SampledFrom([]int32{0, 0, 0, 1, 5}).Draw(t, "min"),
			Have:     rapid.Int32Range(0, 12).Draw(t, "have"),
		}
		if rapid.IntRange(0, 3).Draw(t, "capped") == 0 {
			m.Max = new(rapid.Int32Range(0, 9).Draw(t, "max"))
		}
		if rapid.IntRange(0, 3).Draw(t, "measured") == 0 {
			m.Capacity = new(rapid.Int32Range(0, 9).Draw(t, "capacity"))
		}
		if rapid.IntRange(0, 5).Draw(t, "tainted") == 0 {
			m.Taints = []Taint{{Key: "k", Effect: rapid.SampledFrom([]TaintEffect{NoSchedule, NoExecute}).Draw(t, "effect")}}
		}
		s.Members = append(s.Members, m)
	}
	return s
}

func resized(s Snapshot, n int32) Snapshot {
	s.Fleet.Replicas = n
	return s
}

// settled gives the members what the decision wants them to have.
func settled(s Snapshot, d Decision) Snapshot {
	to := wanted(d)
	out := s
	out.Members = nil
	for _, m := range s.Members {
		m.Have = to[m.ID]
		out.Members = append(out.Members, m)
	}
	return out
}

// TestPlanProperties holds every plan to what must be true of all of them.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t)
		d := Plan(s)

		var sum int32
		byID := map[MemberID]Member{}
		for _, m := range s.Members {
			byID[m.ID] = m
		}
		for _, a := range d.Members {
			m := byID[a.Member]
			sum += a.Wanted
			if a.Why == "" {
				t.Errorf("%s has no explanation", a.Member)
			}
			if a.Wanted < 0 {
				t.Errorf("%s: wanted %d", a.Member, a.Wanted)
			}
			if m.Max != nil && a.Wanted > *m.Max {
				t.Errorf("%s: wanted %d above max %d", a.Member, a.Wanted, *m.Max)
			}
			if m.Capacity != nil && a.Wanted > max(*m.Capacity, m.Have) {
				t.Errorf("%s: grew to %d beyond capacity %d", a.Member, a.Wanted, *m.Capacity)
			}
			if m.Liveness != Ready && a.Wanted > m.Have {
				t.Errorf("%s is %s and grew from %d to %d", a.Member, m.Liveness, m.Have, a.Wanted)
			}
			if (!m.Eligible || !m.Accepted) && a.Wanted != 0 {
				t.Errorf("%s takes no part but is wanted to run %d", a.Member, a.Wanted)
			}
		}
		if sum != d.Placed || d.Placed+d.Unplaced != s.Fleet.Replicas {
			t.Errorf("sum %d, placed %d, unplaced %d of %d", sum, d.Placed, d.Unplaced, s.Fleet.Replicas)
		}
		if (d.Unplaced > 0) != (d.Shortfall != NoShortfall) || (d.Unplaced > 0) != (d.UnplacedWhy != "") {
			t.Errorf("unplaced %d with reason %q %q", d.Unplaced, d.Shortfall, d.UnplacedWhy)
		}

		shuffled := s
		shuffled.Members = append([]Member(nil), s.Members...)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0)).Shuffle(len(shuffled.Members), func(i, j int) {
			shuffled.Members[i], shuffled.Members[j] = shuffled.Members[j], shuffled.Members[i]
		})
		if diff := cmp.Diff(d, Plan(shuffled)); diff != "" {
			t.Errorf("the order of members shows (-sorted +shuffled):\n%s", diff)
		}
	})
}

// TestHouseMonotone grows fleets by one and expects one member to grow by one.
func TestHouseMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t)
		before := Plan(s)
		after := Plan(resized(s, s.Fleet.Replicas+1))
		more := wanted(after)
		for _, a := range before.Members {
			if more[a.Member] < a.Wanted {
				t.Fatalf("one more replica took from %s: %d to %d\n%s%s", a.Member, a.Wanted, more[a.Member], render(before), render(after))
			}
		}
	})
}

// TestSteady applies a plan and expects that planning again keeps it, and that from there one replica more or less
// touches one member.
func TestSteady(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t)
		first := Plan(s)
		// Capacity and loss are measured against what a member has, so a second look may see less room than the first;
		// the plan holds all the same.
		next := settled(s, first)
		again := Plan(next)
		if diff := cmp.Diff(wanted(first), wanted(again)); diff != "" {
			t.Fatalf("a plan does not keep itself (-first +again):\n%s%s%s", diff, render(first), render(again))
		}
		for _, step := range []int32{-1, 1} {
			if s.Fleet.Replicas+step < 0 {
				continue
			}
			if moved := Plan(resized(next, s.Fleet.Replicas+step)); moved.Moved != 0 {
				t.Fatalf("replicas %+d moved %d proxies\n%s", step, moved.Moved, render(moved))
			}
		}
	})
}

// TestFewestMoves compares with every division that is Webster's for the weights: none may move fewer proxies.
func TestFewestMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Snapshot{Fleet: Fleet{UID: "f", Strategy: Weighted, Replicas: rapid.Int32Range(0, 9).Draw(t, "replicas")}}
		for i := range rapid.IntRange(1, 4).Draw(t, "members") {
			s.Members = append(s.Members, member(fmt.Sprintf("m%d", i),
				weight(rapid.Int32Range(1, 3).Draw(t, "weight")), have(rapid.Int32Range(0, 6).Draw(t, "have"))))
		}
		d := Plan(s)
		kept := func(seats []int32) (n int32) {
			for i, m := range s.Members {
				n += min(seats[i], m.Have)
			}
			return n
		}
		got := make([]int32, len(s.Members))
		for i, m := range s.Members {
			got[i] = wanted(d)[m.ID]
		}
		if !isWebster(s.Members, got) {
			t.Fatalf("%v is not a Webster division\n%s", got, render(d))
		}
		for _, other := range divisions(len(s.Members), s.Fleet.Replicas) {
			if isWebster(s.Members, other) && kept(other) > kept(got) {
				t.Fatalf("%v keeps %d proxies in place, %v only %d\n%s", other, kept(other), got, kept(got), render(d))
			}
		}
	})
}

// isWebster checks the definition: no seat given has a smaller quotient than a seat withheld.
func isWebster(members []Member, seats []int32) bool {
	given, withheld := math.Inf(1), math.Inf(-1)
	for i, m := range members {
		w := float64(m.Weight)
		if seats[i] > 0 {
			given = min(given, w/float64(2*seats[i]-1))
		}
		withheld = max(withheld, w/float64(2*seats[i]+1))
	}
	return given >= withheld-1e-12
}

// divisions lists all ways to divide n over m.
func divisions(m int, n int32) [][]int32 {
	if m == 1 {
		return [][]int32{{n}}
	}
	var out [][]int32
	for k := range n + 1 {
		for _, rest := range divisions(m-1, n-k) {
			out = append(out, append([]int32{k}, rest...))
		}
	}
	return out
}

// TestSkewHolds checks maxSkew between domains that could take one more.
func TestSkewHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t)
		s.Fleet.Spread = SpreadRule{By: ByRegion, MaxSkew: rapid.Int32Range(1, 3).Draw(t, "skew")}
		for i := range s.Members {
			s.Members[i].Min = 0 // minimums are stronger than maxSkew
		}
		d := Plan(s)
		total, open := map[string]int32{}, map[string]bool{}
		for i, a := range sortedMembers(s) {
			row := d.Members[i]
			total[a.Region] += row.Wanted
			full := a.Weight == 0 || a.Liveness != Ready || !a.Eligible || !a.Accepted || len(a.Taints) > 0 ||
				a.Max != nil && row.Wanted >= *a.Max || a.Capacity != nil && row.Wanted >= *a.Capacity
			if !full {
				open[a.Region] = true
			}
		}
		for low := range open {
			for high, n := range total {
				if n-total[low] > s.Fleet.Spread.MaxSkew {
					t.Fatalf("%s has %d, %s has %d and could take more: beyond maxSkew %d\n%s",
						high, n, low, total[low], s.Fleet.Spread.MaxSkew, render(d))
				}
			}
		}
	})
}

// sortedMembers returns the members in the order of a decision's rows.
func sortedMembers(s Snapshot) []Member {
	byID := map[MemberID]Member{}
	for _, m := range s.Members {
		byID[m.ID] = m
	}
	var out []Member
	for _, a := range Plan(s).Members {
		out = append(out, byID[a.Member])
	}
	return out
}
