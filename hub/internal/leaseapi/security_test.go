package leaseapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// TestForeignLeases: a lease of somebody else and one that never was are answered alike, in code, words and work, by every
// call that names one; and the lease is as it was.
func TestForeignLeases(t *testing.T) {
	var commands atomic.Int64
	h := newHub(t, dials{wrap: func(k leaseapi.Keeper) leaseapi.Keeper {
		return keeperFunc(func(ctx context.Context, cmd lease.Command) (lease.Result, error) {
			commands.Add(1)
			return k.Do(ctx, cmd)
		})
	}})
	h.news(t, 1, 1)
	const never = "lse_AAAAAAAAAAAAAAAAAAAAAA"
	rest := h.protocols()["REST"]
	held := must(t, rest, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com"}, &leasev1.AcquireResponse{}).Leases[0]
	if len(held.LeaseId) != len(never) {
		t.Fatalf("lease ids look like %s", held.LeaseId)
	}
	blocked := &leasev1.Outcome{Kind: leasev1.Outcome_BLOCKED}
	calls := map[string]func(id string) (proto.Message, proto.Message){
		"GetLease": func(id string) (proto.Message, proto.Message) {
			return &leasev1.GetLeaseRequest{LeaseId: id}, &leasev1.GetLeaseResponse{}
		},
		"Renew": func(id string) (proto.Message, proto.Message) {
			return &leasev1.RenewRequest{LeaseId: id}, &leasev1.RenewResponse{}
		},
		"Release": func(id string) (proto.Message, proto.Message) {
			return &leasev1.ReleaseRequest{LeaseId: id}, &leasev1.ReleaseResponse{}
		},
		"ReleaseWithOutcome": func(id string) (proto.Message, proto.Message) {
			return &leasev1.ReleaseRequest{LeaseId: id, Outcome: blocked}, &leasev1.ReleaseResponse{}
		},
		"Report": func(id string) (proto.Message, proto.Message) {
			return &leasev1.ReportRequest{LeaseId: id, Outcome: blocked}, &leasev1.ReportResponse{}
		},
		"ReportBatch": func(id string) (proto.Message, proto.Message) {
			return &leasev1.ReportBatchRequest{Reports: []*leasev1.ReportRequest{{LeaseId: id, Outcome: blocked}}}, &leasev1.ReportBatchResponse{}
		},
	}
	for name, call := range calls {
		for protocol, p := range h.protocols() {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				said := func(id string) (string, int64) {
					request, response := call(id)
					before := commands.Load()
					problem := p.call(t, otherToken, request, response)
					text := fmt.Sprintf("%v %+v", response, problem)
					if problem != nil {
						text = fmt.Sprint(problem.status, problem.Code, problem.Message, problem.Refusal.GetReason(), problem.RetryAfter)
					}
					return strings.Join(strings.Fields(strings.ReplaceAll(text, id, "ID")), " "), commands.Load() - before
				}
				foreign, work := said(held.LeaseId)
				unknown, unknownWork := said(never)
				if foreign != unknown || work != unknownWork {
					t.Errorf("of another's lease: %s after %d commands\nof none:            %s after %d", foreign, work, unknown, unknownWork)
				}
			})
		}
	}
	now := must(t, rest, newsToken, &leasev1.GetLeaseRequest{LeaseId: held.LeaseId}, &leasev1.GetLeaseResponse{}).Lease
	if diff := cmp.Diff(held, now, protocmp.Transform()); diff != "" {
		t.Errorf("the lease has changed: %s", diff)
	}
	must(t, rest, newsToken, &leasev1.ReleaseRequest{LeaseId: held.LeaseId}, &leasev1.ReleaseResponse{})
	// No ban of a stranger has cooled the exit.
	must(t, rest, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com"}, &leasev1.AcquireResponse{})
}

