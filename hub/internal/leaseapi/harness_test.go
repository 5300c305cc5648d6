package leaseapi_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	"github.com/shoal-dev/shoal/proto/credential"
)

// Bearer tokens of the tests. They must never show up in a log or an answer.
const (
	newsToken    = "secret-of-the-news-crawler"
	otherToken   = "secret-of-another-news-crawler"
	weatherToken = "secret-of-the-weather-crawler"
	brokenToken  = "secret-that-breaks-the-token-store"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// hub is a lease API on a real listener, with the real engine and keeper behind it.
type hub struct {
	url     string
	handler *leaseapi.Handler
	http1   *http.Client
	http2   *http.Client
	clock   *clocktesting.FakeClock
	keeper  *keeper.Keeper
	keys    credential.KeySet
	log     *syncBuffer
	tls     *tls.Config
}

// dials change a part of a hub.
type dials struct {
	wrap   func(leaseapi.Keeper) leaseapi.Keeper
	signer leaseapi.Signer
	owners leaseapi.Owners
	tokens leaseapi.AuthenticatorFunc
	server func(*http.Server)
	// revoked is told of revocations.
	revoked func()
}

func newHub(t *testing.T, d dials) *hub {
	t.Helper()
	h := &hub{clock: clocktesting.NewFakeClock(start), log: &syncBuffer{}}
	logger := slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))

	engine := lease.New(lease.Options{IDs: lease.NewRandomIDs(rand.Reader), Epoch: 12, StartedAt: start, HistoryComplete: true})
	h.keeper = keeper.New(keeper.Options{Engine: engine, Journal: keeper.NewMemory(keeper.MemoryOptions{}), Clock: h.clock})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.keeper.Run(ctx) }()
	<-h.keeper.Ready()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("keeper: %v", err)
		}
	})

	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := credential.NewSigner(credential.SignerOptions{Key: private, Use: credential.UseLease, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if h.keys, err = credential.NewKeySet(signer.PublicKey()); err != nil {
		t.Fatal(err)
	}
	shared, err := leaseapi.NewSharedSigner(signer, 1000)
	if err != nil {
		t.Fatal(err)
	}

	options := leaseapi.Options{Keeper: h.keeper, Authenticator: leaseapi.AuthenticatorFunc(tokens), Signer: shared, Logger: logger, Notices: h.keeper, Clock: h.clock}
	options.Owners, options.Revoked = d.owners, d.revoked
	if d.tokens != nil {
		options.Authenticator = d.tokens
	}
	if d.wrap != nil {
		options.Keeper = d.wrap(h.keeper)
	}
	if d.signer != nil {
		options.Signer = d.signer
	}
	handler, err := leaseapi.New(options)
	if err != nil {
		t.Fatal(err)
	}
	h.handler = handler
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	if d.server != nil {
		d.server(server.Config)
	}
	server.Config.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelError)
	server.StartTLS()
	t.Cleanup(func() {
		if err := handler.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	h.url, h.tls = server.URL, server.TLS
	h.http2 = server.Client()
	transport := h.http2.Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2 = false
	transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	h.http1 = &http.Client{Transport: transport}
	t.Cleanup(h.http1.CloseIdleConnections)
	t.Cleanup(func() { h.noSecrets(t) })
	return h
}

func (h *hub) noSecrets(t *testing.T) {
	t.Helper()
	for _, secret := range []string{newsToken, otherToken, weatherToken, brokenToken} {
		if strings.Contains(h.log.String(), secret) {
			t.Errorf("the log holds the bearer token %q:\n%s", secret, h.log)
		}
	}
}

func tokens(_ context.Context, bearer string) (leaseapi.Caller, error) {
	only := func(fleets ...string) func(context.Context, string) (bool, error) {
		return func(_ context.Context, fleet string) (bool, error) { return slices.Contains(fleets, fleet), nil }
	}
	switch bearer {
	case newsToken:
		return leaseapi.Caller{Principal: "token:news", AllowsFleet: only("crawl/news", "crawl/empty", "crawl/gone")}, nil
	case otherToken:
		return leaseapi.Caller{Principal: "token:other", AllowsFleet: only("crawl/news")}, nil
	case weatherToken:
		return leaseapi.Caller{Principal: "token:weather", AllowsFleet: only("crawl/weather")}, nil
	case brokenToken:
		return leaseapi.Caller{}, fmt.Errorf("look up %q: the cache is not synced", bearer)
	default:
		return leaseapi.Caller{}, fmt.Errorf("hash not found: %w", leaseapi.ErrUnknownToken)
	}
}

// do carries out inventory commands, as the feed does.
func (h *hub) do(t *testing.T, cmds ...lease.Command) {
	t.Helper()
	for _, cmd := range cmds {
		if _, err := h.keeper.Do(t.Context(), cmd); err != nil {
			t.Fatalf("%T: %v", cmd, err)
		}
	}
}

// must carries out a command that is not refused.
func (h *hub) must(t *testing.T, cmd lease.Command) lease.Result {
	t.Helper()
	result, err := h.keeper.Do(t.Context(), cmd)
	if err != nil {
		t.Fatalf("%T: %v", cmd, err)
	}
	return result
}

// news makes the fleet crawl/news with n proxies of slots leases each, each with an exit of its own.
func (h *hub) news(t *testing.T, n, slots int) {
	t.Helper()
	h.do(t, lease.SetFleet{Fleet: lease.Fleet{ID: "crawl/news", Policy: lease.Policy{
		MaxLeasesPerProxy: slots, DefaultTTL: 10 * time.Minute, MaxTTL: 30 * time.Minute, MaxLifetime: time.Hour,
	}}})
	for i := range n {
		h.do(t, lease.UpsertProxy{Proxy: newsProxy(i)})
	}
}

func newsProxy(i int) lease.Proxy {
	return lease.Proxy{
		UID: uid(i), Fleet: "crawl/news", Member: "east", Name: fmt.Sprintf("px-%d", i),
		Region: "us-east1", Country: "US", Labels: map[string]string{"tier": []string{"fast", "slow"}[i%2]},
		Endpoints: []lease.Endpoint{
			{Network: "HostPort", Host: "198.51.100.7", Port: uint16(21000 + i)},
			{Network: "PodIP", Host: fmt.Sprintf("2001:db8:1::%x", i+1), Port: 3128},
		},
		Exits: []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(9 + i)}), netip.MustParseAddr(fmt.Sprintf("2001:db8:9:%x::1", i+1))},
		Ready: true,
	}
}

func uid(i int) lease.ProxyUID {
	return lease.ProxyUID(fmt.Sprintf("0c7a1c52-0000-4000-8000-%012d", i))
}

// syncBuffer is a log that a test can read while a server writes.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
