package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/controller/fleet"
	"github.com/shoal-dev/shoal/hub/internal/controller/member"
	"github.com/shoal-dev/shoal/hub/internal/controller/placement"
	"github.com/shoal-dev/shoal/hub/internal/dispatch"
	"github.com/shoal-dev/shoal/hub/internal/external"
	"github.com/shoal-dev/shoal/hub/internal/feed"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// hub is everything of the hub but its manager: the test says when each loop runs.
type hub struct {
	t          *testing.T
	clock      *clocktesting.FakeClock
	client     client.Client
	dispatcher *dispatch.Dispatcher
	inventory  *inventory.Inventory
	keeper     *keeper.Keeper
	feed       *feed.Feed
	fleets     *fleet.Reconciler
	placements *placement.Reconciler
	members    *member.Reconciler
	recorder   *events.FakeRecorder
	owners     *external.Store
}

// startHub starts a hub on what the API server holds. Its leases are new.
func startHub(t *testing.T, clock *clocktesting.FakeClock, c client.Client) *hub {
	t.Helper()
	h := &hub{
		t: t, clock: clock, client: c, dispatcher: dispatch.New(), inventory: inventory.New(inventory.Options{Clock: clock}),
		recorder: events.NewFakeRecorder(10000),
	}
	started := clock.Now()
	h.owners = external.New(external.Options{Reader: c, Clock: clock})
	h.keeper = keeper.New(keeper.Options{
		Engine:  lease.New(lease.Options{IDs: &lease.CountingIDs{}, Epoch: 1, StartedAt: started}),
		Journal: keeper.NewMemory(keeper.MemoryOptions{}), Clock: clock,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.keeper.Run(ctx) }()
	<-h.keeper.Ready()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("keeper: %v", err)
		}
	})
	h.feed = feed.New(feed.Options{
		Keeper: h.keeper, Inventory: h.inventory, Reader: c, Clock: clock, StartedAt: started, Logger: logr.Discard(),
	})
	h.fleets = fleet.New(fleet.Options{
		Client: c, Live: c, Inventory: h.inventory, Keeper: h.keeper, History: h.feed, StartedAt: started, Clock: clock,
		Credentials: h.owners, Recorder: h.recorder,
	})
	h.placements = placement.New(placement.Options{
		Client: c, Dispatcher: h.dispatcher, Inventory: h.inventory, Credentials: h.owners, Clock: clock,
	})
	h.members = member.New(member.Options{
		Client: c, Inventory: h.inventory, Dispatcher: h.dispatcher, Clock: clock, Recorder: h.recorder,
	})
	if err := h.feed.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.placements.Load(ctx); err != nil {
		t.Fatal(err)
	}
	return h
}

// world is a hub, its members and one tenant.
type world struct {
	*hub
	ns   string
	sims []*sim
	// check runs after every turn of every loop.
	check func()
}

func newClock() *clocktesting.FakeClock {
	// Near the API server's own clock, which stamps creation and deletion.
	return clocktesting.NewFakeClock(time.Now().Truncate(time.Second))
}

// newWorld makes members of the given names, accepted and connected, and a hub. The names are made the test's own.
func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := &world{ns: server.Namespace(t, "tenant-"), check: func() {}}
	w.hub = startHub(t, newClock(), server.Client)
	for _, name := range names {
		w.join(name)
	}
	return w
}

func (w *world) join(name string) *sim {
	w.t.Helper()
	name = name + "-" + w.ns
	mc := &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tenant": w.ns}},
		Spec:       v1alpha1.MemberClusterSpec{Accepted: true, Region: "region-" + name},
	}
	if err := server.Client.Create(w.t.Context(), mc); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		force := mc.DeepCopy()
		force.Finalizers = nil
		_ = server.Client.Patch(context.Background(), force, client.MergeFrom(mc))
		_ = server.Client.Delete(context.Background(), mc)
	})
	m := &sim{
		t: w.t, name: name, sets: map[string]*v1alpha1.ProxySetSpec{}, proxies: map[string]*simProxy{},
		provider: []string{"default", "spare"},
	}
	w.sims = append(w.sims, m)
	m.connect(w.hub)
	return m
}

// restart loses all that the hub had in memory.
func (w *world) restart() {
	w.t.Helper()
	w.hub = startHub(w.t, w.clock, w.client)
	for _, m := range w.sims {
		m.hub = nil
	}
}

// fleet makes a fleet on the test's own members.
func (w *world) fleet(name string, replicas int32, change ...func(*v1alpha1.ProxyFleet)) {
	w.t.Helper()
	f := &v1alpha1.ProxyFleet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.ns},
		Spec: v1alpha1.ProxyFleetSpec{
			Replicas: &replicas,
			Template: &v1alpha1.ProxyTemplate{Spec: v1alpha1.ProxyTemplateSpec{Provider: "default"}},
			Placement: v1alpha1.FleetPlacement{
				MemberSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": w.ns}},
			},
		},
	}
	for _, c := range change {
		c(f)
	}
	if err := server.Client.Create(w.t.Context(), f); err != nil {
		w.t.Fatal(err)
	}
	w.feed.ObjectsChanged()
}

