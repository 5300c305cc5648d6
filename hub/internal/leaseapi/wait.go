package leaseapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// errWaitEnded is the cause of a wait's end where neither the engine nor the caller ended it.
var errWaitEnded = errors.New("the wait for a lease was ended")

// waitSlack is how much longer than its wait a call may take: for the journal, and for the answer on its way out.
const waitSlack = 10 * time.Second

// acquirePath is the path of Acquire on REST.
const acquirePath = "/v1/leases"

type controllerKey struct{}

// withController lets a call lift the deadlines of its connection or stream.
func withController(w http.ResponseWriter, r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), controllerKey{}, http.NewResponseController(w)))
}

// acquire does an Acquire, also one that waits. What it is granted when its caller has gone is given back, unless the
// caller can ask for it again by the request's id.
func (s *service) acquire(ctx context.Context, cmd lease.Acquire) (lease.Granted, error) {
	if cmd.Wait <= 0 || cmd.Wait > lease.MaxWait { // the engine refuses what is out of bounds
		return ask[lease.Granted](ctx, s.keeper, cmd)
	}
	waiting, done := s.patient(ctx, cmd.Wait)
	defer done()
	granted, err := ask[lease.Granted](waiting, s.keeper, cmd)
	if err != nil || ctx.Err() == nil {
		return granted, err
	}
	if cmd.RequestID == "" {
		s.giveBack(ctx, granted)
	}
	return lease.Granted{}, ctx.Err()
}

// patient prepares a call for a wait. The server's deadlines for reading and writing, which keep slow clients from piling
// up, are moved behind it: without that an HTTP/1.1 connection would be taken for closed when its read deadline passes.
// The wait ends when the hub stops, and some time after it should have by the engine's clock, should that have been set
// back.
func (s *service) patient(ctx context.Context, wait time.Duration) (context.Context, func()) {
	waiting, end := context.WithCancelCause(ctx)
	waiting, cancel := context.WithTimeoutCause(waiting, wait+waitSlack, errWaitEnded)
	stop := context.AfterFunc(s.stopping, func() { end(errWaitEnded) })
	controller, lifts := ctx.Value(controllerKey{}).(*http.ResponseController)
	if deadline, ok := waiting.Deadline(); lifts && ok {
		// A transport that has no deadlines, as in tests, needs none lifted.
		_ = controller.SetReadDeadline(deadline.Add(waitSlack))
		_ = controller.SetWriteDeadline(deadline.Add(waitSlack))
	}
	return waiting, func() {
		stop()
		cancel()
		end(nil)
	}
}
