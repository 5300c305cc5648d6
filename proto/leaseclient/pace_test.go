package leaseclient

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

func TestPace(t *testing.T) {
	tests := map[string]struct {
		reason string
		limits Limits
		want   []time.Duration // when each of six uses of 2 s begins
	}{
		"None":        {"without limits all begin at once", Limits{}, []time.Duration{0, 0, 0, 0, 0, 0}},
		"Concurrency": {"two at a time", Limits{MaxConcurrency: 2}, []time.Duration{0, 0, 2, 2, 4, 4}},
		"Interval":    {"one each three seconds", Limits{MinInterval: 3 * time.Second}, []time.Duration{0, 3, 6, 9, 12, 15}},
		"Both":        {"the stricter one at each time", Limits{MaxConcurrency: 1, MinInterval: time.Second}, []time.Duration{0, 2, 4, 6, 8, 10}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFakeHub()
				h.limits = &leasev1.Limits{MaxConcurrency: int32(tc.limits.MaxConcurrency), MinInterval: durationpb.New(tc.limits.MinInterval)}
				c := newClient(t, h, Options{})
				l := mustAcquire(t, c)
				begun := time.Now()
				starts := make(chan time.Duration, len(tc.want))
				for range tc.want {
					go func() {
						end, err := l.Begin(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						starts <- time.Since(begun)
						time.Sleep(2 * time.Second)
						end()
						end() // It counts once.
					}()
				}
				var got []time.Duration
				for range tc.want {
					got = append(got, (<-starts)/time.Second)
				}
				slices.Sort(got)
				if !slices.Equal(got, tc.want) {
					t.Errorf("%s: uses begin at %v, want %v seconds", tc.reason, got, tc.want)
				}
				time.Sleep(5 * time.Second)
				closed(t, h, c)
			})
		})
	}
}

// TestLimitsOfEachAnswer checks that the last answer counts, whatever it answers.
func TestLimitsOfEachAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{})
		l := mustAcquire(t, c)
		h.set(func() { h.limits = &leasev1.Limits{MinInterval: durationpb.New(2 * time.Second)} })
		if _, err := l.Report(t.Context(), "", &leasev1.Outcome{Kind: leasev1.Outcome_OK}); err != nil {
			t.Fatal(err)
		}
		if want := (Limits{MinInterval: 2 * time.Second}); l.State().Limits != want {
			t.Errorf("after a report: %+v, want %+v", l.State().Limits, want)
		}
		h.set(func() { h.limits = &leasev1.Limits{MaxConcurrency: 3} })
		changed := l.Changed()
		<-changed // by a renewal
		if want := (Limits{MaxConcurrency: 3}); l.State().Limits != want || h.count("Renew") != 1 {
			t.Errorf("after a renewal: %+v, want %+v", l.State().Limits, want)
		}
		h.set(func() { h.limits = nil })
		<-l.Changed()
		if want := (Limits{}); l.State().Limits != want {
			t.Errorf("after they were lifted: %+v", l.State().Limits)
		}
		closed(t, h, c)
	})
}

func TestPaceIsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{})
		l := mustAcquire(t, c)
		l.update(func(s *State) { s.Limits = Limits{MinInterval: time.Second} })
		order := make(chan int, 10)
		for i := range 10 {
			go func() {
				if _, err := l.Begin(t.Context()); err == nil {
					order <- i
				}
			}()
			synctest.Wait()
		}
		for i := range 10 {
			if got := <-order; got != i {
				t.Fatalf("use %d was let in as number %d", got, i)
			}
		}
		closed(t, h, c)
	})
}

func TestPaceChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{})
		l := mustAcquire(t, c)
		l.update(func(s *State) { s.Limits = Limits{MaxConcurrency: 1, MinInterval: time.Hour} })
		if _, err := l.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		let := make(chan error)
		go func() { _, err := l.Begin(t.Context()); let <- err }()
		synctest.Wait()
		l.update(func(s *State) { s.Limits = Limits{MaxConcurrency: 2} })
		if err := <-let; err != nil {
			t.Errorf("after the limits were raised: %v", err)
		}

		// Who gives up, and who waits when the lease ends.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := l.Begin(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who gave up: %v", err)
		}
		for range 2 { // One waits for the limits, one for its turn.
			go func() { _, err := l.Begin(t.Context()); let <- err }()
		}
		synctest.Wait()
		if err := l.Release(t.Context(), nil); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-let; !errors.Is(err, ErrReleased) {
				t.Errorf("when the lease ended: %v", err)
			}
		}
		closed(t, h, c)
	})
}
