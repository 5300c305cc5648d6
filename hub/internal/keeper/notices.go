package keeper

import (
	"context"
	"sync"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// defaultBuffer is how many notices wait for a slow subscriber.
const defaultBuffer = 256

// SubscribeOptions choose what a subscriber gets.
type SubscribeOptions struct {
	// Principal chooses the leases of one caller; "" those of all. Subscribers to others cost a notice nothing.
	Principal lease.Principal
	// Wants chooses further by whose lease it is; nil wants all. It must return at once.
	Wants func(lease.Subject) bool
	// Buffer is how many notices may wait: 256 by default. Beyond that the oldest are lost, and Next says so.
	Buffer int
}

// Subscription is a bounded queue of notices for one reader. Its memory is bounded by its buffer: a reader that is too
// slow loses notices and learns that it did, so it must ask for the present state then.
type Subscription struct {
	hub       *noticeHub
	principal lease.Principal
	wants     func(lease.Subject) bool
	size      int
	wake      chan struct{} // holds one token while there is something to read

	mu     sync.Mutex
	queue  []lease.Notice
	lost   bool
	closed bool
}

// noticeHub hands notices to subscribers. It never waits for one.
type noticeHub struct {
	mu      sync.Mutex
	subs    map[lease.Principal]map[*Subscription]struct{}
	changes map[*Changes]struct{}
	closed  bool
}

// Subscribe begins to collect notices. Close must be called in the end.
func (k *Keeper) Subscribe(opts SubscribeOptions) *Subscription {
	if opts.Buffer <= 0 {
		opts.Buffer = defaultBuffer
	}
	s := &Subscription{
		hub: &k.hub, principal: opts.Principal, wants: opts.Wants, size: opts.Buffer, wake: make(chan struct{}, 1),
	}
	k.hub.mu.Lock()
	defer k.hub.mu.Unlock()
	if k.hub.closed {
		s.end()
		return s
	}
	if k.hub.subs == nil {
		k.hub.subs = map[lease.Principal]map[*Subscription]struct{}{}
	}
	if k.hub.subs[s.principal] == nil {
		k.hub.subs[s.principal] = map[*Subscription]struct{}{}
	}
	k.hub.subs[s.principal][s] = struct{}{}
	return s
}

// Ready receives when there is something to [Subscription.Take]; now and then when there is not. It is for a reader who
// waits for other things as well.
func (s *Subscription) Ready() <-chan struct{} { return s.wake }

// Take is Next without waiting: there may be no notices. Open is false once the keeper has stopped or the subscription was
// closed, and nothing is left.
func (s *Subscription) Take() (notices []lease.Notice, lost, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	notices, lost = s.queue, s.lost
	s.queue, s.lost = nil, false
	return notices, lost, len(notices) > 0 || !s.closed
}

// Next waits for notices and returns all that wait, in their order. Lost says that older ones were dropped before them.
// It returns an *[Unavailable] when the keeper has stopped or the subscription was closed and nothing is left, or the
// context's error.
func (s *Subscription) Next(ctx context.Context) (notices []lease.Notice, lost bool, err error) {
	for {
		notices, lost, open := s.Take()
		switch {
		case len(notices) > 0:
			return notices, lost, nil
		case !open:
			return nil, false, &Unavailable{}
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// Close ends the subscription. It may be called more than once.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	delete(s.hub.subs[s.principal], s)
	if len(s.hub.subs[s.principal]) == 0 {
		delete(s.hub.subs, s.principal)
	}
	s.hub.mu.Unlock()
	s.end()
}

func (s *Subscription) end() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	poke(s.wake)
}

// poke puts a token into a channel that has room for one.
func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// offer queues a notice and drops the oldest if there is no room.
func (s *Subscription) offer(n lease.Notice) {
	if s.wants != nil && !s.wants(n.Subject()) {
		return
	}
	s.mu.Lock()
	if len(s.queue) == s.size {
		s.queue = append(s.queue[:0], s.queue[1:]...)
		s.lost = true
	}
	s.queue = append(s.queue, n)
	s.mu.Unlock()
	poke(s.wake)
}

// publish hands on what a batch has brought about.
func (h *noticeHub) publish(records []lease.Record, notices []lease.Notice) {
	if len(records) == 0 && len(notices) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range notices {
		for s := range h.subs[""] {
			s.offer(n)
		}
		if principal := n.Subject().Principal; principal != "" {
			for s := range h.subs[principal] {
				s.offer(n)
			}
		}
	}
	if len(h.changes) == 0 {
		return
	}
	for _, record := range records {
		for c := range h.changes {
			c.record(record)
		}
	}
}

// close ends all subscriptions, those to come included.
func (h *noticeHub) close() {
	h.mu.Lock()
	subs, changes := h.subs, h.changes
	h.subs, h.changes, h.closed = nil, nil, true
	h.mu.Unlock()
	for _, of := range subs {
		for s := range of {
			s.end()
		}
	}
	for c := range changes {
		c.end()
	}
}
