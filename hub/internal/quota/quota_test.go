package quota_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/quota"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// engine answers as a keeper would.
type engine struct {
	mu     sync.Mutex
	engine *lease.Engine
	clock  *clocktesting.FakeClock
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	e := &engine{
		engine: lease.New(lease.Options{IDs: &lease.CountingIDs{}, HistoryComplete: true, StartedAt: now}), clock: clocktesting.NewFakeClock(now),
	}
	for _, id := range []lease.FleetID{"crawl/news", "crawl/weather", "lab/x"} {
		for _, cmd := range []lease.Command{
			lease.SetFleet{Fleet: lease.Fleet{ID: id, Policy: lease.Policy{MaxLeasesPerProxy: 1000}}},
			lease.UpsertProxy{Proxy: lease.Proxy{UID: lease.ProxyUID(id), Fleet: id, Member: "east", Ready: true, Endpoints: []lease.Endpoint{{Network: "PodIP", Host: "h", Port: 1}}}},
		} {
			if _, err := e.Do(t.Context(), cmd); err != nil {
				t.Fatal(err)
			}
		}
	}
	return e
}

func (e *engine) Do(_ context.Context, cmd lease.Command) (lease.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	out, err := e.engine.Step(e.clock.Now(), cmd)
	return out.Result, err
}

