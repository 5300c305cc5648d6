package proxy

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const (
	// look is how soon an instance that is on its way is looked at again, where no event tells.
	look = 5 * time.Second
	// rest is how often an instance at rest is looked at, where no event tells. Probes notice sooner that it is gone.
	rest = time.Minute
	// unknownYet is how soon it is asked again who hub and member are.
	unknownYet = time.Second
)

// provision brings the instance to what the spec asks for. One call to the provider that changes something is made in a
// pass, and only for an attempt that is written down already.
func (r *Reconciler) provision(ctx context.Context, s *scope) (time.Duration, error) {
	switch {
	case s.proxy.Spec.Mode == v1alpha1.ModeExternal:
		return 0, nil
	case len(s.violations) > 0:
		return r.removeRefused(ctx, s)
	case !s.known:
		s.wait(v1alpha1.ReasonProvisioning, "the agent waits for its first session with the hub, to know whose its proxies are")
		return unknownYet, nil
	}
	r.blocks.restore(r.o.Clock.Now(), s.place(), s.next.setback)
	heed(s)
	hostPort, err := r.hostPort(s)
	if err != nil {
		s.wait(v1alpha1.ReasonCapacityExhausted, err.Error())
		return recheck, nil
	}
	want, err := r.request(s, hostPort)
	if err != nil {
		return 0, fail(s, err)
	}
	if s.next.instanceName != "" && s.next.attempt == nil {
		// Written down by an agent that knew no attempts.
		s.next.attempt = &v1alpha1.Attempt{Number: 1, State: v1alpha1.AttemptPlanned, RequestID: requestID(string(s.proxy.UID), 1), StartedAt: r.now()}
		s.wait(v1alpha1.ReasonProvisioning, "the instance is about to be looked for")
		return time.Millisecond, nil
	}
	changed := s.next.instanceName != want.Name || s.next.hostPort != hostPort
	switch {
	case s.next.instanceName == "", s.next.attempt.State == v1alpha1.AttemptEnded && !changed:
		return r.plan(s, want)
	case changed && !s.draining():
		return r.replace(ctx, s, want)
	}
	// On its way out it is no longer replaced: it stays what it is.
	return r.lead(ctx, s, want)
}

// lead looks at the instance that is written down and does what its state asks for.
func (r *Reconciler) lead(ctx context.Context, s *scope, want provider.Request) (time.Duration, error) {
	if s.next.attempt.State == v1alpha1.AttemptEnded {
		s.wait(v1alpha1.ReasonNotProvisioned, "the instance is gone, and a draining proxy gets no other")
		return 0, nil
	}
	instance, err := s.entry.Provider.Get(ctx, s.ref())
	switch {
	case provider.IsNotFound(err):
		s.seen = true
		if s.next.attempt.State == v1alpha1.AttemptPlanned {
			return r.create(ctx, s, want)
		}
		return r.lost(ctx, s)
	case err != nil:
		// A provider that does not answer leaves what is known as it is.
		return look, fail(s, err)
	case instance.State == provider.StateRefused:
		return r.refused(s, asError(&instance)), nil
	case s.foreign(&instance):
		s.seen = true
		return look, fail(s, provider.Errorf(provider.KindAlreadyExists, "look at the instance",
			"%s exists and is not this proxy's; remove it, and the proxy's own is made", instance.ProviderID))
	}
	s.seen, s.instance = true, &instance
	s.heeded()
	r.accepted(s)
	s.preempted = instance.Preempted
	if r.leavePort(s) {
		return time.Millisecond, nil
	}
	switch instance.State {
	case provider.StateRunning:
		a := s.next.attempt
		r.blocks.worked(s.place(), a.Zone, a.RequestID, a.AcceptedAt.Time, true)
		after := soonest(spread(s.proxy.UID), r.recover(s))
		if len(instance.Endpoints) == 0 {
			s.wait(v1alpha1.ReasonProvisioning, "the instance runs and has no endpoint yet")
			after = look
		}
		return after, nil
	case provider.StateFailed:
		return r.bury(ctx, s)
	case provider.StateStopping:
		// Somebody lets it go. That is seen through, for there may be nobody left at its end who would say so.
		s.wait(v1alpha1.ReasonProvisioning, "the instance is going: "+instance.Reason)
		if gone, after, err := r.remove(ctx, s, provider.DeleteOptions{}); err != nil || !gone {
			return after, err
		}
		return r.lost(ctx, s)
	case provider.StatePending, provider.StateUnknown, provider.StateRefused:
	}
	s.wait(v1alpha1.ReasonProvisioning, fmt.Sprintf("the instance is %s: %s", instance.State, instance.Reason))
	return look, nil
}

