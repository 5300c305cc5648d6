package leaseapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// feed is an open watch, whatever it came by.
type feed interface {
	// next reads one event into a message, or says why there is none. A problem that ends the watch is a *problem.
	next(into proto.Message) error
	close()
}

func (p *problem) Error() string { return p.Code + ": " + p.Message }

// watchers are all ways to watch.
func (h *hub) watchers() map[string]func(*testing.T, string, proto.Message) feed {
	by := func(c *http.Client, options ...connecthttp.Option) func(*testing.T, string, proto.Message) feed {
		return func(t *testing.T, token string, request proto.Message) feed {
			return h.watchBy(t, c, token, request, options...)
		}
	}
	return map[string]func(*testing.T, string, proto.Message) feed{
		"ConnectOverH1": by(h.http1),
		"ConnectJSON":   by(h.http2, connecthttp.WithProtoJSON()),
		"GRPC":          by(h.http2, connecthttp.WithGRPC()),
		"GRPCWeb":       by(h.http1, connecthttp.WithGRPCWeb()),
		"Events": func(t *testing.T, token string, request proto.Message) feed {
			return h.watchEvents(t, h.http1, token, request)
		},
		"EventsOverH2": func(t *testing.T, token string, request proto.Message) feed {
			return h.watchEvents(t, h.http2, token, request)
		},
	}
}

// rpcFeed is a watch by Connect's own client.
type rpcFeed struct {
	stream connect.ClientStream
	cancel context.CancelFunc
}

func (h *hub) watchBy(t *testing.T, c *http.Client, token string, request proto.Message, options ...connecthttp.Option) feed {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Bearer "+token)
	dialer := connect.NewClient(connecthttp.NewTransport(c, h.url, options...))
	stream, err := dialer.CallServerStream(ctx, connect.Spec{StreamType: connect.StreamTypeServer, Procedure: procedureOf(request)}, request)
	if err != nil {
		t.Fatal(err)
	}
	f := &rpcFeed{stream: stream, cancel: cancel}
	t.Cleanup(f.close)
	return f
}

func (f *rpcFeed) next(into proto.Message) error {
	err := f.stream.Receive(into)
	var failed *connect.Error
	if !errors.As(err, &failed) || errors.Is(err, io.EOF) {
		return err
	}
	refusal, _ := fault.From(err)
	return &problem{Code: failed.Code().String(), Message: failed.Message(), Refusal: refusal}
}

func (f *rpcFeed) close() {
	f.cancel()
	_ = f.stream.Close()
}

// eventFeed is a watch by server-sent events, as a browser reads them.
type eventFeed struct {
	t        *testing.T
	response *http.Response
	lines    *bufio.Scanner
	refused  *problem
}

func (h *hub) watchEvents(t *testing.T, c *http.Client, token string, request proto.Message) feed {
	t.Helper()
	query := url.Values{}
	path := "/v1/leases:watch"
	switch request := request.(type) {
	case *leasev1.WatchLeasesRequest:
		if request.Fleet != "" {
			query.Set("fleet", request.Fleet)
		}
	case *leasev1.WatchProxiesRequest:
		path = "/v1/proxies:watch"
		query.Set("fleet", request.Fleet)
		for key, value := range request.GetSelector().GetLabels() {
			query.Add("label", key+"="+value)
		}
		if exit := request.GetSelector().GetExit(); exit != "" {
			query.Set("exit", exit)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+path+"?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	f := &eventFeed{t: t, response: response, lines: bufio.NewScanner(response.Body)}
	t.Cleanup(f.close)
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		f.refused = restProblem(t, response, text)
	} else if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type = %q", got)
	}
	return f
}

