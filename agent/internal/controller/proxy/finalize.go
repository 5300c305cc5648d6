package proxy

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// finalize removes the instance of a Proxy that is being deleted, then the finalizer.
func (r *Reconciler) finalize(ctx context.Context, c client.Client, proxy *v1alpha1.Proxy) (ctrl.Result, error) {
	r.o.Prober.Remove(probe.UID(proxy.UID))
	r.o.Verdicts.forget(probe.UID(proxy.UID))
	if !controllerutil.ContainsFinalizer(proxy, v1alpha1.FinalizerProxy) {
		return ctrl.Result{}, nil
	}
	s := &scope{proxy: proxy}
	s.next = ahead{instanceName: proxy.Status.InstanceName, specHash: proxy.Status.SpecHash, hostPort: proxy.Status.HostPort}
	s.identity, s.known = r.identity(proxy)
	s.reason, s.problem = v1alpha1.ReasonDeleting, "the instance is being removed"
	gone, err := r.removeLast(ctx, s)
	if !gone || err != nil {
		if err != nil {
			s.reason, s.problem = v1alpha1.ReasonProviderError, err.Error()
		}
		if patchErr := r.patchStatus(ctx, c, s, err == nil); patchErr != nil {
			return quiet(patchErr)
		}
		if wait := provider.RetryAfter(err); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		return ctrl.Result{RequeueAfter: time.Second}, err
	}
	before := proxy.DeepCopy()
	controllerutil.RemoveFinalizer(proxy, v1alpha1.FinalizerProxy)
	if err := c.Patch(ctx, proxy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return quiet(err)
	}
	r.ports.forget(string(proxy.UID))
	return ctrl.Result{}, nil
}

// removeLast removes the instance, if one was ever written down, and says whether it is gone. Where the entry that made
// it is no longer in the provider file nobody can remove it: the Proxy stays and says so.
func (r *Reconciler) removeLast(ctx context.Context, s *scope) (gone bool, err error) {
	if s.proxy.Spec.Mode == v1alpha1.ModeExternal || s.proxy.Status.InstanceName == "" {
		return true, nil
	}
	entry, ok := r.o.Entries[s.proxy.Spec.Provider]
	if !ok {
		return false, provider.Errorf(provider.KindUnavailable, "remove the instance",
			"provider %q is no longer in the provider file; put it back until instance %s is removed", s.proxy.Spec.Provider, s.proxy.Status.InstanceName)
	}
	if !s.known {
		return false, provider.Errorf(provider.KindUnavailable, "remove the instance", "the agent does not know yet whose its proxies are; it waits for the hub")
	}
	// After a drain to its deadline nobody has to be waited for.
	drained := meta.IsStatusConditionPresentAndEqual(s.proxy.Status.Conditions, v1alpha1.ConditionDraining, metav1.ConditionTrue)
	return r.remove(ctx, s, entry.Provider, s.proxy.Status.InstanceName, provider.DeleteOptions{Drained: drained})
}
