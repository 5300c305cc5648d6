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
func (r *Reconciler) finalize(ctx context.Context, site Site, proxy *v1alpha1.Proxy) (ctrl.Result, error) {
	r.forgetProbes(site, proxy.UID)
	if !controllerutil.ContainsFinalizer(proxy, v1alpha1.FinalizerProxy) {
		return ctrl.Result{}, nil
	}
	s := &scope{site: site, proxy: proxy}
	s.next = ahead{instanceName: proxy.Status.InstanceName, specHash: proxy.Status.SpecHash, hostPort: proxy.Status.HostPort}
	s.identity, s.known = r.identity(site, proxy)
	s.reason, s.problem = v1alpha1.ReasonDeleting, "the instance is being removed"
	gone, err := r.removeLast(ctx, s)
	if !gone || err != nil {
		if err != nil {
			s.reason, s.problem = v1alpha1.ReasonProviderError, err.Error()
		}
		if patchErr := r.patchStatus(ctx, site.Client, s, err == nil); patchErr != nil {
			return quiet(patchErr)
		}
		result := smallest{after: time.Second, err: err}
		return result.done()
	}
	before := proxy.DeepCopy()
	controllerutil.RemoveFinalizer(proxy, v1alpha1.FinalizerProxy)
	if err := site.Client.Patch(ctx, proxy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return quiet(err)
	}
	r.forget(proxy.UID)
	return ctrl.Result{}, nil
}

// lost forgets a Proxy that is gone, also one whose finalizer somebody else has removed.
func (r *Reconciler) lost(site Site, request mcreconcile.Request) {
	if uid, ok := r.names.LoadAndDelete(request); ok {
		r.forgetProbes(site, uid.(types.UID)) //nolint:forcetypeassert // nothing else is stored
		r.forget(uid.(types.UID))             //nolint:forcetypeassert // nothing else is stored
	}
}

func (r *Reconciler) forgetProbes(site Site, uid types.UID) {
	site.Prober.Remove(probe.UID(uid))
	r.o.Verdicts.forget(probe.UID(uid))
}

func (r *Reconciler) forget(uid types.UID) {
	r.ports.forget(uid)
	r.latch.release(uid)
}

// removeLast removes the instance, if one was ever written down, and says whether it is gone. Where the entry that made
// it is no longer in the provider file nobody can remove it: the Proxy stays and says so.
func (r *Reconciler) removeLast(ctx context.Context, s *scope) (gone bool, err error) {
	if s.proxy.Spec.Mode == v1alpha1.ModeExternal || s.proxy.Status.InstanceName == "" {
		return true, nil
	}
	entry, ok := s.site.Entries[s.proxy.Spec.Provider]
	if !ok {
		return false, provider.Errorf(provider.KindUnavailable, "remove the instance",
			"provider %q is no longer in the provider file; put it back until instance %s is removed", s.proxy.Spec.Provider, s.proxy.Status.InstanceName)
	}
	if !s.known {
		return false, provider.Errorf(provider.KindUnavailable, "remove the instance", "the agent does not know yet whose its proxies are; it waits for the hub")
	}
	// After a drain to its deadline nobody has to be waited for.
	drained := s.proxy.Spec.Drain != nil && !s.proxy.Spec.Drain.Deadline.After(r.o.Clock.Now())
	return r.remove(ctx, s, entry.Provider, s.proxy.Status.InstanceName, provider.DeleteOptions{Drained: drained})
}
