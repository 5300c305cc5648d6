package keeper_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// patient is an Acquire that waits.
func patient(wait time.Duration) lease.Acquire {
	cmd := acquire()
	cmd.Wait = wait
	return cmd
}

func (k *running) stats(t *testing.T) lease.Stats {
	t.Helper()
	stats, err := k.Stats(t.Context(), "crawl/news")
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

func (k *running) end(t *testing.T) {
	t.Helper()
	k.stop()
	if err := <-k.err; err != nil {
		t.Error(err)
	}
}

// TestQueueInOrder checks that a hundred calls that wait for the only proxy are served in the order in which they came,
// each once the lease before it ends.
func TestQueueInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := run(t, keeper.NewMemory(keeper.MemoryOptions{}))
		k.stock(t, 1)
		first := k.must(t, acquire()).(lease.Granted).Leases[0]
		const callers = 100
		order := make(chan int, callers)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				granted, err := k.Acquire(t.Context(), patient(time.Minute))
				if err != nil {
					t.Errorf("caller %d: %v", i, err)
					return
				}
				order <- i
				time.Sleep(100 * time.Millisecond)
				k.must(t, lease.Release{Principal: "anna", ID: granted.Leases[0].ID})
			})
			synctest.Wait()
		}
		if waiting := k.stats(t).Waiting; waiting != callers {
			t.Errorf("%d wait, want %d", waiting, callers)
		}
		k.must(t, lease.Release{Principal: "anna", ID: first.ID})
		wg.Wait()
		for i := range callers {
			if got := <-order; got != i {
				t.Fatalf("caller %d was served before caller %d", got, i)
			}
		}
		if stats := k.stats(t); stats.Waiting != 0 || stats.Leases != 0 {
			t.Errorf("at the end %d wait with %d leases", stats.Waiting, stats.Leases)
		}
		k.end(t)
	})
}

// TestWaitEndsAtItsDeadline checks that a wait that is not served ends at its very moment, with the refusal that holds
// then.
func TestWaitEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := run(t, keeper.NewMemory(keeper.MemoryOptions{}))
		k.stock(t, 1)
		k.must(t, acquire()) // for 30 s
		began := time.Now()
		_, err := k.Acquire(t.Context(), patient(7*time.Second))
		var refusal *lease.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != lease.NoCapacity || refusal.RetryAfter != 23*time.Second {
			t.Errorf("want %s in 23s, got %v", lease.NoCapacity, err)
		}
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("a wait of 7s took %s", took)
		}
		if granted, err := k.Acquire(t.Context(), patient(time.Minute)); err != nil || time.Since(began) != 30*time.Second {
			t.Errorf("when the lease expired: %v, %v after %s", granted, err, time.Since(began))
		}
		k.end(t)
	})
}

// TestWaitAnsweredAfterTheJournal checks that a waiter does not hear of its lease before the journal has it.
func TestWaitAnsweredAfterTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := &gated{Memory: keeper.NewMemory(keeper.MemoryOptions{}), gate: make(chan struct{}, 100)}
		for range 10 {
			journal.gate <- struct{}{}
		}
		k := run(t, journal)
		k.stock(t, 1)
		first := k.must(t, acquire()).(lease.Granted).Leases[0]
		for len(journal.gate) > 0 {
			<-journal.gate
		}
		served := make(chan error, 2)
		go func() {
			_, err := k.Acquire(t.Context(), patient(time.Minute))
			served <- err
		}()
		synctest.Wait() // waiting writes nothing
		go func() {
			_, err := k.Release(t.Context(), lease.Release{Principal: "anna", ID: first.ID})
			served <- err
		}()
		synctest.Wait()
		if len(served) > 0 {
			t.Error("an answer came before the journal had what it says")
		}
		journal.gate <- struct{}{} // one append for both
		for range 2 {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
		close(journal.gate)
		k.end(t)
	})
}

