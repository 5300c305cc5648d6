package pump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/session"
)

const (
	// batch is how many frames are handed to the writer at once. Acks wait behind no more than two batches.
	batch = 64
	// grace is how long a frame that is being sent at the end of a session may take before the stream is aborted.
	grace = 2 * time.Second
)

// Stream is what frames travel by. Send and Receive may be called at the same time, each by one goroutine.
type Stream struct {
	// Send sends a frame. It may wait until the peer takes it. All calls are made by the goroutine that called [Run].
	Send func(*agentv1.Frame) error
	// Receive waits for a frame. At the end of the stream it returns an error.
	Receive func() (*agentv1.Frame, error)
	// StopReceive makes Receive return. It is called once, after the last Send. If it is nil, Run does not wait for a
	// Receive that is under way, which then ends with the stream.
	StopReceive func()
	// Abort makes Send return, whatever becomes of the stream. It may be nil for streams whose Send returns anyway soon
	// after the context ends.
	Abort func()
}

// Call does something to the session on the goroutine that owns it. An error ends the session.
type Call func(now time.Time, s *session.Session) error

// Options are what [Run] works with. Stream, Session and Handle are required.
type Options struct {
	Stream  Stream
	Session *session.Session
	// Handle acts on an event. It runs on the goroutine that owns the session, as Calls do, and may use the session.
	// What takes long must be done elsewhere and report by Calls; only the answer to Greeted may take its time. An
	// error ends the session.
	Handle func(now time.Time, s *session.Session, e session.Event) error
	// Calls is how others get at the session. It may be nil.
	Calls <-chan Call

	// Now and Timer are the clock, those of package time by default. Timer returns a channel that gets one value after
	// the time, and a function that frees the timer.
	Now   func() time.Time
	Timer func(time.Duration) (c <-chan time.Time, stop func())
}

// Run drives the session until it ends, and says why: the cause of the end of ctx, the error of the stream, of Handle
// or of a Call, or the session's own. Nothing of it runs any more when it returns, but for what [Stream] says.
func Run(ctx context.Context, o Options) error {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Timer == nil {
		o.Timer = func(d time.Duration) (<-chan time.Time, func()) {
			t := time.NewTimer(d)
			return t.C, func() { t.Stop() }
		}
	}
	p := &pump{
		Options: o,
		in:      make(chan *agentv1.Frame, batch),
		out:     make(chan []*agentv1.Frame),
		failed:  make(chan error, 2),
		quit:    make(chan struct{}),
	}
	var result error
	looped := make(chan struct{})
	go func() {
		defer close(looped)
		defer close(p.out)
		result = p.loop(ctx)
	}()
	received := make(chan struct{})
	go func() {
		defer close(received)
		p.receive()
	}()
	p.send(looped)
	<-looped
	close(p.quit)
	if o.Stream.StopReceive != nil {
		o.Stream.StopReceive()
		<-received
	}
	return result
}

type pump struct {
	Options
	in     chan *agentv1.Frame
	out    chan []*agentv1.Frame
	failed chan error
	quit   chan struct{}
}

// receive hands on frames. A peer that sends faster than they are taken waits.
func (p *pump) receive() {
	for {
		f, err := p.Stream.Receive()
		if err != nil {
			p.failed <- fmt.Errorf("receive: %w", err)
			return
		}
		select {
		case p.in <- f:
		case <-p.quit:
			return
		}
	}
}

// send sends batches until there are no more. A frame that is stuck when the loop has ended gets its grace, then the
// stream is aborted.
func (p *pump) send(looped <-chan struct{}) {
	if p.Stream.Abort != nil {
		sent := make(chan struct{})
		watched := make(chan struct{})
		defer func() {
			close(sent)
			<-watched
		}()
		go func() {
			defer close(watched)
			p.abortIfStuck(looped, sent)
		}()
	}
	for frames := range p.out {
		for _, f := range frames {
			select {
			case <-looped:
				return
			default:
			}
			err := p.Stream.Send(f)
			if errors.Is(err, io.EOF) {
				// The peer has ended the stream. Receive knows why.
				continue
			}
			if err != nil {
				p.failed <- fmt.Errorf("send: %w", err)
				return
			}
		}
	}
}

func (p *pump) abortIfStuck(looped, sent <-chan struct{}) {
	select {
	case <-sent:
		return
	case <-looped:
	}
	expired, stop := p.Timer(grace)
	defer stop()
	select {
	case <-sent:
	case <-expired:
		p.Stream.Abort()
	}
}

func (p *pump) loop(ctx context.Context) error {
	var pending []*agentv1.Frame
	var failure error
	for {
		now := p.Now()
		room := 0
		if len(pending) == 0 {
			room = batch
		}
		ready := p.Session.Ready(now, room)
		if room > 0 {
			pending = ready.Frames
		}
		for _, e := range ready.Events {
			if err := p.Handle(now, p.Session, e); err != nil {
				return err
			}
		}
		if failure != nil {
			return failure
		}
		if len(ready.Events) > 0 {
			// Acting on them may have made more to do.
			continue
		}
		if err := p.wait(ctx, &pending, &failure); err != nil {
			return err
		}
	}
}

// wait waits for the next thing to happen and lets the session know.
func (p *pump) wait(ctx context.Context, pending *[]*agentv1.Frame, failure *error) error {
	var expired <-chan time.Time
	if next := p.Session.Next(); !next.IsZero() {
		var stop func()
		expired, stop = p.Timer(max(0, next.Sub(p.Now())))
		defer stop()
	}
	var out chan<- []*agentv1.Frame
	if len(*pending) > 0 {
		out = p.out
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-p.failed:
		// Frames that came before the end of the stream still count.
		*failure = err
		return p.drain()
	case f := <-p.in:
		return p.Session.Step(p.Now(), f)
	case call := <-p.Calls:
		return call(p.Now(), p.Session)
	case out <- *pending:
		*pending = nil
		return nil
	case <-expired:
		// The peer is not to blame for frames that nobody has looked at.
		if err := p.drain(); err != nil {
			return err
		}
		return p.Session.Tick(p.Now())
	}
}

// drain takes the frames that have arrived.
func (p *pump) drain() error {
	for {
		select {
		case f := <-p.in:
			if err := p.Session.Step(p.Now(), f); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}
