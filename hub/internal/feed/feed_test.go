package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	"github.com/shoal-dev/shoal/hub/internal/lease"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

var started = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// engine is a Keeper on a bare engine, which counts commands and can fail.
type engine struct {
	mu     sync.Mutex
	engine *lease.Engine
	clock  *clocktesting.FakeClock
	told   map[string]int
	fail   error
}

func (e *engine) Do(_ context.Context, cmd lease.Command) (lease.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil {
		return nil, e.fail
	}
	e.told[fmt.Sprintf("%T", cmd)]++
	out, err := e.engine.Step(e.clock.Now(), cmd)
	return out.Result, err
}

type bench struct {
	*Feed
	t         *testing.T
	clock     *clocktesting.FakeClock
	engine    *engine
	inventory *inventory.Inventory
	client    client.Client
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddHubToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(started)
	b := &bench{
		t: t, clock: clock, inventory: inventory.New(inventory.Options{Clock: clock}),
		client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
		engine: &engine{
			clock: clock, told: map[string]int{},
			engine: lease.New(lease.Options{IDs: &lease.CountingIDs{}, Epoch: 1, StartedAt: started}),
		},
	}
	b.Feed = New(Options{
		Keeper: b.engine, Inventory: b.inventory, Reader: b.client, Clock: clock, StartedAt: started, Logger: logr.Discard(),
	})
	return b
}

func (b *bench) sync() {
	b.t.Helper()
	if err := b.Sync(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) create(objects ...client.Object) {
	b.t.Helper()
	for _, o := range objects {
		if err := b.client.Create(b.t.Context(), o); err != nil {
			b.t.Fatal(err)
		}
	}
	b.ObjectsChanged()
}

// report lets the member say that a proxy is ready.
func (b *bench) report(member, placement string, names ...string) {
	for _, name := range names {
		b.inventory.ObserveProxy(member, member+"/"+name, &agentv1.ProxyReport{
			PlacementUid: placement, Name: name, Ready: true,
			Endpoints: []*agentv1.Endpoint{{Network: "PodIP", Host: "10.0.0.1", Port: 3128}, {Host: "bad", Port: 70000}},
			Exits:     []string{"192.0.2.1", "no address"},
		}, b.clock.Now())
	}
}

func (b *bench) connect(member string) {
	b.inventory.Connected(member, inventory.Session{Epoch: 1}, b.clock.Now())
	b.inventory.Resynced(member, b.clock.Now())
}

// usable names the proxies of crawl/news that can be leased.
func (b *bench) usable() []string {
	b.t.Helper()
	result, err := b.engine.Do(b.t.Context(), lease.List{Fleet: "crawl/news"})
	if err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, p := range result.(lease.Page).Proxies {
		if p.Usable {
			names = append(names, p.Proxy.Name)
		}
	}
	return names
}

func (b *bench) acquire() (lease.Lease, error) {
	result, err := b.engine.Do(b.t.Context(), lease.Acquire{Principal: "crawler", Fleet: "crawl/news"})
	if err != nil {
		return lease.Lease{}, err
	}
	return result.(lease.Granted).Leases[0], nil
}

func news() *v1alpha1.ProxyFleet {
	return &v1alpha1.ProxyFleet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crawl", Name: "news", UID: "news-uid", CreationTimestamp: metav1.NewTime(started)},
		Spec:       v1alpha1.ProxyFleetSpec{Template: &v1alpha1.ProxyTemplate{}},
	}
}

func east() *v1alpha1.MemberCluster {
	return &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "east"},
		Spec:       v1alpha1.MemberClusterSpec{Accepted: true, Region: "us-east1", Country: "US"},
	}
}

func placement(uid string, drain ...string) *v1alpha1.ProxyPlacement {
	pp := &v1alpha1.ProxyPlacement{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crawl", Name: "pp-" + uid, UID: types.UID(uid)},
		Spec:       v1alpha1.ProxyPlacementSpec{Member: "east", Fleet: v1alpha1.FleetRef{Name: "news", UID: "news-uid"}},
	}
	pp.Spec.Template.Metadata.Labels = map[string]string{"tier": "datacenter"}
	for _, name := range drain {
		pp.Spec.Drain = append(pp.Spec.Drain, v1alpha1.Drain{Name: name, Deadline: metav1.NewTime(started.Add(time.Hour))})
	}
	return pp
}