// raw sends bytes over TLS as HTTP/1.1, and reads the answers until the hub closes or n have come.
func (h *hub) raw(t *testing.T, text string, n int) []int {
	t.Helper()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}). //nolint:gosec // the test's own server
															DialContext(t.Context(), "tcp", strings.TrimPrefix(h.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, strings.ReplaceAll(text, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	var statuses []int
	for range n {
		answer, err := http.ReadResponse(reader, nil)
		if err != nil {
			break
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		statuses = append(statuses, answer.StatusCode)
	}
	return statuses
}

// TestSmuggling: headers that two readers could understand differently are refused, or understood in one way, after which
// nothing more is read from the connection.
func TestSmuggling(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 5, 1)
	const auth = "Host: hub\nAuthorization: Bearer " + newsToken + "\n"
	const body = `{"fleet":"crawl/news"}` // 22 bytes
	tests := map[string]struct {
		reason string
		text   string
		want   []int
	}{
		"Plain":              {"the reference", "POST /v1/leases HTTP/1.1\n" + auth + "Content-Length: 22\nConnection: close\n\n" + body, []int{200}},
		"TwoTokens":          {"which of them is checked?", "POST /v1/leases HTTP/1.1\n" + auth + "Authorization: Bearer " + weatherToken + "\nContent-Length: 22\nConnection: close\n\n" + body, []int{401}},
		"SameTokenTwice":     {"a careless proxy, or not", "POST /v1/leases HTTP/1.1\n" + auth + "Authorization: Bearer " + newsToken + "\nContent-Length: 22\nConnection: close\n\n" + body, []int{401}},
		"TwoTokensInOne":     {"joined by a proxy", "POST /v1/leases HTTP/1.1\nHost: hub\nAuthorization: Bearer " + newsToken + ", Bearer " + weatherToken + "\nContent-Length: 22\nConnection: close\n\n" + body, []int{401}},
		"TwoLengths":         {"which is it?", "POST /v1/leases HTTP/1.1\n" + auth + "Content-Length: 22\nContent-Length: 2\nConnection: close\n\n" + body, []int{400}},
		"LengthWithSign":     {"not a number of RFC 9110", "POST /v1/leases HTTP/1.1\n" + auth + "Content-Length: +22\nConnection: close\n\n" + body, []int{400}},
		"UnknownEncoding":    {"cannot be read", "POST /v1/leases HTTP/1.1\n" + auth + "Transfer-Encoding: xchunked\nConnection: close\n\n" + body, []int{501}},
		"TwoEncodings":       {"not the last", "POST /v1/leases HTTP/1.1\n" + auth + "Transfer-Encoding: chunked, identity\nConnection: close\n\n" + body, []int{501}},
		"SpaceBeforeColon":   {"some drop it, some do not", "POST /v1/leases HTTP/1.1\n" + auth + "Content-Length : 22\nConnection: close\n\n" + body, []int{400}},
		"BareBody":           {"a body that is not announced is the next request, and none", "GET /v1/proxies?fleet=crawl%2Fnews HTTP/1.1\n" + auth + "\n" + body + "\n\n", []int{200, 400}},
		"NulInHeader":        {"cut by some", "GET /v1/proxies?fleet=crawl%2Fnews HTTP/1.1\n" + auth + "X-A: a\x00b\nConnection: close\n\n", []int{400}},
		"MethodOverride":     {"the method is the method", "GET /v1/leases/lse_1 HTTP/1.1\n" + auth + "X-HTTP-Method-Override: DELETE\nConnection: close\n\n", []int{410}},
		"ConnectOnREST":      {"REST reads JSON, whatever the type says", "POST /v1/leases HTTP/1.1\n" + auth + "Content-Type: application/proto\nConnect-Protocol-Version: 1\nContent-Length: 4\nConnection: close\n\n\n\x02ab", []int{400}},
		"RESTOnConnect":      {"a procedure is no path of REST", "GET /shoal.lease.v1.LeaseService/Acquire?fleet=crawl%2Fnews HTTP/1.1\n" + auth + "Connection: close\n\n", []int{405}},
		"DotsToConnect":      {"paths are not resolved", "POST /v1/../shoal.lease.v1.LeaseService/Acquire HTTP/1.1\n" + auth + "Content-Type: application/json\nContent-Length: 22\nConnection: close\n\n" + body, []int{404}},
		"AbsoluteForm":       {"the host of the line is not a way in", "POST https://other/v1/leases HTTP/1.1\n" + auth + "Content-Length: 22\nConnection: close\n\n" + body, []int{200}},
		"TokenInQuery":       {"tokens in URLs end in logs", "POST /v1/leases?access_token=" + newsToken + " HTTP/1.1\nHost: hub\nContent-Length: 22\nConnection: close\n\n" + body, []int{401}},
		"ConnectGetEncoding": {"what has effects is no GET", "GET /shoal.lease.v1.LeaseService/Release?encoding=json&message=%7B%22leaseId%22%3A%22lse_1%22%7D&connect=v1 HTTP/1.1\n" + auth + "Connection: close\n\n", []int{405}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, h.raw(t, test.text, 3)); diff != "" {
				t.Errorf("%s (%s)", diff, test.reason)
			}
		})
	}
	// With both, the length is ignored; what comes after the last chunk must not count as somebody's next request.
	t.Run("LengthAndChunks", func(t *testing.T) {
		text := "POST /v1/leases HTTP/1.1\n" + auth + "Content-Length: 5\nTransfer-Encoding: chunked\n\n16\n" + body + "\n0\n\n"
		if got := h.raw(t, text+"GET /v1/proxies?fleet=crawl%2Fnews HTTP/1.1\nHost: hub\nConnection: close\n\n", 3); len(got) == 0 || got[0] != 200 && got[0] != 400 || len(got) > 1 && got[1] != 401 {
			t.Errorf("answers %v: the second request has no token", got)
		}
	})
}

