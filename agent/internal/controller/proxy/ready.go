package proxy

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// readyWithin is how long an instance may take from when its provider took the request to the first probe that came
// through. It is told after that, and not replaced: what keeps one instance from becoming ready keeps the next one too.
// A pod takes seconds; a machine that boots, pulls an image and is probed takes two to three minutes.
const readyWithin = 10 * time.Minute

// prove sums up whether the proxy can be leased, and keeps when it first could on this instance.
func (r *Reconciler) prove(_ context.Context, s *scope) (time.Duration, error) {
	a := s.next.attempt
	if a == nil || a.State != v1alpha1.AttemptAccepted || a.ReadyAt != nil || s.draining() {
		return 0, nil
	}
	if s.provisioned().Status == metav1.ConditionTrue && s.healthy().Status == metav1.ConditionTrue {
		now := r.now()
		a.ReadyAt = &now
		return 0, nil
	}
	if left := readyWithin - r.o.Clock.Since(a.AcceptedAt.Time); left > 0 {
		return left, nil
	}
	s.overdue = true
	return 0, nil
}

// ready is the condition of prove: everything that the other phases found, in the order in which it matters.
func (s *scope) ready() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	provisioned, healthy, draining := s.provisioned(), s.healthy(), s.drains()
	switch {
	case s.proxy.DeletionTimestamp != nil:
		c.Reason, c.Message = v1alpha1.ReasonDeleting, "the proxy is being deleted"
	case draining.Status == metav1.ConditionTrue:
		c.Reason, c.Message = draining.Reason, draining.Message
	case provisioned.Status != metav1.ConditionTrue:
		c.Reason, c.Message = provisioned.Reason, provisioned.Message
	case healthy.Status != metav1.ConditionTrue:
		c.Reason, c.Message = healthy.Reason, healthy.Message
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonProbesPass, "pages come through the proxy"
	}
	if s.overdue {
		c.Reason = v1alpha1.ReasonNeverReady
		c.Message = fmt.Sprintf("there is an instance since %s on which the proxy has never been ready; it is not replaced, for the next one would fare no better. Look at its log, its image and the way to it: %s",
			s.next.attempt.AcceptedAt.UTC().Format(time.RFC3339), c.Message)
	}
	return c
}

// drains is the condition of a proxy's way out. It never turns back, and keeps the reason that it began with.
func (s *scope) drains() metav1.Condition {
	if was := meta.FindStatusCondition(s.proxy.Status.Conditions, v1alpha1.ConditionDraining); was != nil && was.Status == metav1.ConditionTrue {
		return *was
	}
	c := metav1.Condition{Type: v1alpha1.ConditionDraining, Status: metav1.ConditionTrue}
	switch {
	case s.proxy.Spec.Drain != nil:
		c.Reason, c.Message = v1alpha1.ReasonDraining, "the proxy is on its way out; it never comes back"
	case s.preempted:
		c.Reason, c.Message = v1alpha1.ReasonPreempted, "the provider takes the instance back; another proxy takes its place"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonNotDraining, "the proxy is wanted"
	}
	return c
}
