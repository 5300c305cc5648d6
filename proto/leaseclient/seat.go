package leaseclient

import (
	"context"
	"sync"
	"time"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// pagesAtOnce is how many pages of a session are reported together; what is left goes with its release.
const pagesAtOnce = 20

// seat is a lease with its connections. One request sits on it, or all those of a session.
type seat struct {
	lease *Lease
	conns connections
	key   string // of the session, or ""

	mu      sync.Mutex // guards what follows
	uses    int
	fresh   bool             // not used yet
	retired bool             // no more uses begin; the lease ends with the last
	idle    *time.Timer      // runs while a session is not used
	pages   map[string]int32 // fetched and not reported, by host
	count   int32            // the sum of pages
}

// newSeat is a seat with the caller on it, for its request alone or to be shared. Its connections end with the lease, whatever ends that.
func (t *Transport) newSeat(l *Lease, alone bool) *seat {
	s := &seat{lease: l, conns: t.open(l, alone), uses: 1, retired: alone}
	context.AfterFunc(l.ctx, s.conns.CloseIdleConnections)
	return s
}

// session is a seat, or the wait for one.
type session struct {
	ready   chan struct{} // closed when seat or err is set
	cancel  context.CancelFunc
	waiting int // guarded by the transport's mutex
	seat    *seat
	err     error
}

// sit leases for one request, or joins its session.
func (t *Transport) sit(ctx context.Context, key string, want *leasev1.AcquireRequest) (*seat, error) {
	if key == "" {
		l, err := t.client.Acquire(ctx, want)
		if err != nil {
			return nil, err
		}
		return t.newSeat(l, true), nil
	}
	for {
		s, err := t.join(ctx, key, want)
		if err != nil {
			return nil, err
		}
		if s.enter(want.GetAllowMove()) {
			return s, nil
		}
		s.retire(t)
	}
}

// join returns the seat of a session, leased by whoever comes first for all that wait. The lease is given up when
// nobody waits any more.
func (t *Transport) join(ctx context.Context, key string, want *leasev1.AcquireRequest) (*seat, error) {
	t.mu.Lock()
	s := t.sessions[key]
	if s == nil {
		s = &session{ready: make(chan struct{})}
		var leasing context.Context
		leasing, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
		t.sessions[key] = s
		go t.lease(leasing, s, key, want)
	}
	s.waiting++
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if s.waiting--; s.waiting == 0 && s.seat == nil {
			// Whoever comes next leases anew.
			s.cancel()
			t.drop(key, s)
		}
	}()
	select {
	case <-s.ready:
		return s.seat, s.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// lease leases for a session.
func (t *Transport) lease(ctx context.Context, s *session, key string, want *leasev1.AcquireRequest) {
	l, err := t.client.Acquire(ctx, want)
	t.mu.Lock()
	defer t.mu.Unlock()
	defer close(s.ready)
	s.cancel()
	switch {
	case err != nil:
		s.err = err
		t.drop(key, s)
	case t.sessions[key] != s:
		// Nobody waits any more.
		s.err = context.Canceled
		l.releaseSoon(nil)
	default:
		s.seat = t.newSeat(l, false)
		s.seat.key, s.seat.uses, s.seat.fresh, s.seat.pages = key, 0, true, map[string]int32{}
		s.seat.idle = time.AfterFunc(t.idle, func() { s.seat.retire(t) })
	}
}

// drop forgets a session, unless another has taken its place. The mutex is held.
func (t *Transport) drop(key string, s *session) {
	if t.sessions[key] == s {
		delete(t.sessions, key)
	}
}

// enter begins a use, unless the seat is not to be used any more.
func (s *seat) enter(mayMove bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired || s.lease.isDone() || mayMove && !s.fresh && s.lease.State().Draining {
		return false
	}
	s.fresh = false
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
	s.uses++
	return true
}

// leave ends a use. The last one on a retired seat releases the lease.
func (s *seat) leave(t *Transport, host string, outcome *leasev1.Outcome) {
	s.against(t, outcome)
	s.mu.Lock()
	s.uses--
	if outcome.GetKind() == leasev1.Outcome_OK && s.key != "" {
		// Counted here and told together.
		pages := max(1, outcome.GetPages())
		s.pages[host] += pages
		s.count += pages
		outcome = nil
	}
	var pages map[string]int32
	release := false
	switch {
	case s.uses == 0 && s.retired:
		release = true
	case s.uses == 0:
		s.idle = time.AfterFunc(t.idle, func() { s.retire(t) })
	}
	if release || s.count >= pagesAtOnce {
		pages = s.takePages()
	}
	s.mu.Unlock()
	if release {
		s.release(t, host, outcome, pages)
		return
	}
	if outcome != nil {
		s.tellSoon(t, host, outcome)
	}
	for host, n := range pages {
		s.tellSoon(t, host, &leasev1.Outcome{Kind: leasev1.Outcome_OK, Pages: n})
	}
}

// takePages returns the pages that are not reported yet, and counts from nothing. The mutex is held.
func (s *seat) takePages() map[string]int32 {
	pages := s.pages
	s.pages, s.count = map[string]int32{}, 0
	return pages
}

// against retires the seat of a session that an outcome speaks against. Whether the session may go on elsewhere, and
// when it may go on here, is for the hub to say. The caller sits on it.
func (s *seat) against(t *Transport, outcome *leasev1.Outcome) {
	if s.key == "" || outcome.GetKind() == leasev1.Outcome_TIMEOUT || !elsewhere(outcome, nil) {
		return
	}
	s.mu.Lock()
	s.retired = true
	s.mu.Unlock()
	t.unseat(s)
}

// retire lets no more uses begin, and releases the lease if there are none.
func (s *seat) retire(t *Transport) {
	t.unseat(s)
	s.mu.Lock()
	release := !s.retired && s.uses == 0
	s.retired = true
	var pages map[string]int32
	if release {
		pages = s.takePages()
	}
	s.mu.Unlock()
	if release {
		s.release(t, "", nil, pages)
	}
}

// unseat lets the next request of the session lease anew.
func (t *Transport) unseat(s *seat) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if joined := t.sessions[s.key]; joined != nil && joined.seat == s {
		delete(t.sessions, s.key)
	}
}

// release ends the lease. What is left to tell of the lease's own target goes with it.
func (s *seat) release(t *Transport, host string, outcome *leasev1.Outcome, pages map[string]int32) {
	own := s.lease.granted.GetTarget()
	var last *leasev1.Outcome
	if outcome != nil && host == own {
		last = outcome
	} else if outcome != nil {
		s.tellSoon(t, host, outcome)
	}
	for host, n := range pages {
		ok := &leasev1.Outcome{Kind: leasev1.Outcome_OK, Pages: n}
		if host == own && last == nil {
			last = ok
		} else {
			s.tellSoon(t, host, ok)
		}
	}
	s.lease.releaseSoon(last)
}

// tellSoon reports without waiting. What it returns is closed when that is done.
func (s *seat) tellSoon(t *Transport, host string, outcome *leasev1.Outcome) <-chan struct{} {
	return t.client.inBackground(func() { s.tell(context.WithoutCancel(t.client.ctx), host, outcome) })
}

// tell reports. Nobody but the log hears of a failure: the request itself has its answer.
func (s *seat) tell(ctx context.Context, host string, outcome *leasev1.Outcome) {
	ctx, cancel := context.WithTimeout(ctx, reportPatience)
	defer cancel()
	if _, err := s.lease.Report(ctx, host, outcome); err != nil {
		s.lease.client.log.Warn("an outcome could not be reported", "lease", s.lease.ID(), "outcome", outcome.GetKind(), "err", err)
	}
}

// seats are those of the sessions.
func (t *Transport) seats() []*seat {
	t.mu.Lock()
	defer t.mu.Unlock()
	var seats []*seat
	for _, s := range t.sessions {
		if s.seat != nil {
			seats = append(seats, s.seat)
		}
	}
	return seats
}
