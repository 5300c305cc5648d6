// Package crawlers_test plays crawlers: the Go client and the snippets of docs/leasing.md, against the real lease API with
// the real engine, real Squids that let leases in by the real auth program, and a site that sees where requests come
// from.
package crawlers_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	"github.com/shoal-dev/shoal/proto/credential"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
	"github.com/shoal-dev/shoal/proto/leaseclient"
)

const token = "secret-of-the-crawler"

// world is a hub with the fleet crawl/news, whose proxies are Squids on loopback, and a site to fetch from.
type world struct {
	hub     string // URL of the lease API
	http    *http.Client
	caFile  string // who vouches for the hub and for the site
	service leasev1connect.LeaseServiceClient
	keeper  *recorder
	site    *site
	exits   []string // of the proxies
	squids  *squids
	t       *testing.T
}

// proxyKind is what is wrong with a proxy.
type proxyKind int

const (
	good    proxyKind = iota
	strange           // lets other leases in: it takes itself for another proxy
	down              // nobody listens
)

func newWorld(t *testing.T, kinds ...proxyKind) *world {
	t.Helper()
	w := &world{t: t, site: newSite(t)}
	engine := lease.New(lease.Options{IDs: lease.NewRandomIDs(rand.Reader), Epoch: 1, StartedAt: time.Now(), HistoryComplete: true})
	kept := keeper.New(keeper.Options{Engine: engine, Journal: keeper.NewMemory(keeper.MemoryOptions{}), Clock: clock.RealClock{}})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- kept.Run(ctx) }()
	<-kept.Ready()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("keeper: %v", err)
		}
	})
	w.keeper = &recorder{next: kept, seen: make(chan lease.Command, 1000)}

	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := credential.NewSigner(credential.SignerOptions{Key: private, Use: credential.UseLease, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := leaseapi.NewSharedSigner(signer, 100)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := leaseapi.New(leaseapi.Options{
		Keeper: w.keeper, Notices: kept, Signer: shared, Logger: slog.New(slog.DiscardHandler),
		Authenticator: leaseapi.AuthenticatorFunc(func(_ context.Context, bearer string) (leaseapi.Caller, error) {
			if bearer != token {
				return leaseapi.Caller{}, leaseapi.ErrUnknownToken
			}
			return leaseapi.Caller{Principal: "token:news", AllowsFleet: func(context.Context, string) (bool, error) { return true, nil }}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		if err := handler.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	w.hub, w.http = server.URL, server.Client()
	w.caFile = filepath.Join(t.TempDir(), "ca.pem")
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(w.caFile, bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	if w.service, err = (leaseclient.Hub{URL: server.URL, Token: leaseclient.Token(token), HTTP: server.Client()}).Service(); err != nil {
		t.Fatal(err)
	}

	w.do(lease.SetFleet{Fleet: lease.Fleet{ID: "crawl/news", Policy: lease.Policy{
		MaxLeasesPerProxy: 20, DefaultTTL: 10 * time.Minute, MaxTTL: 30 * time.Minute, MaxLifetime: time.Hour,
	}}})
	w.squids = newSquids(t, signer.PublicKey())
	for i, kind := range kinds {
		w.proxy(i, kind)
	}
	return w
}

// proxy runs a Squid and tells the hub of it. Each leaves by an address of its own.
func (w *world) proxy(i int, kind proxyKind) {
	uid := fmt.Sprintf("0c7a1c52-0000-4000-8000-%012d", i)
	exit := netip.AddrFrom4([4]byte{127, 0, 1, byte(i + 1)})
	var port uint16
	switch kind {
	case good:
		port = w.squids.run(w.t, uid, exit)
	case strange:
		port = w.squids.run(w.t, "ffffffff-0000-4000-8000-000000000000", exit)
	case down:
		port = freePort(w.t)
	}
	w.exits = append(w.exits, exit.String())
	w.do(lease.UpsertProxy{Proxy: lease.Proxy{
		UID: lease.ProxyUID(uid), Fleet: "crawl/news", Member: "east", Name: fmt.Sprintf("px-%d", i), Region: "us-east1",
		Endpoints: []lease.Endpoint{{Network: "HostPort", Host: "127.0.0.1", Port: port}},
		Exits:     []netip.Addr{exit}, Ready: true,
	}})
}

// do carries out inventory commands, as the feed does.
func (w *world) do(cmds ...lease.Command) {
	w.t.Helper()
	for _, cmd := range cmds {
		if _, err := w.keeper.next.Do(w.t.Context(), cmd); err != nil {
			w.t.Fatalf("%T: %v", cmd, err)
		}
	}
}

// client makes a client that is closed in the end, after which nothing is leased.
func (w *world) client(o leaseclient.Options) *leaseclient.Client {
	w.t.Helper()
	o.Service = w.service
	c, err := leaseclient.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			w.t.Errorf("Close: %v", err)
		}
		if n := w.leased(ctx); n != 0 {
			w.t.Errorf("%d leases are held after Close", n)
		}
	})
	return c
}

// leased counts the leases that the hub knows.
func (w *world) leased(ctx context.Context) (n int) {
	w.t.Helper()
	answer, err := w.service.ListProxies(ctx, &leasev1.ListProxiesRequest{Fleet: "crawl/news"})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range answer.GetProxies() {
		n += int(p.GetLeased())
	}
	return n
}

// browser is an HTTP client that leases, and trusts the site.
func (w *world) browser(c *leaseclient.Client, o leaseclient.TransportOptions) *http.Client {
	w.t.Helper()
	o.Client, o.Fleet = c, "crawl/news"
	o.Base = w.site.secure.Client().Transport.(*http.Transport).Clone()
	transport, err := leaseclient.NewTransport(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// recorder passes on commands and remembers them.
type recorder struct {
	next leaseapi.Keeper
	seen chan lease.Command
}

// Do implements leaseapi.Keeper.
func (r *recorder) Do(ctx context.Context, cmd lease.Command) (lease.Result, error) {
	result, err := r.next.Do(ctx, cmd)
	select {
	case r.seen <- cmd:
	default: // Nobody looks any more.
	}
	return result, err
}

// site is what crawlers fetch from, over HTTP and HTTPS. A page's title is the address that it was asked from.
type site struct {
	plain, secure *httptest.Server

	mu     sync.Mutex
	banned map[string]int // status by exit
	asked  []string       // exits, in order
	hold   chan struct{}  // ends /slow
	conns  map[net.Conn]bool
	fewer  chan struct{} // gets something when a connection has ended
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{banned: map[string]int{}, hold: make(chan struct{}), conns: map[net.Conn]bool{}, fewer: make(chan struct{}, 1)}
	s.plain, s.secure = httptest.NewServer(s), httptest.NewUnstartedServer(s)
	s.secure.EnableHTTP2 = true
	s.secure.Config.ConnState = s.connState
	s.secure.StartTLS()
	t.Cleanup(s.plain.Close)
	t.Cleanup(s.secure.Close)
	return s
}

// ServeHTTP implements [http.Handler].
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	exit, _, _ := net.SplitHostPort(r.RemoteAddr)
	if r.URL.Path == "/favicon.ico" {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	s.asked = append(s.asked, exit)
	status := s.banned[exit]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/html")
	if status != 0 {
		w.WriteHeader(status)
	}
	fmt.Fprintf(w, "<title>%s</title>", exit)
	if r.URL.Path == "/slow" {
		w.(http.Flusher).Flush()
		<-s.hold
		fmt.Fprint(w, "the end")
	}
}

func (s *site) connState(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[conn] = true
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, conn)
		select {
		case s.fewer <- struct{}{}:
		default:
		}
	default:
	}
}

// awaitNoTunnel waits until no connection by HTTPS is open.
func (s *site) awaitNoTunnel(t *testing.T) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		s.mu.Lock()
		n := len(s.conns)
		s.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-s.fewer:
		case <-timeout:
			t.Fatalf("%d tunnels of ended leases are open", n)
		}
	}
}

// ban answers an exit with a status.
func (s *site) ban(exit string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.banned[exit] = status
}

// visitors are the exits that asked so far, and forgets them.
func (s *site) visitors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}