// create asks for the instance that is written down and is not there. The same attempt is made again, with the same
// request ID, until the provider has answered: it finds what an answer that was lost has made.
func (r *Reconciler) create(ctx context.Context, s *scope, want provider.Request) (time.Duration, error) {
	if s.draining() {
		return r.abandon(ctx, s, "a draining proxy gets no instance")
	}
	if left := r.heldBack(s); left > 0 {
		return left, nil
	}
	now, a := r.o.Clock.Now(), s.next.attempt
	if b, ok := r.blocks.ask(now, s.place(), a.Zone, s.forced); !ok {
		if b.Until.After(now) && r.free(s) {
			return r.abandon(ctx, s, b.Message)
		}
		return r.waitFor(s, b), nil
	}
	want.Zone, want.RequestID = a.Zone, a.RequestID
	r.asks.create(s.proxy.UID, now)
	receipt, err := s.entry.Provider.Create(ctx, want)
	if _, settled := reasonOf(err); err != nil && !settled {
		return look, fail(s, err)
	}
	s.heeded()
	if err != nil {
		return r.refuse(s, err), nil
	}
	r.accepted(s)
	a.Operation = receipt.Operation
	r.blocks.worked(s.place(), a.Zone, a.RequestID, a.AcceptedAt.Time, false)
	s.wait(v1alpha1.ReasonProvisioning, "the instance has been asked for")
	return look, nil
}

// abandon gives up an attempt that was written down and not accepted, once nothing can come of it any more.
func (r *Reconciler) abandon(ctx context.Context, s *scope, why string) (time.Duration, error) {
	s.wait(v1alpha1.ReasonProvisioning, "the attempt is given up: "+why)
	gone, after, err := r.remove(ctx, s, provider.DeleteOptions{})
	switch {
	case err != nil:
		return after, fail(s, err)
	case gone:
		s.ended()
		return time.Millisecond, nil
	}
	return after, nil
}

// refused ends an attempt whose request was taken at first and has failed since.
func (r *Reconciler) refused(s *scope, err error) time.Duration {
	r.accepted(s)
	after := r.refuse(s, err)
	s.ended()
	if s.next.setback.Scope != "" {
		// Another zone may have room. If none has, the next pass says so.
		return time.Millisecond
	}
	return after
}

// lost ends an attempt whose instance was there and is gone.
func (r *Reconciler) lost(ctx context.Context, s *scope) (time.Duration, error) {
	s.wait(v1alpha1.ReasonProvisioning, "the instance is gone")
	gone, after, err := r.absent(ctx, s, r.lists.mark())
	// A provider can be wrong about a name. Until a list says the same, the proxy is what it was.
	s.seen = gone
	switch {
	case err != nil:
		return after, fail(s, err)
	case !gone:
		return after, nil
	}
	if !s.draining() {
		r.dead(s, v1alpha1.ReasonInstanceLost, "instance "+s.next.instanceName+" was removed by somebody else")
	}
	s.ended()
	return time.Millisecond, nil
}

// bury removes an instance that never runs again. Another is asked for once it is gone.
func (r *Reconciler) bury(ctx context.Context, s *scope) (time.Duration, error) {
	reason := s.instance.Reason
	if !s.draining() {
		r.dead(s, v1alpha1.ReasonInstanceFailed, "instance "+s.next.instanceName+" has failed: "+reason)
	}
	s.wait(v1alpha1.ReasonProvisioning, "the instance has failed and is being removed: "+reason)
	gone, after, err := r.remove(ctx, s, provider.DeleteOptions{Drained: true})
	switch {
	case err != nil:
		return after, fail(s, err)
	case !gone:
		return after, nil
	}
	s.ended()
	return time.Millisecond, nil
}

// provisioned is the condition of provision.
func (s *scope) provisioned() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionProvisioned, Status: metav1.ConditionFalse, Reason: s.reason, Message: s.problem}
	switch {
	case s.proxy.DeletionTimestamp == nil && len(s.endpoints()) > 0 && s.proxy.Spec.Mode == v1alpha1.ModeExternal:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonExternal, "someone else runs the instance"
	case s.proxy.DeletionTimestamp == nil && len(s.endpoints()) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonProvisioned, "the instance runs and has an endpoint"
	case c.Reason == "":
		c.Reason, c.Message = v1alpha1.ReasonNotProvisioned, "there is no instance"
	}
	return c
}

// foreign says whether an instance is somebody else's. What the provider cannot see yet, or not now, carries nobody's name.
func (s *scope) foreign(i *provider.Instance) bool {
	if i.Identity == (provider.Identity{}) && (i.State == provider.StateUnknown || i.State == provider.StatePending && s.ref().Operation != "") {
		return false
	}
	return !i.Identity.SameProxy(s.identity)
}

// spread gives a proxy's own time of rest, so that those that were looked at together drift apart.
func spread(uid types.UID) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	return rest + time.Duration(h.Sum32()%1000)*rest/2000
}

// soonest gives the smaller of two waits, of which 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
