package proxy

import (
	"context"
	"fmt"
	"time"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// look is how soon an instance that is on its way is looked at again, where no event tells.
const look = 5 * time.Second

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
		return look, nil
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
		gone, err := r.remove(ctx, s, s.entry.Provider, have, provider.DeleteOptions{})
		if err != nil || !gone {
			s.reason, s.problem = v1alpha1.ReasonProvisioning, "the instance of the former spec is being removed"
			return look, failUnlessNil(s, err)
		}
	}
	if s.proxy.Status.InstanceName != want.Name || s.proxy.Status.HostPort != hostPort {
		// Written ahead: the pass ends here, and the update asks for the next.
		s.next = ahead{instanceName: want.Name, specHash: want.SpecHash, hostPort: hostPort}
		s.reason, s.problem, s.stop = v1alpha1.ReasonProvisioning, "the instance is about to be made", true
		return 0, nil
	}

	after, err := r.observe(ctx, s, want.Name)
	switch {
	case err != nil:
		return after, err
	case s.instance == nil && s.proxy.Spec.Drain != nil:
		s.reason, s.problem = v1alpha1.ReasonNotProvisioned, "the instance is gone, and a draining proxy gets no other"
		return 0, nil
	case s.instance == nil:
		if err := s.entry.Provider.Create(ctx, want); err != nil {
			return look, fail(s, err)
		}
		s.reason, s.problem = v1alpha1.ReasonProvisioning, "the instance has been asked for"
		return look, nil
	case s.instance.State == provider.StateFailed:
		// It never runs again: it goes, and its place is taken under the same name.
		reason := s.instance.Reason
		if _, err := r.remove(ctx, s, s.entry.Provider, want.Name, provider.DeleteOptions{Drained: true}); err != nil {
			return look, fail(s, err)
		}
		s.instance = nil
		s.reason, s.problem = v1alpha1.ReasonProvisioning, "the instance has failed and is being replaced: "+reason
		return look, nil
	default:
		return after, nil
	}
}

// observe asks the provider for the instance. A provider that does not answer leaves what is known as it is.
func (r *Reconciler) observe(ctx context.Context, s *scope, name string) (time.Duration, error) {
	instance, err := s.entry.Provider.Get(ctx, name)
	switch {
	case provider.IsNotFound(err):
		return 0, nil
	case err != nil:
		return look, fail(s, err)
	}
	s.instance = &instance
	switch instance.State {
	case provider.StateRunning:
		if len(instance.Endpoints) == 0 {
			s.reason, s.problem = v1alpha1.ReasonProvisioning, "the instance runs and has no endpoint yet"
			return look, nil
		}
		return 0, nil
	case provider.StatePending, provider.StateStopping, provider.StateUnknown, provider.StateFailed:
		s.reason, s.problem = v1alpha1.ReasonProvisioning, fmt.Sprintf("the instance is %s: %s", instance.State, instance.Reason)
	}
	return look, nil
}

// remove asks for the end of an instance, and says whether it is gone.
func (r *Reconciler) remove(ctx context.Context, s *scope, p provider.Provider, name string, o provider.DeleteOptions) (gone bool, err error) {
	if err := p.Delete(ctx, name, s.identity, o); err != nil {
		return false, err
	}
	_, err = p.Get(ctx, name)
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

func failUnlessNil(s *scope, err error) error {
	if err == nil {
		return nil
	}
	return fail(s, err)
}
