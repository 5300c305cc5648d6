package placement

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestKeepsItself replans from a plan's own outcome, in settings where who goes first among equals, or what counts as a
// limit, could make the second plan differ from the first.
func TestKeepsItself(t *testing.T) {
	dedicated := tainted(Taint{Key: "k", Effect: NoSchedule})
	cases := map[string]struct {
		reason  string
		fleet   Fleet
		members []Member
		want    want
	}{
		"PackedAroundALowLimit": {
			reason:  "a full member with a low limit stays in front of a fuller one",
			fleet:   fleet(3, by(Pack)),
			members: []Member{member("a", weight(3)), member("b", weight(3), have(1), is(Suspect))},
			want:    want{"a": 2, "b": 1},
		},
		"MinimumOfALostMember": {
			reason:  "what a lost member's minimum weighs does not fall with what it has",
			fleet:   fleet(1),
			members: []Member{member("a", weight(0), atLeast(5)), member("b", weight(0), atLeast(5), have(5), is(Suspect))},
			want:    want{"a": 0, "b": 1},
		},
		"SkewAndTies": {
			reason: "ties between a lost holder and a live member decide when the heavy one may go on",
			fleet:  fleet(4, over(ByMember, 1)),
			members: []Member{
				member("m2", weight(0), atLeast(1)), member("m3"), member("m5", have(1), dedicated), member("m6", weight(4)),
			},
			want: nil, // whatever it is, it must hold
		},
		"SkewAndALostDomain": {
			reason: "a domain that cannot grow is not the one that others wait for, before or after it lost its last",
			fleet:  fleet(4, by(Pack), over(ByMember, 2)),
			members: []Member{
				member("a", weight(2)), member("b", weight(2)), member("c", have(1), dedicated),
			},
			want: nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			// Ties fall differently for every fleet; some of these are the awkward ones.
			for i := range 32 {
				tc.fleet.UID = FleetUID(fmt.Sprintf("fleet-%d", i))
				s := Snapshot{Fleet: tc.fleet, Members: tc.members}
				first := Plan(s)
				if diff := cmp.Diff(tc.want, wanted(first)); tc.want != nil && diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
				again := Plan(settled(s, first))
				if diff := cmp.Diff(wanted(first), wanted(again)); diff != "" {
					t.Fatalf("%s: planned again (-first +again):\n%s%s%s", tc.reason, diff, render(first), render(again))
				}
			}
		})
	}
}

// TestLostDomainDoesNotHoldOthersBack has a heavy member run ahead of a light one that is lost and below its share.
func TestLostDomainDoesNotHoldOthersBack(t *testing.T) {
	got := Plan(Snapshot{
		Fleet: fleet(12, over(ByMember, 2)),
		Members: []Member{
			member("heavy", weight(10)), member("mid", weight(8)), member("lost", have(5), is(Unreachable)),
		},
	})
	// By weight the lost member's first seat comes last of all; were it waited for, nobody could pass two.
	if diff := cmp.Diff(want{"heavy": 6, "mid": 5, "lost": 1}, wanted(got)); diff != "" {
		t.Errorf("(-want +got):\n%s%s", diff, render(got))
	}
}
