package leaseapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// Limits of a pipelined stream.
const (
	// Window is how many commands of a stream may be without an answer. An Acquire for several leases counts as many.
	Window = 2048
	// MaxCommands is how many commands one message may carry.
	MaxCommands = 256
	// mostAnswers is how many answers are sent in one message.
	mostAnswers = 256
	// lastCall is how long commands have that wait for something when the hub stops.
	lastCall = 3 * time.Second
)

// protocolStream is what interceptors see as CallInfo.Protocol of a command that came by a stream.
const protocolStream = "stream"

// pipeline is one open stream. Three parts work on it: one reads and starts commands, each command runs by itself, and one
// sends what is ready. Room is taken by the first and given back by the last, so that no more than a window of answers is
// in memory, however slow the caller reads.
type pipeline struct {
	s       *service
	peer    string
	stream  leasev1connect.LeaseServiceStreamServerStream
	room    chan struct{}
	answers chan answered
	// work hands commands to workers that have none. They are kept, since their stacks have grown to what a command
	// needs, and growing a new one costs as much as the command.
	work    chan job
	running sync.WaitGroup
}

// job is a command and the room that it has taken.
type job struct {
	command *leasev1.StreamCommand
	cost    int
}

// answered is an answer and the room that it gives back.
type answered struct {
	*leasev1.StreamAnswer
	cost int
}

