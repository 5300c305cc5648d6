package leaseapi

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// Limits of calls that last.
const (
	// MaxWatches is how many watches one caller may have open, on all its connections.
	MaxWatches = 1000
	// MaxStreams is how many pipelined streams one caller may have open. Each may hold as many answers as its window.
	MaxStreams = 16
	// maxOpen is how many calls that last there may be of all callers together, at about 30 KiB each.
	maxOpen = 20_000
	// Heartbeat is how often an open watch says that the hub is there, and how often its token is looked up again.
	Heartbeat = 15 * time.Second
	// patience is how long a send may wait for a caller who does not read.
	patience = 30 * time.Second
	// retryFull is when to come back where too many calls are open.
	retryFull = 10 * time.Second
)

// kind is a kind of call that lasts.
type kind string

const (
	kindWatch  kind = "watches"
	kindStream kind = "streams"
	// kindStranger is for calls that need no token; they are counted by address.
	kindStranger kind = "calls without a token"
)

var mostOf = map[kind]int{kindWatch: MaxWatches, kindStream: MaxStreams, kindStranger: 16}

// streams counts the calls that last and ends them when the hub stops. It is safe for concurrent use.
type streams struct {
	stopping chan struct{} // closed when the hub stops

	mu    sync.Mutex
	open  map[openKey]int
	total int
	ended chan struct{} // closed when the last has ended after the stop
}

type openKey struct {
	principal string
	kind      kind
}

func newStreams() *streams {
	return &streams{stopping: make(chan struct{}), open: map[openKey]int{}, ended: make(chan struct{})}
}

// enter admits a call that lasts, or refuses it. Whoever is admitted calls leave once.
func (s *streams) enter(principal string, k kind) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := openKey{principal, k}
	switch {
	case s.stopped():
		return nil, stopping()
	case s.open[key] >= mostOf[k]:
		return nil, fault.New(leasev1.Refusal_QUOTA, fmt.Sprintf(
			"this caller has %d %s open, the most it may; share one among your workers, or close some", s.open[key], k),
			fault.Details{RetryAfter: retryFull})
	case s.total >= maxOpen:
		return nil, fault.New(leasev1.Refusal_UNAVAILABLE, "this hub has as many watches and streams open as it takes; come back later",
			fault.Details{RetryAfter: retryFull})
	}
	s.open[key]++
	s.total++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open[key]--; s.open[key] == 0 {
			delete(s.open, key)
		}
		if s.total--; s.total == 0 && s.stopped() {
			close(s.ended)
		}
	}, nil
}

func (s *streams) stopped() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// stop ends all calls that last and refuses further ones. It waits for their end as long as ctx allows.
func (s *streams) stop(ctx context.Context) error {
	s.mu.Lock()
	if !s.stopped() {
		close(s.stopping)
		if s.total == 0 {
			close(s.ended)
		}
	}
	s.mu.Unlock()
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("%d watches and streams are still open: %w", s.total, context.Cause(ctx))
	}
}

// stopping is what ends a call that lasts when the hub stops.
func stopping() error {
	return fault.New(leasev1.Refusal_UNAVAILABLE, "this hub is stopping; connect again", fault.Details{RetryAfter: time.Second})
}

// line is the connection below a call that lasts. The server's deadlines are made for short calls; here they are moved as
// the call goes on, so that only a caller who does not read, or is gone, runs into one.
type line struct {
	control *http.ResponseController
	moved   time.Time
}

type lineKey struct{}

// withLine hands the connection to the service, which sees messages only.
func withLine(w http.ResponseWriter, r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), lineKey{}, &line{control: http.NewResponseController(w)}))
}

// lineOf returns the connection below a call. It belongs to the goroutine that sends.
func lineOf(ctx context.Context) *line {
	if l, ok := ctx.Value(lineKey{}).(*line); ok {
		return l
	}
	return &line{}
}

// kernel is the clock that connections know, whatever clock the hub is given.
var kernel clock.PassiveClock = clock.RealClock{}

// received says that the request has been read, or that reading it never ends.
func (l *line) received() {
	if l.control != nil {
		// What cannot be moved stays as it is, and the call ends by it.
		_ = l.control.SetReadDeadline(time.Time{})
	}
}

// extend gives the next sends their time. It is called before each send, and at least at each heartbeat: over HTTP/2 a
// deadline ends the call also where nothing waits to be sent.
func (l *line) extend() {
	if now := kernel.Now(); l.control != nil && now.Sub(l.moved) > time.Second {
		l.moved = now
		_ = l.control.SetWriteDeadline(now.Add(Heartbeat + patience))
	}
}

// hangUp ends a read that waits.
func (l *line) hangUp() {
	if l.control != nil {
		_ = l.control.SetReadDeadline(kernel.Now())
	}
}
