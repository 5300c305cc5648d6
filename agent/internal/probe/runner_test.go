package probe_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/internal/probe"
)

// world is what the runner's probes meet: each proxy's class, and how long a probe takes.
type world struct {
	mu      sync.Mutex
	classes map[probe.UID]probe.Class
	takes   time.Duration
	slow    func(probe.UID) time.Duration
	running int
	most    int
	probes  map[probe.UID][]probe.EchoID
	exits   map[probe.UID]netip.Addr
}

func newWorld() *world {
	return &world{classes: make(map[probe.UID]probe.Class), probes: make(map[probe.UID][]probe.EchoID), exits: make(map[probe.UID]netip.Addr)}
}

// leave has a proxy leave by an address.
func (w *world) leave(uid probe.UID, exit string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exits[uid] = netip.MustParseAddr(exit)
}

func (w *world) set(uid probe.UID, c probe.Class) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.classes[uid] = c
}

func (w *world) probe(ctx context.Context, p probe.Proxy, e probe.Echo) probe.Probe {
	w.mu.Lock()
	w.running++
	w.most = max(w.most, w.running)
	w.probes[p.UID] = append(w.probes[p.UID], e.ID)
	class, ok := w.classes[p.UID]
	if !ok {
		class = probe.ClassOK
	}
	takes, exit := w.takes, w.exits[p.UID]
	if w.slow != nil {
		takes = w.slow(p.UID)
	}
	w.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		class = probe.ClassAgentFault
	}
	w.mu.Lock()
	w.running--
	w.mu.Unlock()
	return probe.Probe{Result: probe.Result{Class: class, Exit: exit}}
}

// event is a call of the runner to its owner.
type event struct {
	UID   probe.UID
	State probe.State
	Class probe.Class
}

// start runs a runner in the bubble until the test ends. The changes are those that it reported.
func start(t *testing.T, w *world, change func(*probe.RunnerOptions)) (r *probe.Runner, changes func() []event, freezes func() []bool) {
	t.Helper()
	var mu sync.Mutex
	var seen []event
	var frozen []bool
	o := probe.RunnerOptions{
		Probe:  w.probe,
		Echoes: []probe.Echo{{ID: "a"}},
		Clock:  clock.RealClock{},
		OnVerdict: func(v probe.Verdict, p probe.Probe, changed bool) {
			mu.Lock()
			defer mu.Unlock()
			if changed {
				seen = append(seen, event{UID: v.UID, State: v.State, Class: p.Class})
			}
		},
		OnFreeze: func(f probe.Freeze) {
			mu.Lock()
			defer mu.Unlock()
			frozen = append(frozen, f.Frozen)
		},
	}
	if change != nil {
		change(&o)
	}
	r, err := probe.NewRunner(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
		if w.running != 0 {
			t.Errorf("%d probes still run after Run returned", w.running)
		}
	})
	changes = func() []event {
		mu.Lock()
		defer mu.Unlock()
		out := seen
		seen = nil
		return out
	}
	freezes = func() []bool {
		mu.Lock()
		defer mu.Unlock()
		return frozen
	}
	return r, changes, freezes
}

