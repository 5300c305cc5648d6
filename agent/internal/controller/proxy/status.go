package proxy

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// status computes the whole status from the scope, once, after all phases.
func (r *Reconciler) status(s *scope, succeeded bool) v1alpha1.ProxyStatus {
	st := *s.proxy.Status.DeepCopy()
	if succeeded {
		st.ObservedGeneration = s.proxy.Generation
	}
	st.InstanceName, st.SpecHash, st.HostPort = s.next.instanceName, s.next.specHash, s.next.hostPort
	st.Endpoints = s.endpoints()
	st.Address, st.ProviderID = "", ""
	if len(st.Endpoints) > 0 {
		st.Address = net.JoinHostPort(st.Endpoints[0].Host, strconv.Itoa(int(st.Endpoints[0].Port)))
	}
	if s.instance != nil {
		st.ProviderID = s.instance.ProviderID
	}
	if !s.held() {
		// Exits are an instance's: the next one has its own, and until they were measured it has none.
		st.Probe, st.Exits = v1alpha1.ProbeSummary{}, nil
	}
	for _, exit := range s.verdict.Exits {
		st.Exits = append(st.Exits, exit.String())
	}
	if s.judged {
		since := metav1.NewTime(s.verdict.Since).Rfc3339Copy()
		st.Probe = v1alpha1.ProbeSummary{Class: summary(s), Since: &since}
		if s.verdict.Since.IsZero() {
			st.Probe.Since = nil
		}
	}
	now := metav1.NewTime(r.o.Clock.Now())
	for _, c := range r.conditions(s) {
		c.ObservedGeneration, c.LastTransitionTime = s.proxy.Generation, now
		meta.SetStatusCondition(&st.Conditions, c)
	}
	st.Phase = phase(s, st.Conditions)
	return st
}

// held says that there is no verdict yet and that the endpoint is the one that the last verdict was about.
func (s *scope) held() bool {
	now := s.endpoints()
	return !s.judged && len(now) > 0 && reflect.DeepEqual(now, s.proxy.Status.Endpoints)
}

// summary is the cause of the verdict, and not the class of the last probe: the status is written on transitions only.
func summary(s *scope) string {
	if s.verdict.State == probe.StateReady {
		return string(probe.ClassOK)
	}
	return string(s.verdict.Cause)
}

