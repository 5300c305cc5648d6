package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
)

// finalizeInterval is how often a deletion is looked at while it waits.
const finalizeInterval = 5 * time.Second

// finalize deletes the fleet's placements and lets the fleet go once they are gone. It never hangs on a lost member:
// the placement controller gives a placement up when its member stays lost, and keeps the tombstone for its return.
func (r *Reconciler) finalize(ctx context.Context, fleet *v1alpha1.ProxyFleet) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(fleet, v1alpha1.FinalizerFleet) {
		return reconcile.Result{}, nil
	}
	left, err := listPlacements(ctx, r.opts.Live, fleet)
	if err != nil {
		return reconcile.Result{}, err
	}
	before := fleet.DeepCopy()
	if len(left) == 0 {
		controllerutil.RemoveFinalizer(fleet, v1alpha1.FinalizerFleet)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := client.IgnoreNotFound(r.opts.Client.Patch(ctx, fleet, patch)); err != nil {
			return reconcile.Result{}, fmt.Errorf("remove finalizer: %w", err)
		}
		r.opts.Credentials.Forget(client.ObjectKeyFromObject(fleet))
		return reconcile.Result{}, nil
	}
	for _, pp := range left {
		if !pp.DeletionTimestamp.IsZero() {
			continue
		}
		if err := client.IgnoreNotFound(r.opts.Client.Delete(ctx, pp, client.Preconditions{UID: &pp.UID})); err != nil {
			return reconcile.Result{}, fmt.Errorf("delete placement %s: %w", pp.Name, err)
		}
	}
	meta.SetStatusCondition(&fleet.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDeleting,
		Message: r.awaited(left), ObservedGeneration: fleet.Generation,
		LastTransitionTime: metav1.NewTime(r.opts.Clock.Now()),
	})
	if err := client.IgnoreNotFound(r.patchStatus(ctx, before, fleet)); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: finalizeInterval}, nil
}

// awaited says which members have not confirmed yet that nothing is left.
func (r *Reconciler) awaited(left []*v1alpha1.ProxyPlacement) string {
	var names []string
	for _, pp := range left {
		name := pp.Spec.Member
		if state := r.opts.Inventory.Member(name).State; state != inventory.Ready {
			name += fmt.Sprintf(" (%s)", state)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return fmt.Sprintf("waiting for %s to confirm that the fleet's proxies are removed; a member that stays lost is given up",
		listed(names))
}