// Stream implements [leasev1connect.LeaseServiceHandler].
func (s *service) Stream(ctx context.Context, stream leasev1connect.LeaseServiceStreamServerStream) error {
	leave, err := s.streams.enter(callerFrom(ctx).Principal, kindStream)
	if err != nil {
		return err
	}
	defer leave()
	below := lineOf(ctx)
	below.received()
	below.extend()
	if err := stream.Send(&leasev1.StreamResponse{Window: Window}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &pipeline{s: s, stream: stream, room: make(chan struct{}, Window), answers: make(chan answered, Window), work: make(chan job)}
	if info, ok := connect.CallInfoForServerContext(ctx); ok {
		p.peer = info.PeerAddr
	}
	read := make(chan error, 1)
	go func() {
		read <- p.read(ctx)
		close(p.work)
		p.running.Wait()
		close(p.answers)
	}()
	err = p.write(ctx, below, cancel)
	// Whatever ended it, nothing of it goes on.
	cancel()
	below.hangUp()
	for range p.answers { // nobody reads them any more
	}
	if unread := <-read; err == nil && !errors.Is(unread, io.EOF) {
		err = unread
	}
	return err
}

// write sends answers until there are no more to come. It returns nil once all are sent.
func (p *pipeline) write(ctx context.Context, below *line, cancel context.CancelFunc) error {
	ticker := p.s.clock.NewTicker(Heartbeat)
	defer ticker.Stop()
	stop, stopped := p.s.streams.stopping, false
	var lastOrders <-chan time.Time
	for {
		select {
		case first, more := <-p.answers:
			if !more && stopped {
				return stopping()
			}
			if !more {
				return nil
			}
			below.extend()
			if err := p.send(first); err != nil {
				return err
			}
		case <-ticker.C():
			below.extend()
			if err := p.s.again(ctx, ""); err != nil {
				return err
			}
		case <-stop:
			stop, stopped = nil, true
			below.hangUp()
			lastOrders = p.s.clock.After(lastCall)
		case <-lastOrders:
			cancel()
		case <-ctx.Done():
			if !stopped {
				return ctx.Err()
			}
			return stopping()
		}
	}
}

// send sends an answer and those that are ready with it.
func (p *pipeline) send(first answered) error {
	response := &leasev1.StreamResponse{Answers: make([]*leasev1.StreamAnswer, 1, 16)}
	response.Answers[0] = first.StreamAnswer
	cost := first.cost
	for len(response.GetAnswers()) < mostAnswers {
		select {
		case next, more := <-p.answers:
			if more {
				response.Answers = append(response.Answers, next.StreamAnswer)
				cost += next.cost
				continue
			}
		default:
		}
		break
	}
	if err := p.stream.Send(response); err != nil {
		return err
	}
	for range cost {
		<-p.room
	}
	return nil
}

// read takes commands and starts them. It returns io.EOF when the caller has no more.
func (p *pipeline) read(ctx context.Context) error {
	for {
		request, err := p.stream.Receive()
		switch {
		case errors.Is(err, io.EOF):
			return io.EOF
		case err != nil:
			return err
		case len(request.GetCommands()) > MaxCommands:
			return invalidRequest([]*leasev1.FieldViolation{{
				Field: "commands", Message: fmt.Sprintf("commands has %d; send at most %d in one message", len(request.GetCommands()), MaxCommands),
			}})
		}
		for _, command := range request.GetCommands() {
			cost := max(1, min(int(command.GetAcquire().GetCount()), Window))
			for range cost {
				select {
				case p.room <- struct{}{}:
				case <-p.s.streams.stopping:
					return stopping()
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			// Room that came free together with the stop begins nothing: what was answered last is the caller's last.
			select {
			case <-p.s.streams.stopping:
				return stopping()
			default:
			}
			p.start(ctx, job{command, cost})
		}
	}
}

// start gives a command to a worker that has none, or to a new one. There are no more workers than there is room.
func (p *pipeline) start(ctx context.Context, next job) {
	select {
	case p.work <- next:
	default:
		p.running.Go(func() {
			for more := true; more; next, more = <-p.work {
				p.answers <- answered{p.do(ctx, next.command), next.cost}
			}
		})
	}
}

// commandStream hands one command and its answer through the interceptors that calls pass. It implements
// [connect.ServerStream], of which they see nothing but the errors.
type commandStream struct {
	command *leasev1.StreamCommand
	answer  *leasev1.StreamAnswer
}

func (*commandStream) SendHeaders() error { return nil }
func (*commandStream) Send(any) error     { return errors.ErrUnsupported }
func (*commandStream) Receive(any) error  { return errors.ErrUnsupported }

// commandServer returns a server that carries out the commands of streams: each passes the interceptors of the call that
// it stands for, so that limits, metrics and refusals hold however it came. The stream has the caller's name behind it.
func (s *service) commandServer(interceptors []connect.ServerInterceptor) *connect.Server {
	server := connect.NewServer(interceptors...)
	add := func(procedure string, call func(context.Context, *commandStream) error) {
		server.Register(connect.Method{
			Spec: connect.Spec{StreamType: connect.StreamTypeUnary, Procedure: procedure},
			Handler: func(ctx context.Context, _ connect.Spec, stream connect.ServerStream) error {
				return call(ctx, stream.(*commandStream)) // pipeline.do makes no other
			},
		})
	}
	add(leasev1connect.LeaseServiceAcquireProcedure, func(ctx context.Context, c *commandStream) error {
		answer, err := s.Acquire(ctx, c.command.GetAcquire())
		c.answer.Answer = &leasev1.StreamAnswer_Acquire{Acquire: answer}
		return err
	})
	add(leasev1connect.LeaseServiceRenewProcedure, func(ctx context.Context, c *commandStream) error {
		answer, err := s.Renew(ctx, c.command.GetRenew())
		c.answer.Answer = &leasev1.StreamAnswer_Renew{Renew: answer}
		return err
	})
	add(leasev1connect.LeaseServiceReleaseProcedure, func(ctx context.Context, c *commandStream) error {
		answer, err := s.Release(ctx, c.command.GetRelease())
		c.answer.Answer = &leasev1.StreamAnswer_Release{Release: answer}
		return err
	})
	add(leasev1connect.LeaseServiceReportProcedure, func(ctx context.Context, c *commandStream) error {
		answer, err := s.Report(ctx, c.command.GetReport())
		c.answer.Answer = &leasev1.StreamAnswer_Report{Report: answer}
		return err
	})
	add(leasev1connect.LeaseServiceGetLeaseProcedure, func(ctx context.Context, c *commandStream) error {
		answer, err := s.GetLease(ctx, c.command.GetGetLease())
		c.answer.Answer = &leasev1.StreamAnswer_GetLease{GetLease: answer}
		return err
	})
	return server
}

// do carries out one command.
func (p *pipeline) do(ctx context.Context, command *leasev1.StreamCommand) *leasev1.StreamAnswer {
	answer := &leasev1.StreamAnswer{Seq: command.GetSeq()}
	if err := p.carryOut(ctx, command, answer); err != nil {
		answer.Answer = &leasev1.StreamAnswer_Error{Error: failure(err)}
	}
	return answer
}

func (p *pipeline) carryOut(ctx context.Context, command *leasev1.StreamCommand, answer *leasev1.StreamAnswer) error {
	if command.GetSeq() == 0 {
		return invalidRequest([]*leasev1.FieldViolation{{
			Field: "seq", Message: "seq is missing; write a number of your own that the answer repeats, such as 1, 2, 3",
		}})
	}
	var procedure string
	switch command.GetCommand().(type) {
	case *leasev1.StreamCommand_Acquire:
		procedure = leasev1connect.LeaseServiceAcquireProcedure
	case *leasev1.StreamCommand_Renew:
		procedure = leasev1connect.LeaseServiceRenewProcedure
	case *leasev1.StreamCommand_Release:
		procedure = leasev1connect.LeaseServiceReleaseProcedure
	case *leasev1.StreamCommand_Report:
		procedure = leasev1connect.LeaseServiceReportProcedure
	case *leasev1.StreamCommand_GetLease:
		procedure = leasev1connect.LeaseServiceGetLeaseProcedure
	default:
		return fault.New(leasev1.Refusal_INVALID_REQUEST,
			"the command is missing, or one of a later version; write acquire, renew, release, report or getLease", fault.Details{})
	}
	info := &connect.CallInfo{PeerAddr: p.peer, Protocol: protocolStream}
	return p.s.commands.Call(ctx, procedure, info, &commandStream{command: command, answer: answer})
}

// failure puts the error of one command among several into a message.
func failure(err error) *leasev1.Failure {
	err = withRefusal(err)
	refusal, _ := fault.From(err)
	return &leasev1.Failure{Code: connect.CodeOf(err).String(), Message: messageOf(err), Refusal: refusal}
}
