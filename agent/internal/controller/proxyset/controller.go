package proxyset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Name is the controller's name, in logs and metrics.
const Name = "proxyset"

// backoffFirst and backoffMost bound the wait after an error. It doubles.
const (
	backoffFirst = 200 * time.Millisecond
	backoffMost  = time.Minute
)

// Options configures a Reconciler.
type Options struct {
	// Clock decides when a deadline has passed.
	Clock clock.PassiveClock
	// Client gives the client of a member by the name it is engaged under.
	Client func(ctx context.Context, cluster string) (client.Client, error)
	// Policy gives the owner's ceiling for a member; nil means the zero policy.
	Policy func(ctx context.Context, cluster string) (ceiling.Policy, error)
	// Recorder takes events on transitions; nil takes none.
	Recorder events.EventRecorder
	// Started is a source without events: whoever engages members waits until it was started, for what is engaged before
	// can end the whole manager where it fails. Nil where nobody waits.
	Started source.TypedSource[mcreconcile.Request]
}

// Reconciler keeps proxies as many as their set asks for.
type Reconciler struct{ o Options }

// New makes a Reconciler.
func New(o Options) (*Reconciler, error) {
	if o.Clock == nil || o.Client == nil {
		return nil, errors.New("proxyset controller: Clock and Client are required")
	}
	return &Reconciler{o: o}, nil
}

// SetupWithManager adds the controller to mgr.
func (r *Reconciler) SetupWithManager(mgr mcmanager.Manager) error {
	b := mcbuilder.ControllerManagedBy(mgr).Named(Name).
		For(&v1alpha1.ProxySet{}).
		Owns(&v1alpha1.Proxy{}).
		// The manager's own controller options are ignored by multicluster-runtime v0.24.1: they belong here.
		WithOptions(mccontroller.Options{
			MaxConcurrentReconciles: 4, CacheSyncTimeout: 2 * time.Minute, ReconciliationTimeout: time.Minute,
			// Several agents may run in one process: in tests they do.
			SkipNameValidation: ptr.To(true),
			RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](backoffFirst, backoffMost),
		}).
		// multicluster-runtime's own leaves out who a line is about.
		WithLogConstructor(func(req *mcreconcile.Request) logr.Logger {
			log := mgr.GetLocalManager().GetLogger().WithName(Name)
			if req != nil {
				log = log.WithValues("member", req.ClusterName, "proxyset", req.NamespacedName)
			}
			return log
		})
	if r.o.Started != nil {
		b = b.WatchesRawSource(r.o.Started)
	}
	return b.Complete(r)
}

// Reconcile makes one pass over one set.
func (r *Reconciler) Reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	c, err := r.o.Client(ctx, string(req.ClusterName))
	if err != nil {
		return ctrl.Result{}, err
	}
	set := &v1alpha1.ProxySet{}
	if err := c.Get(ctx, req.NamespacedName, set); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if set.DeletionTimestamp != nil {
		// Its proxies are its dependents: they go by their owner reference, each through its own finalizer.
		return ctrl.Result{}, nil
	}
	list := &v1alpha1.ProxyList{}
	if err := c.List(ctx, list, client.InNamespace(set.Namespace), client.MatchingLabels{v1alpha1.LabelProxySet: set.Name}); err != nil {
		return ctrl.Result{}, err
	}
	var proxies []*v1alpha1.Proxy
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], set) {
			proxies = append(proxies, &list.Items[i])
		}
	}
	now := r.o.Clock.Now()
	p := decide(set, proxies, now)
	if p.missing > 0 {
		if err := r.limit(ctx, c, req, &p); err != nil {
			return ctrl.Result{}, err
		}
	}
	applyErr := r.apply(ctx, c, set, p)
	err = r.patchStatus(ctx, c, set, status(set, proxies, p, applyErr))
	if applyErr == nil && apierrors.IsConflict(err) {
		// The cache is behind what was written. It catches up.
		return ctrl.Result{RequeueAfter: 200 * time.Millisecond}, nil
	}
	if err := errors.Join(applyErr, err); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: p.again(now)}, nil
}

