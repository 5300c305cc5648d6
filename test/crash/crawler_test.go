package crash

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
	"github.com/shoal-dev/shoal/test/oracle"
)

const (
	// tryFor bounds a try: a hub that starts takes calls that it answers much later.
	tryFor = 3 * time.Second
	// most is how many leases a crawler wants to hold.
	most = 3
	// targets is how many sites there are.
	targets = 150
)

// timeline is the clock of the crawlers: the machine's at the beginning, and steady from then on.
type timeline struct{ began time.Time }

func newTimeline() timeline { return timeline{began: time.Now()} }

// now has no monotonic reading, so that it compares with times of the hub.
func (l timeline) now() time.Time { return l.began.Round(0).Add(time.Since(l.began)) }

// drift is how far the machine's clock was set since the beginning.
func (l timeline) drift() time.Duration { return time.Now().Round(0).Sub(l.now()).Abs() }

// street is what all crawlers share.
type street struct {
	timeline
	// leader returns the address of the hub that leads.
	leader func() string
	// think is how long a crawler waits between operations at most, in nanoseconds.
	think atomic.Int64

	mu       sync.Mutex
	history  oracle.History
	unknown  int // tries without an answer
	resolved int // operations of more than one try that got an answer
}

func (s *street) note(op oracle.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, op)
	if s.unknown += op.Tries - 1; op.Outcome == oracle.Unknown {
		s.unknown++
	} else if op.Tries > 1 {
		s.resolved++
	}
}

// lease is what a crawler knows of one of its leases.
type lease struct {
	id      string
	exit    string
	request *leasev1.AcquireRequest // that gave it
}

// crawler is one client. Its operations come one after the other.
type crawler struct {
	*street
	number int
	random *rand.Rand
	client leasev1connect.LeaseServiceClient

	made    int
	held    []lease
	doubted []string                  // leases that may live, of which it does not know how long
	open    []*leasev1.AcquireRequest // that may have been granted
	ended   []string                  // leases whose release was acknowledged
	stale   map[string]bool           // requests of leases in doubt, which are not repeated
	bans    []oracle.Op               // that were acknowledged
}

// newClient makes a client of the hub that leads. Crawlers that share a connection share its end.
func newClient(leader func() string, token string, roots *x509.CertPool) (leasev1connect.LeaseServiceClient, func()) {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, Protocols: protocols, TLSHandshakeTimeout: tryFor,
	}
	wire := connecthttp.NewTransport(&http.Client{Transport: toLeader{leader: leader, token: token, next: transport}}, "https://hub.invalid")
	return leasev1connect.NewLeaseServiceClient(connect.NewClient(wire)), transport.CloseIdleConnections
}

// toLeader sends each request to the hub that leads at the time, with a token.
type toLeader struct {
	leader func() string
	token  string
	next   http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (l toLeader) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.URL.Host, req.Host = l.leader(), ""
	req.Header.Set("Authorization", "Bearer "+l.token)
	return l.next.RoundTrip(req)
}

// run works until the context ends. An operation that is under way then has no answer.
func (c *crawler) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.step(ctx)
		c.pause(ctx, time.Duration(c.think.Load()))
	}
}

