package proxy

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// lasting is how long an instance must have lasted for what went wrong before it to be forgotten.
const lasting = 10 * time.Minute

// pace is how long a proxy waits after a setback. It doubles with each one.
type pace struct{ first, most time.Duration }

// after gives the wait after the nth setback in a row.
func (p pace) after(n int32) time.Duration {
	wait := p.first
	for i := int32(1); i < n && wait < p.most; i++ {
		wait *= 2
	}
	return min(wait, p.most)
}

// paces are the waits by what went wrong. A quota is freed by people, room by other people's machines; an instance that
// dies at once is asked for more and more slowly, like a container that crashes.
var paces = map[string]pace{
	v1alpha1.ReasonInvalidSpec:       {time.Hour, 24 * time.Hour},
	v1alpha1.ReasonQuotaExceeded:     {5 * time.Minute, time.Hour},
	v1alpha1.ReasonCapacityExhausted: {5 * time.Minute, 30 * time.Minute},
	v1alpha1.ReasonThrottled:         {10 * time.Second, 5 * time.Minute},
	v1alpha1.ReasonInstanceLost:      {15 * time.Second, 10 * time.Minute},
	v1alpha1.ReasonInstanceFailed:    {15 * time.Second, 10 * time.Minute},
	v1alpha1.ReasonProviderError:     {15 * time.Second, 10 * time.Minute},
}

// reasonOf gives the word for a provider's error. Those whose outcome is open are not in the list: they are tried again
// with the attempt as it is.
func reasonOf(err error) (reason string, settled bool) {
	switch provider.KindOf(err) {
	case provider.KindInvalidSpec:
		return v1alpha1.ReasonInvalidSpec, true
	case provider.KindQuotaExceeded:
		return v1alpha1.ReasonQuotaExceeded, true
	case provider.KindCapacityExhausted:
		return v1alpha1.ReasonCapacityExhausted, true
	case provider.KindThrottled:
		return v1alpha1.ReasonThrottled, true
	case provider.KindUnauthorized, provider.KindAlreadyExists:
		return v1alpha1.ReasonProviderError, true
	case provider.KindNotFound, provider.KindUnavailable:
	}
	return v1alpha1.ReasonProviderError, false
}

// refuse keeps why a request has failed, and blocks what else the provider says it holds for.
func (r *Reconciler) refuse(s *scope, err error) time.Duration {
	reason, _ := reasonOf(err)
	now := r.o.Clock.Now()
	b := r.setback(s, reason, err.Error())
	switch scope := provider.ScopeOf(err); {
	case scope != "" && reason != v1alpha1.ReasonInvalidSpec:
		until := r.blocks.refuse(now, s.place(), scope, reason, err)
		b.Scope, b.RetryAt = scope, metav1.NewTime(until).Rfc3339Copy()
	default:
		wait := max(provider.RetryAfter(err), paces[reason].after(b.Count))
		b.RetryAt = metav1.NewTime(now.Add(wait)).Rfc3339Copy()
	}
	r.tell(s)
	return max(b.RetryAt.Sub(now), time.Millisecond)
}

// dead keeps that an instance did not last. The next one is not asked for before the wait since the attempt began.
func (r *Reconciler) dead(s *scope, reason, message string) {
	if have := s.next.setback; have != nil && have.Attempt == s.next.attempt.Number && isDeath(have.Reason) {
		return
	}
	b := r.setback(s, reason, message)
	at := s.next.attempt.StartedAt.Add(paces[reason].after(b.Count))
	b.RetryAt = metav1.NewTime(later(at, b.Time.Time)).Rfc3339Copy()
}

func isDeath(reason string) bool {
	return reason == v1alpha1.ReasonInstanceLost || reason == v1alpha1.ReasonInstanceFailed
}

