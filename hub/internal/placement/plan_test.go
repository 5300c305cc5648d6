package placement

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// member builds a live, accepted, eligible member of weight 1; change edits it.
func member(id string, change ...func(*Member)) Member {
	m := Member{
		ID: MemberID(id), UID: MemberUID("uid-" + id), Region: "region-" + id,
		Eligible: true, Accepted: true, Liveness: Ready, Weight: 1,
	}
	for _, c := range change {
		c(&m)
	}
	return m
}

func have(n int32) func(*Member)     { return func(m *Member) { m.Have = n } }
func weight(n int32) func(*Member)   { return func(m *Member) { m.Weight = n } }
func atLeast(n int32) func(*Member)  { return func(m *Member) { m.Min = n } }
func atMost(n int32) func(*Member)   { return func(m *Member) { m.Max = &n } }
func in(region string) func(*Member) { return func(m *Member) { m.Region = region } }
func is(l Liveness) func(*Member)    { return func(m *Member) { m.Liveness = l } }
func tainted(t Taint) func(*Member)  { return func(m *Member) { m.Taints = append(m.Taints, t) } }
func unaccepted(m *Member)           { m.Accepted = false }
func refused(why string) func(*Member) {
	return func(m *Member) { m.Eligible, m.Reason = false, why }
}

func room(n int32, why string) func(*Member) {
	return func(m *Member) { m.Capacity, m.CapacityReason = &n, why }
}

func fleet(n int32, change ...func(*Fleet)) Fleet {
	f := Fleet{UID: "fleet", Replicas: n}
	for _, c := range change {
		c(&f)
	}
	return f
}

func by(s Strategy) func(*Fleet) { return func(f *Fleet) { f.Strategy = s } }
func over(d Domain, skew int32) func(*Fleet) {
	return func(f *Fleet) { f.Spread = SpreadRule{By: d, MaxSkew: skew} }
}

func wanted(d Decision) map[MemberID]int32 {
	out := map[MemberID]int32{}
	for _, a := range d.Members {
		out[a.Member] = a.Wanted
	}
	return out
}

type want = map[MemberID]int32

