package disk

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// What BenchmarkJournalReplay restarts with.
const (
	benchProxies = 100_000
	benchSlots   = 10
	benchLeases  = benchProxies * benchSlots
	// replayBar is the longest that a restart may take.
	replayBar = 5 * time.Second
)

var benchTarget = lease.MustParseTarget("www.example.com")

func benchEngine() *lease.Engine {
	return lease.New(lease.Options{IDs: lease.NewRandomIDs(rand.Reader), Epoch: 1_780_000_000, HistoryComplete: true})
}

// writer steps an engine and appends what it says, many commands at once.
type writer struct {
	b       *testing.B
	engine  *lease.Engine
	journal *Journal
	batch   []lease.Record
}

func (w *writer) step(cmd lease.Command) {
	out, err := w.engine.Step(now, cmd)
	if err != nil {
		w.b.Fatal(err)
	}
	if w.batch = append(w.batch, out.Records...); len(w.batch) >= 2000 {
		w.flush()
	}
}

func (w *writer) flush() {
	mustAppend(w.b, w.journal, w.batch...)
	w.batch = w.batch[:0]
}

func (w *writer) proxies() {
	w.step(lease.SetFleet{Fleet: lease.Fleet{ID: "crawl/news", Policy: lease.Policy{MaxLeasesPerProxy: benchSlots}}})
	for i := range benchProxies {
		w.step(lease.UpsertProxy{Proxy: lease.Proxy{
			UID: lease.ProxyUID(fmt.Sprintf("0f5e4c1a-7d3b-4a55-9a51-%012d", i)), Fleet: "crawl/news", Member: "us-east1-a",
			Name: fmt.Sprintf("news-us-east1-a-%05d", i), Region: "us-east1", Country: "US",
			Labels: map[string]string{"shoal.dev/tier": "datacenter"}, Ready: true,
			Exits:     []netip.Addr{netip.AddrFrom4([4]byte{203, byte(i >> 16), byte(i >> 8), byte(i)})},
			Endpoints: []lease.Endpoint{{Network: "HostPort", Host: "198.51.100.7", Port: uint16(21000 + i%1000)}},
		}})
	}
	w.flush()
}

func (w *writer) leases() {
	for i := range benchLeases {
		w.step(lease.Acquire{
			Principal: "crawler-1", Fleet: "crawl/news", Target: benchTarget,
			RequestID: lease.RequestID(fmt.Sprintf("8a6e0804-2bd0-4672-b79d-%012d", i)),
		})
	}
	w.flush()
}

// heap is what lives in memory now.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// taken is how long something took: by the clock, and of all processors. On a
// machine with nothing else to do the first is what counts; beside others'
// work the second says what it would have been.
type taken struct{ wall, cpu time.Duration }

func processors() time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// restart is what a hub does before it answers: a keeper loads the journal.
func restart(b *testing.B, opts Options) (*Journal, *lease.Engine, taken) {
	b.Helper()
	runtime.GC()
	began, used := time.Now(), processors()
	j := mustOpen(b, opts)
	engine := benchEngine()
	k := keeper.New(keeper.Options{Engine: engine, Journal: j, Clock: clocktesting.NewFakeClock(now)})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	select {
	case <-k.Ready():
	case err := <-ended:
		b.Fatal(err)
	}
	took := taken{time.Since(began), processors() - used}
	stats, err := k.Stats(ctx, "crawl/news")
	if err != nil || stats.Leases != benchLeases {
		b.Fatalf("%+v, %v", stats, err)
	}
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	return j, engine, took
}

// BenchmarkJournalReplay restarts a hub with a million live leases on 100,000
// proxies, from a log that was never condensed and from a snapshot. Beside it
// are what a lease and a proxy take, and what a snapshot costs those who wait
// for an append meanwhile.
func BenchmarkJournalReplay(b *testing.B) {
	for range b.N {
		opts := options(b.TempDir())
		opts.CompactAfter = 100 * benchLeases
		w := &writer{b: b, engine: benchEngine(), journal: mustOpen(b, opts)}
		base := heap()
		w.proxies()
		perProxy := (heap() - base) / benchProxies
		onDisk := w.journal.db.Metrics().DiskSpaceUsage()
		began := time.Now()
		w.leases()
		b.Logf("wrote %d leases in %s", benchLeases, time.Since(began))
		perLease := (heap() - base - perProxy*benchProxies) / benchLeases
		logged := (w.journal.db.Metrics().DiskSpaceUsage() - onDisk) / benchLeases
		mustClose(b, w.journal)
		w = nil //nolint:wastedassign // its memory is not to be counted

		j, engine, fromLog := restart(b, opts)
		quiet := appends(b, j, time.After(5*time.Second))
		done := make(chan time.Time)
		began = time.Now()
		j.Compact(b.Context(), keeper.Condenser(engine.Blank))
		go func() { j.compacting.Wait(); done <- time.Now() }()
		busy := appends(b, j, done)
		condensing := time.Since(began)
		b.Logf("a snapshot took %s; appends: %d beside it, p99 %s, longest %s; without %d, p99 %s, longest %s",
			condensing, len(busy), p99(busy), busy[len(busy)-1], len(quiet), p99(quiet), quiet[len(quiet)-1])
		kept := j.head.Snapshot
		mustClose(b, j)
		runtime.KeepAlive(engine)
		engine = nil //nolint:wastedassign // its memory is not to be counted

		j, engine, fromSnapshot := restart(b, opts)
		b.Logf("restart from the log %+v, from a snapshot of %d records %+v", fromLog, kept, fromSnapshot)
		condensed := j.db.Metrics().DiskSpaceUsage() / benchLeases
		mustClose(b, j)
		runtime.KeepAlive(engine)
		fmt.Fprintln(os.Stdout)
		line := func(name string, took time.Duration) {
			fmt.Fprintf(os.Stdout, "BENCH %s %.2f s %.2f\n", name, took.Seconds(), took.Seconds()/replayBar.Seconds())
		}
		line("journal_replay", max(fromLog.wall, fromSnapshot.wall))
		line("journal_replay_log", fromLog.wall)
		line("journal_replay_snapshot", fromSnapshot.wall)
		line("journal_replay_cpu", max(fromLog.cpu, fromSnapshot.cpu))
		// Beside what they take in the log, and a snapshot beside the log it replaces.
		fmt.Fprintf(os.Stdout, "BENCH bytes_per_lease %d B %.2f\n", perLease, float64(perLease)/float64(logged))
		fmt.Fprintf(os.Stdout, "BENCH bytes_per_proxy %d B %.2f\n", perProxy, float64(perProxy)/float64(onDisk/benchProxies))
		fmt.Fprintf(os.Stdout, "BENCH journal_bytes_per_lease %d B %.2f\n", logged, float64(condensed)/float64(logged))
		fmt.Fprintf(os.Stdout, "BENCH journal_snapshot_p99 %.2f ms %.2f\n", p99(busy).Seconds()*1e3, float64(p99(busy))/float64(p99(quiet)))
	}
}

// appends adds one batch after the other until done, and returns how long
// each took, in order of that.
func appends[T any](b *testing.B, j *Journal, done <-chan T) []time.Duration {
	b.Helper()
	batch := paused(0, 16)
	var took []time.Duration
	for {
		select {
		case <-done:
			slices.Sort(took)
			return took
		default:
			began := time.Now()
			mustAppend(b, j, batch...)
			took = append(took, time.Since(began))
		}
	}
}

func p99(sorted []time.Duration) time.Duration { return sorted[len(sorted)*99/100] }
