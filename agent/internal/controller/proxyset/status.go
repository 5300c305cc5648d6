package proxyset

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// status computes a set's whole status from what one pass has seen. The generations move only when the pass did all it
// wanted, so that the hub reads them as done.
func status(set *v1alpha1.ProxySet, proxies []*v1alpha1.Proxy, p plan, applyErr error) v1alpha1.ProxySetStatus {
	s := *set.Status.DeepCopy()
	s.Replicas, s.Ready, s.Draining = 0, 0, 0
	for _, proxy := range proxies {
		switch {
		case proxy.Spec.Drain != nil || proxy.DeletionTimestamp != nil || isPreempted(proxy):
			s.Draining++
		default:
			s.Replicas++
			if meta.IsStatusConditionTrue(proxy.Status.Conditions, v1alpha1.ConditionReady) {
				s.Ready++
			}
		}
	}
	progressing := metav1.Condition{Type: v1alpha1.ConditionProgressing, ObservedGeneration: set.Generation}
	switch {
	case applyErr != nil:
		progressing.Status, progressing.Reason, progressing.Message = metav1.ConditionTrue, v1alpha1.ReasonScaling, applyErr.Error()
	case p.refused > 0:
		progressing.Status, progressing.Reason = metav1.ConditionFalse, v1alpha1.ReasonAboveCeiling
		progressing.Message = p.refusal
	case p.surplus > 0:
		progressing.Status, progressing.Reason = metav1.ConditionFalse, v1alpha1.ReasonScaling
		progressing.Message = fmt.Sprintf("%d proxies more than the hub wants; it has not said which are to go", p.surplus)
	case len(p.create) > 0 || s.Draining > 0:
		progressing.Status, progressing.Reason, progressing.Message = metav1.ConditionTrue, v1alpha1.ReasonScaling, "proxies are being added or removed"
	default:
		progressing.Status, progressing.Reason, progressing.Message = metav1.ConditionFalse, v1alpha1.ReasonComplete, "as many proxies as the hub wants"
	}
	meta.SetStatusCondition(&s.Conditions, accepted(set, p))
	meta.SetStatusCondition(&s.Conditions, progressing)
	if applyErr == nil {
		s.ObservedGeneration = set.Generation
		s.PlacementGeneration = set.Spec.PlacementGeneration
	}
	return s
}

// accepted says whether the set is served as the hub wrote it. What this agent does not know it leaves out, and says so.
func accepted(set *v1alpha1.ProxySet, p plan) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, ObservedGeneration: set.Generation,
		Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "served as the hub wrote it",
	}
	if unknown := set.Annotations[v1alpha1.AnnotationUnknownFields]; unknown != "" {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonUnknownField
		c.Message = "this agent leaves out what it does not know: " + unknown + "; upgrade the agent, or take it out of the fleet"
	}
	if p.refused > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonAboveCeiling, p.refusal
	}
	return c
}

// patchStatus writes a status that has changed.
func (r *Reconciler) patchStatus(ctx context.Context, c client.Client, set *v1alpha1.ProxySet, s v1alpha1.ProxySetStatus) error {
	if equality.Semantic.DeepEqual(set.Status, s) {
		return nil
	}
	before := set.DeepCopy()
	set.Status = s
	return client.IgnoreNotFound(c.Status().Patch(ctx, set, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}