func TestPlan(t *testing.T) {
	dedicated := Taint{Key: "dedicated", Value: "search", Effect: NoSchedule}
	drain := Taint{Key: "maintenance", Effect: NoExecute}
	cases := map[string]struct {
		reason    string
		fleet     Fleet
		members   []Member
		want      want
		shortfall Shortfall
		unplaced  int32
		moved     int32
	}{
		"EqualShares": {
			reason:  "six over two members are three and three",
			fleet:   fleet(6),
			members: []Member{member("a"), member("b")},
			want:    want{"a": 3, "b": 3},
		},
		"NoReplicas": {
			reason:  "a fleet of none wants none anywhere, whatever the minimums",
			fleet:   fleet(0),
			members: []Member{member("a", have(3), atLeast(2)), member("b")},
			want:    want{"a": 0, "b": 0},
		},
		"NegativeReplicas": {
			reason:  "the API refuses them; if one slips through it must not deal backwards",
			fleet:   fleet(-3),
			members: []Member{member("a", have(1))},
			want:    want{"a": 0},
		},
		"ByWeight": {
			reason:  "weights 3:2:1 of 12",
			fleet:   fleet(12, by(Weighted)),
			members: []Member{member("a", weight(3)), member("b", weight(2)), member("c")},
			want:    want{"a": 6, "b": 4, "c": 2},
		},
		"WebsterNotLargestRemainder": {
			reason: "quotas 4.71, 1.71, 0.57 of 7: largest remainder would say 5, 2, 0",
			fleet:  fleet(7, by(Weighted)),
			members: []Member{
				member("a", weight(66)), member("b", weight(24)), member("c", weight(8)),
			},
			want: want{"a": 4, "b": 2, "c": 1},
		},
		"WeightZero": {
			reason:  "a member of weight 0 gets its minimum and nothing else",
			fleet:   fleet(10),
			members: []Member{member("a"), member("b", weight(0), atLeast(2)), member("c", weight(0))},
			want:    want{"a": 8, "b": 2, "c": 0},
		},
		"TieToTheHolder": {
			reason:  "the odd proxy stays where it is",
			fleet:   fleet(3),
			members: []Member{member("a", have(1)), member("b", have(2))},
			want:    want{"a": 1, "b": 2},
		},
		"TieToTheOtherHolder": {
			reason:  "the same with the roles changed: it is not the UID that decides",
			fleet:   fleet(3),
			members: []Member{member("a", have(2)), member("b", have(1))},
			want:    want{"a": 2, "b": 1},
		},
		"JoinMovesOnlyTheShare": {
			reason:  "a third member takes its share, the other two keep the rest",
			fleet:   fleet(6),
			members: []Member{member("a", have(3)), member("b", have(3)), member("c")},
			want:    want{"a": 2, "b": 2, "c": 2},
			moved:   2,
		},
		"MaxPassesOn": {
			reason:  "what a full member cannot take goes to the others",
			fleet:   fleet(12),
			members: []Member{member("a", have(5)), member("b", have(4)), member("c", atMost(3), have(3))},
			want:    want{"a": 5, "b": 4, "c": 3},
		},
		"AllFull": {
			reason:    "more than all maximums is reported, not squeezed in",
			fleet:     fleet(10),
			members:   []Member{member("a", atMost(3)), member("b", atMost(4))},
			want:      want{"a": 3, "b": 4},
			shortfall: AllFull, unplaced: 3,
		},
		"MaxZero": {
			reason:  "max 0 closes a member",
			fleet:   fleet(4),
			members: []Member{member("a", have(2), atMost(0)), member("b", have(2))},
			want:    want{"a": 0, "b": 4},
			moved:   2,
		},
		"CapacityStopsGrowthOnly": {
			reason:  "capacity 2 does not evict the third that is there already",
			fleet:   fleet(10),
			members: []Member{member("a", have(3), room(2, "")), member("b")},
			want:    want{"a": 3, "b": 7},
			// "b" grows by seven but nothing leaves "a".
		},
		"MinFirst": {
			reason:  "minimums come before weights",
			fleet:   fleet(6),
			members: []Member{member("a", weight(10)), member("b", atLeast(3))},
			want:    want{"a": 3, "b": 3},
		},
		"MinsTooMuch": {
			reason:  "infeasible minimums are met in proportion",
			fleet:   fleet(6),
			members: []Member{member("a", atLeast(8)), member("b", atLeast(4)), member("c")},
			want:    want{"a": 4, "b": 2, "c": 0},
		},
		"MinAboveMax": {
			reason:  "the maximum wins over the minimum",
			fleet:   fleet(6),
			members: []Member{member("a", atLeast(5), atMost(2)), member("b")},
			want:    want{"a": 2, "b": 4},
		},
		"LostKeepsItsShare": {
			reason:  "without failover nothing moves off a lost member",
			fleet:   fleet(12),
			members: []Member{member("a", have(4)), member("b", have(4)), member("c", have(4), is(Unreachable))},
			want:    want{"a": 4, "b": 4, "c": 4},
		},
		"LostGetsNothingNew": {
			reason:  "growth goes to members that can act on it",
			fleet:   fleet(18),
			members: []Member{member("a", have(4)), member("b", have(4)), member("c", have(4), is(Suspect))},
			want:    want{"a": 7, "b": 7, "c": 4},
		},
		"LostShrinksWithTheFleet": {
			reason:  "a smaller fleet is smaller everywhere; the lost member learns it when it returns",
			fleet:   fleet(6),
			members: []Member{member("a", have(4)), member("b", have(4)), member("c", have(4), is(Unreachable))},
			want:    want{"a": 2, "b": 2, "c": 2},
		},
		"NeverSeen": {
			reason:  "a member that never joined gets nothing and holds nobody back",
			fleet:   fleet(6, over(ByMember, 1)),
			members: []Member{member("a"), member("b"), member("c", is(NotJoined))},
			want:    want{"a": 3, "b": 3, "c": 0},
		},
		"OnlyLost": {
			reason:    "nobody can grow: the rest is unplaced and says so",
			fleet:     fleet(6),
			members:   []Member{member("a", have(2), is(Unreachable)), member("b", is(Suspect))},
			want:      want{"a": 2, "b": 0},
			shortfall: NoneLive, unplaced: 4,
		},
		"NotEligible": {
			reason:  "what the selector no longer matches leaves",
			fleet:   fleet(4),
			members: []Member{member("a", have(2)), member("b", have(2), refused("labels do not match"))},
			want:    want{"a": 4, "b": 0},
			moved:   2,
		},
		"NotAccepted": {
			reason:    "an unaccepted member gets nothing",
			fleet:     fleet(4),
			members:   []Member{member("a", unaccepted)},
			want:      want{"a": 0},
			shortfall: NoMembers, unplaced: 4,
		},
		"NoMembers": {
			reason:    "an empty hub places nothing and explains itself",
			fleet:     fleet(4),
			want:      want{},
			shortfall: NoMembers, unplaced: 4,
		},
		"TaintStopsGrowth": {
			reason:  "NoSchedule leaves what is there",
			fleet:   fleet(9),
			members: []Member{member("a", have(1), tainted(dedicated)), member("b"), member("c")},
			want:    want{"a": 1, "b": 4, "c": 4},
		},
		"TaintTolerated": {
			reason: "a toleration undoes the taint",
			fleet: fleet(6, func(f *Fleet) {
				f.Tolerations = []Toleration{{Key: "dedicated", Value: "search"}}
			}),
			members: []Member{member("a", tainted(dedicated)), member("b")},
			want:    want{"a": 3, "b": 3},
		},
		"TaintMovesAway": {
			reason:  "NoExecute empties the member, even when a weaker taint comes first",
			fleet:   fleet(6),
			members: []Member{member("a", have(3), tainted(dedicated), tainted(drain)), member("b", have(3))},
			want:    want{"a": 0, "b": 6},
			moved:   3,
		},
		"RegionsFirst": {
			reason: "Spread by region gives regions equal shares, whatever their number of members",
			fleet:  fleet(12, by(Spread), over(ByRegion, 0)),
			members: []Member{
				member("a", in("eu")), member("b", in("eu")), member("c", in("eu")), member("d", in("us")),
			},
			want: want{"a": 2, "b": 2, "c": 2, "d": 6},
		},
		"WeightedIgnoresRegions": {
			reason: "Weighted looks at members alone",
			fleet:  fleet(12, by(Weighted), over(ByRegion, 0)),
			members: []Member{
				member("a", in("eu")), member("b", in("eu")), member("c", in("eu")), member("d", in("us")),
			},
			want: want{"a": 3, "b": 3, "c": 3, "d": 3},
		},
		"SkewBetweenRegions": {
			reason: "maxSkew holds under Weighted too: 3 × 4 and 1 × 4 would differ by 8",
			fleet:  fleet(16, by(Weighted), over(ByRegion, 2)),
			members: []Member{
				member("a", in("eu")), member("b", in("eu")), member("c", in("eu")), member("d", in("us")),
			},
			want: want{"a": 3, "b": 3, "c": 3, "d": 7},
		},
		"SkewBetweenMembers": {
			reason:  "a heavy member waits for the light one",
			fleet:   fleet(22, over(ByMember, 2)),
			members: []Member{member("a", weight(10)), member("b")},
			want:    want{"a": 12, "b": 10},
		},
		"FullDomainHoldsNobodyBack": {
			reason:  "a capped member is not the emptiest domain that others must wait for",
			fleet:   fleet(21, over(ByMember, 1)),
			members: []Member{member("a"), member("b"), member("c", atMost(1))},
			want:    want{"a": 10, "b": 10, "c": 1},
		},
		"Packed": {
			reason:  "Pack fills the heaviest, then the one that has most",
			fleet:   fleet(12, by(Pack)),
			members: []Member{member("a", atMost(5)), member("b", atMost(5), have(2)), member("c", weight(2), atMost(4))},
			want:    want{"a": 3, "b": 5, "c": 4},
			moved:   0,
		},
		"PackedWithSkew": {
			reason:  "maxSkew makes Pack fill in turns",
			fleet:   fleet(10, by(Pack), over(ByMember, 2)),
			members: []Member{member("a", weight(2)), member("b")},
			want:    want{"a": 6, "b": 4},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Plan(Snapshot{Fleet: tc.fleet, Members: tc.members})
			if diff := cmp.Diff(tc.want, wanted(got)); diff != "" {
				t.Errorf("%s: wanted (-want +got):\n%s%s", tc.reason, diff, render(got))
			}
			if got.Shortfall != tc.shortfall || got.Unplaced != tc.unplaced {
				t.Errorf("%s: unplaced %d (%q), want %d (%q)", tc.reason, got.Unplaced, got.Shortfall, tc.unplaced, tc.shortfall)
			}
			if got.Moved != tc.moved {
				t.Errorf("%s: moved %d, want %d", tc.reason, got.Moved, tc.moved)
			}
		})
	}
}

