package leaseclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// site answers requests that come through leased proxies, without a network.
type site struct {
	mu     sync.Mutex
	answer func(l *Lease, r *http.Request) (*http.Response, error)
	came   []string // lease and proxy of each request
	idle   []string // leases whose connections were closed
}

type siteConns struct {
	site  *site
	lease *Lease
}

func (c siteConns) RoundTrip(r *http.Request) (*http.Response, error) {
	closeBody(r)
	c.site.mu.Lock()
	c.site.came = append(c.site.came, c.lease.ID()+" "+c.lease.granted.GetProxyId())
	answer := c.site.answer
	c.site.mu.Unlock()
	return answer(c.lease, r)
}

func (c siteConns) CloseIdleConnections() {
	c.site.mu.Lock()
	defer c.site.mu.Unlock()
	c.site.idle = append(c.site.idle, c.lease.ID())
}

// seen returns the requests that came, and the leases whose connections were closed.
func (s *site) seen() (came, idle []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.came), slices.Clone(s.idle)
}

func first(came, _ []string) []string { return came }

func page(status int, text string, headers ...string) *http.Response {
	response := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}
	for i := 0; i+1 < len(headers); i += 2 {
		response.Header.Set(headers[i], headers[i+1])
	}
	return response
}

func always(status int, text string, headers ...string) func(*Lease, *http.Request) (*http.Response, error) {
	return func(*Lease, *http.Request) (*http.Response, error) { return page(status, text, headers...), nil }
}

func newSite(t *testing.T, c *Client, o TransportOptions) (*site, *Transport) {
	t.Helper()
	s := &site{answer: always(200, "a page")}
	o.Client = c
	if o.Request == nil {
		o.Fleet = "crawl/news"
	}
	transport, err := NewTransport(o)
	if err != nil {
		t.Fatal(err)
	}
	transport.open = func(l *Lease, _ bool) connections { return siteConns{site: s, lease: l} }
	return s, transport
}

func request(t *testing.T, ctx context.Context, method string, body io.Reader) *http.Request { //nolint:revive // the test comes first
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "https://example.com/a", body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func get(t *testing.T, transport *Transport) (status int, err error) {
	t.Helper()
	response, err := transport.RoundTrip(request(t, t.Context(), http.MethodGet, nil))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, err
	}
	return response.StatusCode, nil
}

func TestLeasePerRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{})
		s, transport := newSite(t, c, TransportOptions{})

		response, err := transport.RoundTrip(request(t, t.Context(), http.MethodGet, nil))
		if err != nil {
			t.Fatal(err)
		}
		if l := LeaseOf(response); l == nil || l.ID() != "lse_0" {
			t.Errorf("LeaseOf = %v", l)
		}
		time.Sleep(time.Hour)
		if held, _, _ := h.seen(); len(held) != 1 {
			t.Errorf("held while the body is read: %v", held)
		}
		if _, err := io.ReadAll(response.Body); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		// Released by the end of the body, with what came of it, before anybody closes it.
		if held, reports, releases := h.seen(); len(held) != 0 || len(reports) != 0 || !slices.Equal(releases, []string{"lse_0 OK×1"}) {
			t.Errorf("held %v, reported %q, released %q", held, reports, releases)
		}
		response.Body.Close()

		if _, err := get(t, transport); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if _, idle := s.seen(); !slices.Equal(idle, []string{"lse_0", "lse_1"}) {
			t.Errorf("connections closed: %v, want each lease's", idle)
		}
		closed(t, h, c)
	})
}

