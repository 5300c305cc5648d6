package controller

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// TestConflictIsQuiet makes every write of placements meet a newer version once: it is no error, and the fleet arrives.
func TestConflictIsQuiet(t *testing.T) {
	w := newWorld(t, "east")
	w.fleet("news", 3)
	w.turns()
	conflict := apierrors.NewConflict(schema.GroupResource{Group: "shoal.dev", Resource: "proxyplacements"}, "x", nil)
	failed := 0
	faulty, err := client.NewWithWatch(server.Config, client.Options{Scheme: server.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	broken := interceptor.NewClient(faulty, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if failed++; failed%2 == 1 {
				return conflict
			}
			return c.Update(ctx, o, opts...)
		},
	})
	w.hub = startHub(t, w.clock, broken)
	// The fleet is from before this hub: let the grace pass.
	w.pass(31 * time.Minute)
	for _, m := range w.sims {
		m.connect(w.hub)
	}
	w.scale("news", 1)
	w.turn()
	if failed == 0 {
		t.Fatal("nothing was written, so no conflict was met")
	}
	result, err := w.fleets.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: w.ns, Name: "news"}})
	if err != nil || result.RequeueAfter <= 0 {
		t.Errorf("result %+v, error %v", result, err)
	}
	for range 6 {
		w.turn() // a conflict changes nothing, so turns would stop too early
	}
	w.turns()
	if w.sims[0].count() != 1 {
		t.Errorf("%d proxies, want 1", w.sims[0].count())
	}
}

// TestLeasedMeanwhile leases the victim between the decision and the question whether it is leased: its deadline is not
// brought forward.
func TestLeasedMeanwhile(t *testing.T) {
	w := newWorld(t, "east")
	w.fleet("news", 2)
	w.turns()
	leased := map[string]bool{}
	inner, err := client.NewWithWatch(server.Config, client.Options{Scheme: server.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	h := startHub(t, w.clock, interceptor.NewClient(inner, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			pp, ok := o.(*v1alpha1.ProxyPlacement)
			if ok && len(pp.Spec.Drain) > 0 && len(leased) == 0 {
				for range 10 { // all slots of both
					leased[w.acquire("news").ProxyName] = true
				}
			}
			return c.Update(ctx, o, opts...)
		},
	}))
	w.hub = h
	w.pass(31 * time.Minute)
	w.sims[0].connect(h)
	w.turns()
	w.scale("news", 1)
	w.turns()
	if len(leased) != 2 {
		t.Fatalf("leased: %v", leased)
	}
	drain := w.placementList()[0].Spec.Drain
	if len(drain) != 1 || !drain[0].Deadline.After(w.clock.Now().Add(10*time.Minute)) {
		t.Errorf("a proxy that is leased is due at once: %v (now %v)", drain, w.clock.Now())
	}
	if w.sims[0].count() != 2 {
		t.Error("a leased proxy was removed")
	}
}