// TestTiesDifferByFleet keeps the odd proxies of many fleets of one from all landing on the member with the least UID.
func TestTiesDifferByFleet(t *testing.T) {
	got := map[MemberID]int{}
	for i := range 300 {
		d := Plan(Snapshot{
			Fleet:   Fleet{UID: FleetUID(fmt.Sprintf("fleet-%d", i)), Replicas: 1},
			Members: []Member{member("a"), member("b"), member("c")},
		})
		for id, n := range wanted(d) {
			got[id] += int(n)
		}
	}
	for id, n := range got {
		if n < 60 || n > 140 {
			t.Errorf("%s got %d of 300 fleets of one, want about 100: %v", id, n, got)
		}
	}
}

func TestTolerates(t *testing.T) {
	taint := Taint{Key: "k", Value: "v", Effect: NoSchedule}
	cases := map[string]struct {
		reason     string
		toleration Toleration
		want       bool
	}{
		"Equal":        {"same key and value, any effect", Toleration{Key: "k", Value: "v"}, true},
		"OtherValue":   {"Equal compares values", Toleration{Key: "k", Value: "w"}, false},
		"Exists":       {"Exists ignores the value", Toleration{Key: "k", Operator: Exists}, true},
		"OtherKey":     {"Exists with a key compares it", Toleration{Key: "x", Operator: Exists}, false},
		"Everything":   {"Exists without a key covers all", Toleration{Operator: Exists}, true},
		"OtherEffect":  {"an effect narrows the toleration", Toleration{Key: "k", Value: "v", Effect: NoExecute}, false},
		"SameEffect":   {"the effect matches", Toleration{Key: "k", Value: "v", Effect: NoSchedule}, true},
		"EmptyIsEqual": {"the zero toleration covers only a taint without key", Toleration{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.toleration.Tolerates(taint); got != tc.want {
				t.Errorf("%s: Tolerates(%v) = %v, want %v", tc.reason, taint, got, tc.want)
			}
		})
	}
}