func TestTellsWhatCanBeLeased(t *testing.T) {
	b := newBench(t, east())
	b.sync()
	b.create(news(), placement("pp"))
	b.connect("east")
	b.report("east", "pp", "a", "b")
	b.report("east", "nobodys", "x")
	b.report("west", "pp", "y") // another member's
	b.sync()
	if diff := cmp.Diff([]string{"a", "b"}, b.usable()); diff != "" {
		t.Fatal(diff)
	}
	l, err := b.acquire()
	if err != nil {
		t.Fatal(err)
	}
	if l.Region != "us-east1" || l.Country != "US" || l.Endpoint.Port != 3128 || len(l.Exits) != 1 || l.TTL != lease.DefaultTTL {
		t.Errorf("%+v", l)
	}
	by := lease.Selector{Labels: map[string]string{"tier": "datacenter"}}
	if _, err := b.engine.Do(t.Context(), lease.Acquire{Principal: "p", Fleet: "crawl/news", Selector: by}); err != nil {
		t.Errorf("by the template's label: %v", err)
	}
}

// TestSameReportIsToldOnce repeats a report: the engine is told that the member was heard, and nothing else.
func TestSameReportIsToldOnce(t *testing.T) {
	b := newBench(t, east())
	b.sync()
	b.create(news(), placement("pp"))
	b.connect("east")
	b.report("east", "pp", "a")
	b.sync()
	clear(b.engine.told)
	for range 5 {
		b.clock.Step(5 * time.Second)
		b.inventory.Heard("east", b.clock.Now())
		b.report("east", "pp", "a")
		b.ObjectsChanged()
		b.sync()
	}
	if diff := cmp.Diff(map[string]int{"lease.Touch": 5}, b.engine.told); diff != "" {
		t.Error(diff)
	}
}

// TestDrainListCountsBeforeTheMemberNotices puts a name on the drain list: it is not leased any more.
func TestDrainListCountsBeforeTheMemberNotices(t *testing.T) {
	b := newBench(t, east())
	b.sync()
	b.create(news(), placement("pp", "a"))
	b.connect("east")
	b.report("east", "pp", "a", "b")
	b.sync()
	if diff := cmp.Diff([]string{"b"}, b.usable()); diff != "" {
		t.Error(diff)
	}
}

