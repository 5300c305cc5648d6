package leaseclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// use is one request on a lease, from the wait for its limits to the end of the response's body.
type use struct {
	t       *Transport
	seat    *seat
	host    string // of the target
	endPace func()

	mu       sync.Mutex // guards what follows
	reported bool
	over     bool
	stop     func() bool // ends the watch of the context
}

// begin leases for a request, or joins its session, and waits until the limits let it in.
func (t *Transport) begin(ctx context.Context, host, key string, want *leasev1.AcquireRequest) (*use, error) {
	for {
		s, err := t.sit(ctx, key, want)
		if err != nil {
			return nil, err
		}
		u, err := t.use(ctx, host, s)
		if err == nil || key == "" || ctx.Err() != nil {
			return u, err
		}
		// The session's lease has ended while this waited for its turn. Each round is a lease that was lost.
	}
}

// use waits for the limits of a lease on which the caller sits.
func (t *Transport) use(ctx context.Context, host string, s *seat) (*use, error) {
	endPace, err := s.lease.Begin(ctx)
	if err != nil {
		s.leave(t, host, nil)
		return nil, err
	}
	return &use{t: t, seat: s, host: host, endPace: endPace}, nil
}

// send sends the request, and says how it went. On a panic, such as a classifier's, the use is over.
func (u *use) send(request *http.Request) (response *http.Response, outcome *leasev1.Outcome, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if response != nil {
			response.Body.Close()
		}
		u.finish(nil)
	}()
	trip := &trip{lease: u.seat.lease}
	request = request.WithContext(context.WithValue(request.Context(), tripKey{}, trip))
	response, err = u.seat.conns.RoundTrip(request)
	if err != nil {
		err = proxyFailure(err, request.URL.Scheme, trip.answered.Load())
	} else if answer := proxyAnswer(response); answer != nil && request.URL.Scheme == "http" {
		response.Body.Close()
		response, err = nil, answer
	}
	if err == nil {
		response.Request = request
	}
	outcome = u.t.classify(response, err)
	returned = true
	return response, outcome, err
}

// deliver hands the answer to the caller. With a body the use goes on until that ends.
func (u *use) deliver(response *http.Response, outcome *leasev1.Outcome, err error) (*http.Response, error) {
	if err != nil {
		u.finish(outcome)
		return nil, err
	}
	if response.Body == nil || response.Body == http.NoBody {
		u.finish(outcome)
		return response, nil
	}
	if outcome != nil && outcome.GetKind() != leasev1.Outcome_OK {
		// Before the caller goes on: its next request is not to be granted the same exit.
		u.reportFirst(outcome)
	}
	b := &body{use: u, of: response, inner: response.Body, outcome: outcome}
	response.Body = b
	if writer, ok := b.inner.(io.Writer); ok && response.StatusCode == http.StatusSwitchingProtocols {
		response.Body = upgraded{body: b, Writer: writer}
	}
	// Bodies that nobody closes end with their request's context.
	ctx := response.Request.Context()
	u.watch(context.AfterFunc(ctx, func() { u.finish(u.t.classify(response, context.Cause(ctx))) }))
	return response, nil
}

func (u *use) watch(stop func() bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stop = stop
	if u.over {
		stop()
	}
}

// finish ends the use, once.
func (u *use) finish(outcome *leasev1.Outcome) {
	u.mu.Lock()
	if u.over {
		u.mu.Unlock()
		return
	}
	u.over = true
	if u.reported {
		outcome = nil
	}
	if u.stop != nil {
		u.stop()
	}
	u.mu.Unlock()
	u.endPace()
	u.seat.leave(u.t, u.host, outcome)
}

// take says whether the outcome is still to be told, and leaves that to the caller.
func (u *use) take() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.reported {
		return false
	}
	u.reported = true
	return true
}

// reportFirst reports, and waits for it only a moment: a page is not held back by a hub that is slow.
func (u *use) reportFirst(outcome *leasev1.Outcome) {
	if !u.take() {
		return
	}
	u.seat.against(u.t, outcome)
	moment := time.NewTimer(reportMoment)
	defer moment.Stop()
	select {
	case <-u.seat.tellSoon(u.t, u.host, outcome):
	case <-moment.C:
	}
}

// reportNow reports and waits for it.
func (u *use) reportNow(ctx context.Context, outcome *leasev1.Outcome) {
	if u.take() {
		u.seat.against(u.t, outcome)
		u.seat.tell(ctx, u.host, outcome)
	}
}

// body ends its use when it ends.
type body struct {
	use     *use
	of      *http.Response
	inner   io.ReadCloser
	outcome *leasev1.Outcome // if nothing else happens
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	n, err := b.inner.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		b.use.finish(b.outcome)
	default:
		b.use.finish(b.use.t.classify(b.of, err))
	}
	return n, err
}

// Close implements [io.Closer].
func (b *body) Close() error {
	err := b.inner.Close()
	b.use.finish(b.outcome)
	return err
}

// upgraded is the body of an answer 101, which is written to as well.
type upgraded struct {
	*body
	io.Writer
}