func newKeeper(t *testing.T, e *engine, config string) *quota.Keeper {
	t.Helper()
	c, err := quota.Parse([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	k, err := quota.New(quota.Options{Next: e, Config: c, Clock: e.clock})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func take(fleet lease.FleetID, principal lease.Principal, count int) lease.Acquire {
	return lease.Acquire{Fleet: fleet, Principal: principal, Count: &count}
}

// outcome is "" for a grant, else the refusal.
func outcome(t *testing.T, k *quota.Keeper, cmd lease.Command) string {
	t.Helper()
	_, err := k.Do(t.Context(), cmd)
	var refusal *lease.Refusal
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refusal) && refusal.Reason == lease.Quota:
		return refusal.Message + " | " + refusal.RetryAfter.String()
	default:
		t.Fatalf("%+v: %v", cmd, err)
		return ""
	}
}

func TestHeld(t *testing.T) {
	e := newEngine(t)
	k := newKeeper(t, e, "tenants: {crawl: {maxLeases: 5}}\nprincipals: {anna: {maxLeases: 3}}")
	once := take("crawl/news", "anna", 1)
	once.RequestID = "r1"
	for _, step := range []struct {
		why  string
		cmd  lease.Command
		want string
	}{
		{"within both", take("crawl/news", "anna", 2), ""},
		{"the last one", once, ""},
		{"anna holds all she may", take("lab/x", "anna", 1), "anna holds 3 leases, asks for 1, and may hold 3; release some first | 5s"},
		{"to repeat takes nothing", once, ""},
		{"others hold what they like", take("lab/x", "bert", 100), ""},
		{"the tenant counts over fleets", take("crawl/weather", "bert", 3), "namespace crawl holds 3 leases, asks for 3, and may hold 5; release some first | 5s"},
		{"what fits is granted", take("crawl/weather", "bert", 2), ""},
		{"never", take("crawl/weather", "bert", 6), "namespace crawl holds 5 leases, asks for 6, and may hold 5; release some first | 0s"},
		{"renewals are never bounded", lease.Renew{Principal: "anna", ID: "lse_1"}, ""},
		{"a lease goes", lease.Release{Principal: "anna", ID: "lse_1"}, ""},
		{"and another may come", take("crawl/news", "anna", 1), ""},
	} {
		if got := outcome(t, k, step.cmd); got != step.want {
			t.Errorf("%s: got %q, want %q", step.why, got, step.want)
		}
	}
}

// TestHeldByManyAtOnce has many calls race for few leases.
func TestHeldByManyAtOnce(t *testing.T) {
	e := newEngine(t)
	k := newKeeper(t, e, "tenant: {maxLeases: 10}")
	var calls sync.WaitGroup
	for range 100 {
		calls.Go(func() {
			for range 5 {
				_, _ = k.Do(t.Context(), take("crawl/news", "anna", 3))
			}
		})
	}
	calls.Wait()
	result, err := e.Do(t.Context(), lease.ReadHeld{Fleet: "crawl/news"})
	if held := result.(lease.Held).Tenant; err != nil || held > 10 {
		t.Errorf("%d leases are held, 10 may be; %v", held, err)
	}
	if got := outcome(t, k, take("crawl/news", "anna", 1)); got != "" && !strings.Contains(got, "holds 9") && !strings.Contains(got, "holds 10") {
		t.Errorf("what was reserved was not given back: %s", got)
	}
}

func TestRates(t *testing.T) {
	e := newEngine(t)
	k := newKeeper(t, e, "tenant: {acquiresPerSecond: 10, burst: 20}\nprincipal: {acquiresPerSecond: 2, burst: 4}\nprincipals: {boss: {}}")
	for i := range 4 {
		if got := outcome(t, k, take("crawl/news", "anna", 1)); got != "" {
			t.Fatalf("call %d: %s", i, got)
		}
	}
	want := "anna may ask for 2 leases a second, and has asked for more; come back in 1s | 1s"
	for range 3 { // to be refused costs nothing more, neither her nor her tenant
		if got := outcome(t, k, take("crawl/news", "anna", 1)); got != want {
			t.Errorf("got %q", got)
		}
	}
	if got := outcome(t, k, take("crawl/news", "boss", 16)); got != "" {
		t.Errorf("what is left to the tenant: %s", got)
	}
	if got := outcome(t, k, take("crawl/weather", "boss", 30)); got != "namespace crawl may ask for 10 leases a second, and has asked for more; come back in 2s | 2s" {
		t.Errorf("got %q", got)
	}
	if got := outcome(t, k, take("lab/x", "boss", 1)); got != "" {
		t.Errorf("another tenant: %s", got)
	}
	e.clock.Step(time.Second)
	if got := outcome(t, k, take("crawl/news", "anna", 2)); got != "" {
		t.Errorf("a second later: %s", got)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"Misspelled": "tenant: {maxLease: 5}", "Negative": "tenants: {crawl: {maxLeases: -1}}", "BurstAlone": "principal: {burst: 5}",
		"NoNamespace": "tenants: {Crawl_1: {maxLeases: 1}}", "NotYAML": "{", "NegativeRate": "principals: {a: {acquiresPerSecond: -1}}",
	} {
		if c, err := quota.Parse([]byte(text)); err == nil {
			t.Errorf("%s: read as %+v", name, c)
		}
	}
	c, err := quota.Parse([]byte("tenant: {acquiresPerSecond: 200}\nprincipal: {acquiresPerSecond: 0.5}"))
	want := quota.Config{Tenant: quota.Limits{AcquiresPerSecond: 200, Burst: 400}, Principal: quota.Limits{AcquiresPerSecond: 0.5, Burst: 100}}
	if diff := cmp.Diff(want, c); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestFileIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		path := filepath.Join(t.TempDir(), "quotas.yaml")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			e.clock.Step(10 * time.Second)
			synctest.Wait()
		}
		if _, err := quota.New(quota.Options{Next: e, Path: path, Clock: e.clock}); err == nil {
			t.Error("a file that is not there is no limit")
		}
		write("tenant: {maxLeases: 1}")
		k, err := quota.New(quota.Options{Next: e, Path: path, Clock: e.clock})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		synctest.Wait()
		for _, step := range []struct {
			text    string
			granted bool
		}{{"tenant: {maxLeases: 1}", true}, {"tenant: {maxLeases: 2}", true}, {"tenant: {}", true}, {"tenant: {maxLeases: 2}", false}, {"nonsense", false}} {
			write(step.text)
			if got := outcome(t, k, take("crawl/news", "anna", 1)); (got == "") != step.granted {
				t.Errorf("%s: %q", step.text, got)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
