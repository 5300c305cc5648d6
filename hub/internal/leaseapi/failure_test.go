package leaseapi_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	"github.com/shoal-dev/shoal/proto/credential"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// keeperFunc is a keeper that is a function.
type keeperFunc func(context.Context, lease.Command) (lease.Result, error)

func (f keeperFunc) Do(ctx context.Context, cmd lease.Command) (lease.Result, error) {
	return f(ctx, cmd)
}

// TestFailures checks that what goes wrong inside is told as what it means, and that nothing inside leaks.
func TestFailures(t *testing.T) {
	tests := map[string]struct {
		reason     string
		keeper     keeperFunc
		code       string
		why        leasev1.Refusal_Reason
		retryAfter string
		inLog      string
	}{
		"Panic": {
			"a bug of ours", func(context.Context, lease.Command) (lease.Result, error) { panic("inner secret: index out of range") },
			"internal", leasev1.Refusal_REASON_UNSPECIFIED, "", "inner secret",
		},
		"Stopped": {
			"the hub is stopping", func(context.Context, lease.Command) (lease.Result, error) {
				return nil, &keeper.Unavailable{Maybe: true, Cause: errors.New("inner secret: disk on fire")}
			},
			"unavailable", leasev1.Refusal_UNAVAILABLE, "5", "inner secret",
		},
		"WrongResult": {
			"a bug of ours", func(context.Context, lease.Command) (lease.Result, error) { return lease.Done{}, nil },
			"unavailable", leasev1.Refusal_UNAVAILABLE, "5", "lease.Done",
		},
		"ReadOnly": {
			"a full disk", func(context.Context, lease.Command) (lease.Result, error) {
				return nil, &lease.Refusal{Reason: lease.ReadOnly, Message: "the journal's disk is full", RetryAfter: 5 * time.Second}
			},
			"unavailable", leasev1.Refusal_READ_ONLY, "5", "",
		},
		"Wrapped": {
			"a shell may add what it did", func(context.Context, lease.Command) (lease.Result, error) {
				return nil, fmt.Errorf("step: %w", &lease.Refusal{Reason: lease.TargetGuarded, Message: "too many bans", RetryAfter: 90 * time.Second})
			},
			"resource_exhausted", leasev1.Refusal_TARGET_GUARDED, "90", "",
		},
		"UnknownReason": {
			"an engine that is newer than the protocol", func(context.Context, lease.Command) (lease.Result, error) {
				return nil, &lease.Refusal{Reason: "MERCURY_RETROGRADE", Message: "not today"}
			},
			"internal", leasev1.Refusal_REASON_UNSPECIFIED, "", "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, dials{wrap: func(leaseapi.Keeper) leaseapi.Keeper { return test.keeper }})
			for protocolName, p := range h.protocols() {
				got := p.call(t, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{})
				if got == nil {
					t.Fatalf("%s was granted", protocolName)
				}
				if got.Code != test.code || got.Refusal.GetReason() != test.why || got.RetryAfter != test.retryAfter {
					t.Errorf("%s: %s %v Retry-After %q, want %s %v %q (%s)", protocolName, got.Code, got.Refusal.GetReason(), got.RetryAfter, test.code, test.why, test.retryAfter, test.reason)
				}
				if strings.Contains(got.Message, "inner secret") {
					t.Errorf("%s leaks: %s", protocolName, got.Message)
				}
				if _, reference, ok := strings.Cut(got.Message, "under reference "); ok && !strings.Contains(h.log.String(), reference) {
					t.Errorf("%s refers to %s, which is not in the log", protocolName, reference)
				} else if name == "Panic" && !ok {
					t.Errorf("%s has no reference: %s", protocolName, got.Message)
				}
			}
			if !strings.Contains(h.log.String(), test.inLog) {
				t.Errorf("the log lacks %q: %s", test.inLog, h.log)
			}
		})
	}
}

