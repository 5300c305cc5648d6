package fleet

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/rollout"
)

// changes tells whether the step asks for any write.
func (s *scope) changes() bool {
	if len(s.orphans) > 0 {
		return true
	}
	if s.step == nil {
		return false
	}
	if len(s.step.Finished) > 0 {
		return true
	}
	return slices.ContainsFunc(s.step.Placements, func(want rollout.Placement) bool {
		p := s.find(want.Key)
		return p == nil || p.Spec.Replicas != want.Replicas || !sameNames(p.Spec.Drain, want.Drain) || !s.sameOutside(p, want)
	})
}

func (s *scope) find(key rollout.Key) *placed {
	for _, p := range s.placements {
		if p.key() == key {
			return p
		}
	}
	return nil
}

func sameNames(have []v1alpha1.Drain, want []rollout.Drain) bool {
	if len(have) != len(want) {
		return false
	}
	names := map[string]struct{}{}
	for _, d := range have {
		names[d.Name] = struct{}{}
	}
	for _, d := range want {
		if _, ok := names[string(d.Name)]; !ok {
			return false
		}
	}
	return true
}

// write makes the step durable, in its order: what shrinks comes first, and the first failure stops it.
func (r *Reconciler) write(ctx context.Context, s *scope) error {
	for _, pp := range s.orphans {
		log.FromContext(ctx).Info("deleting the placement of a member that is gone", "placement", pp.Name, "member", pp.Spec.Member)
		if err := r.remove(ctx, pp); err != nil {
			return err
		}
	}
	if s.step == nil {
		return nil
	}
	for _, want := range s.step.Placements {
		if err := r.writeOne(ctx, s, want); err != nil {
			return err
		}
	}
	for _, key := range s.step.Finished {
		p := s.find(key)
		if p == nil {
			continue
		}
		if err := r.remove(ctx, p.ProxyPlacement); err != nil {
			return err
		}
		s.placements = slices.DeleteFunc(s.placements, func(other *placed) bool { return other == p })
	}
	return nil
}

func (r *Reconciler) writeOne(ctx context.Context, s *scope, want rollout.Placement) error {
	p := s.find(want.Key)
	if p == nil {
		pp, err := r.newPlacement(s, want)
		if err != nil {
			return err
		}
		if err := r.opts.Client.Create(ctx, pp); err != nil {
			return fmt.Errorf("create placement %s: %w", pp.Name, err)
		}
		s.placements = append(s.placements, r.placed(pp, s.member(pp.Spec.Member).view))
		return nil
	}
	drain := s.drainList(p, want.Drain)
	if p.Spec.Replicas == want.Replicas && sameNames(p.Spec.Drain, want.Drain) && s.sameOutside(p, want) {
		return nil
	}
	updated := p.DeepCopy()
	updated.Spec.Replicas, updated.Spec.Drain, updated.Spec.External = want.Replicas, drain, s.outsideOf(p, want)
	if err := r.opts.Client.Update(ctx, updated); err != nil {
		return fmt.Errorf("update placement %s: %w", updated.Name, err)
	}
	p.ProxyPlacement = updated
	return nil
}

// drainList keeps deadlines that are written and gives new names the longest one: settleDrains brings it forward.
func (s *scope) drainList(p *placed, want []rollout.Drain) []v1alpha1.Drain {
	known := p.drains()
	var list []v1alpha1.Drain
	for _, d := range want {
		entry, ok := known[string(d.Name)]
		if !ok {
			entry = v1alpha1.Drain{Name: string(d.Name), Deadline: metav1.NewTime(s.now.Add(s.drainTimeout()))}
		}
		list = append(list, entry)
	}
	return list
}

func (r *Reconciler) newPlacement(s *scope, want rollout.Placement) (*v1alpha1.ProxyPlacement, error) {
	member := string(want.Member)
	pp := &v1alpha1.ProxyPlacement{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.fleet.Namespace,
			Name:      placementName(s.fleet.Name, string(want.Revision), member),
			Labels: map[string]string{
				v1alpha1.LabelFleet: s.fleet.Name, v1alpha1.LabelMember: member,
				v1alpha1.LabelRevision: string(want.Revision),
			},
			Finalizers: []string{v1alpha1.FinalizerPlacement},
		},
		Spec: v1alpha1.ProxyPlacementSpec{
			Member: member, Fleet: v1alpha1.FleetRef{Name: s.fleet.Name, UID: s.fleet.UID},
			Revision: string(want.Revision), Replicas: want.Replicas, External: s.outsideOf(nil, want),
		},
	}
	if s.fleet.Spec.Template != nil {
		pp.Spec.Template = *s.fleet.Spec.Template.DeepCopy()
	}
	if err := controllerutil.SetControllerReference(s.fleet, pp, r.opts.Client.Scheme()); err != nil {
		return nil, fmt.Errorf("own placement %s: %w", pp.Name, err)
	}
	return pp, nil
}

// remove deletes a placement as it was read; one that is gone already is fine.
func (r *Reconciler) remove(ctx context.Context, pp *v1alpha1.ProxyPlacement) error {
	err := r.opts.Client.Delete(ctx, pp, client.Preconditions{UID: &pp.UID, ResourceVersion: &pp.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete placement %s: %w", pp.Name, err)
	}
	return nil
}
