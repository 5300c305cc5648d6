package busy_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/hub/internal/busy"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

type keeper struct {
	mu    sync.Mutex
	says  lease.Busy
	err   error
	asked int
}

func (k *keeper) Busy(context.Context) (lease.Busy, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	return k.says, k.err
}

func leased(member lease.MemberID, uids ...lease.ProxyUID) lease.Busy {
	return lease.Busy{Known: true, Proxies: map[lease.MemberID][]lease.ProxyUID{member: uids}}
}

func signalled(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestMembersAreToldOfChanges(t *testing.T) {
	k, now := &keeper{says: lease.Busy{}}, clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	b := busy.New(busy.Options{Keeper: k, Clock: now})
	east, cancel := b.Watch("east")
	defer cancel()
	west, cancelWest := b.Watch("west")
	if !signalled(east) || !signalled(west) {
		t.Error("who begins to watch is not told to look")
	}
	look := func(says lease.Busy, eastHears, westHears bool, want ...string) {
		t.Helper()
		k.says = says
		if err := b.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		now.Step(3 * time.Second)
		if e, w := signalled(east), signalled(west); e != eastHears || w != westHears {
			t.Errorf("east hears %v and west %v, want %v and %v", e, w, eastHears, westHears)
		}
		if got, _ := b.Leased("east"); !slices.Equal(got, want) {
			t.Errorf("leased are %v, want %v", got, want)
		}
	}
	look(lease.Busy{}, false, false)
	if _, known := b.Leased("east"); known {
		t.Error("an engine that lacks leases passes for one that has none")
	}
	look(leased("east", "a"), true, true, "a") // the first time, everybody
	look(leased("east", "a"), false, false, "a")
	look(leased("east", "a", "b"), true, false, "a", "b")
	look(lease.Busy{}, false, false, "a", "b") // nothing is concluded from a gap
	look(leased("west", "c"), true, true)
	if _, known := b.Leased("east"); !known {
		t.Error("that nothing is leased is not known")
	}
	now.Step(time.Minute)
	look(leased("west", "c"), true, true) // so that they know it is still so
	look(leased("west", "c"), false, false)
	cancelWest()
	look(leased("west"), false, false)
	k.err = errors.New("the keeper has stopped")
	if err := b.Look(t.Context()); err == nil {
		t.Error("an engine that does not answer is no error")
	}
}

func TestRunLooksEveryFewSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{says: leased("east", "a"), err: errors.New("not yet")}
		b := busy.New(busy.Options{Keeper: k, Clock: clock.RealClock{}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		time.Sleep(time.Second)
		synctest.Wait()
		k.mu.Lock()
		k.err = nil
		k.mu.Unlock()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got, known := b.Leased("east"); !known || len(got) != 1 || k.asked != 2 {
			t.Errorf("leased are %v (known %v) after %d looks, want one after 2", got, known, k.asked)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
