package leaseclient

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

const (
	// DefaultSessionIdle is how long the lease of a session outlives its last request.
	DefaultSessionIdle = time.Minute
	// reportPatience bounds a report that a request waits for before it goes to another proxy.
	reportPatience = 5 * time.Second
	// reportMoment is how long an answer that speaks against its exit is held back for its report.
	reportMoment = time.Second
	// aloneIdle is how long a connection outlives its only request, at most.
	aloneIdle = time.Second
	// othersAtMost is how many leases are looked at to find one on another proxy.
	othersAtMost = 3
)

// TransportOptions are what a [Transport] is made with.
type TransportOptions struct {
	// Client leases. Required.
	Client *Client
	// Fleet is what is leased from, namespace/name. Required unless Request is set.
	Fleet string
	// Request says what to lease for an HTTP request: by default a proxy of Fleet for the host of the URL. Its sessionKey
	// is Session's if there is one, its requestId is not used. The result is not changed.
	Request func(*http.Request) *leasev1.AcquireRequest
	// Session names the session that a request belongs to: requests with the same name share a lease, and through the
	// hub a proxy, while it lives. Requests without a name, "", and all of them if Session is nil, get a lease each.
	Session func(*http.Request) string
	// SessionIdle is how long a session's lease is kept after its last request; [DefaultSessionIdle] if it is zero.
	SessionIdle time.Duration
	// Classify says how a target answered; nil is nothing to report. It gets the response, or an error, and both if the
	// error came while the body was read. [Classify] by default.
	Classify func(*http.Response, error) *leasev1.Outcome
	// Retries is how often a request is sent again through another proxy, if it is idempotent, its body can be had again,
	// and the outcome is one that another proxy may better: blocked, captcha, rate limited, proxy error or timeout.
	// Requests of a session are, if their AcquireRequest has allowMove. None by default: who retries what is for the
	// crawler to say.
	Retries int
	// Base has the settings of connections, such as TLS and timeouts. It is cloned for each lease; its Proxy is not used.
	// [http.DefaultTransport]'s settings by default.
	Base *http.Transport
}

// Transport is an [http.RoundTripper] that sends each request through a leased proxy. It leases before the request,
// waits for the lease's limits, reports by what came back, and gives the lease up when the body has been read to its
// end or closed, when an error is returned, or when the request's context ends: whoever closes bodies, as with every
// client, leaks nothing. The time of leasing and waiting counts against the request's context and the client's Timeout.
//
// Each lease has connections of its own, which are closed when it ends. So only requests of one session share any.
//
// Its errors are a [Refusal] where nothing could be leased, a [ProxyError] where the proxy answered in place of the
// target, and those of net/http. It is made by [NewTransport] and is safe for concurrent use.
type Transport struct {
	client   *Client
	acquire  func(*http.Request) *leasev1.AcquireRequest
	session  func(*http.Request) string
	idle     time.Duration
	classify func(*http.Response, error) *leasev1.Outcome
	retries  int
	open     func(l *Lease, alone bool) connections // alone: for one request

	mu       sync.Mutex // guards what follows
	sessions map[string]*session
}

// connections are those of one lease.
type connections interface {
	http.RoundTripper
	CloseIdleConnections()
}

// NewTransport makes a Transport, or says what is missing.
func NewTransport(o TransportOptions) (*Transport, error) {
	if o.Client == nil {
		return nil, errors.New("leaseclient: TransportOptions need a Client")
	}
	if o.Request == nil {
		if o.Fleet == "" {
			return nil, errors.New("leaseclient: TransportOptions need a Fleet, such as crawl/news, or a Request")
		}
		o.Request = func(r *http.Request) *leasev1.AcquireRequest {
			return &leasev1.AcquireRequest{Fleet: o.Fleet, Target: r.URL.Hostname()}
		}
	}
	if o.Session == nil {
		o.Session = func(*http.Request) string { return "" }
	}
	if o.SessionIdle <= 0 {
		o.SessionIdle = DefaultSessionIdle
	}
	if o.Classify == nil {
		o.Classify = Classify
	}
	if o.Base == nil {
		o.Base = &http.Transport{
			ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
			MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second,
		}
	}
	t := &Transport{
		client: o.Client, acquire: o.Request, session: o.Session, idle: o.SessionIdle, classify: o.Classify, retries: o.Retries,
		sessions: map[string]*session{},
	}
	t.open = func(l *Lease, alone bool) connections {
		transport := through(o.Base, l.ProxyURL())
		if alone {
			// Nobody will use the connection again. It is closed when the lease ends; one of HTTP/2 may not be seen to be
			// idle yet, and then ends by this.
			transport.IdleConnTimeout = aloneIdle
		}
		return transport
	}
	return t, nil
}