func (w *world) get(name string) *v1alpha1.ProxyFleet {
	w.t.Helper()
	f := &v1alpha1.ProxyFleet{}
	if err := server.Client.Get(w.t.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, f); err != nil {
		w.t.Fatal(err)
	}
	return f
}

func (w *world) change(name string, change func(*v1alpha1.ProxyFleet)) {
	w.t.Helper()
	// Under a manager the loops write meanwhile.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		f := w.get(name)
		change(f)
		return server.Client.Update(w.t.Context(), f)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) scale(name string, replicas int32) {
	w.t.Helper()
	w.change(name, func(f *v1alpha1.ProxyFleet) { f.Spec.Replicas = &replicas })
}

func (w *world) placementList() []v1alpha1.ProxyPlacement {
	w.t.Helper()
	var list v1alpha1.ProxyPlacementList
	if err := server.Client.List(w.t.Context(), &list, client.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// turn runs every loop once, each object of the tenant in turn, and then the members.
func (w *world) turn() {
	w.t.Helper()
	ctx := w.t.Context()
	must := func(what string, err error) {
		if err != nil {
			w.t.Fatalf("%s: %v", what, err)
		}
		w.check()
	}
	for _, m := range w.sims {
		_, err := w.members.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: m.name}})
		must("member", err)
	}
	var fleets v1alpha1.ProxyFleetList
	if err := server.Client.List(ctx, &fleets, client.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}
	for i := range fleets.Items {
		_, err := w.fleets.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&fleets.Items[i])})
		must("fleet", err)
	}
	for _, pp := range w.placementList() {
		_, err := w.placements.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pp)})
		must("placement", err)
	}
	for _, m := range w.sims {
		m.work()
		must("member's work", nil)
	}
	w.feed.ObjectsChanged()
	must("feed", w.feed.Sync(ctx))
}

// turns runs the loops until nothing changes any more.
func (w *world) turns() {
	w.t.Helper()
	before := ""
	for range 60 {
		w.turn()
		now := w.fingerprint()
		if now == before {
			return
		}
		before = now
	}
	w.t.Fatalf("nothing settles: %s", before)
}

func (w *world) fingerprint() string {
	var b strings.Builder
	var fleets v1alpha1.ProxyFleetList
	if err := server.Client.List(w.t.Context(), &fleets, client.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}
	for _, f := range fleets.Items {
		fmt.Fprintln(&b, f.Name, f.ResourceVersion)
	}
	for _, pp := range w.placementList() {
		fmt.Fprintln(&b, pp.Name, pp.ResourceVersion)
	}
	for _, m := range w.sims {
		for _, uid := range slices.Sorted(maps.Keys(m.proxies)) {
			fmt.Fprintln(&b, uid, m.proxies[uid].ready)
		}
	}
	return b.String()
}

// pass lets time pass in steps, during which members that are not silent are heard.
func (w *world) pass(d time.Duration) {
	for d > 0 {
		step := min(d, 5*time.Second)
		w.clock.Step(step)
		for _, m := range w.sims {
			if m.hub != nil && !m.silent {
				w.inventory.Heard(m.name, w.clock.Now())
			}
		}
		d -= step
	}
	w.inventory.Tick()
}

func (w *world) condition(name, kind string) metav1.Condition {
	w.t.Helper()
	c := meta.FindStatusCondition(w.get(name).Status.Conditions, kind)
	if c == nil {
		w.t.Fatalf("fleet %s has no condition %s", name, kind)
	}
	return *c
}

// counts tells how many proxies each member runs, in the members' order.
func (w *world) counts() []int {
	var n []int
	for _, m := range w.sims {
		n = append(n, m.count())
	}
	return n
}

func (w *world) uids() map[string]bool {
	all := map[string]bool{}
	for _, m := range w.sims {
		for uid := range m.proxies {
			all[uid] = true
		}
	}
	return all
}

// acquire leases one proxy.
func (w *world) acquire(fleet string) lease.Lease {
	w.t.Helper()
	granted, err := w.keeper.Acquire(w.t.Context(), lease.Acquire{Principal: "crawler", Fleet: feed.FleetID(w.ns, fleet)})
	if err != nil {
		w.t.Fatalf("acquire: %v", err)
	}
	return granted.Leases[0]
}

func (w *world) release(l lease.Lease) {
	w.t.Helper()
	if _, err := w.keeper.Release(w.t.Context(), lease.Release{Principal: "crawler", ID: l.ID}); err != nil {
		w.t.Fatalf("release: %v", err)
	}
}
