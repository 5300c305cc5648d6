package lease

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// benchTarget is what 30 % of the exits cool down for.
var benchTarget = MustParseTarget("www.example.com")

// benchStart is when benchmarks begin.
var benchStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// benchForever is longer than any benchmark's time.
const benchForever = 50 * 365 * 24 * time.Hour

// benchFleet makes an engine with one fleet of n proxies with an exit each,
// three in ten of which cool down for benchTarget.
func benchFleet(tb testing.TB, n int) *Engine {
	tb.Helper()
	e := New(Options{IDs: &CountingIDs{}, Epoch: 1, HistoryComplete: true, Freshness: benchForever})
	step := func(cmd Command) {
		tb.Helper()
		if _, err := e.Step(benchStart, cmd); err != nil {
			tb.Fatal(err)
		}
	}
	step(SetFleet{Fleet: Fleet{ID: "crawl/news", Policy: Policy{
		MaxLeasesPerProxy: 5, MaxTTL: benchForever, MaxLifetime: benchForever,
	}}})
	for i := range n {
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		step(UpsertProxy{Proxy: Proxy{
			UID: ProxyUID(fmt.Sprintf("uid-%06d", i)), Fleet: "crawl/news", Member: MemberID(fmt.Sprintf("member-%d", i%200)),
			Name: fmt.Sprintf("news-%06d", i), Region: "us-east1", Ready: true, Exits: []netip.Addr{addr},
			Endpoints: []Endpoint{{Network: "HostPort", Host: addr.String(), Port: 3128}},
		}})
		if i%10 < 3 {
			err := e.Apply(&ExitCooled{
				At: benchStart, Exit: ExitOf(addr), Target: benchTarget.Key(), Until: benchStart.Add(benchForever),
				Banned: true, Strikes: 1, Rest: benchForever,
			})
			if err != nil {
				tb.Fatal(err)
			}
		}
	}
	return e
}

// benchLoad grants and releases in a fleet with 30 % of its exits cooling. A
// twentieth of all slots is under lease all the time.
type benchLoad struct {
	engine  *Engine
	now     time.Time
	acquire Command
	held    []ID
	round   int
}

func newBenchLoad(tb testing.TB, n int) *benchLoad {
	l := &benchLoad{
		engine: benchFleet(tb, n), now: benchStart, round: n / 4, held: make([]ID, 0, n),
		acquire: Acquire{Principal: "crawler", Fleet: "crawl/news", Target: benchTarget},
	}
	forever := Acquire{Principal: "crawler", Fleet: "crawl/news", Target: benchTarget, TTL: new(time.Duration)}
	*forever.TTL = benchForever
	for range n / 4 {
		if _, err := l.engine.Step(l.now, forever); err != nil {
			tb.Fatal(err)
		}
	}
	for range 8 { // every proxy has been in use, some of them often
		for range l.round {
			l.grant(tb)
		}
		l.release(tb)
	}
	return l
}

func (l *benchLoad) grant(tb testing.TB) {
	out, err := l.engine.Step(l.now, l.acquire)
	if err != nil {
		tb.Fatal(err)
	}
	l.held = append(l.held, out.Result.(Granted).Leases[0].ID)
}

// release ends what was granted, and lets the time go by for which ended
// leases are remembered, so that the engine's size stays the same.
func (l *benchLoad) release(tb testing.TB) {
	for _, id := range l.held {
		if _, err := l.engine.Step(l.now, Release{Principal: "crawler", ID: id}); err != nil {
			tb.Fatal(err)
		}
	}
	l.held = l.held[:0]
	l.now = l.now.Add(Remembered)
	l.engine.Tick(l.now)
}

// benchAcquire measures one Acquire for a target that 30 % cool down for, and
// its release if that is wanted.
func benchAcquire(b *testing.B, n int, release bool) {
	l := newBenchLoad(b, n)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		l.grant(b)
		if len(l.held) < l.round {
			continue
		}
		if !release {
			b.StopTimer()
		}
		l.release(b)
		if !release {
			b.StartTimer()
		}
	}
}

// BenchmarkAcquire is one grant in fleets of two sizes.
func BenchmarkAcquire(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("proxies=%d", n), func(b *testing.B) { benchAcquire(b, n, false) })
	}
}

// BenchmarkCycle is one grant and its release.
func BenchmarkCycle(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("proxies=%d", n), func(b *testing.B) { benchAcquire(b, n, true) })
	}
}

// BenchmarkManyTargets is one grant in a fleet of 100,000 proxies for one of a
// hundred targets in turn, each with 3,000 exits of its own that cool down for
// it, and its release.
func BenchmarkManyTargets(b *testing.B) {
	const n, targets = 100_000, 100
	l := newBenchLoad(b, n)
	acquires := make([]Command, targets)
	for t := range targets {
		target := MustParseTarget(fmt.Sprintf("site-%d.com", t))
		acquires[t] = Acquire{Principal: "crawler", Fleet: "crawl/news", Target: target}
		for i := range n / 33 {
			p := l.engine.proxies[ProxyUID(fmt.Sprintf("uid-%06d", (i*33+t)%n))]
			err := l.engine.Apply(&ExitCooled{
				At: l.now, Exit: p.list[0], Target: target.Key(), Until: benchStart.Add(benchForever), Banned: true, Strikes: 1, Rest: benchForever,
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	turn := func(i int) {
		l.acquire = acquires[i%targets]
		l.grant(b)
		if len(l.held) == l.round {
			l.release(b)
		}
	}
	for i := range 4 * n {
		turn(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		turn(i)
	}
}