// pass lets time go by in the bubble.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestRunnerJudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r, changes, _ := start(t, w, nil)
		expect := func(when string, want ...event) {
			t.Helper()
			if diff := cmp.Diff(want, changes()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		if _, ok := r.Verdict("p"); ok {
			t.Error("a verdict before a probe")
		}
		w.set("p", probe.ClassProxyDown)
		r.Upsert(probe.Proxy{UID: "p", Endpoint: "h:1"})
		pass(3 * time.Second)
		expect("not up yet")
		w.set("p", probe.ClassOK)
		pass(3 * time.Second)
		expect("up: found soon, because its state is open", event{"p", probe.StateReady, probe.ClassOK})

		w.set("p", probe.ClassProxyDown)
		pass(30 * time.Second)
		expect("down", event{"p", probe.StateUnhealthy, probe.ClassProxyDown})
		w.set("p", probe.ClassOK)
		pass(15 * time.Second)
		expect("up again", event{"p", probe.StateReady, probe.ClassOK})

		// Another instance begins from the start.
		w.set("p", probe.ClassAuthFailed)
		r.Upsert(probe.Proxy{UID: "p", Endpoint: "h:2"})
		pass(time.Second)
		if v, _ := r.Verdict("p"); v.State != probe.StateUnknown {
			t.Errorf("a new instance is %s", v.State)
		}
		// The same instance with another credential does not.
		w.set("p", probe.ClassOK)
		pass(3 * time.Second)
		expect("the new instance is up", event{"p", probe.StateReady, probe.ClassOK})
		r.Upsert(probe.Proxy{UID: "p", Endpoint: "h:2"})
		if v, _ := r.Verdict("p"); v.State != probe.StateReady {
			t.Errorf("an updated one is %s", v.State)
		}

		r.Remove("p")
		pass(time.Minute)
		expect("removed")
		if _, ok := r.Verdict("p"); ok {
			t.Error("a verdict after removal")
		}
	})
}

// Two proxies, each with a health check of its own, which then changes: the verdict stays, the next results are judged
// by the new one.
func TestRunnerHonoursHealthChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r, changes, _ := start(t, w, nil)
		probes := func(uid probe.UID) int {
			w.mu.Lock()
			defer w.mu.Unlock()
			n := len(w.probes[uid])
			w.probes[uid] = nil
			return n
		}
		quick := probe.Proxy{UID: "quick", Endpoint: "h:1", HealthCheck: probe.HealthCheck{Interval: time.Second, FailAfter: 2, PassAfter: 5}}
		slow := probe.Proxy{UID: "slow", Endpoint: "h:2", HealthCheck: probe.HealthCheck{Interval: 10 * time.Minute}}
		r.Upsert(quick)
		r.Upsert(slow)
		pass(time.Minute)
		if diff := cmp.Diff([]event{{"quick", probe.StateReady, probe.ClassOK}, {"slow", probe.StateReady, probe.ClassOK}}, changes()); diff != "" {
			t.Fatalf("both are up (-want +got):\n%s", diff)
		}
		if n := probes("quick"); n < 57 || n > 63 {
			t.Errorf("%d probes in a minute of one every second", n)
		}
		if n := probes("slow"); n != 1 {
			t.Errorf("%d probes in a minute of one every 10 min", n)
		}

		// Failures need stretch over little more than an interval.
		w.set("quick", probe.ClassProxyDown)
		w.set("slow", probe.ClassProxyDown)
		pass(4 * time.Second)
		if diff := cmp.Diff([]event{{"quick", probe.StateUnhealthy, probe.ClassProxyDown}}, changes()); diff != "" {
			t.Errorf("within 4 s (-want +got):\n%s", diff)
		}
		w.set("quick", probe.ClassOK)
		probes("quick")
		pass(10 * time.Second)
		changes()
		if v, _ := r.Verdict("quick"); v.State != probe.StateReady || v.Successes < 5 {
			t.Errorf("it passes again, and is %+v", v)
		}

		// The slow one would be seen to fail in minutes.
		was, _ := r.Verdict("slow")
		probes("slow")
		slow.HealthCheck = probe.HealthCheck{Interval: 2 * time.Second, FailAfter: 1}
		r.Upsert(slow)
		if now, ok := r.Verdict("slow"); !ok || now.State != probe.StateReady || now.Since != was.Since {
			t.Errorf("another health check made %+v of %+v", now, was)
		}
		pass(8 * time.Second)
		if diff := cmp.Diff([]event{{"slow", probe.StateUnhealthy, probe.ClassProxyDown}}, changes()); diff != "" {
			t.Errorf("within 8 s of the new interval (-want +got):\n%s", diff)
		}
		if n := probes("slow"); n < 4 {
			t.Errorf("%d probes in 8 s of one every 2 s", n)
		}
	})
}