// TestSlowLoris: a connection that trickles is closed by the server's deadlines, while a watch that was read whole lives on
// beyond all of them.
func TestSlowLoris(t *testing.T) {
	lender := newHub(t, dials{})
	lender.news(t, 1, 1)
	server := leaseapi.NewServer(lender.handler, lender.serverTLS(t))
	const short = time.Second // in place of seconds; nothing in the test waits for a time of its own
	server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout = short, short, short
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	h := &hub{url: "https://" + listener.Addr().String(), http1: lender.http1, http2: lender.http2}
	watches := map[string]feed{}
	for name, watch := range h.watchers() {
		watches[name] = watch(t, newsToken, &leasev1.WatchLeasesRequest{})
		event[leasev1.WatchLeasesResponse](t, watches[name])
	}
	const auth = "Host: hub\nAuthorization: Bearer " + newsToken + "\n"
	t.Run("HangUp", func(t *testing.T) {
		for name, text := range map[string]string{
			"Headers":     "POST /v1/leases HTTP/1.1\nHost: h",
			"Body":        "POST /v1/leases HTTP/1.1\n" + auth + "Content-Length: 22\n\n{",
			"ConnectBody": "POST " + leasev1connect.LeaseServiceAcquireProcedure + " HTTP/1.1\n" + auth + "Content-Type: application/json\nContent-Length: 22\n\n{",
			"WatchBody":   "POST " + leasev1connect.LeaseServiceWatchLeasesProcedure + " HTTP/1.1\n" + auth + "Content-Type: application/connect+json\nContent-Length: 22\n\n\x00",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				// It returns when the server has hung up: the second answer never comes.
				for _, status := range h.raw(t, text, 2) {
					if status < 400 {
						t.Errorf("the half request was answered with %d", status)
					}
				}
			})
		}
	})
	held := must(t, lender.protocols()["REST"], newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{}).Leases[0]
	lender.do(t, lease.Drain{UID: lease.ProxyUID(held.ProxyId)})
	for name, f := range watches {
		if got := event[leasev1.WatchLeasesResponse](t, f); got.Kind != leasev1.WatchLeasesResponse_DRAINING {
			t.Errorf("%s goes on with %v", name, got)
		}
	}
}

// stuck is a stream whose caller reads one event and then no more, until told to.
type stuck struct {
	request *leasev1.WatchLeasesRequest
	sent    chan *leasev1.WatchLeasesResponse
}

func (*stuck) SendHeaders() error { return nil }

func (s *stuck) Receive(into any) error {
	proto.Merge(into.(proto.Message), s.request)
	return nil
}

func (s *stuck) Send(msg any) error {
	s.sent <- proto.Clone(msg.(proto.Message)).(*leasev1.WatchLeasesResponse)
	return nil
}

// TestSlowWatcher: who does not read loses events, is told so, and costs bounded memory.
func TestSlowWatcher(t *testing.T) {
	h := newHub(t, dials{})
	const leases = 400
	h.news(t, 1, leases)
	ctx, cancel := context.WithCancel(t.Context())
	info := &connect.CallInfo{Protocol: "test"}
	info.RequestHeader().Set("Authorization", "Bearer "+newsToken)
	slow := &stuck{request: &leasev1.WatchLeasesRequest{}, sent: make(chan *leasev1.WatchLeasesResponse)}
	ended := make(chan error, 1)
	go func() { ended <- h.handler.Call(ctx, leasev1connect.LeaseServiceWatchLeasesProcedure, info, slow) }()
	if first := <-slow.sent; first.Kind != leasev1.WatchLeasesResponse_SYNCED {
		t.Fatalf("first comes %v", first)
	}
	for range leases {
		must(t, h.protocols()["REST"], newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{})
	}
	// Twice as many events as are kept for one who does not read.
	h.do(t, lease.Drain{UID: uid(0), Deadline: start.Add(time.Minute)}, lease.Drain{UID: uid(0), Deadline: start.Add(2 * time.Minute)}, lease.ReadBusy{})
	resyncs, last := 0, 0
	for last < 256 {
		switch e := <-slow.sent; {
		case e.Kind == leasev1.WatchLeasesResponse_RESYNC:
			resyncs++
		case e.Kind == leasev1.WatchLeasesResponse_DRAINING && e.Deadline.AsTime().Equal(start.Add(2*time.Minute)):
			last++
		}
	}
	if resyncs == 0 {
		t.Error("events were lost without a word")
	}
	cancel()
	for {
		select {
		case <-slow.sent:
			continue
		case err := <-ended:
			if connect.CodeOf(err) != connect.CodeCanceled {
				t.Errorf("the watch ended with %v", err)
			}
		}
		break
	}
}
