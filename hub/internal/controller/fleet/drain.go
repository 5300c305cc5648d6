package fleet

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// settleDrains takes every name that is on a drain list through steps 2 and 3 of the package's order: the engine stops
// granting on it, and once it carries no lease its deadline is now.
func (r *Reconciler) settleDrains(ctx context.Context, s *scope) error {
	if s.held != "" || s.fleet.Spec.Paused {
		// The engine does not know all leases, or nothing is to be changed: deadlines stay as they are.
		return nil
	}
	for _, p := range s.placements {
		if !p.view.Settled() {
			continue
		}
		if err := r.settlePlacement(ctx, s, p); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) settlePlacement(ctx context.Context, s *scope, p *placed) error {
	byName := map[string]inventory.ProxyView{}
	for _, view := range p.proxies {
		byName[view.Report.GetName()] = view
	}
	var updated *v1alpha1.ProxyPlacement
	for i, d := range p.Spec.Drain {
		view, reported := byName[d.Name]
		if !reported || !d.Deadline.After(s.now) {
			continue
		}
		answer, err := ask[lease.Drained](ctx, r.opts.Keeper, lease.Drain{UID: lease.ProxyUID(view.UID), Deadline: d.Deadline.Time})
		if err != nil {
			return err
		}
		if !answer.Draining || answer.Leases > 0 {
			// The engine has not heard of the proxy yet, or it is leased.
			s.after(drainInterval)
			continue
		}
		if updated == nil {
			updated = p.DeepCopy()
		}
		updated.Spec.Drain[i].Deadline = metav1.NewTime(s.now)
	}
	if updated == nil {
		return nil
	}
	if err := r.opts.Client.Update(ctx, updated); err != nil {
		return fmt.Errorf("bring deadlines of placement %s forward: %w", updated.Name, err)
	}
	p.ProxyPlacement = updated
	return nil
}
