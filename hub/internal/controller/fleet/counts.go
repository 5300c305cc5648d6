package fleet

import (
	"net/netip"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
)

// counts sums up proxies.
type counts struct {
	// have are those that exist and do not drain; ready and failed are some of them, draining are others.
	have, ready, failed, draining int32
}

func (c *counts) add(o counts) {
	c.have += o.have
	c.ready += o.ready
	c.failed += o.failed
	c.draining += o.draining
}

// count sums up one placement. Until its member has reported completely after a start of the hub, what was last written
// down stands: status must not fall to nothing and back.
func (p *placed) count() counts {
	if !p.view.Complete {
		c := counts{have: p.Status.Replicas, draining: p.Status.Draining}
		if !p.view.Lost {
			c.ready = p.Status.Ready
		}
		return c
	}
	var c counts
	drains := p.drains()
	for _, view := range p.proxies {
		_, drained := drains[view.Report.GetName()]
		switch {
		case drained, view.Report.GetDraining(), view.Report.GetPhase() == string(v1alpha1.PhaseDeleting):
			c.draining++
			continue
		case view.Report.GetPhase() == string(v1alpha1.PhaseFailed):
			c.failed++
		case view.Ready && p.view.State != inventory.Unreachable:
			c.ready++
		}
		c.have++
	}
	return c
}

// exits tells how many proxies had their exits measured, and by how many distinct ones they leave.
func (s *scope) exits() (measured, distinct int) {
	seen := map[netip.Prefix]struct{}{}
	for _, p := range s.placements {
		drains := p.drains()
		for _, view := range p.proxies {
			if _, drained := drains[view.Report.GetName()]; drained || view.Report.GetDraining() {
				continue
			}
			known := false
			for _, text := range view.Report.GetExits() {
				if exit, ok := exitOf(text); ok {
					seen[exit] = struct{}{}
					known = true
				}
			}
			if known {
				measured++
			}
		}
	}
	return measured, len(seen)
}

// exitOf reads an exit: an IPv4 address, or the /64 of an IPv6 one.
func exitOf(text string) (netip.Prefix, bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	addr = addr.Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	prefix, err := addr.Prefix(bits)
	return prefix, err == nil
}
