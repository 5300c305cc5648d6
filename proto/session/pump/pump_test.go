package pump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/session"
)

// pipe is one direction of a stream that holds no frame at all: who sends waits until the other end takes it.
type pipe struct {
	frames chan *agentv1.Frame
	done   chan struct{}
}

func newPipe() pipe { return pipe{frames: make(chan *agentv1.Frame), done: make(chan struct{})} }

func (p pipe) send(f *agentv1.Frame) error {
	select {
	case p.frames <- f:
		return nil
	case <-p.done:
		return io.EOF
	}
}

func (p pipe) receive() (*agentv1.Frame, error) {
	select {
	case f := <-p.frames:
		return f, nil
	case <-p.done:
		return nil, io.ErrUnexpectedEOF
	}
}

// TestBothSend joins two ends that both have much more to say than fits into the stream. Neither may wait for the other
// for ever.
func TestBothSend(t *testing.T) {
	const items = 3000
	synctest.Test(t, func(t *testing.T) {
		up, down := newPipe(), newPipe()
		hub := session.NewHub(time.Now(), session.Config{})
		agent := session.NewAgent(time.Now(), session.Config{}, &agentv1.Hello{Member: "east"})
		for i := range items {
			for _, s := range []*session.Session{hub, agent} {
				s.Put(&agentv1.Upsert{Uid: fmt.Sprint(i), Hash: "h"})
			}
		}
		hub.Complete()
		agent.Complete()
		resynced := make(chan int, 2)
		handle := func(now time.Time, s *session.Session, e session.Event) error {
			switch e := e.(type) {
			case session.Greeted:
				s.Welcome(now, &agentv1.Welcome{Epoch: 1})
			case session.Apply:
				s.Applied(now, e.Upsert.GetUid(), e.Upsert.GetSequence(), "")
			case session.Resynced:
				resynced <- e.Count
			}
			return nil
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		ended := make(chan error, 2)
		for _, o := range []Options{
			{Session: hub, Stream: Stream{Send: down.send, Receive: up.receive, StopReceive: func() { close(up.done) }}},
			{Session: agent, Stream: Stream{Send: up.send, Receive: down.receive, StopReceive: func() { close(down.done) }}},
		} {
			o.Handle = handle
			go func() { ended <- Run(ctx, o) }()
		}
		for range 2 {
			if got := <-resynced; got != items {
				t.Errorf("a snapshot of %d items, want %d", got, items)
			}
		}
		cancel(enough)
		for range 2 {
			if err := <-ended; !errors.Is(err, enough) {
				t.Errorf("ended with %v", err)
			}
		}
	})
}

// TestEnds checks what Run says of the end, and that nothing of it is left running: synctest would not let the test
// end.
func TestEnds(t *testing.T) {
	broken := errors.New("broken")
	tests := map[string]struct {
		reason string
		adjust func(*Options, context.CancelCauseFunc)
		want   error
	}{
		"Send": {"the stream's error", func(o *Options, _ context.CancelCauseFunc) {
			o.Stream.Send = func(*agentv1.Frame) error { return broken }
		}, broken},
		"SendEOF": {"Receive knows why the peer has ended the stream", func(o *Options, _ context.CancelCauseFunc) {
			o.Stream.Send = func(*agentv1.Frame) error { return io.EOF }
			o.Stream.Receive = func() (*agentv1.Frame, error) { return nil, broken }
		}, broken},
		"Receive": {"the stream's error", func(o *Options, _ context.CancelCauseFunc) {
			o.Stream.Receive = func() (*agentv1.Frame, error) { return nil, broken }
		}, broken},
		"Context": {"the cause of its end", func(_ *Options, cancel context.CancelCauseFunc) { cancel(broken) }, broken},
		"Call": {"a call may end the session", func(o *Options, _ context.CancelCauseFunc) {
			calls := make(chan Call, 1)
			calls <- func(time.Time, *session.Session) error { return broken }
			o.Calls = calls
		}, broken},
		"Silence": {"nobody answers", func(*Options, context.CancelCauseFunc) {}, session.ErrSilent},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				silent := newPipe()
				o := Options{
					Session: session.NewAgent(time.Now(), session.Config{}, &agentv1.Hello{}),
					Handle:  func(time.Time, *session.Session, session.Event) error { return nil },
					Stream: Stream{
						Send:        func(*agentv1.Frame) error { return nil },
						Receive:     silent.receive,
						StopReceive: func() { close(silent.done) },
					},
				}
				tt.adjust(&o, cancel)
				if err := Run(ctx, o); !errors.Is(err, tt.want) {
					t.Errorf("%s: got %v", tt.reason, err)
				}
			})
		})
	}
}

// TestStuck ends a session while a frame is stuck in the stream: after its grace the stream is aborted.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := newPipe()
		began := time.Now()
		err := Run(t.Context(), Options{
			Session: session.NewAgent(time.Now(), session.Config{HandshakeTimeout: time.Second}, &agentv1.Hello{}),
			Handle:  func(time.Time, *session.Session, session.Event) error { return nil },
			Stream: Stream{
				Send: stuck.send,
				Receive: func() (*agentv1.Frame, error) {
					<-stuck.done
					return nil, io.EOF
				},
				StopReceive: func() {},
				Abort:       func() { close(stuck.done) },
			},
		})
		if !errors.Is(err, session.ErrSilent) || time.Since(began) != time.Second+grace {
			t.Errorf("ended after %v with %v", time.Since(began), err)
		}
	})
}