// conditions are the proxy's conditions, one for each phase of its life.
func (r *Reconciler) conditions(s *scope) []metav1.Condition {
	provisioned := metav1.Condition{Type: v1alpha1.ConditionProvisioned, Status: metav1.ConditionFalse, Reason: s.reason, Message: s.problem}
	switch {
	case s.proxy.DeletionTimestamp == nil && len(s.endpoints()) > 0 && s.proxy.Spec.Mode == v1alpha1.ModeExternal:
		provisioned.Status, provisioned.Reason, provisioned.Message = metav1.ConditionTrue, v1alpha1.ReasonExternal, "someone else runs the instance"
	case s.proxy.DeletionTimestamp == nil && len(s.endpoints()) > 0:
		provisioned.Status, provisioned.Reason, provisioned.Message = metav1.ConditionTrue, v1alpha1.ReasonProvisioned, "the instance runs and has an endpoint"
	case provisioned.Reason == "":
		provisioned.Reason, provisioned.Message = v1alpha1.ReasonNotProvisioned, "there is no instance"
	}

	healthy := metav1.Condition{Type: v1alpha1.ConditionHealthy, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonProbing, Message: "no probe has come through yet"}
	switch {
	case !s.judged && provisioned.Status == metav1.ConditionFalse:
		healthy.Reason, healthy.Message = v1alpha1.ReasonNotProvisioned, "there is nothing to probe"
	case s.judged && s.verdict.State == probe.StateReady:
		healthy.Status, healthy.Reason, healthy.Message = metav1.ConditionTrue, v1alpha1.ReasonProbesPass, "pages come through the proxy"
	case s.judged && s.verdict.State == probe.StateUnhealthy:
		healthy.Status, healthy.Reason, healthy.Message = metav1.ConditionFalse, v1alpha1.ReasonProbesFail, fmt.Sprintf("probes fail with %s: %s", s.verdict.Cause, s.verdict.Cause.Meaning())
	case s.held():
		// The agent has just started. Until its first probe, what was known of the same endpoint stands.
		if was := meta.FindStatusCondition(s.proxy.Status.Conditions, v1alpha1.ConditionHealthy); was != nil {
			healthy = *was
		}
	case s.judged && s.verdict.Cause != "":
		healthy.Message = fmt.Sprintf("no probe has come through yet; they end with %s: %s", s.verdict.Cause, s.verdict.Cause.Meaning())
	}

	draining := metav1.Condition{Type: v1alpha1.ConditionDraining, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotDraining, Message: "the proxy is wanted"}
	if s.proxy.Spec.Drain != nil || meta.IsStatusConditionTrue(s.proxy.Status.Conditions, v1alpha1.ConditionDraining) {
		draining.Status, draining.Reason, draining.Message = metav1.ConditionTrue, v1alpha1.ReasonDraining, "the proxy is on its way out; it never comes back"
	}

	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case s.proxy.DeletionTimestamp != nil:
		ready.Reason, ready.Message = v1alpha1.ReasonDeleting, "the proxy is being deleted"
	case draining.Status == metav1.ConditionTrue:
		ready.Reason, ready.Message = draining.Reason, draining.Message
	case provisioned.Status != metav1.ConditionTrue:
		ready.Reason, ready.Message = provisioned.Reason, provisioned.Message
	case healthy.Status != metav1.ConditionTrue:
		ready.Reason, ready.Message = healthy.Reason, healthy.Message
	default:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, v1alpha1.ReasonProbesPass, "pages come through the proxy"
	}

	saturated := metav1.Condition{Type: v1alpha1.ConditionSaturated, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotSaturated, Message: "the proxy has room"}
	if s.judged && s.verdict.Saturated {
		saturated.Status, saturated.Reason, saturated.Message = metav1.ConditionTrue, v1alpha1.ConditionSaturated, "the proxy is too busy to answer in time; nothing new is leased on it"
	}
	return []metav1.Condition{provisioned, healthy, ready, saturated, draining}
}

// phase sums the conditions up.
func phase(s *scope, conditions []metav1.Condition) v1alpha1.ProxyPhase {
	is := func(t string) bool { return meta.IsStatusConditionTrue(conditions, t) }
	switch {
	case s.proxy.DeletionTimestamp != nil:
		return v1alpha1.PhaseDeleting
	case is(v1alpha1.ConditionDraining):
		return v1alpha1.PhaseDraining
	case s.permanent:
		return v1alpha1.PhaseFailed
	case is(v1alpha1.ConditionReady):
		return v1alpha1.PhaseReady
	case meta.IsStatusConditionFalse(conditions, v1alpha1.ConditionHealthy):
		return v1alpha1.PhaseUnhealthy
	case s.next.instanceName == "" && s.proxy.Spec.Mode != v1alpha1.ModeExternal:
		return v1alpha1.PhasePending
	default:
		return v1alpha1.PhaseProvisioning
	}
}

// patchStatus writes a status that has changed, and tells a person of the transitions.
func (r *Reconciler) patchStatus(ctx context.Context, c client.Client, s *scope, succeeded bool) error {
	st := r.status(s, succeeded)
	if equality.Semantic.DeepEqual(s.proxy.Status, st) {
		return nil
	}
	before := s.proxy.DeepCopy()
	s.proxy.Status = st
	if err := c.Status().Patch(ctx, s.proxy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	if before.Status.Phase != st.Phase && r.o.Recorder != nil {
		kind := corev1.EventTypeNormal
		if st.Phase == v1alpha1.PhaseFailed || st.Phase == v1alpha1.PhaseUnhealthy {
			kind = corev1.EventTypeWarning
		}
		why := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady)
		r.o.Recorder.Eventf(s.proxy, nil, kind, string(st.Phase), "Transition", "%s", why.Message)
	}
	return nil
}
