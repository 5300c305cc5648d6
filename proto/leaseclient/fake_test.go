package leaseclient

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// fakeHub grants leases of proxies p0, p1, … in turn and remembers what it was asked. Its dials are set before use, or
// under its lock.
type fakeHub struct {
	mu       sync.Mutex
	proxies  int           // how many there are
	ttl      time.Duration // of a lease
	took     time.Duration // until an answer
	fail     func(call string, n int) error
	after    func(call string, n int) error // once it was done: the answer is lost
	renewed  func(*leasev1.RenewResponse)
	limits   *leasev1.Limits // in each answer
	counts   map[string]int
	times    map[string][]time.Time
	requests map[string][]string // lease ids by request id
	granted  map[string]*leasev1.Lease
	held     map[string]bool
	reports  []string
	releases []string
	next     int
}

func newFakeHub() *fakeHub {
	return &fakeHub{
		proxies: 3, ttl: 10 * time.Minute, counts: map[string]int{}, times: map[string][]time.Time{},
		requests: map[string][]string{}, granted: map[string]*leasev1.Lease{}, held: map[string]bool{},
	}
}

// call counts a call, takes its time, and fails it if it is to fail.
func (h *fakeHub) call(ctx context.Context, name string) (n int, err error) {
	h.mu.Lock()
	n = h.counts[name]
	h.counts[name]++
	h.times[name] = append(h.times[name], time.Now())
	took, fail := h.took, h.fail
	h.mu.Unlock()
	if took > 0 {
		if err := sleep(ctx, took); err != nil {
			return n, err
		}
	}
	if fail != nil {
		return n, fail(name, n)
	}
	return n, nil
}

func (h *fakeHub) lost(name string, n int) error {
	if h.after != nil {
		return h.after(name, n)
	}
	return nil
}

func (h *fakeHub) Acquire(ctx context.Context, r *leasev1.AcquireRequest) (*leasev1.AcquireResponse, error) {
	n, err := h.call(ctx, "Acquire")
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := h.requests[r.RequestId]
	if ids == nil {
		for range max(1, r.GetCount()) {
			id := fmt.Sprintf("lse_%d", h.next)
			h.granted[id] = &leasev1.Lease{
				LeaseId: id, Fleet: r.Fleet, Target: r.Target, ProxyId: fmt.Sprintf("p%d", h.next%h.proxies),
				TtlSeconds: int32(h.ttl / time.Second), RenewAfterSeconds: int32(h.ttl / time.Second / 2), Exit: "203.0.113.1",
				Limits: h.limits, ProxyUrl: "http://" + id + ":secret@198.51.100.7:3128",
			}
			h.held[id] = true
			h.next++
			ids = append(ids, id)
		}
		h.requests[r.RequestId] = ids
	}
	answer := &leasev1.AcquireResponse{}
	for _, id := range ids {
		answer.Leases = append(answer.Leases, h.granted[id])
	}
	if err := h.lost("Acquire", n); err != nil {
		return nil, err
	}
	return answer, nil
}

func (h *fakeHub) Renew(ctx context.Context, r *leasev1.RenewRequest) (*leasev1.RenewResponse, error) {
	if _, err := h.call(ctx, "Renew"); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.held[r.LeaseId] {
		return nil, refusal(leasev1.Refusal_LEASE_EXPIRED, 0)
	}
	answer := &leasev1.RenewResponse{
		LeaseId: r.LeaseId, TtlSeconds: int32(h.ttl / time.Second), RenewAfterSeconds: int32(h.ttl / time.Second / 2), Exit: "203.0.113.1",
		Limits: h.limits,
	}
	if h.renewed != nil {
		h.renewed(answer)
	}
	return answer, nil
}

func (h *fakeHub) Report(ctx context.Context, r *leasev1.ReportRequest) (*leasev1.ReportResponse, error) {
	if _, err := h.call(ctx, "Report"); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reports = append(h.reports, fmt.Sprintf("%s %s%s", r.LeaseId, r.Target, told(r.Outcome)))
	return &leasev1.ReportResponse{Cooldown: durationpb.New(5 * time.Minute), Limits: h.limits}, nil
}

func (h *fakeHub) Release(ctx context.Context, r *leasev1.ReleaseRequest) (*leasev1.ReleaseResponse, error) {
	n, err := h.call(ctx, "Release")
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, r.LeaseId)
	h.releases = append(h.releases, r.LeaseId+told(r.Outcome))
	return &leasev1.ReleaseResponse{}, h.lost("Release", n)
}

func told(o *leasev1.Outcome) string {
	if o == nil {
		return ""
	}
	text := " " + o.Kind.String()
	if o.Pages != 0 {
		text += fmt.Sprintf("×%d", o.Pages)
	}
	if o.RetryAfter != nil {
		text += " " + o.RetryAfter.AsDuration().String()
	}
	return text
}

// seen returns what the hub knows.
func (h *fakeHub) seen() (held, reports, releases []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.held {
		held = append(held, id)
	}
	slices.Sort(held)
	return held, slices.Clone(h.reports), slices.Clone(h.releases)
}

func (h *fakeHub) count(call string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[call]
}

// at returns when calls were made.
func (h *fakeHub) at(call string) []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.times[call])
}

// set changes a dial while the hub is used.
func (h *fakeHub) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func refusal(reason leasev1.Refusal_Reason, retryAfter time.Duration) error {
	return fault.New(reason, "no", fault.Details{RetryAfter: retryAfter, Matching: 4, Cooling: 3, Busy: 1})
}

// newClient makes a client, and in the end checks that nothing is held any more.
func newClient(t *testing.T, h *fakeHub, o Options) *Client {
	t.Helper()
	o.Service = h
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// closed closes the client and checks that the hub holds no lease.
func closed(t *testing.T, h *fakeHub, c *Client) {
	t.Helper()
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if held, _, _ := h.seen(); len(held) > 0 {
		t.Errorf("still held after Close: %v", held)
	}
}

func mustAcquire(t *testing.T, c *Client) *Lease {
	t.Helper()
	l, err := c.Acquire(t.Context(), &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
