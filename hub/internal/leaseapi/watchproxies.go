package leaseapi

import (
	"context"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// proxyWatch is one watcher's view of a board.
type proxyWatch struct {
	*watching
	board    *board
	selector lease.Selector
	send     func(*leasev1.WatchProxiesResponse) error

	synced  bool
	at      uint64
	changed <-chan struct{}
	// told are the indexes of proxies that match and were told. Without a selector all were, and it is not kept.
	told bitset
}

// WatchProxies implements [leasev1connect.LeaseServiceHandler].
func (s *service) WatchProxies(ctx context.Context, request *leasev1.WatchProxiesRequest, stream leasev1connect.LeaseServiceWatchProxiesServerStream) error {
	var c checks
	fleet, selector := c.fleet(request.GetFleet()), c.selector(request.GetSelector())
	if err := c.err(); err != nil {
		return err
	}
	watching, err := s.watch(ctx, request.GetFleet())
	if err != nil {
		return err
	}
	defer watching.leave()
	shared := s.boards.join(ctx, fleet)
	defer s.boards.leave(shared)
	w := &proxyWatch{watching: watching, board: shared, selector: selector, send: func(event *leasev1.WatchProxiesResponse) error {
		watching.line.extend()
		return stream.Send(event)
	}}
	if err := w.begin(); err != nil {
		return err
	}
	return w.follow(func() <-chan struct{} { return w.changed }, w.news, func() error {
		return w.send(&leasev1.WatchProxiesResponse{Kind: leasev1.WatchProxiesResponse_HEARTBEAT})
	})
}

// begin tells all proxies. If the board has not been read yet there is nothing to tell, and news begins again.
func (w *proxyWatch) begin() error {
	all, at, loaded, changed, err := w.board.all()
	if err != nil {
		return w.s.wordsOf(w.ctx, w.fleet, err)
	}
	w.changed = changed
	if !loaded {
		return nil
	}
	w.at, w.told = at, nil
	for _, entry := range all {
		if err := w.tell(entry); err != nil {
			return err
		}
	}
	w.synced = true
	return w.send(&leasev1.WatchProxiesResponse{Kind: leasev1.WatchProxiesResponse_SYNCED})
}

// news tells what has changed.
func (w *proxyWatch) news() error {
	if !w.synced {
		return w.begin()
	}
	changes, at, changed, ok, err := w.board.since(w.at)
	if err != nil {
		return w.s.wordsOf(w.ctx, w.fleet, err)
	}
	if !ok {
		if err := w.send(&leasev1.WatchProxiesResponse{Kind: leasev1.WatchProxiesResponse_RESYNC}); err != nil {
			return err
		}
		return w.begin()
	}
	w.at, w.changed = at, changed
	for _, entry := range changes {
		if err := w.tell(entry); err != nil {
			return err
		}
	}
	return nil
}

// tell sends one proxy as it is now, or that it is gone, unless it was never told.
func (w *proxyWatch) tell(entry *posted) error {
	everything := w.selector.IsZero()
	if entry.wire != nil && w.selector.Matches(&entry.proxy) {
		if !everything {
			w.told.set(entry.index)
		}
		return w.send(&leasev1.WatchProxiesResponse{
			Kind: leasev1.WatchProxiesResponse_PROXY, ProxyId: string(entry.uid), Proxy: entry.wire,
		})
	}
	if !everything && !w.told.clear(entry.index) {
		return nil
	}
	return w.send(&leasev1.WatchProxiesResponse{Kind: leasev1.WatchProxiesResponse_GONE, ProxyId: string(entry.uid)})
}

// bitset is a set of small numbers.
type bitset []uint64

func (b *bitset) set(i int) {
	for len(*b) <= i/64 {
		*b = append(*b, 0)
	}
	(*b)[i/64] |= 1 << (i % 64)
}

// clear takes a number out and tells whether it was in.
func (b *bitset) clear(i int) bool {
	if i/64 >= len(*b) || (*b)[i/64]&(1<<(i%64)) == 0 {
		return false
	}
	(*b)[i/64] &^= 1 << (i % 64)
	return true
}
