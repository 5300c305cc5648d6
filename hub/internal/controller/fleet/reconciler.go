package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Keeper answers for the lease engine.
type Keeper interface {
	// Do carries out one command; a refused one is a *lease.Refusal.
	Do(ctx context.Context, cmd lease.Command) (lease.Result, error)
}

// History knows which fleets an earlier hub may have granted leases of.
type History interface {
	// HeldBefore tells whether an earlier hub has taken the fleet up; known is false until that is known.
	HeldBefore(uid types.UID) (before, known bool)
}

// Options are what a Reconciler is made with. All but HistoryComplete are required.
type Options struct {
	// Client reads from caches and writes.
	Client client.Client
	// Live reads past the caches.
	Live client.Reader
	// Inventory is what members reported.
	Inventory *inventory.Inventory
	// Keeper answers for the lease engine.
	Keeper Keeper
	// History knows fleets from before this hub.
	History History
	// Credentials are those of proxies that someone else runs.
	Credentials Credentials
	// HistoryComplete says that the journal of leases survives a restart of the hub.
	HistoryComplete bool
	// StartedAt is when the lease engine's history begins, as in lease.Options.
	StartedAt time.Time
	// Clock is the hub's.
	Clock clock.PassiveClock
	// Recorder takes events.
	Recorder events.EventRecorder
}

// Reconciler reconciles ProxyFleets. It is safe for concurrent use by several workers.
type Reconciler struct{ opts Options }

// New makes a reconciler. It panics if something required is missing: that is a mistake in the wiring.
func New(opts Options) *Reconciler {
	if opts.Client == nil || opts.Live == nil || opts.Inventory == nil || opts.Keeper == nil || opts.History == nil ||
		opts.Credentials == nil || opts.Clock == nil || opts.Recorder == nil || opts.StartedAt.IsZero() {
		panic("fleet: every option but HistoryComplete is required")
	}
	return &Reconciler{opts: opts}
}

// The times after which a fleet is looked at again, though nothing told to.
const (
	// pollInterval is for what nobody tells of: counts of leases, the passing of time.
	pollInterval = 10 * time.Second
	// drainInterval is for drains that wait for leases.
	drainInterval = time.Second
	// holdInterval is for a hold that ends by itself.
	holdInterval = 2 * time.Second
	// conflictInterval is for a cache that has not caught up.
	conflictInterval = 100 * time.Millisecond
)

// Reconcile takes one fleet one step on.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	fleet := &v1alpha1.ProxyFleet{}
	if err := r.opts.Client.Get(ctx, req.NamespacedName, fleet); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	result, err := r.reconcile(ctx, fleet)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		log.FromContext(ctx).V(1).Info("something changed meanwhile; trying again", "cause", err)
		return reconcile.Result{RequeueAfter: conflictInterval}, nil
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, fleet *v1alpha1.ProxyFleet) (reconcile.Result, error) {
	if !fleet.DeletionTimestamp.IsZero() {
		return r.finalize(ctx, fleet)
	}
	if _, known := r.opts.History.HeldBefore(fleet.UID); !known && !r.opts.HistoryComplete {
		// The finalizer is how a fleet that was taken up is told from a new one.
		return reconcile.Result{RequeueAfter: conflictInterval}, nil
	}
	if !controllerutil.ContainsFinalizer(fleet, v1alpha1.FinalizerFleet) {
		before := fleet.DeepCopy()
		controllerutil.AddFinalizer(fleet, v1alpha1.FinalizerFleet)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.opts.Client.Patch(ctx, fleet, patch); err != nil {
			return reconcile.Result{}, fmt.Errorf("add finalizer: %w", err)
		}
	}
	s, err := r.gather(ctx, r.opts.Client, fleet)
	if err != nil {
		return reconcile.Result{}, err
	}
	s.decide()
	if s.changes() {
		if s, err = r.gather(ctx, r.opts.Live, fleet); err != nil {
			return reconcile.Result{}, err
		}
		s.decide()
		err = r.write(ctx, s)
	}
	err = errors.Join(err, r.settleDrains(ctx, s))
	if isConflict(err) {
		// Status would speak of a mixture of before and after.
		return reconcile.Result{RequeueAfter: conflictInterval}, nil
	}
	err = errors.Join(err, r.writeStatus(ctx, s, err == nil))
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: s.requeue}, nil
}

// decide runs the phases that only think.
func (s *scope) decide() {
	s.accept()
	s.plan()
	s.hold()
	s.roll()
}

// isConflict tells whether all that went wrong is that somebody else was first, also through a joined error.
func isConflict(err error) bool {
	if err == nil {
		return false
	}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, e := range joined.Unwrap() {
			if !isConflict(e) {
				return false
			}
		}
		return true
	}
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// after brings the next look forward.
func (s *scope) after(d time.Duration) {
	if d > 0 && d < s.requeue {
		s.requeue = d
	}
}
