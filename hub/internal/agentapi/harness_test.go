package agentapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectinprocess"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/dispatch"
	"github.com/shoal-dev/shoal/hub/internal/identity"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1/agentv1connect"
	"github.com/shoal-dev/shoal/proto/session"
	"github.com/shoal-dev/shoal/proto/session/pump"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// state is something that is guarded and can be waited for.
type state struct {
	mu      sync.Mutex
	changed chan struct{}
}

// change changes what is guarded.
func (s *state) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// await waits until is tells that something is so.
func (s *state) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	expired := time.NewTimer(patience)
	defer expired.Stop()
	for {
		s.mu.Lock()
		if is() {
			s.mu.Unlock()
			return
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-expired.C:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// fakeInventory remembers what it is told.
type fakeInventory struct {
	state
	// said are the calls, but for those that only say that a member is alive.
	said    []string
	heard   map[string]int
	proxies map[string]map[string]*agentv1.ProxyReport
	doubts  int
}

func newFakeInventory() *fakeInventory {
	return &fakeInventory{heard: map[string]int{}, proxies: map[string]map[string]*agentv1.ProxyReport{}}
}

func (f *fakeInventory) say(format string, args ...any) {
	f.change(func() { f.said = append(f.said, fmt.Sprintf(format, args...)) })
}

func (f *fakeInventory) Connected(member string, s inventory.Session, _ time.Time) {
	f.say("connected %s epoch=%d instance=%s cluster=%s/%s", member, s.Epoch, s.Instance, s.ClusterUID, s.Namespace)
}

func (f *fakeInventory) Heard(member string, _ time.Time) { f.change(func() { f.heard[member]++ }) }

func (f *fakeInventory) Disconnected(member string, epoch uint64, _ time.Time) {
	f.say("disconnected %s epoch=%d", member, epoch)
}

func (f *fakeInventory) ObserveProxy(member, uid string, r *agentv1.ProxyReport, _ time.Time) {
	f.change(func() {
		if f.proxies[member] == nil {
			f.proxies[member] = map[string]*agentv1.ProxyReport{}
		}
		f.proxies[member][uid] = r
	})
}

func (f *fakeInventory) ObserveProxySet(member, placementUID string, r *agentv1.ProxySetReport, _ time.Time) {
	f.say("set %s %s ready=%d", member, placementUID, r.GetReady())
}

func (f *fakeInventory) Gone(member, uid string, _ time.Time) {
	f.change(func() { delete(f.proxies[member], uid) })
}

func (f *fakeInventory) Resynced(member string, _ time.Time) { f.say("resynced %s", member) }

func (f *fakeInventory) Doubted(string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubts--
	return f.doubts >= 0
}

func (f *fakeInventory) awaitSaid(t *testing.T, what string) {
	t.Helper()
	f.await(t, what, func() bool { return slices.Contains(f.said, what) })
}

// fakeMembership lets everybody in, unless told otherwise.
type fakeMembership struct {
	mu      sync.Mutex
	refusal error
	asked   []string
}

func (f *fakeMembership) Authorize(_ context.Context, agent, member string, id *agentv1.MemberIdentity) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf("%s for %s at %s", agent, member, id.GetClusterUid()))
	return "uid-of-" + member, f.refusal
}

func (f *fakeMembership) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal = err
}

// noCertificates stands in for calls that are not tried here.
type noCertificates struct {
	agentv1connect.UnimplementedAgentServiceHandler
}

// fakeHub is a service with all that is around it.
type fakeHub struct {
	*Service
	inventory  *fakeInventory
	dispatcher *dispatch.Dispatcher
	membership *fakeMembership
	leases     *fakeLeases
}

// fakeLeases says what it is told to.
type fakeLeases struct {
	mu      sync.Mutex
	leased  map[string][]string
	changed chan struct{}
}

func (f *fakeLeases) Leased(member string) (proxies []string, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leased[member], f.leased != nil
}

func (f *fakeLeases) Watch(string) (changed <-chan struct{}, cancel func()) {
	return f.changed, func() {}
}

func (f *fakeLeases) set(member string, proxies ...string) {
	f.mu.Lock()
	f.leased = map[string][]string{member: proxies}
	f.mu.Unlock()
	f.changed <- struct{}{}
}

func newFakeHub(t *testing.T, adjust func(*Options)) *fakeHub {
	t.Helper()
	h := &fakeHub{inventory: newFakeInventory(), dispatcher: dispatch.New(), membership: &fakeMembership{}, leases: &fakeLeases{changed: make(chan struct{}, 8)}}
	o := Options{
		HubUID: "hub-1", Membership: h.membership, Dispatcher: h.dispatcher, Inventory: h.inventory, Leases: h.leases,
		Certificates: noCertificates{}, Keys: func() []byte { return []byte("keys") }, Clock: clock.RealClock{},
	}
	if adjust != nil {
		adjust(&o)
	}
	var err error
	if h.Service, err = New(o); err != nil {
		t.Fatal(err)
	}
	return h
}

// inProcess returns a client without a network, for an agent of the name.
func (h *fakeHub) inProcess() agentv1connect.AgentServiceClient {
	server := connect.NewServer()
	agentv1connect.RegisterAgentServiceHandler(server, h)
	return agentv1connect.NewAgentServiceClient(connect.NewClient(connectinprocess.New(server)))
}

// network is a hub that serves on loopback.
type network struct {
	authority *identity.Authority
	address   string
	server    *http.Server
}