// A result that comes in after its proxy was removed or replaced is about something that is gone.
func TestRunnerDropsLateResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.takes = 2 * time.Second
		r, changes, _ := start(t, w, nil)
		r.Upsert(probe.Proxy{UID: "removed", Endpoint: "h:1"})
		r.Upsert(probe.Proxy{UID: "replaced", Endpoint: "h:1"})
		pass(time.Second)
		r.Remove("removed")
		w.set("replaced", probe.ClassProxyDown)
		r.Upsert(probe.Proxy{UID: "replaced", Endpoint: "h:2"})
		pass(1500 * time.Millisecond)
		if got := changes(); got != nil {
			t.Errorf("late results counted: %v", got)
		}
		pass(time.Second)
		if v, ok := r.Verdict("replaced"); !ok || v.State != probe.StateUnknown || v.Class != probe.ClassProxyDown {
			t.Errorf("the new instance is judged %+v", v)
		}
	})
}

// Another exit is told with the first probe that sees it, and a proxy that keeps its exit is no news.
func TestRunnerTellsOfExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var mu sync.Mutex
		var told []string
		r, _, _ := start(t, w, func(o *probe.RunnerOptions) {
			o.OnVerdict = func(v probe.Verdict, _ probe.Probe, changed bool) {
				mu.Lock()
				defer mu.Unlock()
				if changed {
					told = append(told, fmt.Sprint(v.Exits))
				}
			}
		})
		expect := func(when string, want ...string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, told); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
			told = nil
		}
		w.leave("p", "203.0.113.9")
		r.Upsert(probe.Proxy{UID: "p", Endpoint: "h:1"})
		pass(5 * time.Minute)
		expect("measured once, seen often", "[203.0.113.9]")
		w.leave("p", "198.51.100.7")
		pass(11 * time.Second)
		expect("within an interval of the change", "[198.51.100.7 203.0.113.9]")
		pass(11 * time.Minute)
		expect("the former one is forgotten", "[198.51.100.7]")
	})
}

func limiter(t *testing.T, probes int) *probe.Limiter {
	t.Helper()
	l, err := probe.NewLimiter(probes)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestRunnerBoundsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.takes = time.Second
		r, changes, _ := start(t, w, func(o *probe.RunnerOptions) { o.Limiter = limiter(t, 8) })
		for i := range 40 {
			r.Upsert(probe.Proxy{UID: probe.UID(fmt.Sprint(i)), Endpoint: "h:1"})
		}
		pass(12 * time.Second)
		if got := len(changes()); got != 40 {
			t.Errorf("%d of 40 proxies were judged", got)
		}
		if w.most != 4 {
			t.Errorf("%d probes ran at once, want 4", w.most)
		}
	})
}

// Proxies that hang hold their places until a deadline. However many they are, the others are probed as if they were not.
func TestRunnerKeepsSlowProxiesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.slow = func(uid probe.UID) time.Duration {
			if strings.HasPrefix(string(uid), "slow") {
				return 12 * time.Second
			}
			return 10 * time.Millisecond
		}
		r, _, _ := start(t, w, func(o *probe.RunnerOptions) { o.Limiter = limiter(t, 40) })
		for i := range 100 {
			r.Upsert(probe.Proxy{UID: probe.UID(fmt.Sprintf("slow-%d", i)), Endpoint: "h:1"})
			r.Upsert(probe.Proxy{UID: probe.UID(fmt.Sprintf("good-%d", i)), Endpoint: "h:1"})
		}
		pass(2 * time.Minute) // Each slow one has been in the way once.
		counts := func() (least, slow int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			least = 1 << 30
			for uid, probes := range w.probes {
				if strings.HasPrefix(string(uid), "slow") {
					slow += len(probes)
				} else {
					least = min(least, len(probes))
				}
			}
			clear(w.probes)
			return least, slow
		}
		counts()
		pass(time.Minute)
		least, slow := counts()
		if least < 5 {
			t.Errorf("a good proxy had %d probes in a minute, want one every 10 s", least)
		}
		if slow < 80 || slow > 120 {
			t.Errorf("slow proxies had %d probes in a minute; 20 places of 12 s are 100", slow)
		}
	})
}

