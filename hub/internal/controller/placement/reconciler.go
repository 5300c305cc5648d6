// Package placement hands ProxyPlacements to the members they are for, and writes down what the members say of them.
//
// A placement becomes an item of the dispatcher. Its deletion becomes a tombstone, and the placement's finalizer stays
// until the member has acknowledged that nothing is left, until the member is gone from the hub, or until the member
// has stayed lost for long; then the tombstone is kept for its return. (After a restart of the hub the complete list of
// what is wanted takes the tombstone's place.)
package placement

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/dispatch"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
)

// DefaultGiveUpAfter is how long a deleted placement waits for a lost member.
const DefaultGiveUpAfter = 10 * time.Minute

const (
	// finalizeInterval is how often a deletion is looked at while it waits.
	finalizeInterval = 5 * time.Second
	// conflictInterval is for a cache that has not caught up.
	conflictInterval = 100 * time.Millisecond
)

// Options are what a Reconciler is made with. All but GiveUpAfter are required.
type Options struct {
	// Client reads from caches and writes.
	Client client.Client
	// Dispatcher takes what members are wanted to have.
	Dispatcher *dispatch.Dispatcher
	// Inventory is what members reported.
	Inventory *inventory.Inventory
	// Credentials are those of proxies that someone else runs.
	Credentials Credentials
	// Clock is the hub's.
	Clock clock.PassiveClock
	// GiveUpAfter is how long a deleted placement waits for a lost member: DefaultGiveUpAfter if zero.
	GiveUpAfter time.Duration
}

// Reconciler reconciles ProxyPlacements. It is safe for concurrent use by several workers.
type Reconciler struct {
	opts Options

	mu sync.Mutex
	// sent is what was dispatched, by the placement's name, for those that vanish without a trace.
	sent map[types.NamespacedName]dispatch.Ref
}

// New makes a reconciler. It panics if something required is missing: that is a mistake in the wiring.
func New(opts Options) *Reconciler {
	if opts.Client == nil || opts.Dispatcher == nil || opts.Inventory == nil || opts.Credentials == nil || opts.Clock == nil {
		panic("placement: Options.Client, Dispatcher, Inventory, Credentials and Clock are required")
	}
	if opts.GiveUpAfter <= 0 {
		opts.GiveUpAfter = DefaultGiveUpAfter
	}
	return &Reconciler{opts: opts, sent: map[types.NamespacedName]dispatch.Ref{}}
}

// Load hands every placement there is to the dispatcher and then says that it is complete: not before may a member be
// sent a snapshot.
func (r *Reconciler) Load(ctx context.Context) error {
	var list v1alpha1.ProxyPlacementList
	if err := r.opts.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("list placements: %w", err)
	}
	if err := r.readCredentials(ctx); err != nil {
		return err
	}
	for i := range list.Items {
		pp := &list.Items[i]
		if !pp.DeletionTimestamp.IsZero() {
			r.opts.Dispatcher.Remove(pp.Spec.Member, string(pp.UID))
			continue
		}
		if _, _, err := r.dispatch(ctx, pp); err != nil {
			return err
		}
	}
	r.opts.Dispatcher.MarkReady()
	log.FromContext(ctx).Info("desired state loaded", "placements", len(list.Items))
	return nil
}

// Reconcile hands one placement over and reads back what its member says.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pp := &v1alpha1.ProxyPlacement{}
	err := r.opts.Client.Get(ctx, req.NamespacedName, pp)
	if apierrors.IsNotFound(err) {
		r.vanished(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	var result reconcile.Result
	if pp.DeletionTimestamp.IsZero() {
		result, err = r.reconcile(ctx, pp)
	} else {
		result, err = r.finalize(ctx, pp)
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictInterval}, nil
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, pp *v1alpha1.ProxyPlacement) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(pp, v1alpha1.FinalizerPlacement) {
		before := pp.DeepCopy()
		controllerutil.AddFinalizer(pp, v1alpha1.FinalizerPlacement)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.opts.Client.Patch(ctx, pp, patch); err != nil {
			return reconcile.Result{}, fmt.Errorf("add finalizer: %w", err)
		}
	}
	item, whole, err := r.dispatch(ctx, pp)
	if err != nil {
		return reconcile.Result{}, err
	}
	result := reconcile.Result{}
	if !whole {
		result.RequeueAfter = credentialsInterval
	}
	return result, r.writeStatus(ctx, pp, item)
}

