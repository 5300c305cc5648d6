package feed

import (
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/hub/internal/inventory"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// restarted is the bench of a hub that begins with the engine's knowledge of
// an earlier one, as from a journal, and with an empty inventory.
func (b *bench) restarted() *bench {
	b.t.Helper()
	restarted := lease.New(lease.Options{IDs: &lease.CountingIDs{}, Epoch: 2, HistoryComplete: true})
	if err := restarted.Replay(b.engine.engine.Snapshot()); err != nil {
		b.t.Fatal(err)
	}
	again := &bench{
		t: b.t, clock: b.clock, client: b.client, inventory: inventory.New(inventory.Options{Clock: b.clock}),
		engine: &engine{clock: b.clock, told: map[string]int{}, engine: restarted},
	}
	again.Feed = New(Options{
		Keeper: again.engine, Inventory: again.inventory, Reader: b.client, Clock: b.clock, StartedAt: started, Logger: logr.Discard(),
	})
	return again
}

// remembered returns a bench with proxies a and b on east, restarted.
func remembered(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, east())
	b.sync()
	b.create(news(), placement("pp"))
	b.connect("east")
	b.report("east", "pp", "a", "b")
	b.sync()
	b = b.restarted()
	b.clock.Step(5 * time.Second)
	return b
}

// TestGrantsFromTheJournal leases before any member has connected, until the
// member would be stale.
func TestGrantsFromTheJournal(t *testing.T) {
	b := remembered(t)
	b.sync()
	if diff := cmp.Diff([]string{"a", "b"}, b.usable()); diff != "" {
		t.Fatal(diff)
	}
	if _, err := b.acquire(); err != nil {
		t.Fatal(err)
	}
	b.clock.Step(time.Minute)
	b.sync()
	if got := b.usable(); len(got) != 0 {
		t.Errorf("%v can be leased, and nobody has heard of them for a minute", got)
	}
}

// TestForgetsWhatNobodyReports lets the member come back with one proxy of
// two: the other goes once the member has told everything, and not before.
func TestForgetsWhatNobodyReports(t *testing.T) {
	b := remembered(t)
	b.sync()
	b.inventory.Connected("east", inventory.Session{Epoch: 2}, b.clock.Now())
	b.report("east", "pp", "b")
	b.sync()
	if diff := cmp.Diff([]string{"a", "b"}, b.usable()); diff != "" {
		t.Fatalf("while the member reports: %s", diff)
	}
	b.inventory.Resynced("east", b.clock.Now())
	b.sync()
	if diff := cmp.Diff([]string{"b"}, b.usable()); diff != "" {
		t.Fatalf("after the resync: %s", diff)
	}
	if b.engine.told["lease.RemoveProxy"] != 1 || b.engine.told["lease.UpsertProxy"] != 0 {
		t.Errorf("told %v", b.engine.told)
	}
	b.inventory.Gone("east", "east/b", b.clock.Now())
	b.sync()
	if got := b.usable(); len(got) != 0 {
		t.Errorf("%v is gone and can be leased", got)
	}
}

// TestForgetsWhatWasDeletedMeanwhile deletes the fleet, or the member, while
// no hub runs.
func TestForgetsWhatWasDeletedMeanwhile(t *testing.T) {
	t.Run("Fleet", func(t *testing.T) {
		b := remembered(t)
		if err := b.client.Delete(t.Context(), news()); err != nil {
			t.Fatal(err)
		}
		b.sync()
		if _, err := b.acquire(); err == nil || b.engine.told["lease.RemoveFleet"] != 1 {
			t.Errorf("granted from a fleet that is gone: %v, told %v", err, b.engine.told)
		}
	})
	t.Run("Member", func(t *testing.T) {
		b := remembered(t)
		if err := b.client.Delete(t.Context(), east()); err != nil {
			t.Fatal(err)
		}
		b.sync()
		if got := b.usable(); len(got) != 0 || b.engine.told["lease.RemoveProxy"] != 2 {
			t.Errorf("%v can be leased, told %v", got, b.engine.told)
		}
	})
}

// TestRecallIsTriedAgain has the keeper fail at first.
func TestRecallIsTriedAgain(t *testing.T) {
	b := remembered(t)
	b.engine.fail = errors.New("no")
	if err := b.Sync(t.Context()); err == nil {
		t.Fatal("the keeper failed, and Sync did not")
	}
	b.engine.fail = nil
	b.sync()
	if diff := cmp.Diff([]string{"a", "b"}, b.usable()); diff != "" {
		t.Fatal(diff)
	}
}