// through is a transport for one proxy.
func through(base *http.Transport, proxy *url.URL) *http.Transport {
	transport := base.Clone()
	transport.Proxy = http.ProxyURL(proxy)
	also := base.OnProxyConnectResponse
	// net/http makes a bare text of a refused CONNECT.
	transport.OnProxyConnectResponse = func(ctx context.Context, proxy *url.URL, request *http.Request, response *http.Response) error {
		if trip, ok := ctx.Value(tripKey{}).(*trip); ok {
			trip.answered.Store(true)
		}
		if response.StatusCode != http.StatusOK {
			if answer := proxyAnswer(response); answer != nil {
				return answer
			}
			return &ProxyError{Status: response.StatusCode}
		}
		if also != nil {
			return also(ctx, proxy, request, response)
		}
		return nil
	}
	return transport
}

// trip is one sending of a request. It is in the request's context.
type trip struct {
	lease    *Lease
	answered atomic.Bool // the proxy has answered to CONNECT
}

type tripKey struct{}

// LeaseOf returns the lease that a response came through, or nil if it came otherwise. The lease may have ended.
func LeaseOf(response *http.Response) *Lease {
	if response == nil || response.Request == nil {
		return nil
	}
	if trip, ok := response.Request.Context().Value(tripKey{}).(*trip); ok {
		return trip.lease
	}
	return nil
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	key := t.session(request)
	want := &leasev1.AcquireRequest{}
	if asked := t.acquire(request); asked != nil {
		want = proto.CloneOf(asked)
	}
	want.RequestId = ""
	if key != "" {
		want.SessionKey = key
	}
	u, err := t.begin(request.Context(), request.URL.Hostname(), key, want)
	if err != nil {
		closeBody(request)
		return nil, err
	}
	tried := map[string]bool{}
	sent := request
	for left := t.retriesOf(request, want); ; left-- {
		response, outcome, err := u.send(sent)
		if left <= 0 || !elsewhere(outcome, err) || request.Context().Err() != nil {
			return u.deliver(response, outcome, err)
		}
		// The hub must know before it is asked for another, or it may give the same.
		u.reportNow(request.Context(), outcome)
		tried[u.seat.lease.granted.GetProxyId()] = true
		again, ok := repeated(request)
		if !ok {
			return u.deliver(response, outcome, err)
		}
		other := t.another(request.Context(), u, key, want, tried)
		if other == nil {
			closeBody(again)
			return u.deliver(response, outcome, err)
		}
		if response != nil {
			response.Body.Close()
		}
		u.finish(outcome)
		u, sent = other, again
	}
}

// retriesOf is how often a request may be sent again.
func (t *Transport) retriesOf(request *http.Request, want *leasev1.AcquireRequest) int {
	if !idempotent(request) || want.SessionKey != "" && !want.AllowMove {
		return 0
	}
	if request.Body != nil && request.Body != http.NoBody && request.GetBody == nil {
		return 0
	}
	return t.retries
}

// idempotent says whether sending a request twice means the same as once. It is net/http's own rule.
func idempotent(request *http.Request) bool {
	switch request.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	default:
		_, key := request.Header["Idempotency-Key"]
		_, experimental := request.Header["X-Idempotency-Key"]
		return key || experimental
	}
}

// repeated is the request with its body from the start.
func repeated(request *http.Request) (*http.Request, bool) {
	again := request.WithContext(request.Context())
	if request.Body == nil || request.Body == http.NoBody {
		return again, true
	}
	body, err := request.GetBody()
	if err != nil {
		return nil, false
	}
	again.Body = body
	return again, true
}

// another begins a use on a proxy that has not been tried, or returns nil. What was tried stays leased meanwhile, so
// that the hub, which gives the least loaded first, gives others.
func (t *Transport) another(ctx context.Context, u *use, key string, want *leasev1.AcquireRequest, tried map[string]bool) *use {
	if key != "" {
		u.seat.retire(t)
		other, err := t.begin(ctx, u.host, key, want)
		switch {
		case err != nil:
			return nil
		case tried[other.seat.lease.granted.GetProxyId()]:
			other.finish(nil)
			return nil
		default:
			return other
		}
	}
	var passed []*Lease
	defer func() {
		for _, l := range passed {
			l.releaseSoon(nil)
		}
	}()
	for range othersAtMost {
		// Not with patience: there is an answer already.
		leases, err := t.client.acquire(ctx, want, -1)
		if err != nil {
			return nil
		}
		if tried[leases[0].granted.GetProxyId()] {
			passed = append(passed, leases[0])
			continue
		}
		s := t.newSeat(leases[0], true)
		if other, err := t.use(ctx, u.host, s); err == nil {
			return other
		}
		return nil
	}
	return nil
}

// CloseIdleConnections closes the connections of sessions that no request uses. [http.Client.CloseIdleConnections]
// calls it.
func (t *Transport) CloseIdleConnections() {
	for _, s := range t.seats() {
		s.conns.CloseIdleConnections()
	}
}

// Close gives up the sessions. Requests that go on are not cut: their leases end with them. The client stays open.
func (t *Transport) Close() {
	for _, s := range t.seats() {
		s.retire(t)
	}
}

func closeBody(request *http.Request) {
	if request.Body != nil {
		// As RoundTrip must whatever happens; there is nobody to tell of an error.
		_ = request.Body.Close()
	}
}