func (c *crawler) pause(ctx context.Context, atMost time.Duration) {
	if atMost <= 0 {
		return
	}
	timer := time.NewTimer(time.Duration(c.random.Int64N(int64(atMost))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// step does one thing.
func (c *crawler) step(ctx context.Context) {
	if len(c.held) == 0 {
		c.acquire(ctx, c.wish())
		return
	}
	i := c.random.IntN(len(c.held))
	switch pick := c.random.IntN(100); {
	case pick < 32 && len(c.held) < most:
		c.acquire(ctx, c.wish())
	case pick < 52:
		c.renew(ctx, i)
	case pick < 76:
		c.release(ctx, c.drop(i))
	case pick < 81:
		c.report(ctx, c.held[i], leasev1.Outcome_BLOCKED)
	case pick < 85:
		c.report(ctx, c.held[i], leasev1.Outcome_OK)
	case pick < 90:
		if again := c.held[i].request; !c.stale[again.GetRequestId()] {
			c.acquire(ctx, again) // as a client that lost the answer
		}
	case pick < 93:
		c.look(ctx, c.held[i].id)
	case pick < 96 && len(c.ended) > 0:
		c.look(ctx, c.ended[c.random.IntN(len(c.ended))])
	case pick < 98 && len(c.open) > 0:
		c.reopen(ctx)
	case len(c.bans) > 0:
		c.tryBanned(ctx, c.bans[c.random.IntN(len(c.bans))])
	}
}

func (c *crawler) drop(i int) lease {
	l := c.held[i]
	c.held = append(c.held[:i], c.held[i+1:]...)
	return l
}

// wish makes up a request.
func (c *crawler) wish() *leasev1.AcquireRequest {
	c.made++
	request := &leasev1.AcquireRequest{Fleet: fleetName, RequestId: fmt.Sprintf("r-%d-%d", c.number, c.made)}
	ttls := []time.Duration{0, 2 * time.Second, 3 * time.Second, 8 * time.Second} // 0 is the fleet's default
	if ttl := ttls[c.random.IntN(len(ttls))]; ttl > 0 {
		request.Ttl = durationpb.New(ttl)
	}
	if c.random.IntN(2) == 0 {
		request.Target = site(c.random.IntN(targets))
	}
	switch pick := c.random.IntN(25); {
	case pick == 0:
		request.Exclusive = true
	case pick < 3:
		count := int32(2 + c.random.IntN(2))
		request.Count = &count
	case pick < 6:
		request.SessionKey = fmt.Sprintf("s-%d-%d", c.number, c.random.IntN(3))
	}
	return request
}

func site(n int) string { return fmt.Sprintf("site%03d.example", n) }

// try does an operation until it is answered, or until it is given up.
func (c *crawler) try(ctx context.Context, op *oracle.Op, patient bool, do func(context.Context) error) {
	op.Client, op.Call = c.number, c.now()
	givesUp := !patient && c.random.IntN(8) == 0
	for {
		op.Tries++
		op.LastCall = c.now()
		one, cancel := context.WithTimeout(ctx, tryFor)
		err := do(one)
		cancel()
		back := c.now()
		answered, reason, message := answerOf(err)
		switch {
		case answered && reason == "":
			op.Outcome, op.Return = oracle.Done, back
		case answered:
			op.Outcome, op.Return, op.Reason, op.Message = oracle.Refused, back, reason, message
		case givesUp || ctx.Err() != nil:
			op.Outcome, op.Message = oracle.Unknown, message
		default:
			c.pause(ctx, 60*time.Millisecond)
			continue
		}
		c.note(*op)
		return
	}
}

// answerOf tells an answer of the hub's from the end of a connection. UNAVAILABLE is no answer: the command may have been
// carried out.
func answerOf(err error) (answered bool, reason, message string) {
	if err == nil {
		return true, "", ""
	}
	if refusal, ok := fault.From(err); ok {
		if refusal.GetReason() == leasev1.Refusal_UNAVAILABLE {
			return false, "", err.Error()
		}
		return true, refusal.GetReason().String(), err.Error()
	}
	var status *connect.Error
	if errors.As(err, &status) && status.IsRemote() {
		switch status.Code() {
		case connect.CodeUnavailable, connect.CodeCanceled, connect.CodeDeadlineExceeded:
		default:
			return true, "without a reason: " + status.Code().String(), err.Error()
		}
	}
	return false, "", err.Error()
}

func (c *crawler) acquire(ctx context.Context, request *leasev1.AcquireRequest) {
	c.ask(ctx, oracle.Op{}, request, false)
}

// ask acquires, and keeps what it is given.
func (c *crawler) ask(ctx context.Context, op oracle.Op, request *leasev1.AcquireRequest, patient bool) oracle.Op {
	op.Kind, op.Request, op.Target = oracle.Acquire, request.GetRequestId(), request.GetTarget()
	op.Session, op.Exclusive = request.GetSessionKey(), request.GetExclusive()
	var given []lease
	c.try(ctx, &op, patient, func(ctx context.Context) error {
		answer, err := c.client.Acquire(ctx, request)
		if err != nil {
			return err
		}
		op.Grants, given = nil, nil
		for _, l := range answer.GetLeases() {
			token, err := oracle.ParseToken(l.GetToken())
			if err != nil {
				return err
			}
			op.Grants = append(op.Grants, oracle.Grant{
				Lease: l.GetLeaseId(), Proxy: l.GetProxyId(), Token: token, Exits: l.GetExits(), Expires: l.GetExpiresAt().AsTime(), Moved: l.GetMoved(),
			})
			given = append(given, lease{id: l.GetLeaseId(), exit: l.GetExit(), request: request})
		}
		return nil
	})
	switch {
	case op.Outcome == oracle.Done:
		for _, l := range given {
			c.keep(l)
		}
	case op.Outcome == oracle.Unknown, op.Tries > 1:
		// A try without an answer may have been granted after all.
		c.open = append(c.open, request)
	}
	return op
}

func (c *crawler) keep(l lease) {
	for _, other := range c.held {
		if other.id == l.id {
			return
		}
	}
	c.held = append(c.held, l)
}

// reopen asks again for what may have been granted.
func (c *crawler) reopen(ctx context.Context) {
	i := c.random.IntN(len(c.open))
	request := c.open[i]
	c.open = append(c.open[:i], c.open[i+1:]...)
	c.acquire(ctx, request)
}

func (c *crawler) renew(ctx context.Context, i int) {
	id, request := c.held[i].id, c.held[i].request.GetRequestId()
	op := oracle.Op{Kind: oracle.Renew, Lease: id}
	c.try(ctx, &op, false, func(ctx context.Context) error {
		answer, err := c.client.Renew(ctx, &leasev1.RenewRequest{LeaseId: id})
		op.Expires = answer.GetExpiresAt().AsTime()
		return err
	})
	switch op.Outcome {
	case oracle.Done:
	case oracle.Refused:
		c.drop(i)
	case oracle.Unknown:
		// Who does not know how long it has a proxy does not use it.
		c.drop(i)
		c.doubted = append(c.doubted, id)
		c.stale[request] = true
		c.open = slices.DeleteFunc(c.open, func(r *leasev1.AcquireRequest) bool { return r.GetRequestId() == request })
	}
}

func (c *crawler) release(ctx context.Context, l lease) {
	if c.end(ctx, l.id, false) {
		c.ended = append(c.ended, l.id)
		if len(c.ended) > 8 {
			c.ended = c.ended[1:]
		}
	} else {
		c.doubted = append(c.doubted, l.id)
	}
}

// end releases a lease and tells whether that was acknowledged.
func (c *crawler) end(ctx context.Context, id string, patient bool) bool {
	op := oracle.Op{Kind: oracle.Release, Lease: id}
	c.try(ctx, &op, patient, func(ctx context.Context) error {
		_, err := c.client.Release(ctx, &leasev1.ReleaseRequest{LeaseId: id})
		return err
	})
	return op.Outcome == oracle.Done
}

func (c *crawler) look(ctx context.Context, id string) {
	op := oracle.Op{Kind: oracle.Get, Lease: id}
	c.try(ctx, &op, false, func(ctx context.Context) error {
		answer, err := c.client.GetLease(ctx, &leasev1.GetLeaseRequest{LeaseId: id})
		op.Expires = answer.GetLease().GetExpiresAt().AsTime()
		return err
	})
}

// report tells how a fetch went. Every answer may say that the exit rests.
func (c *crawler) report(ctx context.Context, l lease, kind leasev1.Outcome_Kind) {
	op := oracle.Op{Kind: oracle.Ban, Lease: l.id, Exits: []string{l.exit}, Target: site(c.random.IntN(targets))}
	c.try(ctx, &op, false, func(ctx context.Context) error {
		answer, err := c.client.Report(ctx, &leasev1.ReportRequest{LeaseId: l.id, Target: op.Target, Outcome: &leasev1.Outcome{Kind: kind}})
		op.Cooling = answer.GetCooldown().AsDuration()
		return err
	})
	if op.Outcome == oracle.Done && op.Cooling > 0 {
		if c.bans = append(c.bans, op); len(c.bans) > 20 {
			c.bans = c.bans[1:]
		}
	}
}

// tryBanned asks for an exit that rests, for the target that it rests for.
func (c *crawler) tryBanned(ctx context.Context, ban oracle.Op) {
	request := c.wish()
	request.Target, request.Selector = ban.Target, &leasev1.Selector{Exit: ban.Exits[0]}
	request.SessionKey, request.Count, request.Exclusive = "", nil, false
	c.acquire(ctx, request)
}

// settle finds out what became of everything that is open, and gives all leases back.
func (c *crawler) settle(ctx context.Context) {
	for _, request := range c.open {
		c.ask(ctx, oracle.Op{}, request, true)
	}
	c.open = nil
	for _, l := range c.held {
		c.doubted = append(c.doubted, l.id)
	}
	c.held = nil
	for _, id := range c.doubted {
		if c.end(ctx, id, true) {
			c.ended = append(c.ended, id)
		}
	}
	c.doubted = nil
}
