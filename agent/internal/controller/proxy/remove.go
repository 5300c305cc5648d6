package proxy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// remove asks for the end of the instance that is written down, and says whether it is gone: absent from Get, and from a
// complete list that was begun after the Delete. Until then it says when to look again. What bears the name and is not ours
// is nothing of this proxy.
//
// Delete is called in each pass, also in the one that finds the instance gone: a longer grace can be cut short, a node that
// is lost has to be given up, and what was beside the instance (an address, a configuration) goes after it.
func (r *Reconciler) remove(ctx context.Context, s *scope, o provider.DeleteOptions) (gone bool, after time.Duration, err error) {
	ref := s.ref()
	mark, marked := r.asks.removed(s.proxy.UID, ref.Name)
	now, err := r.ask(ctx, s, ref, o)
	if err != nil {
		return false, look, err
	}
	if !marked {
		mark = now
		r.asks.remove(s.proxy.UID, ref.Name, mark)
	}
	instance, err := s.entry.Provider.Get(ctx, ref)
	switch {
	case provider.IsNotFound(err), err == nil && instance.State == provider.StateRefused, err == nil && s.foreign(&instance):
		return r.absent(ctx, s, mark)
	default:
		return false, look, err
	}
}

// ask asks for the end of an instance, and gives the mark after that.
func (r *Reconciler) ask(ctx context.Context, s *scope, ref provider.Ref, o provider.DeleteOptions) (uint64, error) {
	err := s.entry.Provider.Delete(ctx, ref, s.identity, o)
	if err != nil && !provider.IsNotFound(err) && !provider.IsForeign(err) {
		return 0, err
	}
	return r.lists.mark(), nil
}

// absent says whether a complete list that was begun after the mark shows nothing of the proxy, under whatever name and in
// whatever zone. What it shows and was never written down is asked to go as well.
func (r *Reconciler) absent(ctx context.Context, s *scope, mark uint64) (gone bool, after time.Duration, err error) {
	notBefore := r.settled(s)
	if left := notBefore.Sub(r.o.Clock.Now()); left > 0 {
		s.wait(v1alpha1.ReasonProvisioning, "the provider shows no instance; a request that is still on its way is waited for")
		return false, left, nil
	}
	begun := r.lists.mark()
	list, err := r.lists.after(ctx, listed{place: s.place(), id: s.identity}, s.entry.Provider, mark, notBefore)
	if err != nil {
		return false, look, err
	}
	left := ours(list, s.identity)
	if len(left) > 0 && list.tick < begun {
		// A list that was made for somebody else can be older than the instance's end.
		if list, err = r.lists.after(ctx, listed{place: s.place(), id: s.identity}, s.entry.Provider, begun, notBefore); err != nil {
			return false, look, err
		}
		left = ours(list, s.identity)
	}
	if len(left) > 0 {
		ref := s.ref()
		for _, i := range left {
			if i.Name == ref.Name && i.Zone == ref.Zone {
				continue
			}
			now, err := r.ask(ctx, s, provider.Ref{Name: i.Name, Zone: i.Zone}, provider.DeleteOptions{})
			if err != nil {
				return false, look, err
			}
			r.asks.remove(s.proxy.UID, ref.Name, now)
		}
		s.wait(v1alpha1.ReasonProvisioning, fmt.Sprintf("the provider still lists %s", left[0].ProviderID))
		return false, look, nil
	}
	if !list.complete {
		s.wait(v1alpha1.ReasonProviderError, fmt.Sprintf("it cannot be told whether the instance is gone: the provider's list lacks %s", strings.Join(list.missing, ", ")))
		return false, look, nil
	}
	return true, 0, nil
}

// ours gives what a list has of the proxy.
func ours(l *listing, id provider.Identity) []provider.Instance {
	var found []provider.Instance
	for _, i := range l.of[id.ProxyUID] {
		if i.Identity.SameProxy(id) {
			found = append(found, i)
		}
	}
	return found
}

// replace removes the instance of another spec. Only when it is gone is the next one written down.
func (r *Reconciler) replace(ctx context.Context, s *scope, want provider.Request) (time.Duration, error) {
	s.seen = true
	s.wait(v1alpha1.ReasonProvisioning, "the instance of the former spec is being removed")
	gone, after, err := r.remove(ctx, s, provider.DeleteOptions{})
	switch {
	case err != nil:
		return after, fail(s, err)
	case !gone:
		return after, nil
	}
	s.ended()
	return r.plan(s, want)
}

// removeRefused removes the instance of a proxy that the ceiling refuses: the owner has narrowed it.
func (r *Reconciler) removeRefused(ctx context.Context, s *scope) (time.Duration, error) {
	if s.entry == nil || s.next.instanceName == "" || !s.known {
		return 0, nil
	}
	reason, problem := s.reason, s.problem
	gone, after, err := r.remove(ctx, s, provider.DeleteOptions{})
	if gone {
		s.ended()
		s.next.instanceName, s.next.specHash, s.next.hostPort, s.next.setback = "", "", 0, nil
	}
	// What is told is why.
	s.wait(reason, problem)
	return after, err
}
