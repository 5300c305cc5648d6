package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// rig is an engine with a clock of its own, for tests that tell stories.
type rig struct {
	t      *testing.T
	engine *Engine
	now    time.Time
}

var rigStart = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// newRig makes an engine that lacks nothing and knows nothing.
func newRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	opts := Options{IDs: &CountingIDs{}, Epoch: 12, HistoryComplete: true, StartedAt: rigStart}
	for _, f := range change {
		f(&opts)
	}
	return &rig{t: t, engine: New(opts), now: rigStart}
}

// do runs a command that must not be refused.
func (r *rig) do(cmd Command) Result {
	r.t.Helper()
	out, err := r.engine.Step(r.now, cmd)
	if err != nil {
		r.t.Fatalf("%T is refused: %v", cmd, err)
	}
	if err := verify(r.engine); err != nil {
		r.t.Fatalf("after %T: %v", cmd, err)
	}
	return out.Result
}

// refused runs a command that must be refused.
func (r *rig) refused(cmd Command) *Refusal {
	r.t.Helper()
	out, err := r.engine.Step(r.now, cmd)
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		r.t.Fatalf("%T is not refused: %+v %v", cmd, out.Result, err)
	}
	return refusal
}

// pass lets time go by, with the proxies' member heard all along.
func (r *rig) pass(d time.Duration) {
	for end := r.now.Add(d); r.now.Before(end); {
		r.now = r.now.Add(min(30*time.Second, end.Sub(r.now)))
		r.do(Touch{ID: "east"})
	}
}

// fleet sets crawl/news with a policy.
func (r *rig) fleet(policy Policy) {
	r.t.Helper()
	r.do(SetFleet{Fleet: Fleet{ID: "crawl/news", Policy: policy}})
}

// proxies adds n ready proxies on member east, px-1 and so on, with an exit each.
func (r *rig) proxies(n int) {
	r.t.Helper()
	for i := 1; i <= n; i++ {
		r.do(UpsertProxy{Proxy: testProxy(i)})
	}
}

func testProxy(i int) Proxy {
	return Proxy{
		UID: ProxyUID(fmt.Sprintf("px-%d", i)), Fleet: "crawl/news", Member: "east", Name: fmt.Sprintf("news-%d", i),
		Region: "us-east1", Labels: map[string]string{"tier": "datacenter"}, Ready: true,
		Exits:     []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})},
		Endpoints: []Endpoint{{Network: "HostPort", Host: "198.51.100.7", Port: uint16(21000 + i)}},
	}
}

// acquire is a plain Acquire by anna for example.com.
func acquire(change ...func(*Acquire)) Acquire {
	cmd := Acquire{Principal: "anna", Fleet: "crawl/news", Target: MustParseTarget("www.example.com")}
	for _, f := range change {
		f(&cmd)
	}
	return cmd
}

// lease acquires one lease.
func (r *rig) lease(change ...func(*Acquire)) Lease {
	r.t.Helper()
	return r.do(acquire(change...)).(Granted).Leases[0]
}

// ban reports a ban by the holder of a lease.
func (r *rig) ban(l Lease) Reported {
	r.t.Helper()
	return r.do(Report{Principal: l.Principal, ID: l.ID, Observations: []Observation{{Outcome: Blocked}}}).(Reported)
}

func ptr[T any](v T) *T { return &v }
