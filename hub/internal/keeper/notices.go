package keeper

import (
	"context"
	"slices"
	"sync"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// defaultBuffer is how many notices wait for a slow subscriber.
const defaultBuffer = 256

// SubscribeOptions choose what a subscriber gets.
type SubscribeOptions struct {
	// Wants chooses by whose lease it is; nil wants all. It is called on the keeper's goroutine and must return at
	// once.
	Wants func(lease.Subject) bool
	// Buffer is how many notices may wait: 256 by default. Beyond that the oldest are lost, and Next says so.
	Buffer int
}

// Subscription is a bounded queue of notices for one reader. Its memory is bounded by its buffer: a reader that is too
// slow loses notices and learns that it did, so it must ask for the present state then.
type Subscription struct {
	hub   *noticeHub
	wants func(lease.Subject) bool
	size  int
	wake  chan struct{} // holds one token while there is something to read

	mu     sync.Mutex
	queue  []lease.Notice
	lost   bool
	closed bool
}

// noticeHub hands notices to subscribers. It never waits for one.
type noticeHub struct {
	mu     sync.Mutex
	subs   []*Subscription
	closed bool
}

// Subscribe begins to collect notices. Close must be called in the end.
func (k *Keeper) Subscribe(opts SubscribeOptions) *Subscription {
	if opts.Buffer <= 0 {
		opts.Buffer = defaultBuffer
	}
	s := &Subscription{hub: &k.hub, wants: opts.Wants, size: opts.Buffer, wake: make(chan struct{}, 1)}
	k.hub.mu.Lock()
	defer k.hub.mu.Unlock()
	if k.hub.closed {
		s.end()
		return s
	}
	k.hub.subs = append(k.hub.subs, s)
	return s
}

// Next waits for notices and returns all that wait, in their order. Lost says that older ones were dropped before them.
// It returns an *[Unavailable] when the keeper has stopped or the subscription was closed and nothing is left, or the
// context's error.
func (s *Subscription) Next(ctx context.Context) (notices []lease.Notice, lost bool, err error) {
	for {
		s.mu.Lock()
		notices, lost = s.queue, s.lost
		s.queue, s.lost = nil, false
		closed := s.closed
		s.mu.Unlock()
		switch {
		case len(notices) > 0:
			return notices, lost, nil
		case closed:
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
	s.hub.subs = slices.DeleteFunc(s.hub.subs, func(other *Subscription) bool { return other == s })
	s.hub.mu.Unlock()
	s.end()
}

func (s *Subscription) end() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.poke()
}

func (s *Subscription) poke() {
	select {
	case s.wake <- struct{}{}:
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
	s.poke()
}

func (h *noticeHub) publish(notices []lease.Notice) {
	if len(notices) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subs {
		for _, n := range notices {
			s.offer(n)
		}
	}
}

// close ends all subscriptions, those to come included.
func (h *noticeHub) close() {
	h.mu.Lock()
	subs := h.subs
	h.subs, h.closed = nil, true
	h.mu.Unlock()
	for _, s := range subs {
		s.end()
	}
}
