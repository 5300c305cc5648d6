package audit_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/hub/internal/audit"
	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// buffer is a log's writer; held, it is as slow as a full pipe.
type buffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	held chan struct{}
}

func (b *buffer) Write(p []byte) (int, error) {
	if b.held != nil {
		<-b.held
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Split(strings.TrimSuffix(b.b.String(), "\n"), "\n")
}

// TestLines tells the life of leases, and what operators do to them.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := clocktesting.NewFakeClock(now)
		k := keeper.New(keeper.Options{
			Engine:  lease.New(lease.Options{IDs: &lease.CountingIDs{}, Epoch: 7, HistoryComplete: true, StartedAt: now}),
			Journal: keeper.NewMemory(keeper.MemoryOptions{}), Clock: clock,
		})
		out := &buffer{}
		log, err := audit.Open(audit.Options{Writer: out, Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var parts sync.WaitGroup
		parts.Go(func() { _ = k.Run(ctx) })
		parts.Go(func() { _ = log.Run(ctx) })
		<-k.Ready()
		notices := k.Subscribe(keeper.SubscribeOptions{})
		parts.Go(func() { _ = audit.Watch(ctx, notices, log) })
		audited := audit.Wrap(k, log)
		do := func(cmd lease.Command) lease.Result {
			t.Helper()
			result, err := audited.Do(ctx, cmd)
			if err != nil {
				t.Fatalf("%T: %v", cmd, err)
			}
			synctest.Wait()
			return result
		}
		do(lease.SetFleet{Fleet: lease.Fleet{ID: "crawl/news", Policy: lease.Policy{MaxLeasesPerProxy: 5}}})
		do(lease.UpsertProxy{Proxy: lease.Proxy{
			UID: "px-1", Fleet: "crawl/news", Member: "east", Ready: true, Exits: []netip.Addr{netip.MustParseAddr("203.0.113.9")},
			Endpoints: []lease.Endpoint{{Network: "HostPort", Host: "198.51.100.7", Port: 21007}},
		}})
		acquire := lease.Acquire{
			Principal: "news", Fleet: "crawl/news", Target: lease.MustParseTarget("www.example.com"), RequestID: lease.RequestID(rand.Text()), SessionKey: "session-secret",
		}
		l := do(acquire).(lease.Granted).Leases[0]
		do(acquire) // repeated: no lease, no line
		ttl := 20 * time.Minute
		do(lease.Renew{Principal: "news", ID: l.ID, TTL: &ttl})
		if _, err := audited.Do(ctx, lease.Renew{Principal: "other", ID: l.ID}); err == nil {
			t.Fatal("somebody else renews")
		}
		do(lease.Report{Principal: "news", ID: l.ID, Observations: []lease.Observation{{Outcome: lease.OK}, {Outcome: lease.Captcha}}})
		do(lease.ClearBan{Target: "example.com", Exit: lease.ExitOf(netip.MustParseAddr("203.0.113.9")), By: "op"})
		do(lease.Release{Principal: "news", ID: l.ID, Outcome: &lease.Observation{Outcome: lease.RateLimited}})
		do(lease.Release{Principal: "news", ID: l.ID}) // ended before: no line
		acquire.RequestID, acquire.SessionKey, acquire.Target = "", "", lease.Target{}
		do(acquire)
		clock.Step(10 * time.Minute)
		synctest.Wait()
		do(lease.Revoke{Principal: "news", Proxy: "px-1", Why: "leaked", By: "op"})
		do(lease.Reinstate{Principal: "news", Proxy: "px-1", By: "op"})
		do(lease.PauseTarget{Target: lease.MustParseTarget("example.com"), By: "op"})
		do(lease.ResumeTarget{Target: lease.MustParseTarget("example.com"), By: "op"})
		stop()
		parts.Wait()

		const first = `"fleet":"crawl/news","lease":"lse_1","fencing":"7-1","proxy":"px-1","member":"east","exits":["203.0.113.9"],"target":"www.example.com"`
		want := []string{
			`"event":"granted","principal":"news",` + first + `,"expires":"2026-03-01T12:10:00Z"`,
			`"event":"renewed","principal":"news",` + first + `,"expires":"2026-03-01T12:20:00Z"`,
			`"event":"not-holder","principal":"other","lease":"lse_1","reason":"NOT_HOLDER"`,
			`"event":"reported","principal":"news",` + first + `,"outcome":"captcha"`,
			`"event":"operator-cleared","principal":"op","exits":["203.0.113.9"],"target":"example.com","count":1`,
			`"event":"reported","principal":"news",` + first + `,"outcome":"rate_limited"`,
			`"event":"released","principal":"news",` + first,
			`"event":"granted","principal":"news","fleet":"crawl/news","lease":"lse_2","fencing":"7-2","proxy":"px-1","member":"east","exits":["203.0.113.9"],"expires":"2026-03-01T12:10:00Z"`,
			`"event":"ended","principal":"news","fleet":"crawl/news","lease":"lse_2","proxy":"px-1","state":"expired"`,
			`"event":"operator-revoked","principal":"op","proxy":"px-1","expires":"2026-03-01T13:12:00Z","of":"news","why":"leaked"`,
			`"event":"operator-reinstated","principal":"op","proxy":"px-1","of":"news","count":1`,
			`"event":"operator-paused","principal":"op","target":"example.com"`,
			`"event":"operator-resumed","principal":"op","target":"example.com","count":1`,
		}
		var got []string
		for _, line := range out.lines() {
			if !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
			_, rest, _ := strings.Cut(line, `Z",`)
			got = append(got, strings.TrimSuffix(rest, "}"))
			if strings.Contains(line, "session-secret") {
				t.Errorf("a session key is in %s", line)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	})
}

// TestSlowWriterLosesLines fills the queue while the writer stands still.
func TestSlowWriterLosesLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &buffer{held: make(chan struct{})}
		log, err := audit.Open(audit.Options{Writer: out, Clock: clocktesting.NewFakeClock(now)})
		if err != nil {
			t.Fatal(err)
		}
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(log)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- log.Run(ctx) }()
		const lines = 30_000
		for range lines {
			log.Write(audit.Event{Event: audit.Granted, Lease: "lse_1"})
		}
		close(out.held)
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			got[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
		}
		written := got["shoal_audit_lines_total"]
		if lost := got["shoal_audit_lost_total"]; lost == 0 || written+lost != lines || len(out.lines()) != int(written) {
			t.Errorf("%v, and %d lines are there", got, len(out.lines()))
		}
	})
}

func TestFileThatIsMovedIsBegunAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.log")
		clock := clocktesting.NewFakeClock(now)
		log, err := audit.Open(audit.Options{Path: path, Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- log.Run(ctx) }()
		log.Write(audit.Event{Event: "one"})
		synctest.Wait()
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
		clock.Step(time.Second)
		log.Write(audit.Event{Event: "two"})
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{path + ".1": `"one"`, path: `"two"`} {
			text, err := os.ReadFile(name)
			if err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), want) {
				t.Errorf("%s holds %s %v", name, text, err)
			}
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others may read it: %v %v", info.Mode(), err)
		}
	})
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	if _, err := audit.Open(audit.Options{Path: "/nonexistent/audit.log", Clock: clocktesting.NewFakeClock(now)}); err == nil || !strings.Contains(err.Error(), "--audit-log") {
		t.Errorf("got %v", err)
	}
}
