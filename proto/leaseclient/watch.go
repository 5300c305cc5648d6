package leaseclient

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"connectrpc.com/connect/v2"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

const (
	// watchSpread is over how long renewals are spread that a lost event makes due all at once.
	watchSpread = 5 * time.Second
	// watchSilence is how long a hub that is there says nothing at most, several heartbeats.
	watchSilence = 2 * time.Minute
)

// watched is what [Options.Watch] needs of a Service.
type watched interface {
	WatchLeases(context.Context, *leasev1.WatchLeasesRequest) (leasev1connect.LeaseServiceWatchLeasesClientStream, error)
}

// events is an open watch.
type events interface {
	Receive() (*leasev1.WatchLeasesResponse, error)
	Close() error
}

// watcher makes leases renew at once that something has happened to. What has happened they learn from the renewal, so
// an event that is lost, or comes twice, costs time and nothing else.
type watcher struct {
	open  func(ctx context.Context) (events, error)
	start sync.Once
}

// watch runs from the first lease to the end of the client.
func (c *Client) watch() {
	for failures := 0; c.ctx.Err() == nil; {
		synced, err := c.watchOnce()
		if connect.CodeOf(err) == connect.CodeUnimplemented {
			c.log.Info("the hub tells no changes of leases; they are learnt from renewals")
			return
		}
		if synced {
			failures = 0
		}
		failures++
		if sleep(c.ctx, c.retry.wait(failures, 0, rand.Float64())) != nil {
			return
		}
	}
}

// watchOnce reads one watch to its end, and says whether it had begun to tell.
func (c *Client) watchOnce() (synced bool, err error) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	stream, err := c.watcher.open(ctx)
	if err != nil {
		return false, err
	}
	defer stream.Close()
	silence := time.AfterFunc(watchSilence, cancel)
	defer silence.Stop()
	for {
		event, err := stream.Receive()
		if err != nil {
			return synced, err
		}
		silence.Reset(watchSilence)
		switch event.GetKind() {
		case leasev1.WatchLeasesResponse_SYNCED:
			// What happened before to the leases that are held already was not told.
			synced = true
			c.renewAll()
		case leasev1.WatchLeasesResponse_RESYNC:
			c.renewAll()
		case leasev1.WatchLeasesResponse_DRAINING, leasev1.WatchLeasesResponse_EXITS_CHANGED, leasev1.WatchLeasesResponse_ENDED:
			c.mu.Lock()
			for l := range c.leases {
				if l.ID() == event.GetLeaseId() {
					l.renewWithin(0)
				}
			}
			c.mu.Unlock()
		default: // Heartbeats, and what later hubs tell.
		}
	}
}

// renewAll makes every lease renew soon, not all at once.
func (c *Client) renewAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.leases {
		l.renewWithin(watchSpread)
	}
}

// renewWithin makes the lease renew at some time before d is over.
func (l *Lease) renewWithin(d time.Duration) {
	select {
	case l.due <- time.Duration(rand.Float64() * float64(d)):
	default: // It is due already.
	}
}