// listen serves the hub over TLS, as hub.Run does.
func (h *fakeHub) listen(t *testing.T) *network {
	t.Helper()
	n := &network{}
	var err error
	if n.authority, err = identity.NewAuthority("test", time.Now()); err != nil {
		t.Fatal(err)
	}
	serving, err := n.authority.IssueServing(time.Now(), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.address = listener.Addr().String()
	n.server = &http.Server{
		Handler: h.Handler(),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{*serving}, ClientCAs: n.authority.Pool(),
			ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS13,
		},
	}
	ConfigureServer(n.server)
	served := make(chan error, 1)
	go func() { served <- n.server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		if err := h.Shutdown(t.Context()); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("shutdown: %v", err)
		}
		_ = n.server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return n
}

// dial returns a client with the certificate of an agent, or without one if agent is empty, that reaches the hub at the
// address.
func (n *network) dial(t *testing.T, agent, address string) agentv1connect.AgentServiceClient {
	t.Helper()
	config := &tls.Config{RootCAs: n.authority.Pool(), MinVersion: tls.VersionTLS13}
	if agent != "" {
		config.Certificates = []tls.Certificate{n.certificate(t, agent)}
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: config, Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return agentv1connect.NewAgentServiceClient(connect.NewClient(
		// Without compression, what is sent is as much as it looks.
		connecthttp.NewTransport(&http.Client{Transport: transport}, "https://"+address, connecthttp.WithCompressors())))
}

func (n *network) certificate(t *testing.T, agent string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := n.authority.IssueAgent(time.Now(), csr, agent)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(chain, pemKey(keyDER))
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// fakeAgent is the other end of a session.
type fakeAgent struct {
	state
	kept     map[string]*agentv1.Upsert
	leased   []string
	welcome  *agentv1.Welcome
	resynced bool
	calls    chan pump.Call
	cancel   context.CancelFunc
	ended    chan struct{}
	err      error
}

// call begins a session for the member. Its items are put and complete at once unless incomplete is true.
func call(t *testing.T, client agentv1connect.AgentServiceClient, hello *agentv1.Hello, incomplete bool, items ...*agentv1.Upsert) *fakeAgent {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // ends in Cleanup, after the hub is told
	a := &fakeAgent{kept: map[string]*agentv1.Upsert{}, calls: make(chan pump.Call), cancel: cancel, ended: make(chan struct{})}
	stream, err := client.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if hello.GetInstance() == "" {
		hello.Instance = "i1"
	}
	if hello.GetIdentity() == nil {
		hello.Identity = &agentv1.MemberIdentity{ClusterUid: "c1", Namespace: "shoal"}
	}
	s := session.NewAgent(time.Now(), session.Config{}, hello)
	for _, item := range items {
		s.Put(item)
	}
	if !incomplete {
		s.Complete()
	}
	go func() {
		defer a.change(func() { close(a.ended) })
		a.err = pump.Run(ctx, pump.Options{
			Stream: pump.Stream{
				Send: func(f *agentv1.Frame) error { return stream.Send(&agentv1.SessionRequest{Frame: f}) },
				Receive: func() (*agentv1.Frame, error) {
					m, err := stream.Receive()
					return m.GetFrame(), err
				},
				// The transport does not look at the context while it waits for more to send.
				StopReceive: func() { cancel(); _ = stream.CloseSend() },
				Abort:       cancel,
			},
			Session: s, Handle: a.handle, Calls: a.calls,
		})
		cancel()
		_ = stream.Close()
	}()
	t.Cleanup(func() {
		cancel()
		<-a.ended
	})
	return a
}

func (a *fakeAgent) handle(now time.Time, s *session.Session, e session.Event) error {
	switch e := e.(type) {
	case session.Welcomed:
		a.change(func() { a.welcome = e.Welcome })
	case session.Leased:
		a.change(func() { a.leased = e.Proxies })
	case session.Apply:
		a.change(func() { a.kept[e.Upsert.GetUid()] = e.Upsert })
		s.Applied(now, e.Upsert.GetUid(), e.Upsert.GetSequence(), "")
	case session.Delete:
		a.change(func() { delete(a.kept, e.UID) })
		s.Applied(now, e.UID, e.Sequence, "")
	case session.Resynced:
		a.change(func() { a.resynced = true })
	}
	return nil
}

// do does something to the session.
func (a *fakeAgent) do(t *testing.T, do func(*session.Session)) {
	t.Helper()
	select {
	case a.calls <- func(_ time.Time, s *session.Session) error { do(s); return nil }:
	case <-a.ended:
		t.Fatalf("the session is over: %v", a.err)
	}
}

func (a *fakeAgent) awaitWelcome(t *testing.T) *agentv1.Welcome {
	t.Helper()
	a.await(t, "welcome", func() bool { return a.welcome != nil })
	return a.welcome
}

// awaitEnd returns the code that the session ended with, and its error.
func (a *fakeAgent) awaitEnd(t *testing.T) (connect.Code, *connect.Error) {
	t.Helper()
	expired := time.NewTimer(patience)
	defer expired.Stop()
	select {
	case <-a.ended:
	case <-expired.C:
		t.Fatal("the session does not end")
	}
	var status *connect.Error
	if !errors.As(a.err, &status) {
		t.Fatalf("the session ended with %v", a.err)
	}
	return status.Code(), status
}

func (a *fakeAgent) keeps() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.kept))
}

func proxy(uid string, ready bool) *agentv1.Upsert {
	return &agentv1.Upsert{
		Uid: uid, Generation: 1, Hash: fmt.Sprint(ready),
		Body: &agentv1.Upsert_Proxy{Proxy: &agentv1.ProxyReport{Name: uid, Ready: ready}},
	}
}
