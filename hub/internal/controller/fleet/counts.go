package fleet

import (
	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	"github.com/shoal-dev/shoal/hub/internal/lease"
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
	seen := map[lease.Exit]struct{}{}
	for _, p := range s.placements {
		drains := p.drains()
		for _, view := range p.proxies {
			if _, drained := drains[view.Report.GetName()]; drained || view.Report.GetDraining() {
				continue
			}
			known := false
			for _, text := range view.Report.GetExits() {
				if exit, err := lease.ParseExit(text); err == nil {
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