func TestUseEnds(t *testing.T) {
	broken := errors.New("reset")
	tests := map[string]struct {
		reason   string
		answer   func(*Lease, *http.Request) (*http.Response, error)
		then     func(*http.Response, context.CancelFunc)
		reports  []string
		releases []string
	}{
		"Closed": {
			"a body that nobody reads", always(200, "a page"),
			func(r *http.Response, _ context.CancelFunc) { r.Body.Close() }, nil,
			[]string{"lse_0 OK×1"},
		},
		"NoBody": {
			"nothing to close", func(*Lease, *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody}, nil
			},
			nil, nil,
			[]string{"lse_0 OK×1"},
		},
		"Canceled": {
			"a body that nobody closes, of a request that was given up", always(200, "a page"),
			func(_ *http.Response, cancel context.CancelFunc) { cancel() }, nil,
			[]string{"lse_0"},
		},
		"Broken": {
			"a body that breaks off", func(*Lease, *http.Request) (*http.Response, error) {
				r := page(200, "")
				r.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), failing{broken}))
				return r, nil
			},
			func(r *http.Response, _ context.CancelFunc) { _, _ = io.ReadAll(r.Body); r.Body.Close() },
			nil,
			[]string{"lse_0 TARGET_ERROR"},
		},
		"Blocked": {
			"told when it is seen, not when the body ends", always(403, "no"), nil,
			[]string{"lse_0 example.com BLOCKED"},
			nil,
		},
		"RateLimited": {
			"with the time that the target asked for", always(429, "no", "Retry-After", "90"),
			func(r *http.Response, _ context.CancelFunc) { r.Body.Close() },
			[]string{"lse_0 example.com RATE_LIMITED 1m30s"},
			[]string{"lse_0"},
		},
		"Error": {
			"the proxy is gone", func(*Lease, *http.Request) (*http.Response, error) { return nil, &ProxyError{Status: 407} }, nil,
			nil,
			[]string{"lse_0 PROXY_ERROR"},
		},
		"GivenUp": {
			"nobody's fault", func(*Lease, *http.Request) (*http.Response, error) { return nil, context.Canceled }, nil,
			nil,
			[]string{"lse_0"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFakeHub()
				c := newClient(t, h, Options{})
				s, transport := newSite(t, c, TransportOptions{})
				s.answer = tc.answer
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				response, err := transport.RoundTrip(request(t, ctx, http.MethodGet, nil))
				if err == nil && tc.then != nil {
					tc.then(response, cancel)
				}
				synctest.Wait()
				if _, reports, releases := h.seen(); !slices.Equal(reports, tc.reports) || !slices.Equal(releases, tc.releases) {
					t.Errorf("%s: reported %q, released %q; want %q and %q", tc.reason, reports, releases, tc.reports, tc.releases)
				}
				cancel()
				synctest.Wait()
				closed(t, h, c)
			})
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestPanicsLeakNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{})
		panics := func(transport *Transport) {
			t.Helper()
			defer func() {
				if recover() == nil {
					t.Error("the panic is swallowed")
				}
			}()
			_, _ = get(t, transport)
		}
		_, transport := newSite(t, c, TransportOptions{Classify: func(*http.Response, error) *leasev1.Outcome { panic("a classifier's") }})
		panics(transport)
		s, transport := newSite(t, c, TransportOptions{Session: func(*http.Request) string { return "s" }, SessionIdle: time.Second})
		s.answer = func(*Lease, *http.Request) (*http.Response, error) { panic("a connection's") }
		panics(transport)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if held, _, _ := h.seen(); len(held) != 0 {
			t.Errorf("held: %v", held)
		}
		closed(t, h, c)
	})
}

func TestRefusedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		h.fail = func(string, int) error { return refusal(leasev1.Refusal_UNKNOWN_FLEET, 0) }
		c := newClient(t, h, Options{})
		_, transport := newSite(t, c, TransportOptions{})
		body := &closing{Reader: strings.NewReader("x")}
		_, err := (&http.Client{Transport: transport}).Do(request(t, t.Context(), http.MethodPost, body))
		if ReasonOf(err) != leasev1.Refusal_UNKNOWN_FLEET || !body.closed {
			t.Errorf("got %v, body closed %v", err, body.closed)
		}
		closed(t, h, c)
	})
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestRetries(t *testing.T) {
	blockedOn := func(proxies ...string) func(*Lease, *http.Request) (*http.Response, error) {
		return func(l *Lease, _ *http.Request) (*http.Response, error) {
			if slices.Contains(proxies, l.granted.GetProxyId()) {
				return page(403, "no"), nil
			}
			return page(200, "a page"), nil
		}
	}
	tests := map[string]struct {
		reason  string
		proxies int
		retries int
		method  string
		body    func() io.Reader
		answer  func(*Lease, *http.Request) (*http.Response, error)
		status  int
		came    int
	}{
		"NotAsked":      {"who retries what is for the crawler to say", 3, 0, "GET", nil, blockedOn("p0"), 403, 1},
		"Another":       {"another proxy has better luck", 3, 2, "GET", nil, blockedOn("p0"), 200, 2},
		"Third":         {"and another", 3, 2, "GET", nil, blockedOn("p0", "p1"), 200, 3},
		"Bounded":       {"the last answer counts", 5, 2, "GET", nil, blockedOn("p0", "p1", "p2", "p3"), 403, 3},
		"NoOther":       {"a fleet of one has no other proxy", 1, 2, "GET", nil, blockedOn("p0"), 403, 1},
		"NotIdempotent": {"twice may not be the same as once", 3, 2, "POST", nil, blockedOn("p0"), 403, 1},
		"BodyAgain":     {"from its start", 3, 2, "PUT", func() io.Reader { return bytes.NewReader([]byte("x")) }, blockedOn("p0"), 200, 2},
		"BodyGone":      {"cannot be had again", 3, 2, "PUT", func() io.Reader { return io.NopCloser(strings.NewReader("x")) }, blockedOn("p0"), 403, 1},
		"TargetError":   {"would be the same elsewhere", 3, 2, "GET", nil, always(500, "broken"), 500, 1},
		"Denied": {"by any proxy of the fleet", 3, 2, "GET", nil, func(*Lease, *http.Request) (*http.Response, error) {
			return nil, &ProxyError{Status: 403, Name: "ERR_SHOAL_DST"}
		}, 0, 1},
		"ProxyGone": {"the next one works", 3, 1, "GET", nil, func(l *Lease, _ *http.Request) (*http.Response, error) {
			if l.granted.GetProxyId() == "p0" {
				return nil, &ProxyError{Status: 503}
			}
			return page(200, "a page"), nil
		}, 200, 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFakeHub()
				h.proxies = tc.proxies
				c := newClient(t, h, Options{})
				s, transport := newSite(t, c, TransportOptions{Retries: tc.retries})
				s.answer = tc.answer
				var body io.Reader
				if tc.body != nil {
					body = tc.body()
				}
				status := 0
				response, err := transport.RoundTrip(request(t, t.Context(), tc.method, body))
				if err == nil {
					status = response.StatusCode
					response.Body.Close()
				}
				if came, _ := s.seen(); status != tc.status || len(came) != tc.came {
					t.Errorf("%s: %d (%v) after %v, want %d after %d", tc.reason, status, err, came, tc.status, tc.came)
				}
				synctest.Wait()
				if held, _, _ := h.seen(); len(held) != 0 {
					t.Errorf("held: %v", held)
				}
				closed(t, h, c)
			})
		})
	}
}

func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		h.took = 10 * time.Millisecond
		c := newClient(t, h, Options{})
		s, transport := newSite(t, c, TransportOptions{Session: func(r *http.Request) string { return r.Header.Get("Session") }})
		fetch := func(name string) {
			r := request(t, t.Context(), http.MethodGet, nil)
			r.Header.Set("Session", name)
			response, err := transport.RoundTrip(r)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.ReadAll(response.Body)
			response.Body.Close()
		}
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() { fetch(fmt.Sprint("s", i%2)) })
		}
		wg.Wait()
		if came, _ := s.seen(); h.count("Acquire") != 2 || len(came) != 50 {
			t.Errorf("%d leases for %d requests of two sessions", h.count("Acquire"), len(came))
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if _, reports, releases := h.seen(); len(reports) != 2 || len(releases) != 0 {
			t.Errorf("reported %q, released %q; want 20 pages of each told so far", reports, releases)
		}
		time.Sleep(DefaultSessionIdle)
		synctest.Wait()
		held, _, releases := h.seen()
		slices.Sort(releases)
		if len(held) != 0 || !slices.Equal(releases, []string{"lse_0 OK×5", "lse_1 OK×5"}) {
			t.Errorf("held %v, released %q; want each session's remaining pages told", held, releases)
		}
		fetch("s0")
		if n := h.count("Acquire"); n != 3 {
			t.Errorf("a session after its idle time: %d leases, want a new one", n)
		}
		// A request that goes on keeps the session.
		r := request(t, t.Context(), http.MethodGet, nil)
		r.Header.Set("Session", "s0")
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		transport.Close()
		if l := LeaseOf(response); l.Err() != nil {
			t.Errorf("the lease of a request that goes on: %v", l.Err())
		}
		response.Body.Close()
		synctest.Wait()
		if l := LeaseOf(response); !errors.Is(l.Err(), ErrReleased) {
			t.Errorf("after its end: %v", l.Err())
		}
		closed(t, h, c)
	})
}