// TestCallerTimesOut: a deadline is the caller's, so it is no outage of the hub, also where the keeper stops meanwhile.
func TestCallerTimesOut(t *testing.T) {
	for name, told := range map[string]func(context.Context) error{
		"Busy":    func(ctx context.Context) error { return fmt.Errorf("the keeper is busy: %w", context.Cause(ctx)) },
		"Stopped": func(context.Context) error { return &keeper.Unavailable{} },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, dials{wrap: func(leaseapi.Keeper) leaseapi.Keeper {
				return keeperFunc(func(ctx context.Context, _ lease.Command) (lease.Result, error) {
					<-ctx.Done()
					return nil, told(ctx)
				})
			}})
			answer, text := h.send(t, h.http1, "POST", "/shoal.lease.v1.LeaseService/Acquire", newsToken,
				http.Header{"Content-Type": {"application/json"}, "Connect-Timeout-Ms": {"20"}}, []byte(`{"fleet":"crawl/news"}`))
			if p := connectProblem(t, answer, text); p.Code != "deadline_exceeded" || !strings.Contains(p.Message, "requestId") {
				t.Errorf("got %s, want deadline_exceeded and what to do", text)
			}
			if strings.Contains(h.log.String(), "a call failed") {
				t.Errorf("the log speaks of a failure of the hub's: %s", h.log)
			}
		})
	}
}

// brokenSigner cannot sign for one proxy.
type brokenSigner struct{ proxy credential.ProxyUID }

func (s brokenSigner) Sign(_ time.Time, proxy credential.ProxyUID, _ credential.Principal, _ time.Duration) (credential.Token, error) {
	if proxy == s.proxy {
		return credential.Token{}, errors.New("inner secret")
	}
	return credential.Token{Password: "p"}, nil
}

// TestUnsignedLeasesAreGivenBack: what the caller never hears of must not keep slots.
func TestUnsignedLeasesAreGivenBack(t *testing.T) {
	h := newHub(t, dials{signer: brokenSigner{credential.ProxyUID(uid(1))}})
	h.news(t, 2, 1)
	got := h.protocols()["REST"].call(t, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Count: proto.Int32(2)}, &leasev1.AcquireResponse{})
	if got == nil || got.Code != "internal" || strings.Contains(got.Message, "inner secret") {
		t.Fatalf("got %+v, want internal and no details", got)
	}
	stats, err := h.keeper.Stats(t.Context(), "crawl/news")
	if err != nil {
		t.Fatal(err)
	}
	if stats.Leases != 0 {
		t.Errorf("%d leases are left", stats.Leases)
	}
}

func TestOptionsAreRequired(t *testing.T) {
	if _, err := leaseapi.New(leaseapi.Options{}); err == nil {
		t.Error("a handler without a keeper was made")
	}
	if _, err := leaseapi.NewSharedSigner(nil, 1); err == nil {
		t.Error("a shared signer without a signer was made")
	}
}

// TestInterceptors: metrics see every call with its protocol and its code, also the refused ones.
func TestInterceptors(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	count := func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			err := next(ctx, spec, stream)
			info, _ := connect.CallInfoForServerContext(ctx)
			mu.Lock()
			defer mu.Unlock()
			code := "ok"
			if err != nil {
				code = connect.CodeOf(err).String()
			}
			seen[info.Protocol+" "+spec.Procedure[strings.LastIndex(spec.Procedure, "/")+1:]+" "+code]++
			return err
		}
	}
	handler, err := leaseapi.New(leaseapi.Options{
		Keeper: keeperFunc(func(context.Context, lease.Command) (lease.Result, error) { return lease.Released{}, nil }),
		Signer: brokenSigner{}, Authenticator: leaseapi.AuthenticatorFunc(tokens), Interceptors: []connect.ServerInterceptor{count},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := serve(t, handler)
	for _, token := range []string{newsToken, ""} {
		for _, name := range []string{"REST", "ConnectJSON", "GRPC"} {
			h.protocols()[name].call(t, token, &leasev1.ReleaseRequest{LeaseId: "lse_1"}, &leasev1.ReleaseResponse{})
		}
	}
	for _, protocol := range []string{"rest", "connect", "grpc"} {
		for _, code := range []string{"ok", "unauthenticated"} {
			if key := protocol + " Release " + code; seen[key] != 1 {
				t.Errorf("%q was seen %d times, want once: %v", key, seen[key], seen)
			}
		}
	}
}

// serve runs a handler on the server that hubs use, on TLS with both HTTP versions.
func serve(t *testing.T, handler http.Handler) *hub {
	t.Helper()
	lender := newHub(t, dials{}) // for its certificate
	config := lender.serverTLS(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := leaseapi.NewServer(handler, config)
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("ServeTLS: %v", err)
		}
	})
	return &hub{url: "https://" + listener.Addr().String(), http1: lender.http1, http2: lender.http2}
}