// limit keeps a plan within the owner's ceiling, which holds for all sets of the member together.
func (r *Reconciler) limit(ctx context.Context, c client.Client, req mcreconcile.Request, p *plan) error {
	var policy ceiling.Policy
	if r.o.Policy != nil {
		var err error
		if policy, err = r.o.Policy(ctx, string(req.ClusterName)); err != nil {
			return err
		}
	}
	all := &v1alpha1.ProxyList{}
	if err := c.List(ctx, all, client.InNamespace(req.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	p.limit(policy, len(all.Items))
	return nil
}

// apply marks before it removes, and removes before it creates. What fails for one proxy keeps no other waiting.
func (r *Reconciler) apply(ctx context.Context, c client.Client, set *v1alpha1.ProxySet, p plan) error {
	var failed []error
	for _, u := range p.update {
		if err := c.Patch(ctx, u.after, client.MergeFrom(u.before)); client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("bring %s up to date: %w", u.after.Name, err))
		}
	}
	for _, m := range p.drain {
		before := m.proxy.DeepCopy()
		first := m.proxy.Spec.Drain == nil
		m.proxy.Spec.Drain = &v1alpha1.DrainSpec{Deadline: metav1.NewTime(m.deadline)}
		if err := c.Patch(ctx, m.proxy, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			failed = append(failed, fmt.Errorf("mark %s as draining: %w", m.proxy.Name, err))
			continue
		}
		if first {
			r.event(set, m.proxy, "Draining", "Drain", "the hub lets it go")
		}
	}
	for _, proxy := range p.remove {
		err := c.Delete(ctx, proxy, client.Preconditions{UID: &proxy.UID})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue // it is gone, and what bears its name now is another
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("delete %s: %w", proxy.Name, err))
			continue
		}
		why := "its drain deadline has passed"
		if proxy.Spec.Drain == nil {
			why = "its provider has taken the instance back"
		}
		r.event(set, proxy, "Deleted", "Delete", why)
	}
	for _, name := range p.create {
		proxy := newProxy(set, name)
		// A cache that lags makes this pass see a proxy too few. The name is the same as before, so the API server says so.
		if err := c.Create(ctx, proxy); err != nil && !apierrors.IsAlreadyExists(err) {
			failed = append(failed, fmt.Errorf("create %s: %w", name, err))
			break // what is refused once is refused for each: they are all made from one template
		}
	}
	return errors.Join(failed...)
}

func (r *Reconciler) event(set *v1alpha1.ProxySet, proxy *v1alpha1.Proxy, reason, action, note string) {
	if r.o.Recorder != nil {
		r.o.Recorder.Eventf(set, proxy, corev1.EventTypeNormal, reason, action, "%s: %s", proxy.Name, note)
	}
}

// newProxy makes a proxy from a set's template.
func newProxy(set *v1alpha1.ProxySet, name string) *v1alpha1.Proxy {
	labels := make(map[string]string, len(set.Spec.Template.Metadata.Labels)+5)
	for k, v := range set.Spec.Template.Metadata.Labels {
		// The schema refuses these; should it ever not, no template takes a proxy for itself that is another's.
		if !strings.HasPrefix(k, v1alpha1.LabelPrefix) {
			labels[k] = v
		}
	}
	labels[v1alpha1.LabelProxySet] = set.Name
	labels[v1alpha1.LabelFleetUID] = string(set.Spec.FleetUID)
	labels[v1alpha1.LabelPlacementUID] = string(set.Spec.PlacementUID)
	labels[v1alpha1.LabelRevision] = set.Spec.Revision
	// Without it the member would not see its own proxy: members may share a namespace.
	labels[v1alpha1.LabelMember] = set.Labels[v1alpha1.LabelMember]
	return &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace,
			Name:      name,
			Labels:    labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion:         v1alpha1.GroupVersion.String(),
				Kind:               "ProxySet",
				Name:               set.Name,
				UID:                set.UID,
				Controller:         ptr.To(true),
				BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: newSpec(set, name),
	}
}
