package cluster

import (
	"fmt"
	"net/netip"
	"testing"
)

func prefixes4(texts ...string) []netip.Prefix {
	var found []netip.Prefix
	for _, text := range texts {
		found = append(found, netip.MustParsePrefix(text))
	}
	return found
}

func TestPlan(t *testing.T) {
	cases := map[string]struct {
		reason         string
		taken          []netip.Prefix
		members, nodes int
		network        string
		pods           []string
	}{
		"Empty": {
			reason:  "with nothing taken the first candidates are used, the hub first",
			members: 2, nodes: 1,
			network: "172.31.0.0/24", pods: []string{"10.100.0.0/16", "10.101.0.0/16", "10.102.0.0/16"},
		},
		"HostRoutes": {
			reason:  "what the host routes elsewhere is left alone, also where only a part overlaps",
			taken:   prefixes4("172.31.0.0/20", "10.100.7.0/24", "10.101.0.0/16"),
			members: 1, nodes: 1,
			network: "172.30.0.0/24", pods: []string{"10.102.0.0/16", "10.103.0.0/16"},
		},
		"HubAlone": {
			reason:  "no member is a wish like any other",
			members: 0, nodes: 3,
			network: "172.31.0.0/24", pods: []string{"10.100.0.0/16"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			group := &Group{Prefix: "t"}
			if err := group.plan(tc.members, tc.nodes, tc.taken); err != nil {
				t.Fatal(err)
			}
			if got := group.Network.Subnet.String(); got != tc.network {
				t.Errorf("%s: network is %s, want %s", tc.reason, got, tc.network)
			}
			var pods []string
			for _, c := range group.Clusters {
				pods = append(pods, c.Pods.String())
			}
			if fmt.Sprint(pods) != fmt.Sprint(tc.pods) {
				t.Errorf("%s: pod ranges are %v, want %v", tc.reason, pods, tc.pods)
			}
		})
	}
}

// No two ranges of a group, nor those of two groups, may overlap: an agent denies all of its member's.
func TestPlanOverlapsNothing(t *testing.T) {
	var all []netip.Prefix
	for i := range 3 {
		group := &Group{Prefix: fmt.Sprintf("g%d", i)}
		if err := group.plan(10, 1, all); err != nil {
			t.Fatal(err)
		}
		ranges := []netip.Prefix{group.Network.Subnet}
		for _, c := range group.Clusters {
			ranges = append(ranges, c.Pods, c.Services)
		}
		for _, r := range ranges {
			if overlapsAny(r, all) {
				t.Errorf("%s of group %d overlaps another", r, i)
			}
			all = append(all, r)
		}
	}
}

func TestPlanKeepsWhatIsThere(t *testing.T) {
	group := &Group{Prefix: "t"}
	if err := group.plan(2, 1, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range group.Clusters {
		c.Complete = true
	}
	first := group.Clusters[1].Pods
	if err := group.plan(3, 1, nil); err != nil {
		t.Fatal(err)
	}
	if len(group.Clusters) != 4 || !group.Clusters[1].Complete || group.Clusters[1].Pods != first {
		t.Errorf("a third member changed the first: %+v", group.Clusters[1])
	}
	if group.Clusters[3].Complete {
		t.Error("a member that was never made is complete")
	}
	if err := group.plan(3, 2, nil); err != nil {
		t.Fatal(err)
	}
	if group.Clusters[1].Complete || !group.Clusters[0].Complete {
		t.Error("another number of nodes must remake the members and leave the hub")
	}
}

func TestPlanTellsWhenNothingIsFree(t *testing.T) {
	group := &Group{Prefix: "t"}
	if err := group.plan(1, 1, prefixes4("10.0.0.0/8")); err == nil {
		t.Error("no range is free, and plan found one")
	}
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		reason  string
		request Request
		ok      bool
	}{
		"Usual":       {"what make kind-up asks for", Request{"shoal", 2, 1}, true},
		"NoMembers":   {"a hub alone is of use", Request{"shoal", 0, 1}, true},
		"Negative":    {"fewer than none cannot be", Request{"shoal", -1, 1}, false},
		"NoNodes":     {"a cluster without nodes cannot be", Request{"shoal", 1, 0}, false},
		"LongPrefix":  {"an interface's name holds 15 bytes, three are br-", Request{"abcdefghijklm", 1, 1}, false},
		"UpperCase":   {"node names are lower-case", Request{"Shoal", 1, 1}, false},
		"PathPrefix":  {"the prefix names a directory", Request{"../x", 1, 1}, false},
		"EmptyPrefix": {"a name is needed", Request{"", 1, 1}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := tc.request.Validate(); (err == nil) != tc.ok {
				t.Errorf("%s: Validate() = %v", tc.reason, err)
			}
		})
	}
}