// setback begins the record of what has just gone wrong.
func (r *Reconciler) setback(s *scope, reason, message string) *v1alpha1.Setback {
	b := &v1alpha1.Setback{Reason: reason, Message: message, Count: 1, Time: r.now()}
	a := s.next.attempt
	if a != nil {
		b.Attempt = a.Number
	}
	if was := s.next.setback; was != nil && !r.lasted(a) {
		b.Count += was.Count
	}
	s.next.setback = b
	return b
}

// lasted says whether the attempt's instance has been there long enough to owe nothing to former setbacks.
func (r *Reconciler) lasted(a *v1alpha1.Attempt) bool {
	return a != nil && a.AcceptedAt != nil && r.o.Clock.Since(a.AcceptedAt.Time) >= lasting
}

// heldBack says how long the proxy's own setback still stands, and tells it. What the setback shares with others is for
// the blocks to say.
func (r *Reconciler) heldBack(s *scope) time.Duration {
	b := s.next.setback
	if b == nil || b.Scope != "" || s.forced {
		return 0
	}
	left := b.RetryAt.Sub(r.o.Clock.Now())
	if left <= 0 {
		return 0
	}
	r.tell(s)
	return left
}

// tell puts the setback into the conditions.
func (r *Reconciler) tell(s *scope) {
	b := s.next.setback
	at := b.RetryAt.UTC().Format(time.RFC3339)
	switch {
	case b.Reason == v1alpha1.ReasonInvalidSpec:
		s.permanent = true
		s.wait(b.Reason, fmt.Sprintf("%s; it is tried again when the spec or the provider's entry changes, when somebody asks (shoalctl proxy retry), or at %s", b.Message, at))
	case isDeath(b.Reason):
		s.wait(v1alpha1.ReasonBackingOff, fmt.Sprintf("%s; the next instance is asked for at %s", b.Message, at))
	default:
		s.wait(b.Reason, fmt.Sprintf("%s; the provider is asked again at %s", b.Message, at))
	}
}

// waitFor tells that the proxy waits with others, and for how long.
func (r *Reconciler) waitFor(s *scope, b Block) time.Duration {
	if left := b.Until.Sub(r.o.Clock.Now()); left > 0 {
		s.wait(b.Reason, fmt.Sprintf("nothing is asked for in %s before %s: %s", b.Scope, b.Until.UTC().Format(time.RFC3339), b.Message))
		return left
	}
	s.wait(b.Reason, fmt.Sprintf("requests in %s are let through one by one until instances run again: %s", b.Scope, b.Message))
	return look
}

// recover forgets a setback once an instance has lasted. The time for that comes without an event.
func (r *Reconciler) recover(s *scope) time.Duration {
	a := s.next.attempt
	if s.next.setback == nil || a == nil || a.AcceptedAt == nil {
		return 0
	}
	if left := lasting - r.o.Clock.Since(a.AcceptedAt.Time); left > 0 {
		return left
	}
	s.next.setback = nil
	return 0
}

// heed looks whether somebody has asked to try again, and lets nothing that stands against the proxy's own request stand
// in this pass. It is done with once the provider has been asked, or has nothing to be asked for.
func heed(s *scope) {
	s.retry = s.proxy.Annotations[v1alpha1.AnnotationRetry]
	if s.retry == "" || s.retry == s.next.handledRetry {
		return
	}
	s.forced = true
	s.next.setback = nil
}

// heeded notes that what somebody asked for has been done.
func (s *scope) heeded() {
	if s.forced {
		s.next.handledRetry = s.retry
	}
}

// fail keeps an error of a pass for the conditions. One that can never pass is told as such and brings no other pass.
func fail(s *scope, err error) error {
	if provider.IsPermanent(err) {
		s.permanent = true
		s.wait(v1alpha1.ReasonInvalidSpec, err.Error())
		return nil
	}
	s.wait(v1alpha1.ReasonProviderError, err.Error())
	return err
}

// asError gives the provider's own error of an instance that was refused.
func asError(i *provider.Instance) error {
	if i.Failure != nil {
		return i.Failure
	}
	return &provider.Error{Kind: provider.KindUnavailable, Op: "create", Err: errors.New(i.Reason)}
}
