package keeper_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// small is a memory journal that has as much room as it is told.
type small struct {
	*keeper.Memory
	room atomic.Int32
}

const full = "the journal's disk is full"

func (s *small) Room() (keeper.Room, string) {
	room := keeper.Room(s.room.Load()) //nolint:gosec // one of three
	if room == keeper.RoomForAll {
		return room, ""
	}
	return room, full
}

func (s *small) set(room keeper.Room) { s.room.Store(int32(room)) }

// TestRoom runs out of room and finds some again, without a restart: what is refused, what goes on, and what becomes of
// leases whose time comes meanwhile.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := &small{Memory: keeper.NewMemory(keeper.MemoryOptions{Retain: true})}
		k := run(t, journal)
		k.stock(t, 6)
		first := k.must(t, acquire()).(lease.Granted).Leases[0]
		second := k.must(t, acquire()).(lease.Granted).Leases[0]
		refused := func(cmd lease.Command) {
			t.Helper()
			_, err := k.Do(t.Context(), cmd)
			var refusal *lease.Refusal
			if !errors.As(err, &refusal) || refusal.Reason != lease.ReadOnly || refusal.RetryAfter <= 0 {
				t.Errorf("%T: %v, want READ_ONLY and a retryAfter", cmd, err)
			}
		}
		renew := lease.Renew{Principal: "anna", ID: first.ID}
		ban := lease.Report{Principal: "anna", ID: second.ID, Observations: []lease.Observation{{Target: lease.MustParseTarget("a.example"), Outcome: lease.Blocked}}}

		journal.set(keeper.RoomForUpkeep)
		refused(acquire())
		k.must(t, renew)
		k.must(t, ban)
		k.must(t, lease.Release{Principal: "anna", ID: second.ID})
		k.must(t, lease.Touch{ID: "east"})

		journal.set(keeper.RoomForNothing)
		batches := journal.Batches()
		refused(acquire())
		refused(renew)
		refused(ban)
		refused(lease.Release{Principal: "anna", ID: first.ID})
		var unavailable *keeper.Unavailable
		if _, err := k.Do(t.Context(), lease.RemoveProxy{UID: "a"}); !errors.As(err, &unavailable) {
			t.Errorf("what the hub tells the engine must be told again, not refused: %v", err)
		}
		if found := k.must(t, lease.Get{Principal: "anna", ID: first.ID}).(lease.Found); found.Lease.State != lease.Live {
			t.Errorf("%+v", found.Lease)
		}
		time.Sleep(time.Minute) // the lease's time comes, in the bubble's time
		if stats := k.must(t, lease.ReadStats{Fleet: "crawl/news"}).(lease.Stats); stats.Leases != 1 {
			t.Errorf("%d leases, want the one whose end cannot be written down", stats.Leases)
		}
		if n := journal.Batches() - batches; n != 0 {
			t.Errorf("%d appends to a journal without room", n)
		}

		journal.set(keeper.RoomForAll)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if last, ok := journal.Records()[len(journal.Records())-1].(*lease.Finished); !ok || last.ID != first.ID {
			t.Error("with room again, the lease whose time had come did not end by itself")
		}
		k.must(t, lease.Touch{ID: "east"})
		k.must(t, acquire())
		k.stop()
		if err := <-k.err; err != nil {
			t.Error(err)
		}
	})
}

// TestWaitersOutlastAFullDisk lets an Acquire wait through a full disk: it is granted when there is room again.
func TestWaitersOutlastAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := &small{Memory: keeper.NewMemory(keeper.MemoryOptions{Retain: true})}
		k := run(t, journal)
		k.stock(t, 1)
		held := k.must(t, acquire()).(lease.Granted).Leases[0]
		granted := make(chan lease.Granted, 1)
		go func() {
			got, err := k.Acquire(t.Context(), patient(25*time.Second))
			if err != nil {
				t.Error(err)
			}
			granted <- got
		}()
		synctest.Wait()
		journal.set(keeper.RoomForUpkeep)
		k.must(t, lease.Release{Principal: "anna", ID: held.ID})
		synctest.Wait()
		if len(granted) > 0 {
			t.Error("granted on a full disk")
		}
		journal.set(keeper.RoomForAll)
		k.must(t, lease.Touch{ID: "east"})
		if got := <-granted; len(got.Leases) != 1 {
			t.Errorf("%+v", got)
		}
		k.stop()
		if err := <-k.err; err != nil {
			t.Error(err)
		}
	})
}

// TestStartsWithoutRoom starts on a journal that takes nothing: reading works.
func TestStartsWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		journal := &small{Memory: keeper.NewMemory(keeper.MemoryOptions{Retain: true})}
		first := run(t, journal)
		first.stock(t, 1)
		granted := first.must(t, acquire()).(lease.Granted).Leases[0]
		first.stop()
		<-first.err

		journal.set(keeper.RoomForNothing)
		second := run(t, journal)
		if found := second.must(t, lease.Get{Principal: "anna", ID: granted.ID}).(lease.Found); found.Lease.State != lease.Live {
			t.Errorf("%+v", found.Lease)
		}
		second.stop()
		if err := <-second.err; err != nil {
			t.Error(err)
		}
	})
}