// TestWaiterLeaves checks that a caller whose context ends leaves no trace, and that the next one is served.
func TestWaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := keeper.NewMemory(keeper.MemoryOptions{Retain: true})
		k := run(t, journal)
		k.stock(t, 1)
		first := k.must(t, acquire()).(lease.Granted).Leases[0]
		records := len(journal.Records())
		hungUp := errors.New("the client hung up")
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := k.Acquire(ctx, patient(time.Minute)); !errors.Is(err, context.Canceled) && !errors.Is(err, hungUp) {
					t.Errorf("a caller that hung up got %v", err)
				}
			})
		}
		synctest.Wait()
		wg.Go(func() {
			if _, err := k.Acquire(t.Context(), patient(time.Minute)); err != nil {
				t.Errorf("the one that stayed: %v", err)
			}
		})
		synctest.Wait()
		cancel(hungUp)
		synctest.Wait()
		if stats := k.stats(t); stats.Waiting != 1 || len(journal.Records()) != records {
			t.Errorf("%d wait, want 1; %d new records, want none", stats.Waiting, len(journal.Records())-records)
		}
		k.must(t, lease.Release{Principal: "anna", ID: first.ID})
		wg.Wait()
		if stats := k.stats(t); stats.Waiting != 0 || stats.Leases != 1 {
			t.Errorf("%d wait, %d leases; want 0 and 1", stats.Waiting, stats.Leases)
		}
		k.end(t)
	})
}

// TestWaiterLeavesWhenServed checks the moment between the grant and its answer: whoever leaves then does not keep the
// proxy from the next one, and the same request, made again, is a new one. With another call of the same request id
// there to take it, the lease is left to that one.
func TestWaiterLeavesWhenServed(t *testing.T) {
	for name, twin := range map[string]bool{"Alone": false, "WithTwin": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				journal := &gated{Memory: keeper.NewMemory(keeper.MemoryOptions{}), gate: make(chan struct{}, 100)}
				for range 10 {
					journal.gate <- struct{}{}
				}
				k := run(t, journal)
				k.stock(t, 1)
				first := k.must(t, acquire()).(lease.Granted).Leases[0]
				for len(journal.gate) > 0 {
					<-journal.gate
				}
				cmd := patient(time.Minute)
				cmd.RequestID = "r-1"
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() {
					if _, err := k.Acquire(ctx, cmd); !errors.Is(err, context.Canceled) {
						t.Errorf("a caller that hung up got %v", err)
					}
				})
				synctest.Wait()
				served := make(chan lease.Granted, 1)
				if twin {
					wg.Go(func() {
						granted, err := k.Acquire(t.Context(), cmd)
						if err != nil {
							t.Error(err)
						}
						served <- granted
					})
					synctest.Wait()
				}
				wg.Go(func() { k.must(t, lease.Release{Principal: "anna", ID: first.ID}) })
				synctest.Wait() // it is granted, and the journal has not got it yet
				cancel()
				synctest.Wait()
				close(journal.gate)
				wg.Wait()
				if twin {
					granted := <-served
					found := k.must(t, lease.Get{Principal: "anna", ID: granted.Leases[0].ID}).(lease.Found)
					if found.Lease.State != lease.Live {
						t.Errorf("the second call has a lease that is %s", found.Lease.State)
					}
				} else {
					synctest.Wait()
					if stats := k.stats(t); stats.Leases != 0 {
						t.Errorf("%d leases that nobody has", stats.Leases)
					}
					if granted, err := k.Acquire(t.Context(), cmd); err != nil || granted.Repeated {
						t.Errorf("the same request again: %+v, %v", granted, err)
					}
				}
				k.end(t)
			})
		})
	}
}

// TestStopAnswersWaiters checks that nobody waits for a keeper that has stopped.
func TestStopAnswersWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := run(t, keeper.NewMemory(keeper.MemoryOptions{}))
		k.stock(t, 1)
		k.must(t, acquire())
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				var unavailable *keeper.Unavailable
				if _, err := k.Acquire(t.Context(), patient(time.Minute)); !errors.As(err, &unavailable) || unavailable.Maybe {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		k.end(t)
		wg.Wait()
	})
}