// Members share what the agent can do, and one that is broken takes no more than its turn.
func TestRunnersShareALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := limiter(t, 8)
		var running, most atomic.Int64
		worlds := map[string]*world{"many": newWorld(), "few": newWorld()}
		for member, proxies := range map[string]int{"many": 400, "few": 4} {
			w := worlds[member]
			w.takes = time.Second
			r, _, _ := start(t, w, func(o *probe.RunnerOptions) {
				o.Limiter = shared
				o.Probe = func(ctx context.Context, p probe.Proxy, e probe.Echo) probe.Probe {
					defer running.Add(-1)
					if n := running.Add(1); n > most.Load() {
						most.Store(n)
					}
					return w.probe(ctx, p, e)
				}
			})
			for i := range proxies {
				r.Upsert(probe.Proxy{UID: probe.UID(fmt.Sprint(i)), Endpoint: "h:1"})
			}
		}
		pass(time.Minute)
		if n := most.Load(); n != 4 {
			t.Errorf("%d probes ran at once, want 4: half of the places are for slow proxies", n)
		}
		few := worlds["few"]
		few.mu.Lock()
		defer few.mu.Unlock()
		for uid, probes := range few.probes {
			if len(probes) < 5 {
				t.Errorf("proxy %s of the small member had %d probes in a minute", uid, len(probes))
			}
		}
		if len(few.probes) != 4 {
			t.Errorf("%d of 4 proxies of the small member were probed", len(few.probes))
		}
	})
}

// A proxy that is new to the runner is not new to the agent that was restarted.
func TestRunnerRecalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r, changes, _ := start(t, w, nil)
		w.set("p", probe.ClassConnectFail)
		known := probe.Known{State: probe.StateReady, Since: time.Now().Add(-time.Hour), Exits: []netip.Addr{netip.MustParseAddr("203.0.113.9")}}
		r.Upsert(probe.Proxy{UID: "p", Endpoint: "h:1", Known: known})
		if v, ok := r.Verdict("p"); ok {
			t.Errorf("a verdict before a probe: %+v", v)
		}
		pass(time.Minute)
		if v, _ := r.Verdict("p"); v.State != probe.StateReady || !v.Since.Equal(known.Since) || fmt.Sprint(v.Exits) != "[203.0.113.9]" {
			t.Errorf("while its only target is down the proxy is %+v", v)
		}
		if got := changes(); got != nil {
			t.Errorf("changes: %v", got)
		}
		// At another endpoint it is another instance, of which nothing is known.
		r.Upsert(probe.Proxy{UID: "p", Endpoint: "h:2"})
		pass(time.Minute)
		if v, _ := r.Verdict("p"); v.State != probe.StateUnknown || v.Exits != nil {
			t.Errorf("another instance is %+v", v)
		}
	})
}

func TestNewLimiterRefuses(t *testing.T) {
	if _, err := probe.NewLimiter(1); err == nil {
		t.Error("a limiter without a place for slow proxies was made")
	}
}

func TestRunnerTakesTargetsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r, _, _ := start(t, w, func(o *probe.RunnerOptions) { o.Echoes = []probe.Echo{{ID: "a"}, {ID: "b"}} })
		r.Upsert(probe.Proxy{UID: "p", Endpoint: "h:1"})
		r.Upsert(probe.Proxy{UID: "q", Endpoint: "h:1"})
		pass(time.Minute)
		firsts := make(map[probe.EchoID]bool)
		for uid, echoes := range w.probes {
			firsts[echoes[0]] = true
			for i, e := range echoes[1:] {
				if e == echoes[i] {
					t.Errorf("%s was probed with %s twice in a row: %v", uid, e, echoes)
				}
			}
			if len(echoes) < 6 || len(echoes) > 8 {
				t.Errorf("%s had %d probes in a minute", uid, len(echoes))
			}
		}
		if len(firsts) != 2 {
			t.Error("both proxies began with the same target")
		}
	})
}

