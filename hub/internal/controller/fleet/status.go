package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// writeStatus computes status from the scope, once, and writes it if anything in it changed.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope, success bool) error {
	before := s.fleet.DeepCopy()
	fleet := s.fleet
	total, updated, rows := s.rows()
	st := &fleet.Status
	st.Revision = s.revision
	st.Replicas, st.Updated, st.Ready, st.Draining = total.have, updated.have, total.ready, total.draining
	st.Leased, st.Slots = int32(s.stats.Leases), int32(s.stats.SlotsTotal)
	st.Leases = fmt.Sprintf("%d/%d", s.stats.Leases, s.stats.SlotsTotal)
	_, distinct := s.exits()
	st.Exits = int32(distinct)
	st.Members, st.MemberCount = rows, 0
	for _, row := range rows {
		if row.Want > 0 || row.Have > 0 {
			st.MemberCount++
		}
	}
	st.Selector = v1alpha1.LabelFleet + "=" + fleet.Name
	for _, c := range s.conditions(total, updated) {
		c.ObservedGeneration = fleet.Generation
		c.LastTransitionTime = metav1.NewTime(s.now)
		meta.SetStatusCondition(&st.Conditions, c)
	}
	if success {
		st.ObservedGeneration = fleet.Generation
	}
	if err := r.patchStatus(ctx, before, fleet); err != nil {
		return err
	}
	r.announce(before, fleet)
	return nil
}

func (r *Reconciler) patchStatus(ctx context.Context, before, after *v1alpha1.ProxyFleet) error {
	if equality.Semantic.DeepEqual(before.Status, after.Status) {
		return nil
	}
	// The patch must not carry over what the API server answers into what announce compares.
	patched := after.DeepCopy()
	if err := r.opts.Client.Status().Patch(ctx, patched, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

// rows sums up the fleet, its current revision, and each member.
func (s *scope) rows() (total, updated counts, rows []v1alpha1.FleetMemberStatus) {
	byMember := map[string]counts{}
	for _, p := range slices.Concat(s.placements, s.going) {
		c := p.count()
		if !p.DeletionTimestamp.IsZero() {
			c = counts{draining: c.have + c.draining}
		}
		total.add(c)
		if p.Spec.Revision == s.revision {
			updated.add(c)
		}
		sum := byMember[p.Spec.Member]
		sum.add(c)
		byMember[p.Spec.Member] = sum
	}
	want := map[string]v1alpha1.FleetMemberStatus{}
	if s.decision != nil {
		for _, row := range s.decision.Members {
			want[string(row.Member)] = v1alpha1.FleetMemberStatus{Want: row.Wanted, Why: row.Why}
		}
	}
	for _, m := range s.members {
		c := byMember[m.Name]
		row := want[m.Name]
		if !m.fits && c == (counts{}) && row.Want == 0 {
			continue // the fleet is not, was not and could not be there
		}
		row.Name, row.Region = m.Name, m.Spec.Region
		row.Have, row.Ready, row.Draining = c.have, c.ready, c.draining
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b v1alpha1.FleetMemberStatus) int { return cmp.Compare(a.Name, b.Name) })
	return total, updated, rows
}

// announced are the conditions whose transitions become events; the others are for reading.
var announced = []string{
	v1alpha1.ConditionAccepted, v1alpha1.ConditionAvailable, v1alpha1.ConditionProgressing, v1alpha1.ConditionDegraded,
}

// announce makes an event of every condition that changed its status or its reason.
func (r *Reconciler) announce(before, after *v1alpha1.ProxyFleet) {
	for _, kind := range announced {
		was := meta.FindStatusCondition(before.Status.Conditions, kind)
		is := meta.FindStatusCondition(after.Status.Conditions, kind)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		if was == nil && kind == v1alpha1.ConditionDegraded && is.Status != metav1.ConditionTrue {
			continue // that nothing is wrong with what is new is no news
		}
		level := corev1.EventTypeNormal
		if bad := kind == v1alpha1.ConditionDegraded; (is.Status == metav1.ConditionTrue) == bad && kind != v1alpha1.ConditionProgressing {
			level = corev1.EventTypeWarning
		}
		r.opts.Recorder.Eventf(after, nil, level, is.Reason, kind, "%s", is.Message)
	}
}
