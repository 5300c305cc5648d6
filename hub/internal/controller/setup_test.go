package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/dispatch"
	"github.com/shoal-dev/shoal/hub/internal/external"
	"github.com/shoal-dev/shoal/hub/internal/feed"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// TestSetup runs all loops under a manager, with the real clock: whatever changes must reach who waits for it by itself.
// The polls of the loops are slower than this test would like, so a watch that is missing shows.
func TestSetup(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ctrl.SetLogger(logr.Discard())
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: server.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	k := keeper.New(keeper.Options{
		Engine:  lease.New(lease.Options{IDs: &lease.CountingIDs{}, Epoch: 1, StartedAt: started}),
		Journal: keeper.NewMemory(keeper.MemoryOptions{}),
	})
	opts := Options{
		Dispatcher: dispatch.New(), Inventory: inventory.New(inventory.Options{Clock: clock.RealClock{}}), Keeper: k,
		Credentials: external.New(external.Options{Reader: server.Client, Clock: clock.RealClock{}}),
		StartedAt:   started, Clock: clock.RealClock{}, SkipNameValidation: true,
	}
	if err := Setup(mgr, opts); err != nil {
		t.Fatal(err)
	}
	runCtx, stop := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- k.Run(runCtx) }()
	go func() { ended <- mgr.Start(runCtx) }()
	defer func() {
		stop()
		for range 2 {
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	}()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the caches do not sync")
	}

	h := &hub{t: t, client: server.Client, dispatcher: opts.Dispatcher, inventory: opts.Inventory, keeper: k}
	w := &world{hub: h, ns: server.Namespace(t, "tenant-"), check: func() {}}
	w.feed = feed.New(feed.Options{
		Keeper: k, Inventory: opts.Inventory, Reader: server.Client, Clock: clock.RealClock{}, StartedAt: started,
	}) // takes the calls of the harness; it is not started
	h.clock = newClock()
	east := w.join("east")
	w.fleet("news", 3)

	wanted, done := opts.Dispatcher.Watch(east.name)
	defer done()
	watching, err := client.NewWithWatch(server.Config, client.Options{Scheme: server.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	until := func(what string, reached func(*v1alpha1.ProxyFleet) bool) {
		t.Helper()
		seen, err := watching.Watch(ctx, &v1alpha1.ProxyFleetList{}, client.InNamespace(w.ns))
		if err != nil {
			t.Fatal(err)
		}
		defer seen.Stop()
		last := &v1alpha1.ProxyFleet{}
		for {
			select {
			case <-ctx.Done():
				t.Fatalf("not reached: %s; last seen: %+v", what, last.Status)
			case <-wanted:
				h.clock.SetTime(time.Now())
				east.work()
				east.work() // what was made is ready now
			case event := <-seen.ResultChan():
				f, ok := event.Object.(*v1alpha1.ProxyFleet)
				if !ok {
					t.Fatalf("watch: %+v", event)
				}
				last = f
				if event.Type == watch.Deleted {
					f = nil
				}
				if reached(f) {
					return
				}
			}
		}
	}
	// counted waits for what the member's status says of its proxies. Its heartbeats are written every 30 s, changes soon.
	counted := func(proxies, ready int32) {
		t.Helper()
		within, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		seen, err := watching.Watch(within, &v1alpha1.MemberClusterList{}, client.MatchingLabels{"tenant": w.ns})
		if err != nil {
			t.Fatal(err)
		}
		defer seen.Stop()
		var last *v1alpha1.MemberCluster
		for last == nil || last.Status.Proxies != proxies || last.Status.Ready != ready {
			select {
			case <-within.Done():
				t.Fatalf("member: not soon %d proxies, %d ready; last seen: %+v", proxies, ready, last)
			case event := <-seen.ResultChan():
				if mc, ok := event.Object.(*v1alpha1.MemberCluster); ok {
					last = mc
				}
			}
		}
	}
	until("3 ready", func(f *v1alpha1.ProxyFleet) bool {
		return f != nil && f.Status.Ready == 3 && f.Status.ObservedGeneration == f.Generation
	})
	counted(3, 3)
	w.scale("news", 1)
	until("scaled down", func(f *v1alpha1.ProxyFleet) bool {
		return f != nil && f.Status.Replicas == 1 && f.Status.Draining == 0 && f.Status.Slots == 5
	})
	counted(1, 1)
	w.change("news", func(f *v1alpha1.ProxyFleet) { f.Spec.Template.Spec.Port = 3129 })
	until("rolled", func(f *v1alpha1.ProxyFleet) bool {
		return f != nil && f.Status.ObservedGeneration == f.Generation && f.Status.Updated == 1 && f.Status.Ready == 1 &&
			f.Status.Replicas == 1 && f.Status.Draining == 0
	})
	if err := server.Client.Delete(ctx, w.get("news")); err != nil {
		t.Fatal(err)
	}
	until("deleted", func(f *v1alpha1.ProxyFleet) bool { return f == nil })
	if east.count() != 0 {
		t.Errorf("%d proxies are left", east.count())
	}
	counted(0, 0)
}
