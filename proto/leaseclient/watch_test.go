package leaseclient

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// fakeEvents is a watch that tells what the test sends, and breaks when that is nil.
type fakeEvents struct {
	ctx  context.Context
	tell <-chan *leasev1.WatchLeasesResponse
}

func (e fakeEvents) Receive() (*leasev1.WatchLeasesResponse, error) {
	select {
	case event := <-e.tell:
		if event == nil {
			return nil, errNetwork
		}
		return event, nil
	case <-e.ctx.Done():
		return nil, e.ctx.Err()
	}
}

func (e fakeEvents) Close() error { return nil }

func event(kind leasev1.WatchLeasesResponse_Kind, id string) *leasev1.WatchLeasesResponse {
	return &leasev1.WatchLeasesResponse{Kind: kind, LeaseId: id}
}

func TestWatchRenewsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{})
		tell := make(chan *leasev1.WatchLeasesResponse)
		var opened atomic.Int32
		c.watcher = &watcher{open: func(ctx context.Context) (events, error) {
			opened.Add(1)
			return fakeEvents{ctx, tell}, nil
		}}
		l := mustAcquire(t, c)
		mustAcquire(t, c)
		tell <- event(leasev1.WatchLeasesResponse_SYNCED, "")
		time.Sleep(watchSpread)
		synctest.Wait()
		if n := h.count("Renew"); n != 2 {
			t.Errorf("once the watch tells: %d renewals, want one of each lease that was there before", n)
		}
		h.set(func() { h.renewed = func(r *leasev1.RenewResponse) { r.Draining = r.LeaseId == l.ID() } })
		changed, begun := l.Changed(), time.Now()
		tell <- event(leasev1.WatchLeasesResponse_DRAINING, l.ID())
		<-changed
		if took := time.Since(begun); took != 0 || !l.State().Draining || h.count("Renew") != 3 {
			t.Errorf("told after %v, %+v, by %d renewals", took, l.State(), h.count("Renew"))
		}
		// A gap in what is told: every lease asks.
		tell <- event(leasev1.WatchLeasesResponse_RESYNC, "")
		time.Sleep(watchSpread)
		synctest.Wait()
		if n := h.count("Renew"); n != 5 {
			t.Errorf("after a gap: %d renewals, want one more of each lease", n)
		}
		tell <- nil
		tell <- event(leasev1.WatchLeasesResponse_SYNCED, "")
		time.Sleep(watchSpread)
		synctest.Wait()
		if n := h.count("Renew"); n != 7 || opened.Load() != 2 {
			t.Errorf("after the watch broke: opened %d times, %d renewals", opened.Load(), n)
		}
		// One that says nothing for too long is opened again.
		time.Sleep(watchSilence + time.Minute)
		synctest.Wait()
		if opened.Load() < 3 {
			t.Error("a watch that went silent is trusted")
		}
		closed(t, h, c)
	})
}

func TestWatchOfAnOldHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{})
		var opened atomic.Int32
		c.watcher = &watcher{open: func(context.Context) (events, error) {
			opened.Add(1)
			return nil, connect.NewError(connect.CodeUnimplemented, "what is that")
		}}
		mustAcquire(t, c)
		time.Sleep(time.Hour)
		if opened.Load() != 1 || h.count("Renew") == 0 {
			t.Errorf("opened %d times, %d renewals; want it left at renewals", opened.Load(), h.count("Renew"))
		}
		closed(t, h, c)
	})
}
