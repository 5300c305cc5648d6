package keeper_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// gated is a memory journal whose appends wait until they are let through.
type gated struct {
	*keeper.Memory
	gate chan struct{}
}

func (g *gated) Append(ctx context.Context, batch []lease.Record) error {
	<-g.gate
	return g.Memory.Append(ctx, batch)
}

// running is a keeper that runs until the test ends.
type running struct {
	*keeper.Keeper
	stop context.CancelFunc
	err  chan error
}

// run starts a keeper inside a bubble of testing/synctest. The bubble ends only when the keeper has, so each test stops
// it.
func run(t *testing.T, journal keeper.Journal) *running {
	t.Helper()
	engine := lease.New(lease.Options{IDs: &lease.CountingIDs{}, Epoch: 1, HistoryComplete: true})
	k := &running{Keeper: keeper.New(keeper.Options{Engine: engine, Journal: journal}), err: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	k.stop = cancel
	go func() { k.err <- k.Run(ctx) }()
	<-k.Ready()
	t.Cleanup(cancel)
	return k
}

// stock gives the keeper crawl/news with n proxies of one slot each.
func (k *running) stock(t *testing.T, n int) {
	t.Helper()
	k.must(t, lease.SetFleet{Fleet: lease.Fleet{ID: "crawl/news", Policy: lease.Policy{MaxLeasesPerProxy: 1, DefaultTTL: 30 * time.Second}}})
	for i := range n {
		k.must(t, lease.UpsertProxy{Proxy: lease.Proxy{
			UID: lease.ProxyUID(rune('a' + i)), Fleet: "crawl/news", Member: "east", Ready: true,
			Exits:     []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})},
			Endpoints: []lease.Endpoint{{Network: "PodIP", Host: "10.0.0.1", Port: 3128}},
		}})
	}
}

func (k *running) must(t *testing.T, cmd lease.Command) lease.Result {
	t.Helper()
	result, err := k.Do(t.Context(), cmd)
	if err != nil {
		t.Fatalf("%T: %v", cmd, err)
	}
	return result
}

func acquire() lease.Acquire { return lease.Acquire{Principal: "anna", Fleet: "crawl/news"} }

// TestAnswersAfterTheJournal checks that no answer is ahead of the journal, and that what waits meanwhile shares one
// append.
func TestAnswersAfterTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := &gated{Memory: keeper.NewMemory(keeper.MemoryOptions{Retain: true}), gate: make(chan struct{}, 100)}
		for range 100 {
			journal.gate <- struct{}{}
		}
		k := run(t, journal)
		k.stock(t, 20)
		for len(journal.gate) > 0 {
			<-journal.gate
		}
		before := journal.Batches()

		var wg sync.WaitGroup
		answers := make(chan lease.Granted, 20)
		for range 20 {
			wg.Go(func() {
				granted, err := k.Acquire(t.Context(), acquire())
				if err != nil {
					t.Error(err)
				}
				answers <- granted
			})
		}
		synctest.Wait()
		if len(answers) > 0 {
			t.Errorf("%d answers before the journal had any", len(answers))
		}
		journal.gate <- struct{}{} // the first batch
		journal.gate <- struct{}{} // the rest
		wg.Wait()
		if batches := journal.Batches() - before; batches > 2 {
			t.Errorf("20 grants took %d appends, want 2 at most", batches)
		}
		k.stop()
		if err := <-k.err; err != nil {
			t.Error(err)
		}
	})
}

// TestExpiry checks that leases end at their time with nobody asking, that it is journaled, and that their holder's
// subscription hears of it.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := keeper.NewMemory(keeper.MemoryOptions{Retain: true})
		k := run(t, journal)
		k.stock(t, 2)
		mine := k.Subscribe(keeper.SubscribeOptions{Wants: func(s lease.Subject) bool { return s.Principal == "anna" }})
		defer mine.Close()
		others := k.Subscribe(keeper.SubscribeOptions{Wants: func(s lease.Subject) bool { return s.Principal == "boris" }})
		granted := k.must(t, acquire()).(lease.Granted).Leases[0]
		began := time.Now()

		notices, lost, err := mine.Next(t.Context())
		if err != nil || lost || len(notices) != 1 {
			t.Fatalf("notices %v, lost %v, %v", notices, lost, err)
		}
		ended, ok := notices[0].(lease.Ended)
		if !ok || ended.Of.ID != granted.ID || ended.State != lease.StateExpired {
			t.Errorf("notice %+v", notices[0])
		}
		if after := time.Since(began); after != 30*time.Second {
			t.Errorf("the notice came after %s, the lease was for 30s", after)
		}
		records := journal.Records()
		if last, ok := records[len(records)-1].(*lease.Finished); !ok || last.ID != granted.ID {
			t.Errorf("the last record is %+v", records[len(records)-1])
		}
		var refusal *lease.Refusal
		if _, err := k.Renew(t.Context(), lease.Renew{Principal: "anna", ID: granted.ID}); !errors.As(err, &refusal) || refusal.Reason != lease.LeaseExpired {
			t.Errorf("renewing it: %v", err)
		}
		k.stop()
		if err := <-k.err; err != nil {
			t.Error(err)
		}
		var unavailable *keeper.Unavailable
		if _, _, err := others.Next(t.Context()); !errors.As(err, &unavailable) {
			t.Errorf("a subscription of a stopped keeper gives %v", err)
		}
	})
}

