package member

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
)

// writeStatus computes the member's status and writes it if anything in it changed.
func (r *Reconciler) writeStatus(ctx context.Context, mc *v1alpha1.MemberCluster, awaited string) error {
	before := mc.DeepCopy()
	view := r.opts.Inventory.Member(mc.Name)
	st := &mc.Status
	st.ObservedGeneration = mc.Generation
	if view.State != inventory.NeverHeard {
		st.AgentVersion = view.Session.Version
		st.Providers = sorted(view.Session.Providers)
		st.Networks = sorted(view.Session.Networks)
	}
	if view.Complete {
		st.Proxies, st.Ready = int32(view.Proxies), int32(r.opts.Inventory.ReadyOn(mc.Name))
	}
	if view.Lost {
		st.Ready = 0
	}
	st.LostSince = lostSince(st, view)
	now := metav1.NewTime(r.opts.Clock.Now())
	for _, c := range conditions(mc, view, awaited, r.frozen(mc.Name)) {
		c.ObservedGeneration, c.LastTransitionTime = mc.Generation, now
		meta.SetStatusCondition(&st.Conditions, c)
	}
	moved := transitions(before, mc)
	if due := st.LastHeartbeat == nil || view.LastHeard.Sub(st.LastHeartbeat.Time) >= heartbeatInterval; !view.LastHeard.IsZero() &&
		(due || len(moved) > 0) {
		st.LastHeartbeat = &metav1.Time{Time: view.LastHeard}
	}
	if equality.Semantic.DeepEqual(before.Status, mc.Status) {
		return nil
	}
	// A list of conditions is patched as a whole: not over anybody else's.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.opts.Client.Status().Patch(ctx, mc.DeepCopy(), patch)); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	for _, c := range moved {
		level := corev1.EventTypeNormal
		if c.Status == metav1.ConditionFalse && c.Type != v1alpha1.ConditionDegraded ||
			c.Status == metav1.ConditionTrue && c.Type == v1alpha1.ConditionDegraded {
			level = corev1.EventTypeWarning
		}
		r.opts.Recorder.Eventf(mc, nil, level, c.Reason, c.Type, "%s", c.Message)
	}
	return nil
}

// sorted returns the distinct names, in order.
func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// lostSince keeps the first loss until the member has recovered, whichever hub saw it begin.
func lostSince(st *v1alpha1.MemberClusterStatus, view inventory.MemberView) *metav1.Time {
	switch {
	case view.State == inventory.Ready:
		return nil
	case st.LostSince != nil:
		return st.LostSince
	case view.State == inventory.Suspect, view.State == inventory.Unreachable:
		return &metav1.Time{Time: view.LostSince}
	case view.Lost && st.LastHeartbeat != nil:
		return st.LastHeartbeat // lost while no hub looked
	}
	return nil
}

// conditions computes all of the member's conditions.
func conditions(mc *v1alpha1.MemberCluster, view inventory.MemberView, awaited, frozen string) []metav1.Condition {
	list := []metav1.Condition{joined(mc), ready(mc, view), degraded(view, frozen)}
	if awaited != "" {
		list = append(list, metav1.Condition{
			Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue,
			Reason: v1alpha1.ReasonDeleting, Message: awaited,
		})
	}
	return list
}

func joined(mc *v1alpha1.MemberCluster) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionJoined, Status: metav1.ConditionFalse}
	switch {
	case !mc.Spec.Accepted:
		c.Reason, c.Message = v1alpha1.ReasonNotAccepted, "set spec.accepted to true to let its agent in"
	case mc.Spec.AgentRef == nil:
		c.Reason, c.Message = v1alpha1.ReasonNotRegistered,
			"no agent has registered; install one with the line that shoalctl member join-token "+mc.Name+" prints"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonJoined
		c.Message = fmt.Sprintf("agent %q may speak for the member", mc.Spec.AgentRef.Name)
	}
	return c
}

func ready(mc *v1alpha1.MemberCluster, view inventory.MemberView) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch state := view.State; {
	case view.Duplicate:
		c.Reason = v1alpha1.ReasonDuplicateAgent
		c.Message = "two live agents take turns in speaking for the member; stop one of them"
	case state == inventory.Ready:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonHeard, "heartbeats arrive"
	case state == inventory.Suspect:
		c.Reason = v1alpha1.ReasonSuspect
		c.Message = fmt.Sprintf("heartbeats are, or have just been, missing for over %s: nothing new is leased there", inventory.SuspectAfter)
	case state == inventory.Unreachable, state == inventory.NeverHeard && view.Lost && mc.Status.LastHeartbeat != nil:
		c.Reason = v1alpha1.ReasonUnreachable
		c.Message = fmt.Sprintf("nothing was heard for over %s; see to the agent and its way to the hub", inventory.UnreachableAfter)
	case state == inventory.Syncing:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1alpha1.ReasonSyncing, "connected; it still reports what it has"
	default:
		c.Status, c.Reason = metav1.ConditionUnknown, v1alpha1.ReasonNeverHeard
		c.Message = "its agent has not connected since the hub started"
	}
	return c
}

func degraded(view inventory.MemberView, frozen string) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonAsExpected, Message: "nothing needs attention",
	}
	switch {
	case view.Foreign != "":
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonForeignProxy
		c.Message = fmt.Sprintf("it reported %s, which belongs to another member; the report is ignored", view.Foreign)
	case frozen != "":
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonVerdictsFrozen, frozen
	}
	return c
}

// frozen returns the member's own words on why it judges no proxy unhealthy at the moment; empty if it does.
func (r *Reconciler) frozen(name string) string {
	var words string
	for _, c := range r.opts.Inventory.Conditions(name, v1alpha1.ConditionDegraded) {
		if c.GetReason() == v1alpha1.ReasonVerdictsFrozen && c.GetStatus() == string(metav1.ConditionTrue) {
			words = max(words, c.GetMessage())
		}
	}
	return words
}

// transitions returns the conditions that changed their status or reason. That nothing is wrong with a new member is no
// news.
func transitions(before, after *v1alpha1.MemberCluster) []metav1.Condition {
	var moved []metav1.Condition
	for _, is := range after.Status.Conditions {
		was := meta.FindStatusCondition(before.Status.Conditions, is.Type)
		if was == nil && is.Reason == v1alpha1.ReasonAsExpected || was != nil && was.Status == is.Status && was.Reason == is.Reason {
			continue
		}
		moved = append(moved, is)
	}
	return moved
}