func (f *eventFeed) next(into proto.Message) error {
	if f.refused != nil {
		return f.refused
	}
	name, data := "", ""
	for f.lines.Scan() {
		line := f.lines.Text()
		switch {
		case line == ": heartbeat":
			name, data = "heartbeat", `{"kind":"HEARTBEAT"}`
		case strings.HasPrefix(line, "event: "):
			name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			data = line[len("data: "):]
		case strings.HasPrefix(line, "retry: "):
		case line == "" && name == "error":
			f.response.Header.Set("Content-Type", "application/json") // what restProblem expects
			return restProblem(f.t, f.response, []byte(data))
		case line == "" && name != "":
			if err := protojson.Unmarshal([]byte(data), into); err != nil {
				return fmt.Errorf("%q: %w", data, err)
			}
			kind := into.ProtoReflect().Descriptor().Fields().ByName("kind")
			if is := strings.ToLower(string(kind.Enum().Values().ByNumber(into.ProtoReflect().Get(kind).Enum()).Name())); is != name {
				return fmt.Errorf("the event %s is of kind %s", name, is)
			}
			return nil
		case line != "":
			return fmt.Errorf("unexpected line %q", line)
		}
	}
	if err := f.lines.Err(); err != nil {
		return err
	}
	return io.EOF
}

func (f *eventFeed) close() { _ = f.response.Body.Close() }

// event reads the next event, which must be there.
func event[M any, P interface {
	*M
	proto.Message
}](t *testing.T, f feed) P {
	t.Helper()
	into := P(new(M))
	if err := f.next(into); err != nil {
		t.Fatalf("the watch ended: %v", err)
	}
	return into
}

// ending reads what ends a watch.
func ending(t *testing.T, f feed) *problem {
	t.Helper()
	var ended *problem
	into := &leasev1.WatchLeasesResponse{}
	if err := f.next(into); !errors.As(err, &ended) {
		t.Fatalf("the watch goes on with %v and %v, want a refusal", into, err)
	}
	return ended
}

func TestWatchLeases(t *testing.T) {
	for name := range (&hub{}).watchers() {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, dials{})
			h.news(t, 3, 1)
			f := h.watchers()[name](t, newsToken, &leasev1.WatchLeasesRequest{})
			expect := func(want *leasev1.WatchLeasesResponse) {
				t.Helper()
				if diff := cmp.Diff(want, event[leasev1.WatchLeasesResponse](t, f), protocmp.Transform()); diff != "" {
					t.Errorf("event: %s", diff)
				}
			}
			expect(&leasev1.WatchLeasesResponse{Kind: leasev1.WatchLeasesResponse_SYNCED})

			rest := h.protocols()["REST"]
			mine := must(t, rest, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{}).Leases[0]
			other := must(t, rest, otherToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{}).Leases[0]
			about := func(kind leasev1.WatchLeasesResponse_Kind) *leasev1.WatchLeasesResponse {
				return &leasev1.WatchLeasesResponse{Kind: kind, LeaseId: mine.LeaseId, Fleet: "crawl/news", ProxyId: mine.ProxyId}
			}
			change := func(id string, f func(*lease.Proxy)) {
				for i := range 3 {
					if p := newsProxy(i); string(p.UID) == id {
						f(&p)
						h.do(t, lease.UpsertProxy{Proxy: p})
					}
				}
			}
			// What happens to somebody else's lease is told to nobody else.
			change(other.ProxyId, func(p *lease.Proxy) { p.Exits = []netip.Addr{netip.MustParseAddr("192.0.2.77")} })
			h.do(t, lease.Drain{UID: lease.ProxyUID(other.ProxyId)})

			change(mine.ProxyId, func(p *lease.Proxy) { p.Exits = []netip.Addr{netip.MustParseAddr("192.0.2.9")} })
			want := about(leasev1.WatchLeasesResponse_EXITS_CHANGED)
			want.Exits = []string{"192.0.2.9"}
			expect(want)

			h.do(t, lease.Drain{UID: lease.ProxyUID(mine.ProxyId), Deadline: start.Add(5 * time.Minute)})
			want = about(leasev1.WatchLeasesResponse_DRAINING)
			want.Deadline = timestamppb.New(start.Add(5 * time.Minute))
			expect(want)

			h.clock.Step(leaseapi.Heartbeat)
			expect(&leasev1.WatchLeasesResponse{Kind: leasev1.WatchLeasesResponse_HEARTBEAT})

			h.do(t, lease.RemoveProxy{UID: lease.ProxyUID(mine.ProxyId)})
			want = about(leasev1.WatchLeasesResponse_ENDED)
			want.End = leasev1.WatchLeasesResponse_PROXY_GONE
			expect(want)

			// A release is its holder's own doing.
			last := must(t, rest, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{}).Leases[0]
			must(t, rest, newsToken, &leasev1.ReleaseRequest{LeaseId: last.LeaseId}, &leasev1.ReleaseResponse{})

			if err := h.handler.Shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown with an open watch: %v", err)
			}
			if got := ending(t, f); got.Code != "unavailable" || got.Refusal.GetReason() != leasev1.Refusal_UNAVAILABLE {
				t.Errorf("a stopping hub says %v", got)
			}
			if got := ending(t, h.watchers()[name](t, newsToken, &leasev1.WatchLeasesRequest{})); got.Refusal.GetReason() != leasev1.Refusal_UNAVAILABLE {
				t.Errorf("a stopped hub says %v", got)
			}
		})
	}
}