func TestSessionMovesOn(t *testing.T) {
	move := func(*http.Request) *leasev1.AcquireRequest {
		return &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com", AllowMove: true}
	}
	one := func(*http.Request) string { return "s" }
	t.Run("WhenBlocked", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newFakeHub()
			c := newClient(t, h, Options{})
			s, transport := newSite(t, c, TransportOptions{Session: one, Request: move, Retries: 1})
			s.answer = func(l *Lease, _ *http.Request) (*http.Response, error) {
				if l.ID() == "lse_0" {
					return page(403, "no"), nil
				}
				return page(200, "a page"), nil
			}
			for range 3 {
				if status, err := get(t, transport); status != 200 {
					t.Errorf("%d, %v", status, err)
				}
			}
			synctest.Wait()
			if want := []string{"lse_0 p0", "lse_1 p1", "lse_1 p1", "lse_1 p1"}; !slices.Equal(first(s.seen()), want) {
				t.Errorf("came %v, want %v", first(s.seen()), want)
			}
			if held, reports, _ := h.seen(); !slices.Equal(held, []string{"lse_1"}) || !slices.Equal(reports, []string{"lse_0 example.com BLOCKED"}) {
				t.Errorf("held %v, reported %q", held, reports)
			}
			closed(t, h, c)
		})
	})
	t.Run("WhenDraining", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newFakeHub()
			c := newClient(t, h, Options{})
			s, transport := newSite(t, c, TransportOptions{Session: one, Request: move, SessionIdle: time.Hour})
			_, _ = get(t, transport)
			h.set(func() { h.renewed = func(r *leasev1.RenewResponse) { r.Draining = r.LeaseId == "lse_0" } })
			time.Sleep(6 * time.Minute)
			_, _ = get(t, transport)
			synctest.Wait()
			if want := []string{"lse_0 p0", "lse_1 p1"}; !slices.Equal(first(s.seen()), want) {
				t.Errorf("came %v, want %v", first(s.seen()), want)
			}
			closed(t, h, c)
		})
	})
	t.Run("WhenLost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newFakeHub()
			c := newClient(t, h, Options{})
			s, transport := newSite(t, c, TransportOptions{Session: one, SessionIdle: time.Hour})
			_, _ = get(t, transport)
			h.set(func() { delete(h.held, "lse_0") }) // The hub has forgotten it.
			time.Sleep(6 * time.Minute)
			synctest.Wait()
			if _, idle := s.seen(); !slices.Equal(idle, []string{"lse_0"}) {
				t.Errorf("connections of a lost lease: closed %v", idle)
			}
			if status, err := get(t, transport); status != 200 {
				t.Errorf("%d, %v", status, err)
			}
			closed(t, h, c)
		})
	})
}

func TestSessionIsNotLeasedForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		h.took = time.Second
		c := newClient(t, h, Options{})
		_, transport := newSite(t, c, TransportOptions{Session: func(*http.Request) string { return "s" }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := transport.RoundTrip(request(t, ctx, http.MethodGet, nil)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		// Who comes right after is not told of the other's end.
		if status, err := get(t, transport); status != 200 {
			t.Errorf("%d, %v", status, err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if held, _, _ := h.seen(); len(held) != 1 {
			t.Errorf("held: %v, want the session's", held)
		}
		closed(t, h, c)
	})
}

func TestTransportKeepsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		c := newClient(t, h, Options{})
		_, transport := newSite(t, c, TransportOptions{Session: func(*http.Request) string { return "s" }})
		_, _ = get(t, transport)
		for _, s := range transport.seats() {
			s.lease.update(func(s *State) { s.Limits = Limits{MinInterval: 3 * time.Second} })
		}
		begun := time.Now()
		for range 4 {
			_, _ = get(t, transport)
		}
		if took := time.Since(begun); took != 12*time.Second {
			t.Errorf("four more pages took %v, want 12s", took)
		}
		closed(t, h, c)
	})
}
