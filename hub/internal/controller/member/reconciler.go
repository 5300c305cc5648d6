// Package member writes down how each MemberCluster fares: whether an agent speaks for it, whether it is heard, what it
// offers and how much it runs.
//
// Liveness is the inventory's verdict, by the hub's clock. This package makes it durable where it must outlive the hub:
// lostSince counts from the first loss, whichever hub saw it. The member's identity is written by others and is not
// touched here.
//
// A MemberCluster that is deleted with deletionPolicy Drain stays until the fleets have moved their proxies away, or
// until it has stayed lost for long.
package member

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/dispatch"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
)

const (
	// heartbeatInterval is how often lastHeartbeat is written while nothing else changes.
	heartbeatInterval = 30 * time.Second
	// finalizeInterval is how often a deletion is looked at while it waits.
	finalizeInterval = 5 * time.Second
	// conflictInterval is for a cache that has not caught up.
	conflictInterval = 100 * time.Millisecond
	// DefaultGiveUpAfter is how long a deleted MemberCluster waits for a lost member to drain.
	DefaultGiveUpAfter = 10 * time.Minute
)

// Options are what a Reconciler is made with. All but GiveUpAfter are required.
type Options struct {
	// Client reads from caches and writes.
	Client client.Client
	// Inventory is what members reported.
	Inventory *inventory.Inventory
	// Dispatcher forgets members that are gone.
	Dispatcher *dispatch.Dispatcher
	// Clock is the hub's.
	Clock clock.PassiveClock
	// Recorder takes events.
	Recorder events.EventRecorder
	// GiveUpAfter is how long a deleted member that is lost is waited for: DefaultGiveUpAfter if zero.
	GiveUpAfter time.Duration
}

// Reconciler reconciles MemberClusters. It is safe for concurrent use by several workers.
type Reconciler struct{ opts Options }

// New makes a reconciler. It panics if something required is missing: that is a mistake in the wiring.
func New(opts Options) *Reconciler {
	if opts.Client == nil || opts.Inventory == nil || opts.Dispatcher == nil || opts.Clock == nil || opts.Recorder == nil {
		panic("member: every option but GiveUpAfter is required")
	}
	if opts.GiveUpAfter <= 0 {
		opts.GiveUpAfter = DefaultGiveUpAfter
	}
	return &Reconciler{opts: opts}
}

// Reconcile writes one member's status.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	mc := &v1alpha1.MemberCluster{}
	err := r.opts.Client.Get(ctx, req.NamespacedName, mc)
	if apierrors.IsNotFound(err) {
		r.opts.Inventory.ForgetMember(req.Name)
		r.opts.Dispatcher.ForgetMember(req.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	result, err := r.reconcile(ctx, mc)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictInterval}, nil
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, mc *v1alpha1.MemberCluster) (reconcile.Result, error) {
	deleting := !mc.DeletionTimestamp.IsZero()
	hold := mc.Spec.DeletionPolicy == v1alpha1.DeletionDrain
	awaited := ""
	if deleting && hold {
		var err error
		if awaited, err = r.awaited(ctx, mc); err != nil {
			return reconcile.Result{}, err
		}
		hold = awaited != ""
	}
	if err := r.setFinalizer(ctx, mc, hold); err != nil {
		return reconcile.Result{}, err
	}
	if deleting && !hold {
		return reconcile.Result{}, nil
	}
	if err := r.writeStatus(ctx, mc, awaited); err != nil {
		return reconcile.Result{}, err
	}
	if deleting {
		return reconcile.Result{RequeueAfter: finalizeInterval}, nil
	}
	return reconcile.Result{RequeueAfter: heartbeatInterval}, nil
}

// setFinalizer adds or removes the finalizer. To what is being deleted none can be added.
func (r *Reconciler) setFinalizer(ctx context.Context, mc *v1alpha1.MemberCluster, want bool) error {
	has := controllerutil.ContainsFinalizer(mc, v1alpha1.FinalizerMember)
	if has == want || want && !mc.DeletionTimestamp.IsZero() {
		return nil
	}
	before := mc.DeepCopy()
	if want {
		controllerutil.AddFinalizer(mc, v1alpha1.FinalizerMember)
	} else {
		controllerutil.RemoveFinalizer(mc, v1alpha1.FinalizerMember)
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.opts.Client.Patch(ctx, mc, patch)); err != nil {
		return fmt.Errorf("change finalizer: %w", err)
	}
	return nil
}

// awaited says which fleets still have proxies on a member that is being deleted; empty if it need not wait any more.
func (r *Reconciler) awaited(ctx context.Context, mc *v1alpha1.MemberCluster) (string, error) {
	var list v1alpha1.ProxyPlacementList
	if err := r.opts.Client.List(ctx, &list, client.MatchingLabels{v1alpha1.LabelMember: mc.Name}); err != nil {
		return "", fmt.Errorf("list the member's placements: %w", err)
	}
	var fleets []string
	for i := range list.Items {
		pp := &list.Items[i]
		if name := pp.Namespace + "/" + pp.Spec.Fleet.Name; pp.Spec.Member == mc.Name && !slices.Contains(fleets, name) {
			fleets = append(fleets, name)
		}
	}
	if len(fleets) == 0 {
		return "", nil
	}
	due := mc.DeletionTimestamp.Add(r.opts.GiveUpAfter)
	if r.opts.Inventory.Member(mc.Name).Lost && !r.opts.Clock.Now().Before(due) {
		log.FromContext(ctx).Info("given up waiting for a lost member to drain", "waited", r.opts.GiveUpAfter)
		return "", nil
	}
	slices.Sort(fleets)
	const most = 5
	if more := len(fleets) - most; more > 0 {
		fleets = append(fleets[:most], fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("waiting for the proxies of %s to leave; set spec.deletionPolicy to Orphan or Force not to wait",
		strings.Join(fleets, ", ")), nil
}
