package leaseclient

import (
	"context"
	"fmt"
	"sync"
	"time"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// Limits are what a lease's holder keeps to. The hub learns them from reports and tells them with the lease, with each
// renewal and with each report.
type Limits struct {
	// MaxConcurrency is how many uses may go on at a time. Zero is no limit.
	MaxConcurrency int
	// MinInterval is the least time from the begin of one use to that of the next. Zero is no limit. While the exit rests
	// for the target it is the rest.
	MinInterval time.Duration
}

// limitsOf reads what the hub says; nothing is no limit.
func limitsOf(limits *leasev1.Limits) Limits {
	return Limits{MaxConcurrency: int(limits.GetMaxConcurrency()), MinInterval: limits.GetMinInterval().AsDuration()}
}

// Begin waits until the limits of the lease allow one more use, such as a request, and returns what ends it, which may
// be called more than once. Whoever comes first is let in first. It returns the context's error, or why the lease has
// ended. Limits that change meanwhile hold at once; uses that go on are not cut.
func (l *Lease) Begin(ctx context.Context) (end func(), err error) {
	// One waits for the limits, the others for their turn: receivers of a channel are served in order.
	select {
	case l.pace.turn <- struct{}{}:
	case <-l.done:
		return nil, l.ended()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-l.pace.turn }()
	for {
		wait, changed, ok := l.pace.take(time.Now())
		if l.isDone() {
			if ok {
				l.pace.give()
			}
			return nil, l.ended()
		}
		if ok {
			return sync.OnceFunc(l.pace.give), nil
		}
		if err := l.awaitPace(ctx, wait, changed); err != nil {
			return nil, err
		}
	}
}

// awaitPace waits for a time, if there is one, or for the limits or the uses to change.
func (l *Lease) awaitPace(ctx context.Context, wait time.Duration, changed <-chan struct{}) error {
	var due <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-changed:
	case <-l.done:
		return l.ended()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (l *Lease) ended() error { return fmt.Errorf("lease %s: %w", l.ID(), l.Err()) }

// pace counts the uses of a lease against its limits.
type pace struct {
	turn chan struct{} // of capacity 1; held by who is next

	mu      sync.Mutex
	limits  Limits
	active  int
	last    time.Time     // when the last use began
	changed chan struct{} // closed and replaced when waiting may be over
}

func newPace() *pace { return &pace{turn: make(chan struct{}, 1), changed: make(chan struct{})} }

// take begins a use, or says how long to wait, at least, if that is known, and what closes when things change.
func (p *pace) take(now time.Time) (wait time.Duration, changed <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limits.MaxConcurrency > 0 && p.active >= p.limits.MaxConcurrency {
		return 0, p.changed, false
	}
	if left := p.last.Add(p.limits.MinInterval).Sub(now); !p.last.IsZero() && left > 0 {
		return left, p.changed, false
	}
	p.active++
	p.last = now
	return 0, nil, true
}

// give ends a use.
func (p *pace) give() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
	p.wake()
}

// set changes the limits and says whether they are others than before.
func (p *pace) set(limits Limits) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limits == limits {
		return false
	}
	p.limits = limits
	p.wake()
	return true
}

func (p *pace) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}
