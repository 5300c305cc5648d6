package placement

import (
	"context"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/dispatch"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
)

// writeStatus writes what the member confirmed and reported. What it has not reported since the hub started stays as it
// was.
func (r *Reconciler) writeStatus(ctx context.Context, pp *v1alpha1.ProxyPlacement, item dispatch.Item) error {
	before := pp.DeepCopy()
	member := r.opts.Inventory.Member(pp.Spec.Member)
	ack, acked := r.opts.Dispatcher.Ack(pp.Spec.Member, item.UID)
	if acked && ack.Problem == "" {
		pp.Status.ObservedGeneration = max(pp.Status.ObservedGeneration, ack.Generation)
	}
	set, reported := r.opts.Inventory.Set(item.UID)
	reported = reported && set.Member == pp.Spec.Member
	switch {
	case reported:
		pp.Status.Replicas = set.Report.GetReplicas()
		pp.Status.Ready = set.Report.GetReady()
		pp.Status.Draining = set.Report.GetDraining()
	case member.Complete:
		pp.Status.Replicas, pp.Status.Ready, pp.Status.Draining = 0, 0, 0
	}
	c := synced(pp, item, member, ack, acked)
	if c.Status == metav1.ConditionTrue && reported {
		if refusal, ok := refused(set); ok {
			c = refusal
		}
	}
	c.Type, c.ObservedGeneration = v1alpha1.ConditionSynced, pp.Generation
	c.LastTransitionTime = metav1.NewTime(r.opts.Clock.Now())
	meta.SetStatusCondition(&pp.Status.Conditions, c)
	if equality.Semantic.DeepEqual(before.Status, pp.Status) {
		return nil
	}
	if err := r.opts.Client.Status().Patch(ctx, pp, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

// synced says whether the member has confirmed the placement as it is now.
func synced(
	pp *v1alpha1.ProxyPlacement, item dispatch.Item, member inventory.MemberView, ack dispatch.Ack, acked bool,
) metav1.Condition {
	name := pp.Spec.Member
	switch {
	case acked && ack.Hash == item.Hash && ack.Problem != "":
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonInvalidSpec, Message: ack.Problem}
	case acked && ack.Hash == item.Hash:
		return metav1.Condition{
			Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSynced, Message: name + " has confirmed what is wanted of it",
		}
	case member.Lost:
		return metav1.Condition{
			Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonUnreachable,
			Message: name + " is not heard; it goes on with what it last confirmed and learns the rest when it returns",
		}
	}
	return metav1.Condition{
		Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSyncing,
		Message: name + " has not confirmed the latest change yet",
	}
}

// reasonForm is what the API server takes for a reason.
var reasonForm = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// refused finds what the member itself has against its copy.
func refused(set inventory.SetView) (metav1.Condition, bool) {
	for _, c := range set.Report.GetConditions() {
		if c.GetType() != v1alpha1.ConditionAccepted || c.GetStatus() != string(metav1.ConditionFalse) {
			continue
		}
		reason := c.GetReason()
		if !reasonForm.MatchString(reason) {
			reason = v1alpha1.ReasonInvalidSpec
		}
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: c.GetMessage()}, true
	}
	return metav1.Condition{}, false
}