func TestWatchProxies(t *testing.T) {
	for name := range (&hub{}).watchers() {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, dials{})
			h.news(t, 4, 1)
			watch := h.watchers()[name]
			all := watch(t, newsToken, &leasev1.WatchProxiesRequest{Fleet: "crawl/news"})
			fast := watch(t, newsToken, &leasev1.WatchProxiesRequest{Fleet: "crawl/news", Selector: &leasev1.Selector{Labels: map[string]string{"tier": "fast"}}})
			exit := watch(t, newsToken, &leasev1.WatchProxiesRequest{Fleet: "crawl/news", Selector: &leasev1.Selector{Exit: "203.0.113.11"}})
			// said puts an event into a word.
			said := func(f feed) string {
				t.Helper()
				e := event[leasev1.WatchProxiesResponse](t, f)
				text := e.Kind.String()
				if e.ProxyId != "" {
					text += " " + e.ProxyId[len(e.ProxyId)-1:]
				}
				if e.Kind == leasev1.WatchProxiesResponse_PROXY && (e.Proxy.GetProxyId() != e.ProxyId || e.Proxy.GetSlots() != 1) {
					t.Errorf("the event is %v", e)
				}
				if e.Proxy.GetDraining() {
					text += " draining"
				}
				return text
			}
			expect := func(f feed, want ...string) {
				t.Helper()
				for _, w := range want {
					if got := said(f); got != w {
						t.Fatalf("event %q, want %q", got, w)
					}
				}
			}
			expect(all, "PROXY 0", "PROXY 1", "PROXY 2", "PROXY 3", "SYNCED")
			expect(fast, "PROXY 0", "PROXY 2", "SYNCED")
			expect(exit, "PROXY 2", "SYNCED")

			must(t, h.protocols()["REST"], newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{})
			h.do(t, lease.Drain{UID: uid(1)})
			expect(all, "PROXY 1 draining")

			moved := newsProxy(2)
			moved.Exits = []netip.Addr{netip.MustParseAddr("192.0.2.9")}
			h.do(t, lease.UpsertProxy{Proxy: moved})
			expect(all, "PROXY 2")
			expect(fast, "PROXY 2")
			expect(exit, "GONE 2")

			h.do(t, lease.RemoveProxy{UID: uid(0)})
			expect(all, "GONE 0")
			expect(fast, "GONE 0")
			h.do(t, lease.UpsertProxy{Proxy: newsProxy(4)})
			expect(all, "PROXY 4")
			expect(fast, "PROXY 4")
			h.clock.Step(leaseapi.Heartbeat)
			expect(exit, "HEARTBEAT")
			expect(all, "HEARTBEAT")

			h.do(t, lease.RemoveFleet{ID: "crawl/news"})
			for _, f := range []feed{all, exit} {
				if got := ending(t, f); got.Refusal.GetReason() != leasev1.Refusal_UNKNOWN_FLEET {
					t.Errorf("a removed fleet says %v", got)
				}
			}
			if got := ending(t, watch(t, weatherToken, &leasev1.WatchProxiesRequest{Fleet: "crawl/news"})); got.Refusal.GetReason() != leasev1.Refusal_UNKNOWN_FLEET {
				t.Errorf("somebody else's fleet says %v", got)
			}
		})
	}
}

