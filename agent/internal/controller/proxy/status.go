package proxy

import (
	"context"
	"net"
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
	s.next.into(&st)
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
	for _, c := range s.conditions() {
		c.ObservedGeneration, c.LastTransitionTime = s.proxy.Generation, now
		meta.SetStatusCondition(&st.Conditions, c)
	}
	st.Phase = phase(s, st.Conditions)
	return st
}

// summary is the cause of the verdict, and not the class of the last probe: the status is written on transitions only.
func summary(s *scope) string {
	if s.verdict.State == probe.StateReady {
		return string(probe.ClassOK)
	}
	return string(s.verdict.Cause)
}

// conditions are the proxy's conditions, one for each phase of its life.
func (s *scope) conditions() []metav1.Condition {
	return []metav1.Condition{s.provisioned(), s.healthy(), s.ready(), s.saturated(), s.drains()}
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
func (r *Reconciler) patchStatus(ctx context.Context, s *scope, succeeded bool) error {
	st := r.status(s, succeeded)
	if equality.Semantic.DeepEqual(s.proxy.Status, st) {
		return nil
	}
	before := s.proxy.DeepCopy()
	s.proxy.Status = st
	if err := s.site.Client.Status().Patch(ctx, s.proxy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	r.census.note(s.roll(), s.proxy)
	r.events(s.proxy, &before.Status)
	return nil
}

// events tells of what has changed in a status that was just written: a new phase, a setback, an instance on which the
// proxy does not become ready.
func (r *Reconciler) events(proxy *v1alpha1.Proxy, was *v1alpha1.ProxyStatus) {
	if r.o.Recorder == nil {
		return
	}
	is := &proxy.Status
	ready := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionReady)
	if is.Phase != was.Phase {
		kind := corev1.EventTypeNormal
		if is.Phase == v1alpha1.PhaseFailed || is.Phase == v1alpha1.PhaseUnhealthy || ready.Reason == v1alpha1.ReasonPreempted {
			kind = corev1.EventTypeWarning
		}
		r.o.Recorder.Eventf(proxy, nil, kind, string(is.Phase), "Transition", "%s", ready.Message)
	}
	if b := is.Setback; b != nil && is.Phase != v1alpha1.PhaseFailed && (was.Setback == nil || !b.Time.Equal(&was.Setback.Time) || b.Reason != was.Setback.Reason) {
		r.o.Recorder.Eventf(proxy, nil, corev1.EventTypeWarning, b.Reason, "Provision", "attempt %d: %s", b.Attempt, b.Message)
	}
	if before := meta.FindStatusCondition(was.Conditions, v1alpha1.ConditionReady); ready.Reason == v1alpha1.ReasonNeverReady && (before == nil || before.Reason != ready.Reason) {
		r.o.Recorder.Eventf(proxy, nil, corev1.EventTypeWarning, ready.Reason, "Probe", "%s", ready.Message)
	}
}