// Every proxy of the member fails at once: nothing is condemned, the owner is told, and told when it is over.
func TestRunnerFreezes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r, changes, freezes := start(t, w, nil)
		for i := range 20 {
			r.Upsert(probe.Proxy{UID: probe.UID(fmt.Sprint(i)), Endpoint: "h:1"})
		}
		pass(30 * time.Second)
		if got := len(changes()); got != 20 {
			t.Fatalf("%d of 20 proxies became Ready", got)
		}
		for i := range 20 {
			w.set(probe.UID(fmt.Sprint(i)), probe.ClassProxyDown)
		}
		pass(5 * time.Minute)
		if got := changes(); got != nil {
			t.Errorf("condemned: %v", got)
		}
		if !r.Freeze().Frozen || r.Freeze().Reason != probe.FreezeProxies {
			t.Errorf("the freeze is %+v", r.Freeze())
		}
		// All but one come back: that one is judged.
		for i := range 19 {
			w.set(probe.UID(fmt.Sprint(i)), probe.ClassOK)
		}
		pass(time.Minute)
		if diff := cmp.Diff([]event{{"19", probe.StateUnhealthy, probe.ClassProxyDown}}, changes()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if diff := cmp.Diff([]bool{true, false}, freezes()); diff != "" {
			t.Errorf("freezes (-want +got):\n%s", diff)
		}
	})
}

// The runner and the prober together, over loopback: a proxy that works is found Ready by its exit, one that nobody
// listens at is not.
func TestRunnerProbesForReal(t *testing.T) {
	echo := newEcho(t, remote)
	prober := newProber(t, func(o *probe.ProberOptions) { o.Roots = always(echo.roots()) })
	verdicts := make(chan probe.Verdict, 1024)
	r, err := probe.NewRunner(probe.RunnerOptions{
		Probe: prober.Probe, Echoes: []probe.Echo{echo.target()}, Clock: clock.RealClock{},
		Interval: 50 * time.Millisecond, Hurried: 10 * time.Millisecond,
		OnVerdict: func(v probe.Verdict, _ probe.Probe, _ bool) { verdicts <- v },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	for i := range 8 {
		r.Upsert(probe.Proxy{UID: probe.UID(fmt.Sprintf("good-%d", i)), Endpoint: listen(t, tunnel), Credential: credential})
	}
	r.Upsert(probe.Proxy{UID: "down", Endpoint: "127.0.0.1:1", Credential: credential})

	ready, down := make(map[probe.UID]bool), 0
	for timeout := time.After(20 * time.Second); len(ready) < 8 || down < 3; {
		select {
		case v := <-verdicts:
			switch {
			case v.UID == "down":
				down++
				if v.State != probe.StateUnknown || v.Class != probe.ClassProxyDown {
					t.Errorf("the proxy that is down is judged %+v", v)
				}
			case v.State == probe.StateReady:
				ready[v.UID] = true
				if fmt.Sprint(v.Exits) != "[127.0.0.1]" {
					t.Errorf("exits %v", v.Exits)
				}
			}
		case <-timeout:
			t.Fatalf("%d of 8 proxies became Ready, and %d results for the one that is down", len(ready), down)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestNewRunnerRefuses(t *testing.T) {
	good := func() probe.RunnerOptions {
		return probe.RunnerOptions{
			Probe: newWorld().probe, Echoes: []probe.Echo{{ID: "a"}}, Clock: clock.RealClock{},
			OnVerdict: func(probe.Verdict, probe.Probe, bool) {},
		}
	}
	if _, err := probe.NewRunner(good()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*probe.RunnerOptions){
		"NoProbe":      func(o *probe.RunnerOptions) { o.Probe = nil },
		"NoClock":      func(o *probe.RunnerOptions) { o.Clock = nil },
		"NoOwner":      func(o *probe.RunnerOptions) { o.OnVerdict = nil },
		"NoEcho":       func(o *probe.RunnerOptions) { o.Echoes = nil },
		"Thresholds":   func(o *probe.RunnerOptions) { o.Settings.FailAfter = -1 },
		"SlowerHurry":  func(o *probe.RunnerOptions) { o.Hurried = time.Hour },
		"NoTimePasses": func(o *probe.RunnerOptions) { o.Interval = -time.Second },
	} {
		o := good()
		change(&o)
		if _, err := probe.NewRunner(o); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