// TestJournalFailure checks that a journal that fails stops the keeper: its engine is ahead of what is durable.
func TestJournalFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := keeper.NewMemory(keeper.MemoryOptions{})
		k := run(t, journal)
		k.stock(t, 1)
		full := errors.New("no space left on device")
		journal.FailWith(full)
		var unavailable *keeper.Unavailable
		_, err := k.Acquire(t.Context(), acquire())
		if !errors.As(err, &unavailable) || !unavailable.Maybe || !errors.Is(err, full) {
			t.Errorf("the caller got %v", err)
		}
		if err := <-k.err; !errors.Is(err, full) {
			t.Errorf("Run returned %v", err)
		}
		if _, err := k.Acquire(t.Context(), acquire()); !errors.As(err, &unavailable) || unavailable.Maybe {
			t.Errorf("the next caller got %v", err)
		}
	})
}

// TestReadsNeedNoJournal checks that reading works, and writes nothing, while the journal cannot write.
func TestReadsNeedNoJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := keeper.NewMemory(keeper.MemoryOptions{})
		k := run(t, journal)
		k.stock(t, 3)
		journal.FailWith(errors.New("no space left on device"))
		if stats, err := k.Stats(t.Context(), "crawl/news"); err != nil || stats.Usable != 3 {
			t.Errorf("%+v, %v", stats, err)
		}
		if page, err := k.List(t.Context(), lease.List{Fleet: "crawl/news"}); err != nil || len(page.Proxies) != 3 {
			t.Errorf("%+v, %v", page, err)
		}
		k.stop()
		if err := <-k.err; err != nil {
			t.Error(err)
		}
	})
}

// TestCallersThatLeave checks that a command whose caller has gone before it was taken up is not carried out, and that
// what one taken up was granted is given back.
func TestCallersThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := &gated{Memory: keeper.NewMemory(keeper.MemoryOptions{}), gate: make(chan struct{}, 100)}
		for range 10 {
			journal.gate <- struct{}{}
		}
		k := run(t, journal)
		k.stock(t, 2)
		for len(journal.gate) > 0 {
			<-journal.gate
		}
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the client hung up"))
		defer cancel()
		for range 2 { // one is taken up and waits for the journal, the other waits in the queue
			wg.Go(func() {
				if _, err := k.Acquire(ctx, acquire()); err == nil || errors.Is(err, context.Canceled) {
					t.Errorf("a caller that hung up got %v", err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		close(journal.gate)
		if stats, err := k.Stats(t.Context(), "crawl/news"); err != nil || stats.Leases != 0 {
			t.Errorf("%d leases that nobody has, want none; %v", stats.Leases, err)
		}
		k.stop()
		if err := <-k.err; err != nil {
			t.Error(err)
		}
	})
}

// TestRestart checks that a second keeper goes on from the journal of the first.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := keeper.NewMemory(keeper.MemoryOptions{Retain: true})
		first := run(t, journal)
		first.stock(t, 1)
		granted := first.must(t, acquire()).(lease.Granted).Leases[0]
		first.stop()
		<-first.err

		second := run(t, journal)
		if found := second.must(t, lease.Get{Principal: "anna", ID: granted.ID}).(lease.Found); found.Lease.State != lease.Live {
			t.Errorf("after the restart it is %+v", found.Lease)
		}
		var refusal *lease.Refusal
		if _, err := second.Acquire(t.Context(), acquire()); !errors.As(err, &refusal) || refusal.Reason != lease.NoCapacity {
			t.Errorf("the only proxy was granted twice: %v", err)
		}
		second.stop()
		<-second.err
	})
}

// TestBadJournal checks that a keeper does not go on from a journal that makes no sense.
func TestBadJournal(t *testing.T) {
	journal := keeper.NewMemory(keeper.MemoryOptions{Retain: true})
	if err := journal.Append(t.Context(), []lease.Record{&lease.Extended{ID: "lse_1"}}); err != nil {
		t.Fatal(err)
	}
	k := keeper.New(keeper.Options{Engine: lease.New(lease.Options{IDs: &lease.CountingIDs{}}), Journal: journal})
	if err := k.Run(t.Context()); err == nil {
		t.Error("Run went on")
	}
	if err := k.Run(t.Context()); err == nil {
		t.Error("Run ran twice")
	}
}

// TestNotRunning checks what a caller gets before Run.
func TestNotRunning(t *testing.T) {
	k := keeper.New(keeper.Options{
		Engine: lease.New(lease.Options{IDs: &lease.CountingIDs{}}), Journal: keeper.NewMemory(keeper.MemoryOptions{}),
	})
	var unavailable *keeper.Unavailable
	if _, err := k.Stats(t.Context(), "crawl/news"); !errors.As(err, &unavailable) {
		t.Errorf("before Run: %v", err)
	}
}

// TestSlowSubscriber checks that a slow reader loses the oldest notices, is told so, and costs bounded memory.
func TestSlowSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := run(t, keeper.NewMemory(keeper.MemoryOptions{}))
		k.stock(t, 5)
		slow := k.Subscribe(keeper.SubscribeOptions{Buffer: 2})
		var last lease.ID
		for range 5 {
			last = k.must(t, acquire()).(lease.Granted).Leases[0].ID
			k.must(t, lease.Touch{ID: "east"})
		}
		time.Sleep(31 * time.Second) // all of them expire, in the bubble's time
		synctest.Wait()
		notices, lost, err := slow.Next(t.Context())
		if err != nil || !lost || len(notices) != 2 || notices[1].Subject().ID != last {
			t.Errorf("notices %v, lost %v, %v; want the last two and lost", notices, lost, err)
		}
		slow.Close()
		slow.Close()
		var unavailable *keeper.Unavailable
		if _, _, err := slow.Next(t.Context()); !errors.As(err, &unavailable) {
			t.Errorf("a closed subscription gives %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		patient := k.Subscribe(keeper.SubscribeOptions{})
		if _, _, err := patient.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a reader whose context ended got %v", err)
		}
		k.stop()
		<-k.err
	})
}
