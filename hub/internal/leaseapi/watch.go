package leaseapi

import (
	"context"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// Notices tell what happens without a caller's doing. *[keeper.Keeper] is one.
type Notices interface {
	// Subscribe collects notices about leases.
	Subscribe(opts keeper.SubscribeOptions) *keeper.Subscription
	// WatchFleet collects which proxies of a fleet have changed.
	WatchFleet(fleet lease.FleetID) *keeper.Changes
}

// watching is one open watch.
type watching struct {
	ctx    context.Context
	s      *service
	line   *line
	fleet  string // "" for all of the caller's
	ticker clock.Ticker
	leave  func()
}

// watch begins a watch: the request has been read, the caller may have one more.
func (s *service) watch(ctx context.Context, fleet string) (*watching, error) {
	caller := callerFrom(ctx)
	if fleet != "" {
		if err := s.allowed(ctx, caller, fleet); err != nil {
			return nil, err
		}
	}
	if s.notices == nil {
		return nil, connect.NewError(connect.CodeUnimplemented, "this hub has no watches")
	}
	leave, err := s.streams.enter(caller.Principal, kindWatch)
	if err != nil {
		return nil, err
	}
	w := &watching{ctx: ctx, s: s, line: lineOf(ctx), fleet: fleet, ticker: s.clock.NewTicker(Heartbeat)}
	w.leave = func() {
		w.ticker.Stop()
		leave()
	}
	w.line.received()
	w.line.extend()
	return w, nil
}

// follow calls news whenever ready receives, and beat at each heartbeat, until one of them fails, the caller goes, loses
// the right to watch, or the hub stops.
func (w *watching) follow(ready func() <-chan struct{}, news, beat func() error) error {
	for {
		var err error
		select {
		case <-ready():
			err = news()
		case <-w.ticker.C():
			if err = w.s.again(w.ctx, w.fleet); err == nil {
				w.line.extend()
				err = beat()
			}
		case <-w.ctx.Done():
			err = w.ctx.Err()
		case <-w.s.streams.stopping:
			err = stopping()
		}
		if err != nil {
			return err
		}
	}
}

// again finds out whether a call that lasts would still be let in: a token that was revoked must not go on watching.
func (s *service) again(ctx context.Context, fleet string) error {
	caller, err := s.gatekeeper.admit(ctx, bearerFrom(ctx))
	if err != nil {
		return err
	}
	if fleet == "" {
		return nil
	}
	return s.allowed(ctx, caller, fleet)
}

// WatchLeases implements [leasev1connect.LeaseServiceHandler].
func (s *service) WatchLeases(ctx context.Context, request *leasev1.WatchLeasesRequest, stream leasev1connect.LeaseServiceWatchLeasesServerStream) error {
	var c checks
	fleet := request.GetFleet()
	if fleet != "" {
		c.fleet(fleet)
	}
	if err := c.err(); err != nil {
		return err
	}
	w, err := s.watch(ctx, fleet)
	if err != nil {
		return err
	}
	defer w.leave()
	options := keeper.SubscribeOptions{Principal: lease.Principal(callerFrom(ctx).Principal)}
	if fleet != "" {
		options.Wants = func(of lease.Subject) bool { return string(of.Fleet) == fleet }
	}
	notices := s.notices.Subscribe(options)
	defer notices.Close()

	send := func(event *leasev1.WatchLeasesResponse) error {
		w.line.extend()
		return stream.Send(event)
	}
	if err := send(&leasev1.WatchLeasesResponse{Kind: leasev1.WatchLeasesResponse_SYNCED}); err != nil {
		return err
	}
	return w.follow(notices.Ready, func() error {
		news, lost, open := notices.Take()
		if lost {
			if err := send(&leasev1.WatchLeasesResponse{Kind: leasev1.WatchLeasesResponse_RESYNC}); err != nil {
				return err
			}
		}
		for _, notice := range news {
			if event := leaseEvent(notice); event != nil {
				if err := send(event); err != nil {
					return err
				}
			}
		}
		if !open {
			return stopping()
		}
		return nil
	}, func() error {
		return send(&leasev1.WatchLeasesResponse{Kind: leasev1.WatchLeasesResponse_HEARTBEAT})
	})
}

var ends = map[lease.State]leasev1.WatchLeasesResponse_End{
	lease.StateExpired: leasev1.WatchLeasesResponse_EXPIRED,
	lease.StateRemoved: leasev1.WatchLeasesResponse_PROXY_GONE,
	lease.StateRevoked: leasev1.WatchLeasesResponse_REVOKED,
}

// leaseEvent puts a notice into the protocol's words; nil for one that it has none for.
func leaseEvent(notice lease.Notice) *leasev1.WatchLeasesResponse {
	of := notice.Subject()
	event := &leasev1.WatchLeasesResponse{LeaseId: string(of.ID), Fleet: string(of.Fleet), ProxyId: string(of.Proxy)}
	switch notice := notice.(type) {
	case lease.Draining:
		event.Kind = leasev1.WatchLeasesResponse_DRAINING
		if !notice.Deadline.IsZero() {
			event.Deadline = timestamppb.New(notice.Deadline)
		}
	case lease.ExitsChanged:
		event.Kind = leasev1.WatchLeasesResponse_EXITS_CHANGED
		event.Exits = exitTexts(notice.Exits)
	case lease.Ended:
		event.Kind = leasev1.WatchLeasesResponse_ENDED
		event.End = ends[notice.State]
	default:
		return nil
	}
	return event
}
