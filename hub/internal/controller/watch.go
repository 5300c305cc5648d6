package controller

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
)

// settle is how long reports gather before a fleet or a placement sums them up: its members report proxy by proxy.
const settle = 100 * time.Millisecond

// settleCounts is how long changes of a member's counts gather before its status is written: while a fleet rolls there
// are some all the time.
const settleCounts = time.Second

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (s *setup) options(workers int) controller.Options {
	return controller.Options{MaxConcurrentReconciles: workers, SkipNameValidation: &s.opts.SkipNameValidation}
}

func (s *setup) watchFleets(r reconcile.Reconciler) error {
	return ctrl.NewControllerManagedBy(s.mgr).
		Named("fleet").
		For(&v1alpha1.ProxyFleet{}, builder.WithPredicates(predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
				return !slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
			}},
		))).
		Owns(&v1alpha1.ProxyPlacement{}).
		Watches(&v1alpha1.MemberCluster{}, handler.EnqueueRequestsFromMapFunc(s.everyFleet),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: memberBearsOnFleets})).
		WatchesRawSource(s.inventorySource(func(ctx context.Context, changes inventory.Changes, q queue) {
			for _, uid := range changes.Placements {
				for _, pp := range s.placementsByUID(ctx, uid) {
					q.AddAfter(request(pp.Namespace, pp.Spec.Fleet.Name), settle)
				}
			}
			if len(changes.Members) > 0 {
				for _, req := range s.everyFleet(ctx, nil) {
					q.AddAfter(req, settle)
				}
			}
		})).
		WithOptions(s.options(4)).
		Complete(r)
}

func (s *setup) watchPlacements(r reconcile.Reconciler) error {
	return ctrl.NewControllerManagedBy(s.mgr).
		Named("placement").
		For(&v1alpha1.ProxyPlacement{}).
		WatchesRawSource(s.inventorySource(func(ctx context.Context, changes inventory.Changes, q queue) {
			for _, uid := range changes.Placements {
				for _, pp := range s.placementsByUID(ctx, uid) {
					q.AddAfter(request(pp.Namespace, pp.Name), settle)
				}
			}
			for _, member := range changes.Members {
				for _, pp := range s.placementsOf(ctx, member) {
					q.AddAfter(request(pp.Namespace, pp.Name), settle)
				}
			}
		})).
		WatchesRawSource(source.Func(func(ctx context.Context, q queue) error {
			go func() {
				for {
					select {
					case <-ctx.Done():
						return
					case <-s.opts.Dispatcher.Events():
					}
					for _, ref := range s.opts.Dispatcher.Changed() {
						for _, pp := range s.placementsByUID(ctx, ref.UID) {
							q.Add(request(pp.Namespace, pp.Name))
						}
					}
				}
			}()
			return nil
		})).
		WithOptions(s.options(4)).
		Complete(r)
}

func (s *setup) watchMembers(r reconcile.Reconciler) error {
	return ctrl.NewControllerManagedBy(s.mgr).
		Named("member").
		For(&v1alpha1.MemberCluster{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(s.inventorySource(func(_ context.Context, changes inventory.Changes, q queue) {
			for _, name := range changes.Members {
				q.Add(request("", name))
			}
			for _, name := range changes.Counts {
				q.AddAfter(request("", name), settleCounts)
			}
		})).
		WithOptions(s.options(2)).
		Complete(r)
}

// inventorySource hands every batch of the inventory's changes to enqueue.
func (s *setup) inventorySource(enqueue func(context.Context, inventory.Changes, queue)) source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		watcher := s.opts.Inventory.Watch()
		go func() {
			defer watcher.Close()
			for {
				select {
				case <-ctx.Done():
					return
				case <-watcher.Changed():
					enqueue(ctx, watcher.Take(), q)
				}
			}
		}()
		return nil
	})
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func (s *setup) everyFleet(ctx context.Context, _ client.Object) []reconcile.Request {
	var list v1alpha1.ProxyFleetList
	if err := s.mgr.GetClient().List(ctx, &list); err != nil {
		log.FromContext(ctx).Error(err, "cannot list fleets; they are looked at again soon anyway")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, request(list.Items[i].Namespace, list.Items[i].Name))
	}
	return requests
}

func (s *setup) placementsByUID(ctx context.Context, uid string) []v1alpha1.ProxyPlacement {
	return s.placements(ctx, client.MatchingFields{indexUID: uid})
}

func (s *setup) placementsOf(ctx context.Context, member string) []v1alpha1.ProxyPlacement {
	return s.placements(ctx, client.MatchingLabels{v1alpha1.LabelMember: member})
}

func (s *setup) placements(ctx context.Context, which client.ListOption) []v1alpha1.ProxyPlacement {
	var list v1alpha1.ProxyPlacementList
	if err := s.mgr.GetClient().List(ctx, &list, which); err != nil {
		log.FromContext(ctx).Error(err, "cannot list placements; they are looked at again soon anyway")
	}
	return list.Items
}

// memberBearsOnFleets tells whether a change of a member can change a plan: heartbeats cannot.
func memberBearsOnFleets(e event.UpdateEvent) bool {
	was, ok1 := e.ObjectOld.(*v1alpha1.MemberCluster)
	is, ok2 := e.ObjectNew.(*v1alpha1.MemberCluster)
	if !ok1 || !ok2 {
		return true
	}
	reason := func(mc *v1alpha1.MemberCluster) string {
		if c := meta.FindStatusCondition(mc.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			return c.Reason
		}
		return ""
	}
	return was.Generation != is.Generation || was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero() ||
		!equality.Semantic.DeepEqual(was.Labels, is.Labels) ||
		!slices.Equal(was.Status.Providers, is.Status.Providers) || reason(was) != reason(is)
}

// onAnyChange calls changed at every event of an informer.
func onAnyChange(changed func()) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	}
}
