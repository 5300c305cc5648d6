package proxy

import (
	"context"
	"fmt"
	"time"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const (
	// look is how soon an instance that is on its way is looked at again, where no event tells.
	look = 5 * time.Second
	// unknownYet is how soon it is asked again who hub and member are.
	unknownYet = time.Second
	// failedFor is how old an instance that has failed must be before it is replaced. A node that refuses every one of
	// them at once would otherwise be asked without a pause.
	failedFor = 15 * time.Second
)

// provision brings the instance to what the spec asks for. One call to the provider that changes something is made in a
// pass, and only for a name that is written down already.
func (r *Reconciler) provision(ctx context.Context, s *scope) (time.Duration, error) {
	if s.proxy.Spec.Mode == v1alpha1.ModeExternal {
		return 0, nil
	}
	if len(s.violations) > 0 {
		return 0, r.removeRefused(ctx, s)
	}
	if !s.known {
		s.reason, s.problem = v1alpha1.ReasonProvisioning, "the agent waits for its first session with the hub, to know whose its proxies are"
		return unknownYet, nil
	}
	hostPort, err := r.hostPort(s)
	if err != nil {
		return look, fail(s, err)
	}
	want, err := r.request(s, hostPort)
	if err != nil {
		return 0, fail(s, err)
	}

	// An instance of another spec goes first, and is gone before the next one is written down.
	if have := s.proxy.Status.InstanceName; have != "" && have != want.Name {
		if s.proxy.Spec.Drain != nil {
			// On its way out, it is no longer replaced: it stays what it is.
			return r.observe(ctx, s, have)
		}
		s.seen = true
		s.reason, s.problem = v1alpha1.ReasonProvisioning, "the instance of the former spec is being removed"
		gone, err := r.remove(ctx, s, s.entry.Provider, have, provider.DeleteOptions{})
		if err != nil {
			return look, fail(s, err)
		}
		if !gone {
			return look, nil
		}
	}
	if s.proxy.Status.InstanceName != want.Name || s.proxy.Status.HostPort != hostPort {
		if s.proxy.Spec.Drain != nil {
			s.reason, s.problem = v1alpha1.ReasonNotProvisioned, "a draining proxy gets no instance"
			return 0, nil
		}
		// Written ahead: nothing more is asked for in this pass, and the update asks for the next.
		s.seen = true
		s.next = ahead{instanceName: want.Name, specHash: want.SpecHash, hostPort: hostPort}
		s.reason, s.problem = v1alpha1.ReasonProvisioning, "the instance is about to be made"
		return 0, nil
	}

	after, err := r.observe(ctx, s, want.Name)
	switch {
	case err != nil:
		return after, err
	case s.instance == nil:
		return r.create(ctx, s, want)
	case s.instance.State == provider.StateFailed:
		return r.replaceFailed(ctx, s)
	case s.instance.State == provider.StateStopping:
		// Somebody lets it go. That is seen through, for there may be nobody left at its end who would say so.
		if _, err := r.remove(ctx, s, s.entry.Provider, want.Name, provider.DeleteOptions{}); err != nil {
			return look, fail(s, err)
		}
		return look, nil
	default:
		r.latch.release(s.proxy.UID)
		return after, nil
	}
}

// create asks for the instance that is written down and is not there.
func (r *Reconciler) create(ctx context.Context, s *scope, want provider.Request) (time.Duration, error) {
	now := r.o.Clock.Now()
	if s.proxy.Spec.Drain != nil {
		s.reason, s.problem = v1alpha1.ReasonNotProvisioned, "the instance is gone, and a draining proxy gets no other"
		return 0, nil
	}
	if left, held := r.latch.held(now, s.proxy.UID, want.Name); left > 0 {
		return left, fail(s, held)
	}
	_, err := s.entry.Provider.Create(ctx, want)
	switch {
	case provider.IsPermanent(err):
		return r.latch.hold(now, s.proxy.UID, want.Name, err), fail(s, err)
	case err != nil:
		return look, fail(s, err)
	}
	s.reason, s.problem = v1alpha1.ReasonProvisioning, "the instance has been asked for"
	return look, nil
}

// replaceFailed removes an instance that never runs again. Its place is taken, under the same name, once it is gone.
func (r *Reconciler) replaceFailed(ctx context.Context, s *scope) (time.Duration, error) {
	name, reason := s.instance.Name, s.instance.Reason
	if left := failedFor - r.o.Clock.Since(s.instance.CreatedAt); left > 0 && left <= failedFor {
		s.reason, s.problem = v1alpha1.ReasonProvisioning, "the instance has failed and will be replaced: "+reason
		return left, nil
	}
	if _, err := r.remove(ctx, s, s.entry.Provider, name, provider.DeleteOptions{Drained: true}); err != nil {
		return look, fail(s, err)
	}
	s.instance = nil
	s.reason, s.problem = v1alpha1.ReasonProvisioning, "the instance has failed and is being replaced: "+reason
	return look, nil
}

// observe asks the provider for the instance. A provider that does not answer leaves what is known as it is.
func (r *Reconciler) observe(ctx context.Context, s *scope, name string) (time.Duration, error) {
	instance, err := s.entry.Provider.Get(ctx, provider.Ref{Name: name})
	switch {
	case provider.IsNotFound(err):
		s.seen = true
		return 0, nil
	case err != nil:
		return look, fail(s, err)
	case !instance.Identity.SameProxy(s.identity):
		s.seen = true
		return look, fail(s, provider.Errorf(provider.KindAlreadyExists, "look at the instance",
			"%s exists and is not this proxy's; remove it, and the proxy's own is made", instance.ProviderID))
	}
	s.seen, s.instance = true, &instance
	switch instance.State {
	case provider.StateRunning:
		if len(instance.Endpoints) == 0 {
			s.reason, s.problem = v1alpha1.ReasonProvisioning, "the instance runs and has no endpoint yet"
			return look, nil
		}
		return 0, nil
	case provider.StatePending, provider.StateStopping, provider.StateUnknown, provider.StateFailed, provider.StateRefused:
		s.reason, s.problem = v1alpha1.ReasonProvisioning, fmt.Sprintf("the instance is %s: %s", instance.State, instance.Reason)
	}
	return look, nil
}

// remove asks for the end of an instance, and says whether it is gone. What bears its name and is not ours is nothing
// of this proxy.
func (r *Reconciler) remove(ctx context.Context, s *scope, p provider.Provider, name string, o provider.DeleteOptions) (gone bool, err error) {
	err = p.Delete(ctx, provider.Ref{Name: name}, s.identity, o)
	if provider.IsForeign(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	_, err = p.Get(ctx, provider.Ref{Name: name})
	if provider.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// removeRefused removes the instance of a proxy that the ceiling refuses: the owner has narrowed it.
func (r *Reconciler) removeRefused(ctx context.Context, s *scope) error {
	if s.entry == nil || s.proxy.Status.InstanceName == "" {
		return nil
	}
	gone, err := r.remove(ctx, s, s.entry.Provider, s.proxy.Status.InstanceName, provider.DeleteOptions{})
	if gone {
		s.next = ahead{}
	}
	return err
}

// fail keeps an error for the conditions. A permanent one is latched: only another spec, or another entry, helps, and
// both bring a pass of their own.
func fail(s *scope, err error) error {
	s.problem = err.Error()
	if provider.IsPermanent(err) {
		s.reason, s.permanent = v1alpha1.ReasonInvalidSpec, true
		return nil
	}
	s.reason = v1alpha1.ReasonProviderError
	return err
}
