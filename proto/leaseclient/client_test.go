package leaseclient

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/types/known/durationpb"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

var errNetwork = connect.NewError(connect.CodeUnavailable, "the network is gone")

func TestRenewsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{})
		var leases []*Lease
		for range 20 {
			leases = append(leases, mustAcquire(t, c))
		}
		begun := time.Now()
		time.Sleep(5*time.Minute + time.Nanosecond)
		synctest.Wait()
		times := h.at("Renew")
		if len(times) != len(leases) {
			t.Fatalf("%d renewals of %d leases after renewAfter", len(times), len(leases))
		}
		slices.SortFunc(times, time.Time.Compare)
		if first := times[0].Sub(begun); first < 4*time.Minute {
			t.Errorf("the first renewal came after %v, want not before 4m", first)
		}
		if spread := times[len(times)-1].Sub(times[0]); spread < 10*time.Second {
			t.Errorf("all renewals came within %v: they are not jittered", spread)
		}
		time.Sleep(3 * time.Hour)
		for _, l := range leases {
			if l.Err() != nil || time.Until(l.State().Expires) < 5*time.Minute {
				t.Errorf("lease %s: %v, %v left", l.ID(), l.Err(), time.Until(l.State().Expires))
			}
		}
		closed(t, h, c)
		if err := leases[0].Err(); !errors.Is(err, ErrReleased) {
			t.Errorf("a closed client's lease has ended by %v", err)
		}
	})
}

func TestTellsOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		var told []State
		c := newClient(t, h, Options{OnChange: func(_ *Lease, s State) { told = append(told, s) }})
		l := mustAcquire(t, c)
		changed := l.Changed()
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		select {
		case <-changed:
			t.Error("a renewal without news is told")
		default:
		}
		h.set(func() {
			h.renewed = func(r *leasev1.RenewResponse) {
				r.Draining, r.ExitChanged, r.Exit = true, true, "203.0.113.99"
			}
		})
		<-changed
		if s := l.State(); !s.Draining || !s.ExitChanged || s.Exit != "203.0.113.99" {
			t.Errorf("state = %+v", s)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(told) != 1 || !told[0].Draining {
			t.Errorf("OnChange got %+v, want it once", told)
		}
		closed(t, h, c)
	})
}

func TestLeaseIsLost(t *testing.T) {
	tests := map[string]struct {
		reason string
		fail   func(string, int) error
		after  time.Duration // at most
		want   error
	}{
		"HubGone": {
			"the hub is not reached until the TTL is over",
			func(call string, _ int) error {
				if call == "Renew" {
					return errNetwork
				}
				return nil
			}, 10 * time.Minute, ErrExpired,
		},
		"TokenGone": {
			"a token may be replaced, so this is tried until the TTL is over",
			func(call string, _ int) error {
				if call == "Renew" {
					return refusal(leasev1.Refusal_UNAUTHENTICATED, 0)
				}
				return nil
			}, 10 * time.Minute, ErrExpired,
		},
		"Expired": {
			"the hub knows better",
			func(call string, _ int) error {
				if call == "Renew" {
					return refusal(leasev1.Refusal_LEASE_EXPIRED, 0)
				}
				return nil
			}, 5 * time.Minute, nil,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFakeHub()
				h.fail = tc.fail
				c := newClient(t, h, Options{})
				begun := time.Now()
				l := mustAcquire(t, c)
				<-l.Done()
				if took := time.Since(begun); took > tc.after {
					t.Errorf("%s: lost after %v, want %v at most", tc.reason, took, tc.after)
				}
				if tc.want != nil && !errors.Is(l.Err(), tc.want) || tc.want == nil && ReasonOf(l.Err()) != leasev1.Refusal_LEASE_EXPIRED {
					t.Errorf("%s: lost by %v", tc.reason, l.Err())
				}
				if _, err := l.Begin(t.Context()); !errors.Is(err, l.Err()) {
					t.Errorf("Begin on a lost lease: %v", err)
				}
				h.set(func() { h.fail = nil })
				if err := l.Release(t.Context(), nil); err != nil {
					t.Errorf("Release of a lost lease: %v", err)
				}
				closed(t, h, c)
			})
		})
	}
}

func TestRenewalsAreBoundedAtTheEndOfALifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{})
		l := mustAcquire(t, c)
		ends := time.Now().Add(9 * time.Minute)
		h.set(func() {
			h.renewed = func(r *leasev1.RenewResponse) {
				r.TtlSeconds = int32(max(0, time.Until(ends)) / time.Second)
				r.RenewAfterSeconds = r.TtlSeconds / 2
			}
		})
		<-l.Done()
		if !errors.Is(l.Err(), ErrExpired) || time.Since(ends) > time.Second {
			t.Errorf("ended by %v, %v after its end", l.Err(), time.Since(ends))
		}
		if n := h.count("Renew"); n > 40 {
			t.Errorf("%d renewals", n)
		}
		_ = l.Release(t.Context(), nil)
		closed(t, h, c)
	})
}

func TestAcquireWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		h.fail = func(call string, n int) error {
			if call == "Acquire" && n < 2 {
				return refusal(leasev1.Refusal_COOLING_DOWN, 20*time.Second)
			}
			return nil
		}
		c := newClient(t, h, Options{})
		mustAcquire(t, c)
		times := h.at("Acquire")
		for i := 1; i < len(times); i++ {
			if wait := times[i].Sub(times[i-1]); wait < 20*time.Second || wait > 20*time.Second+DefaultMax {
				t.Errorf("repetition %d came after %v, want not before what the hub said", i, wait)
			}
		}
		if len(times) != 3 {
			t.Errorf("%d calls", len(times))
		}
		closed(t, h, c)
	})
}

// An Acquire that the hub lets wait is not cut off by the timeout of calls.
func TestHubMayLetAnAcquireWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		h.took = 3 * DefaultCallTimeout
		c := newClient(t, h, Options{})
		if _, err := c.Acquire(t.Context(), &leasev1.AcquireRequest{Fleet: "crawl/news", Wait: durationpb.New(3 * DefaultCallTimeout)}); err != nil {
			t.Fatal(err)
		}
		if n := len(h.at("Acquire")); n != 1 {
			t.Errorf("%d calls, want one that waits", n)
		}
		h.took = 0
		closed(t, h, c)
	})
}

func TestRefusalsAreTyped(t *testing.T) {
	tests := map[string]struct {
		why        string
		reason     leasev1.Refusal_Reason
		retryAfter time.Duration
		patience   time.Duration
		deadline   time.Duration
		calls      int
	}{
		"NotWorthWaiting":  {"a fleet that is not there does not come by waiting", leasev1.Refusal_UNKNOWN_FLEET, 0, 0, time.Hour, 1},
		"BeyondPatience":   {"an hour is more than a minute", leasev1.Refusal_COOLING_DOWN, time.Hour, 0, 2 * time.Hour, 1},
		"BeyondDeadline":   {"told at once and not when the context ends", leasev1.Refusal_COOLING_DOWN, 30 * time.Second, 0, 10 * time.Second, 1},
		"NoPatience":       {"some do that themselves", leasev1.Refusal_NO_CAPACITY, time.Second, -1, time.Hour, 1},
		"PatienceEndsOnce": {"the last refusal is the answer", leasev1.Refusal_NO_CAPACITY, 25 * time.Second, 0, time.Hour, 3},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFakeHub()
				h.fail = func(string, int) error { return refusal(tc.reason, tc.retryAfter) }
				c := newClient(t, h, Options{Retry: Retry{Patience: tc.patience, Max: time.Millisecond}})
				ctx, cancel := context.WithTimeout(t.Context(), tc.deadline)
				defer cancel()
				_, err := c.Acquire(ctx, &leasev1.AcquireRequest{Fleet: "crawl/news"})
				var got *Refusal
				if !errors.As(err, &got) {
					t.Fatalf("%s: %v is no Refusal", tc.why, err)
				}
				if got.Reason != tc.reason || got.RetryAfter != tc.retryAfter || got.Matching != 4 || got.Cooling != 3 || got.Busy != 1 || got.Message != "no" {
					t.Errorf("%s: %+v", tc.why, got)
				}
				if n := h.count("Acquire"); n != tc.calls {
					t.Errorf("%s: %d calls, want %d", tc.why, n, tc.calls)
				}
				closed(t, h, c)
			})
		})
	}
}

func TestLostAnswersLeaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		h.after = func(call string, n int) error {
			if n == 0 {
				return errNetwork
			}
			return nil
		}
		c := newClient(t, h, Options{})
		l := mustAcquire(t, c)
		if held, _, _ := h.seen(); !slices.Equal(held, []string{l.ID()}) {
			t.Errorf("held: %v, want the one that was asked for", held)
		}
		if err := l.Release(t.Context(), nil); err != nil {
			t.Error(err)
		}
		closed(t, h, c)
	})
}

func TestAcquireIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		h.after = func(call string, n int) error {
			if call == "Acquire" && n == 0 {
				return errNetwork
			}
			return nil
		}
		c := newClient(t, h, Options{Retry: Retry{Patience: -1}})
		if _, err := c.Acquire(t.Context(), &leasev1.AcquireRequest{Fleet: "crawl/news"}); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Fatalf("got %v", err)
		}
		synctest.Wait()
		if held, _, releases := h.seen(); len(held) != 0 || len(releases) != 1 {
			t.Errorf("held %v, released %v: nobody knows of the lease that was granted", held, releases)
		}
		// Whoever brings an id may ask again.
		h.set(func() { h.counts["Acquire"] = 0 })
		request := &leasev1.AcquireRequest{Fleet: "crawl/news", RequestId: "mine"}
		if _, err := c.Acquire(t.Context(), request); err == nil {
			t.Fatal("the answer was to be lost")
		}
		synctest.Wait()
		l, err := c.Acquire(t.Context(), request)
		if err != nil || l.Err() != nil {
			t.Errorf("asked again: %v, %v", l, err)
		}
		closed(t, h, c)
	})
}

func TestCanceledAcquireLeaksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		h.after = func(call string, n int) error {
			if call == "Acquire" && n == 0 {
				time.Sleep(time.Second) // The answer is on its way when the caller gives up.
				return context.Canceled
			}
			return nil
		}
		c := newClient(t, h, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := c.Acquire(ctx, &leasev1.AcquireRequest{Fleet: "crawl/news"}); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		closed(t, h, c)
	})
}

func TestReleaseOutlivesItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{})
		l := mustAcquire(t, c)
		h.set(func() { h.took = time.Second })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Release(ctx, &leasev1.Outcome{Kind: leasev1.Outcome_OK, Pages: 7}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		closed(t, h, c)
		if _, _, releases := h.seen(); !slices.Equal(releases, []string{"lse_0 OK×7"}) {
			t.Errorf("released: %q", releases)
		}
	})
}

func TestWrongOutcomeDoesNotKeepTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		h.fail = func(call string, n int) error {
			if call == "Release" && n == 0 {
				return refusal(leasev1.Refusal_INVALID_REQUEST, 0)
			}
			return nil
		}
		c := newClient(t, h, Options{})
		l := mustAcquire(t, c)
		if err := l.Release(t.Context(), &leasev1.Outcome{Kind: 99}); ReasonOf(err) != leasev1.Refusal_INVALID_REQUEST {
			t.Errorf("got %v, want to be told", err)
		}
		if held, _, _ := h.seen(); len(held) > 0 {
			t.Errorf("held: %v", held)
		}
		closed(t, h, c)
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{})
		count := int32(40)
		leases, err := c.AcquireAll(t.Context(), &leasev1.AcquireRequest{Fleet: "crawl/news", Count: &count})
		if err != nil || len(leases) != 40 {
			t.Fatalf("%d leases, %v", len(leases), err)
		}
		// One waits for capacity while the client is closed.
		h.set(func() {
			h.fail = func(string, int) error { return refusal(leasev1.Refusal_NO_CAPACITY, 30*time.Second) }
		})
		waiting := make(chan error)
		go func() {
			_, err := c.Acquire(context.Background(), &leasev1.AcquireRequest{Fleet: "crawl/news"})
			waiting <- err
		}()
		synctest.Wait()
		h.set(func() { h.fail = nil })
		go func() {
			if err := <-waiting; !errors.Is(err, ErrClosed) || ReasonOf(err) != leasev1.Refusal_NO_CAPACITY {
				t.Errorf("an Acquire that waited: %v, want ErrClosed and what the hub said", err)
			}
		}()
		closed(t, h, c)
		closed(t, h, c)
		if _, err := c.Acquire(t.Context(), &leasev1.AcquireRequest{Fleet: "crawl/news"}); !errors.Is(err, ErrClosed) {
			t.Errorf("Acquire of a closed client: %v", err)
		}
		synctest.Wait()
	})
}

func TestCloseSaysWhatItCouldNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{})
		mustAcquire(t, c)
		h.set(func() { h.fail = func(string, int) error { return errNetwork } })
		if err := c.Close(t.Context()); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("Close: %v, want the lease that is not released", err)
		}
	})
}

func TestNoSecretsInErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{Retry: Retry{Patience: -1}})
		h.granted["lse_x"] = &leasev1.Lease{LeaseId: "lse_x", ProxyUrl: "http://lse_x:secret\x7f@198.51.100.7:3128", TtlSeconds: 60}
		h.held["lse_x"] = true
		h.requests["bad"] = []string{"lse_x"}
		_, err := c.Acquire(t.Context(), &leasev1.AcquireRequest{Fleet: "crawl/news", RequestId: "bad"})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
		h.set(func() { delete(h.held, "lse_x") })
		closed(t, h, c)
	})
}
