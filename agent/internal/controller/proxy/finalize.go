package proxy

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// finalize removes the instance of a Proxy that is being deleted, then the finalizer.
func (r *Reconciler) finalize(ctx context.Context, s *scope) (ctrl.Result, error) {
	r.forgetProbes(s.site, s.proxy.UID)
	if !controllerutil.ContainsFinalizer(s.proxy, v1alpha1.FinalizerProxy) {
		return ctrl.Result{}, nil
	}
	s.wait(v1alpha1.ReasonDeleting, "the instance is being removed")
	gone, after, err := r.removeLast(ctx, s)
	if !gone || err != nil {
		if err != nil {
			s.wait(v1alpha1.ReasonProviderError, err.Error())
		}
		if patchErr := r.patchStatus(ctx, s, err == nil); patchErr != nil {
			return quiet(patchErr)
		}
		result := smallest{after: max(after, time.Second), err: err}
		return result.done()
	}
	before := s.proxy.DeepCopy()
	controllerutil.RemoveFinalizer(s.proxy, v1alpha1.FinalizerProxy)
	if err := s.site.Client.Patch(ctx, s.proxy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return quiet(err)
	}
	r.forget(s.roll(), s.proxy.UID)
	return ctrl.Result{}, nil
}

// vanished forgets a Proxy that is gone, also one whose finalizer somebody else has removed.
func (r *Reconciler) vanished(site Site, request mcreconcile.Request) {
	if uid, ok := r.names.LoadAndDelete(request); ok {
		r.forgetProbes(site, uid.(types.UID)) //nolint:forcetypeassert // nothing else is stored
		//nolint:forcetypeassert // nothing else is stored
		r.forget(roll{cluster: string(request.ClusterName), namespace: request.Namespace}, uid.(types.UID))
	}
}

func (r *Reconciler) forgetProbes(site Site, uid types.UID) {
	site.Prober.Remove(probe.UID(uid))
	r.o.Verdicts.forget(probe.UID(uid))
	r.owners.Delete(uid)
}

func (r *Reconciler) forget(of roll, uid types.UID) {
	r.census.forget(of, uid)
	r.asks.forget(uid)
	r.moves.forget(uid)
}

// removeLast removes the instance, if one was ever written down, and says whether it is gone. Where the entry that made
// it is no longer in the provider file nobody can remove it: the Proxy stays and says so.
func (r *Reconciler) removeLast(ctx context.Context, s *scope) (gone bool, after time.Duration, err error) {
	switch {
	case s.proxy.Spec.Mode == v1alpha1.ModeExternal || s.next.instanceName == "":
		return true, 0, nil
	case s.entry == nil:
		return false, look, provider.Errorf(provider.KindUnavailable, "remove the instance",
			"provider %q is no longer in the provider file; put it back until instance %s is removed", s.proxy.Spec.Provider, s.next.instanceName)
	case !s.known:
		return false, unknownYet, provider.Errorf(provider.KindUnavailable, "remove the instance", "the agent does not know yet whose its proxies are; it waits for the hub")
	}
	// After a drain to its deadline nobody has to be waited for.
	drained := s.proxy.Spec.Drain != nil && !s.proxy.Spec.Drain.Deadline.After(r.o.Clock.Now())
	return r.remove(ctx, s, provider.DeleteOptions{Drained: drained})
}