func TestWhatIsGoingIsNotLeased(t *testing.T) {
	b := newBench(t, east())
	b.sync()
	pp := placement("pp")
	b.create(news(), pp)
	b.connect("east")
	b.report("east", "pp", "a")
	b.sync()
	if err := b.client.Delete(t.Context(), pp); err != nil {
		t.Fatal(err)
	}
	b.ObjectsChanged()
	b.sync()
	if names := b.usable(); len(names) != 0 {
		t.Errorf("still leased: %v", names)
	}
	b.inventory.Gone("east", "east/a", b.clock.Now())
	b.sync()
	if result, err := b.engine.Do(t.Context(), lease.ReadUse{Fleet: "crawl/news"}); err != nil || len(result.(lease.UseList).Proxies) != 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestSilentMembersAreNotLeased(t *testing.T) {
	b := newBench(t, east())
	b.sync()
	b.create(news(), placement("pp"))
	b.connect("east")
	b.report("east", "pp", "a")
	b.sync()
	b.clock.Step(inventory.SuspectAfter)
	b.inventory.Tick()
	b.sync()
	if names := b.usable(); len(names) != 0 {
		t.Errorf("leased on a suspect member: %v", names)
	}
	b.connect("east")
	b.sync() // the report was doubted, being empty: told as not ready
	b.report("east", "pp", "a")
	b.sync()
	if diff := cmp.Diff([]string{"a"}, b.usable()); diff != "" {
		t.Error(diff)
	}
	mc := east()
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(mc), mc); err != nil {
		t.Fatal(err)
	}
	mc.Spec.Accepted = false
	if err := b.client.Update(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	b.ObjectsChanged()
	b.sync()
	if names := b.usable(); len(names) != 0 {
		t.Errorf("leased on a member that is not accepted: %v", names)
	}
}

// TestKeeperThatFailsIsToldAgain loses the keeper for a while: nothing is forgotten.
func TestKeeperThatFailsIsToldAgain(t *testing.T) {
	b := newBench(t, east())
	b.sync()
	b.create(news(), placement("pp"))
	b.connect("east")
	b.report("east", "pp", "a")
	b.engine.fail = errors.New("no keeper")
	for range 3 {
		if err := b.Sync(t.Context()); !errors.Is(err, b.engine.fail) {
			t.Fatalf("want the keeper's error, got %v", err)
		}
	}
	b.engine.fail = nil
	b.sync()
	if diff := cmp.Diff([]string{"a"}, b.usable()); diff != "" {
		t.Error(diff)
	}
}

// TestHistory tells fleets that an earlier hub took up, of which leases may live, from new ones.
func TestHistory(t *testing.T) {
	taken := func(change func(*v1alpha1.ProxyFleet)) *v1alpha1.ProxyFleet {
		f := news()
		change(f)
		return f
	}
	tests := map[string]struct {
		before []client.Object
		after  []client.Object
		old    bool
	}{
		"NewAfterTheStart": {nil, []client.Object{news()}, false},
		// Written while the hub started: no hub has seen it.
		"ThereButNotTakenUp": {[]client.Object{news()}, nil, false},
		"Finalizer": {[]client.Object{taken(func(f *v1alpha1.ProxyFleet) {
			f.Finalizers = []string{v1alpha1.FinalizerFleet}
		})}, nil, true},
		"Status": {[]client.Object{taken(func(f *v1alpha1.ProxyFleet) { f.Status.ObservedGeneration = 1 })}, nil, true},
		"Placed": {[]client.Object{news(), placement("earlier")}, nil, true},
		// The API server's clock is not the hub's.
		"TakenUpButStampedLater": {[]client.Object{taken(func(f *v1alpha1.ProxyFleet) {
			f.Finalizers = []string{v1alpha1.FinalizerFleet}
			f.CreationTimestamp = metav1.NewTime(started.Add(time.Hour))
		})}, nil, true},
		"NewButStampedEarlier": {nil, []client.Object{taken(func(f *v1alpha1.ProxyFleet) {
			f.CreationTimestamp = metav1.NewTime(started.Add(-time.Hour))
		})}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, append(test.before, east())...)
			if before, known := b.HeldBefore("news-uid"); !before || known {
				t.Error("nothing is known before the first look")
			}
			b.sync()
			b.create(append(test.after, placement("pp"))...)
			b.connect("east")
			b.report("east", "pp", "a")
			b.sync()
			if before, known := b.HeldBefore("news-uid"); before != test.old || !known {
				t.Errorf("before: %v, known: %v", before, known)
			}
			_, err := b.acquire()
			var refusal *lease.Refusal
			switch {
			case !test.old && err != nil:
				t.Errorf("a new fleet is not leased: %v", err)
			case test.old && (!errors.As(err, &refusal) || refusal.Reason != lease.StaleInventory):
				t.Errorf("want STALE_INVENTORY, got %v", err)
			}
		})
	}
}

func TestPolicy(t *testing.T) {
	none := int32(0)
	tests := map[string]struct {
		leasing v1alpha1.FleetLeasing
		want    int
	}{
		// 0 means never, and is not the same as nothing.
		"Zero":  {v1alpha1.FleetLeasing{MaxLeasesPerProxy: &none}, 0},
		"Unset": {v1alpha1.FleetLeasing{}, 5},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if have := policy(&test.leasing).MaxLeasesPerProxy; have != test.want {
				t.Errorf("%d slots, want %d", have, test.want)
			}
		})
	}
}