// TestRefusedWatches: what is wrong with a watch is told like what is wrong with a call.
func TestRefusedWatches(t *testing.T) {
	tests := map[string]struct {
		reason  string
		token   string
		request proto.Message
		why     leasev1.Refusal_Reason
	}{
		"NoToken":      {"not known", "nobody", &leasev1.WatchLeasesRequest{}, leasev1.Refusal_UNAUTHENTICATED},
		"BrokenStore":  {"nobody can tell", brokenToken, &leasev1.WatchLeasesRequest{}, leasev1.Refusal_UNAVAILABLE},
		"ForeignFleet": {"not told apart from none", weatherToken, &leasev1.WatchLeasesRequest{Fleet: "crawl/news"}, leasev1.Refusal_UNKNOWN_FLEET},
		"BadFleet":     {"not a name", newsToken, &leasev1.WatchLeasesRequest{Fleet: "news"}, leasev1.Refusal_INVALID_REQUEST},
		"NoFleet":      {"proxies are a fleet's", newsToken, &leasev1.WatchProxiesRequest{}, leasev1.Refusal_INVALID_REQUEST},
		"BadExit":      {"not an address", newsToken, &leasev1.WatchProxiesRequest{Fleet: "crawl/news", Selector: &leasev1.Selector{Exit: "here"}}, leasev1.Refusal_INVALID_REQUEST},
		"Gone":         {"there is no such fleet", newsToken, &leasev1.WatchProxiesRequest{Fleet: "crawl/gone"}, leasev1.Refusal_UNKNOWN_FLEET},
	}
	h := newHub(t, dials{})
	h.news(t, 1, 1)
	for name, test := range tests {
		for protocol, watch := range h.watchers() {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				if got := ending(t, watch(t, test.token, test.request)); got.Refusal.GetReason() != test.why {
					t.Errorf("got %v for %v, want %v (%s)", got, got.Refusal.GetReason(), test.why, test.reason)
				}
			})
		}
	}
}

// TestWatchEndsWithItsToken: a token that was revoked must not go on watching.
func TestWatchEndsWithItsToken(t *testing.T) {
	var revoked atomic.Bool
	h := newHub(t, dials{tokens: leaseapi.AuthenticatorFunc(func(ctx context.Context, bearer string) (leaseapi.Caller, error) {
		if revoked.Load() {
			return leaseapi.Caller{}, leaseapi.ErrUnknownToken
		}
		return tokens(ctx, bearer)
	})})
	h.news(t, 1, 1)
	f := h.watchers()["Events"](t, newsToken, &leasev1.WatchLeasesRequest{})
	event[leasev1.WatchLeasesResponse](t, f)
	revoked.Store(true)
	h.clock.Step(leaseapi.Heartbeat)
	if got := ending(t, f); got.Refusal.GetReason() != leasev1.Refusal_UNAUTHENTICATED {
		t.Errorf("a revoked token says %v", got)
	}
}

// TestBidiNeedsHTTP2 checks the words for what Connect answers with an empty body.
func TestBidiNeedsHTTP2(t *testing.T) {
	h := newHub(t, dials{})
	for contentType, want := range map[string]int{"application/connect+proto": 505, "application/grpc": 505} {
		answer, text := h.send(t, h.http1, "POST", leasev1connect.LeaseServiceStreamProcedure, newsToken, http.Header{"Content-Type": {contentType}}, nil)
		if answer.StatusCode != want || !strings.Contains(string(text), "needs HTTP/2") {
			t.Errorf("%s: got %d %s", contentType, answer.StatusCode, text)
		}
	}
	answer, text := h.send(t, h.http2, "POST", leasev1connect.LeaseServiceWatchLeasesProcedure, newsToken, http.Header{"Content-Type": {"application/json"}}, []byte("{}"))
	if answer.StatusCode != http.StatusUnsupportedMediaType || !strings.Contains(string(text), "/v1/leases:watch") {
		t.Errorf("a watch with the type of a call: got %d %s", answer.StatusCode, text)
	}
}
