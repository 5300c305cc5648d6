package leaseapi_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// until waits until n calls wait for proxies of crawl/news.
func (h *hub) until(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for {
		stats, err := h.keeper.Stats(ctx, "crawl/news")
		if err != nil {
			t.Fatalf("waiting for %d waiters: %v", n, err)
		}
		if stats.Waiting == n {
			return
		}
		runtime.Gosched()
	}
}

func patient(wait time.Duration) *leasev1.AcquireRequest {
	return &leasev1.AcquireRequest{Fleet: "crawl/news", Wait: durationpb.New(wait)}
}

// everyProtocol runs a test on a hub with one proxy of one slot, which is taken, for each protocol.
func everyProtocol(t *testing.T, test func(t *testing.T, h *hub, p protocol, taken *leasev1.Lease)) {
	for name := range (&hub{}).protocols() {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, dials{})
			h.news(t, 1, 1)
			taken := &leasev1.AcquireResponse{}
			if p := h.protocols()[name].call(t, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, taken); p != nil {
				t.Fatalf("%+v", p)
			}
			test(t, h, h.protocols()[name], taken.Leases[0])
		})
	}
}

func TestWaitIsServed(t *testing.T) {
	everyProtocol(t, func(t *testing.T, h *hub, p protocol, taken *leasev1.Lease) {
		answer := &leasev1.AcquireResponse{}
		served := make(chan *problem, 1)
		go func() { served <- p.call(t, newsToken, patient(30*time.Second), answer) }()
		h.until(t, 1)
		h.do(t, lease.Release{Principal: "token:news", ID: lease.ID(taken.LeaseId)})
		if refused := <-served; refused != nil || len(answer.Leases) != 1 || answer.Leases[0].LeaseId == taken.LeaseId {
			t.Errorf("got %+v, %+v", answer, refused)
		}
		h.until(t, 0)
	})
}

func TestWaitEnds(t *testing.T) {
	everyProtocol(t, func(t *testing.T, h *hub, p protocol, _ *leasev1.Lease) {
		refused := make(chan *problem, 1)
		go func() { refused <- p.call(t, newsToken, patient(5*time.Second), &leasev1.AcquireResponse{}) }()
		h.until(t, 1)
		h.clock.Step(5*time.Second - 1)
		h.until(t, 1)
		h.clock.Step(1)
		got := <-refused
		if got == nil || got.Refusal.GetReason() != leasev1.Refusal_NO_CAPACITY || got.RetryAfter != "595" || got.Refusal.GetBusy() != 1 {
			t.Errorf("got %+v", got)
		}
	})
}

// TestWaitOfCallerWhoLeft checks that the hub notices on each protocol when the caller hangs up, at once.
func TestWaitOfCallerWhoLeft(t *testing.T) {
	everyProtocol(t, func(t *testing.T, h *hub, p protocol, _ *leasev1.Lease) {
		ctx, hangUp := context.WithCancel(t.Context())
		defer hangUp()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.callAndLeave(ctx, t, p)
		}()
		h.until(t, 1)
		hangUp()
		<-ended
		h.until(t, 0)
	})
}

// callAndLeave makes a call that waits until the context ends.
func (h *hub) callAndLeave(ctx context.Context, t *testing.T, p protocol) {
	var path string
	var through *http.Client
	switch p := p.(type) {
	case client:
		p.http = &http.Client{Transport: bound{p.http.Transport, ctx}}
		if got := p.call(t, newsToken, patient(time.Minute), &leasev1.AcquireResponse{}); got == nil {
			t.Error("a caller that hung up got a lease")
		}
		return
	case restProtocol:
		path, through = "/v1/leases", p.http
	case connectJSON:
		path, through = procedureOf(patient(0)), h.http1
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+path, strings.NewReader(`{"fleet":"crawl/news","wait":"60s"}`))
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Set("Authorization", "Bearer "+newsToken)
	r.Header.Set("Content-Type", "application/json")
	if response, err := through.Do(r); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", response, err)
	}
}

// bound ends requests with a context of its own.
type bound struct {
	next http.RoundTripper
	ctx  context.Context
}

func (b bound) RoundTrip(r *http.Request) (*http.Response, error) {
	return b.next.RoundTrip(r.WithContext(b.ctx))
}

func TestShutdownAnswersWaiters(t *testing.T) {
	everyProtocol(t, func(t *testing.T, h *hub, p protocol, _ *leasev1.Lease) {
		refused := make(chan *problem, 1)
		go func() { refused <- p.call(t, newsToken, patient(time.Minute), &leasev1.AcquireResponse{}) }()
		h.until(t, 1)
		if err := h.handler.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		got := <-refused
		if got == nil || got.Refusal.GetReason() != leasev1.Refusal_UNAVAILABLE || got.RetryAfter != "1" {
			t.Errorf("got %+v", got)
		}
		h.until(t, 0)
	})
}

// TestWaitOutlivesDeadlines checks that a call may wait for longer than the server's deadlines for reading and writing,
// which stand for everybody else. The deadlines are of real time, and so is this test.
func TestWaitOutlivesDeadlines(t *testing.T) {
	const deadline = time.Second
	for name := range (&hub{}).protocols() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, dials{server: func(s *http.Server) { s.ReadTimeout, s.WriteTimeout = deadline, deadline }})
			h.news(t, 1, 1)
			taken := h.must(t, lease.Acquire{Principal: "token:news", Fleet: "crawl/news"}).(lease.Granted).Leases[0]
			answer := &leasev1.AcquireResponse{}
			served := make(chan *problem, 1)
			go func() { served <- h.protocols()[name].call(t, newsToken, patient(30*time.Second), answer) }()
			h.until(t, 1)
			passed, cancel := context.WithTimeout(t.Context(), deadline+deadline/2)
			defer cancel()
			<-passed.Done()
			h.until(t, 1)
			h.do(t, lease.Release{Principal: "token:news", ID: taken.ID})
			if refused := <-served; refused != nil || len(answer.Leases) != 1 {
				t.Errorf("got %+v, %+v", answer, refused)
			}
		})
	}
}

// TestServedWhenGone checks that a lease which is granted as its caller leaves is given back.
func TestServedWhenGone(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan struct{})
	h := newHub(t, dials{wrap: func(k leaseapi.Keeper) leaseapi.Keeper {
		return keeperFunc(func(ctx context.Context, cmd lease.Command) (lease.Result, error) {
			result, err := k.Do(ctx, cmd)
			if acquire, ok := cmd.(lease.Acquire); ok && acquire.Wait > 0 && err == nil {
				hangUp()
				<-ctx.Done()
				close(gone)
			}
			return result, err
		})
	}})
	h.news(t, 1, 1)
	taken := h.must(t, lease.Acquire{Principal: "token:news", Fleet: "crawl/news"}).(lease.Granted).Leases[0]
	var wg sync.WaitGroup
	wg.Go(func() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/v1/leases", strings.NewReader(`{"fleet":"crawl/news","wait":"30s"}`))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Authorization", "Bearer "+newsToken)
		response, err := h.http2.Do(r)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, %v", response, err)
		}
	})
	h.until(t, 1)
	h.do(t, lease.Release{Principal: "token:news", ID: taken.ID})
	<-gone
	wg.Wait()
	for stats := (lease.Stats{Leases: 1}); stats.Leases > 0; {
		var err error
		if stats, err = h.keeper.Stats(t.Context(), "crawl/news"); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
}
