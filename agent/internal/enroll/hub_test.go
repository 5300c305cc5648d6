package enroll_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/shoal-dev/shoal/agent/internal/enroll"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1/agentv1connect"
)

// authority is a certificate authority as a hub has one.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test hub"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t: t, key: key, cert: cert}
}

func (a *authority) pin() string {
	sum := sha256.Sum256(a.cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (a *authority) bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *authority) sign(public any, template *x509.Certificate) []byte {
	a.t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

// agentLife is how long certificates of the test's hubs live.
const agentLife = 24 * time.Hour

func (a *authority) agent(csr []byte, name string) ([]byte, error) {
	request, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, err
	}
	der := a.sign(request.PublicKey, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now(), NotAfter: time.Now().Add(agentLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func (a *authority) serving(name string) *tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "hub"}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	return &tls.Certificate{Certificate: [][]byte{a.sign(key.Public(), template), a.cert.Raw}, PrivateKey: key}
}

// hub is the agents' listener of a hub, on pipes instead of sockets, so that it can live in a synctest bubble.
type hub struct {
	agentv1connect.UnimplementedAgentServiceHandler
	pipes chan net.Conn

	mu sync.Mutex
	// authority signs, and its certificate is the bundle.
	authority *authority
	// refuse is what every call is answered with; nil for none.
	refuse error
	// down refuses connections.
	down bool
	// serving is what the listener shows.
	serving *tls.Certificate
	// clients is what client certificates are verified with.
	clients *x509.CertPool

	// speaksAs is the name that Register answers with; the member's and a number where it is empty.
	speaksAs string

	registered     []*agentv1.RegisterRequest
	hadCertificate bool
	renewedBy      []*x509.Certificate
	attempts       []time.Time
}

const hubName = "hub.example"

func startHub(t *testing.T, a *authority) *hub {
	t.Helper()
	h := &hub{pipes: make(chan net.Conn), authority: a, serving: a.serving(hubName), clients: a.pool()}
	server := connect.NewServer()
	agentv1connect.RegisterAgentServiceHandler(server, h)
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	web := &http.Server{
		Handler:  mux,
		ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				h.mu.Lock()
				defer h.mu.Unlock()
				return &tls.Config{
					MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*h.serving},
					ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: h.clients, NextProtos: []string{"h2", "http/1.1"},
				}, nil
			},
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = web.ServeTLS(h, "", "")
	}()
	t.Cleanup(func() {
		_ = web.Close()
		<-done
	})
	return h
}

func (h *hub) set(change func(*hub)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h)
}

// registrations counts the calls of Register.
func (h *hub) registrations() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.registered)
}

// lastRegistration is the last call of Register, and whether it came with a certificate.
func (h *hub) lastRegistration() (req *agentv1.RegisterRequest, certified bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.registered[len(h.registered)-1], h.hadCertificate
}

func (h *hub) firstRegistration() *agentv1.RegisterRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.registered[0]
}

// renewals are the certificates that were renewed.
func (h *hub) renewals() []*x509.Certificate {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.renewedBy)
}

// dials counts the attempts to connect.
func (h *hub) dials() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.attempts)
}

// Accept, Close and Addr make the hub a net.Listener.
func (h *hub) Accept() (net.Conn, error) {
	conn, ok := <-h.pipes
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (h *hub) Close() error {
	close(h.pipes)
	return nil
}

func (h *hub) Addr() net.Addr { return &net.TCPAddr{} }

// dial is the agent's way to the hub.
func (h *hub) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	h.mu.Lock()
	h.attempts = append(h.attempts, time.Now())
	down := h.down
	h.mu.Unlock()
	if down {
		return nil, net.ErrClosed
	}
	near, far := net.Pipe()
	select {
	case h.pipes <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *hub) Register(ctx context.Context, req *agentv1.RegisterRequest) (*agentv1.RegisterResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.registered = append(h.registered, req)
	info, _ := connecthttp.ServerInfoForContext(ctx)
	h.hadCertificate = len(info.TLS().PeerCertificates) > 0
	if h.refuse != nil {
		return nil, h.refuse
	}
	name := req.GetMember() + "-01"
	if h.speaksAs != "" {
		name = h.speaksAs
	}
	chain, err := h.authority.agent(req.GetCsr(), name)
	if err != nil {
		return nil, err
	}
	return &agentv1.RegisterResponse{CertificateChain: chain, CaBundle: h.authority.bundle(), AgentName: name, HubUid: "hub-uid"}, nil
}

func (h *hub) Renew(ctx context.Context, req *agentv1.RenewRequest) (*agentv1.RenewResponse, error) {
	info, _ := connecthttp.ServerInfoForContext(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse != nil {
		return nil, h.refuse
	}
	peers := info.TLS().PeerCertificates
	if len(peers) == 0 {
		return nil, connect.NewError(connect.CodeUnauthenticated, "no certificate")
	}
	h.renewedBy = append(h.renewedBy, peers[0])
	chain, err := h.authority.agent(req.GetCsr(), peers[0].Subject.CommonName)
	if err != nil {
		return nil, err
	}
	return &agentv1.RenewResponse{CertificateChain: chain, CaBundle: h.authority.bundle()}, nil
}

// memoryStore is a Store that counts.
type memoryStore struct {
	mu    sync.Mutex
	state *enroll.State
	saves int
	fail  error
}

func (s *memoryStore) Load(context.Context) (enroll.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return enroll.State{}, s.fail
	}
	if s.state == nil {
		return enroll.State{}, enroll.ErrNoState
	}
	return *s.state, nil
}

func (s *memoryStore) Save(_ context.Context, state enroll.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.state = &state
	s.saves++
	return nil
}

func (s *memoryStore) saved() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saves
}

func (s *memoryStore) set(change func(*memoryStore)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// buffer is a log that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// token is what the tests join with.
const token = "0123456789ab.averysecretsecretaverysecretsecretaverysecretsecrets"

// agent is an Enroller and what it was made with.
type agent struct {
	*enroll.Enroller
	store *memoryStore
	log   *buffer
}

func newAgent(t *testing.T, h *hub, change func(*enroll.Options)) *agent {
	t.Helper()
	a := &agent{store: &memoryStore{}, log: &buffer{}}
	options := enroll.Options{
		HubURL: "https://" + hubName + ":8443", CAPin: h.authority.pin(), Token: token, Member: "east",
		Identity: &agentv1.MemberIdentity{ClusterUid: "uid", Namespace: "shoal-system"},
		Region:   "r1", Country: "DE", Version: "v1",
		Store: a.store, Dial: h.dial, Rand: func() float64 { return 0.5 },
		Logger: slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&options)
	}
	if store, ok := options.Store.(*memoryStore); ok {
		a.store = store
	}
	enroller, err := enroll.New(options)
	if err != nil {
		t.Fatal(err)
	}
	a.Enroller = enroller
	return a
}