// TestServer drives a call over the server that hubs use, by both HTTP versions, and checks its limits.
func TestServer(t *testing.T) {
	handler, err := leaseapi.New(leaseapi.Options{
		Keeper: keeperFunc(func(context.Context, lease.Command) (lease.Result, error) { return lease.Released{}, nil }),
		Signer: brokenSigner{}, Authenticator: leaseapi.AuthenticatorFunc(tokens),
	})
	if err != nil {
		t.Fatal(err)
	}
	h := serve(t, handler)
	for major, c := range map[int]*http.Client{1: h.http1, 2: h.http2} {
		answer, text := h.send(t, c, "DELETE", "/v1/leases/lse_1", newsToken, nil, nil)
		if answer.StatusCode != http.StatusOK || answer.ProtoMajor != major || string(text) != "{}\n" {
			t.Errorf("got %d %s over %s, want 200 {} over HTTP/%d", answer.StatusCode, text, answer.Proto, major)
		}
	}
	answer, _ := h.send(t, h.http1, "DELETE", "/v1/leases/lse_1", newsToken, http.Header{"X-Padding": {strings.Repeat("x", 64<<10)}}, nil)
	if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status = %d for a header of 64 KiB, want 431", answer.StatusCode)
	}
	server := leaseapi.NewServer(handler, nil)
	if server.ReadHeaderTimeout == 0 || server.ReadTimeout == 0 || server.WriteTimeout == 0 || server.IdleTimeout == 0 {
		t.Error("a slow client can hold a connection for ever")
	}
}

// TestManyAtOnce lets callers of all protocols race for the slots: none is given twice, and none is lost.
func TestManyAtOnce(t *testing.T) {
	h := newHub(t, dials{})
	const slots = 40
	h.news(t, slots, 1)
	var (
		mu      sync.Mutex
		proxies = map[string]bool{}
		refused int
		wg      sync.WaitGroup
	)
	for _, p := range h.protocols() {
		for range 10 {
			wg.Go(func() {
				response := &leasev1.AcquireResponse{}
				problem := p.call(t, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Ttl: durationpb.New(time.Minute)}, response)
				mu.Lock()
				defer mu.Unlock()
				if problem != nil {
					if problem.Refusal.GetReason() != leasev1.Refusal_NO_CAPACITY {
						t.Errorf("refused for %v: %s", problem.Refusal.GetReason(), problem.Message)
					}
					refused++
					return
				}
				id := response.Leases[0].ProxyId
				if proxies[id] {
					t.Errorf("proxy %s is leased twice", id)
				}
				proxies[id] = true
			})
		}
	}
	wg.Wait()
	if len(proxies) != slots || refused != 10*len(h.protocols())-slots {
		t.Errorf("%d leased and %d refused, want %d and %d", len(proxies), refused, slots, 10*len(h.protocols())-slots)
	}
}

// serverTLS borrows the certificate of the test server.
func (h *hub) serverTLS(t *testing.T) *tls.Config {
	t.Helper()
	if h.tls == nil {
		t.Fatal("this hub has no certificate to lend")
	}
	return &tls.Config{Certificates: h.tls.Certificates}
}
