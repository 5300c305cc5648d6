package cluster

import (
	"errors"
	"fmt"
	"net/netip"
)

// plan fills in which clusters a group has and with what ranges. Clusters that are there keep theirs. Taken are ranges
// that something else uses: the host's routes, the engine's networks, other groups.
func (g *Group) plan(members, nodes int, taken []netip.Prefix) error {
	known := make(map[string]*Cluster)
	for _, c := range g.Clusters {
		known[c.Name] = c
		taken = append(taken, c.Pods, c.Services)
	}
	if g.Network.Subnet.IsValid() {
		taken = append(taken, g.Network.Subnet)
	} else {
		subnet, err := free(networkCandidates, taken)
		if err != nil {
			return fmt.Errorf("no range is free for the container network: %w", err)
		}
		taken = append(taken, subnet)
		g.Network = Network{Name: g.Prefix, Bridge: "br-" + g.Prefix, Subnet: subnet, Gateway: subnet.Addr().Next()}
	}
	wanted := []*Cluster{{Name: g.Prefix + "-hub", Role: "hub", Want: 1}}
	for i := 1; i <= members; i++ {
		wanted = append(wanted, &Cluster{Name: fmt.Sprintf("%s-member-%d", g.Prefix, i), Role: "member", Number: i, Want: nodes})
	}
	for i, c := range wanted {
		if old, ok := known[c.Name]; ok {
			if old.Want != c.Want {
				old.Want, old.Complete = c.Want, false
			}
			wanted[i] = old
			continue
		}
		var err error
		if c.Pods, err = free(podCandidates, taken); err != nil {
			return fmt.Errorf("no range is free for the pods of %s: %w", c.Name, err)
		}
		taken = append(taken, c.Pods)
		if c.Services, err = free(serviceCandidates, taken); err != nil {
			return fmt.Errorf("no range is free for the services of %s: %w", c.Name, err)
		}
		taken = append(taken, c.Services)
	}
	g.Clusters = wanted
	return nil
}

// networkCandidates yields ranges of 254 addresses, from where Docker itself takes its networks last.
func networkCandidates(yield func(netip.Prefix) bool) {
	for second := byte(31); second >= 16; second-- {
		for third := range byte(16) {
			if !yield(netip.PrefixFrom(netip.AddrFrom4([4]byte{172, second, third, 0}), 24)) {
				return
			}
		}
	}
	for third := byte(255); third >= 128; third-- {
		if !yield(netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, third, 0}), 24)) {
			return
		}
	}
}

// podCandidates and serviceCandidates yield ranges of 65534 addresses: 256 nodes of 254 pods.
func podCandidates(yield func(netip.Prefix) bool)     { tenNets(100, 164, yield) }
func serviceCandidates(yield func(netip.Prefix) bool) { tenNets(164, 228, yield) }

func tenNets(from, to byte, yield func(netip.Prefix) bool) {
	for second := from; second < to; second++ {
		if !yield(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, second, 0, 0}), 16)) {
			return
		}
	}
}

var errNoneFree = errors.New("every candidate overlaps a route of this machine or another network")

// free returns the first candidate that overlaps nothing that is taken.
func free(candidates func(func(netip.Prefix) bool), taken []netip.Prefix) (netip.Prefix, error) {
	for candidate := range candidates {
		if !overlapsAny(candidate, taken) {
			return candidate, nil
		}
	}
	return netip.Prefix{}, errNoneFree
}

func overlapsAny(candidate netip.Prefix, taken []netip.Prefix) bool {
	for _, other := range taken {
		if other.IsValid() && other.Overlaps(candidate) {
			return true
		}
	}
	return false
}