// dispatch makes the placement what its member is wanted to have. whole is false while credentials are missing that the
// placement names: the member goes on with what it has of them.
func (r *Reconciler) dispatch(ctx context.Context, pp *v1alpha1.ProxyPlacement) (item dispatch.Item, whole bool, err error) {
	item, err = dispatch.NewItem(string(pp.UID), pp.Generation, v1alpha1.ProxySetSpec{
		PlacementUID: pp.UID, PlacementGeneration: pp.Generation, FleetUID: pp.Spec.Fleet.UID,
		Revision: pp.Spec.Revision, Template: pp.Spec.Template, External: setExternal(pp.Spec.External),
		Replicas: pp.Spec.Replicas, Drain: pp.Spec.Drain,
	})
	if err != nil {
		return item, false, err
	}
	credentials, whole := r.credentials(pp)
	item = item.With(credentials)
	r.mu.Lock()
	r.sent[client.ObjectKeyFromObject(pp)] = dispatch.Ref{Member: pp.Spec.Member, UID: string(pp.UID)}
	r.mu.Unlock()
	r.opts.Dispatcher.Set(pp.Spec.Member, item)
	return item, whole, nil
}

// vanished takes back what was dispatched for a placement that is gone from the API server, finalizer or not.
func (r *Reconciler) vanished(name types.NamespacedName) {
	r.mu.Lock()
	ref, ok := r.sent[name]
	delete(r.sent, name)
	r.mu.Unlock()
	if !ok {
		return
	}
	r.opts.Dispatcher.Remove(ref.Member, ref.UID)
	r.opts.Dispatcher.Forget(ref.Member, ref.UID)
}

// finalize waits until nothing is left on the member.
func (r *Reconciler) finalize(ctx context.Context, pp *v1alpha1.ProxyPlacement) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(pp, v1alpha1.FinalizerPlacement) {
		return reconcile.Result{}, nil
	}
	member, uid := pp.Spec.Member, string(pp.UID)
	r.opts.Dispatcher.Remove(member, uid)
	if !r.opts.Dispatcher.Gone(member, uid) {
		wait, err := r.worthWaiting(ctx, pp)
		if err != nil {
			return reconcile.Result{}, err
		}
		if wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
	}
	before := pp.DeepCopy()
	controllerutil.RemoveFinalizer(pp, v1alpha1.FinalizerPlacement)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.opts.Client.Patch(ctx, pp, patch)); err != nil {
		return reconcile.Result{}, fmt.Errorf("remove finalizer: %w", err)
	}
	r.mu.Lock()
	delete(r.sent, client.ObjectKeyFromObject(pp))
	r.mu.Unlock()
	r.opts.Dispatcher.Forget(member, uid)
	return reconcile.Result{}, nil
}

// worthWaiting returns when to look again, or 0 to give the member up.
func (r *Reconciler) worthWaiting(ctx context.Context, pp *v1alpha1.ProxyPlacement) (time.Duration, error) {
	err := r.opts.Client.Get(ctx, types.NamespacedName{Name: pp.Spec.Member}, &v1alpha1.MemberCluster{})
	switch {
	case apierrors.IsNotFound(err):
		log.FromContext(ctx).Info("nobody is left to confirm the removal: the member is gone", "member", pp.Spec.Member)
		return 0, nil
	case err != nil:
		return 0, errors.Join(errors.New("find the placement's member"), err)
	}
	now := r.opts.Clock.Now()
	due := pp.DeletionTimestamp.Add(r.opts.GiveUpAfter)
	if r.opts.Inventory.Member(pp.Spec.Member).Lost && !now.Before(due) {
		log.FromContext(ctx).Info("given up waiting for a lost member; it will remove what it has when it returns",
			"member", pp.Spec.Member, "waited", r.opts.GiveUpAfter)
		return 0, nil
	}
	if now.Before(due) {
		return min(finalizeInterval, due.Sub(now)), nil
	}
	return finalizeInterval, nil
}
