package agentapi_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/agentapi"
	"github.com/shoal-dev/shoal/hub/internal/apiserver"
	"github.com/shoal-dev/shoal/hub/internal/dispatch"
	"github.com/shoal-dev/shoal/hub/internal/identity"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1/agentv1connect"
)

// registerNamespace is where the hub of TestRegister lives.
const registerNamespace = "default"

var registerStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// registerHub is the agents' listener of a hub over real TLS, on a real API server, by a clock of the test's own.
type registerHub struct {
	t      *testing.T
	client client.Client
	hub    *identity.Hub
	clock  *clocktesting.FakeClock
	url    string
	log    *lockedBuffer
	// secrets are texts that may appear nowhere.
	secrets []string
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func startRegisterHub(t *testing.T) *registerHub {
	t.Helper()
	c := apiserver.Start(t).Client
	h := &registerHub{t: t, client: c, clock: clocktesting.NewFakeClock(registerStart), log: new(lockedBuffer)}
	var err error
	if h.hub, _, err = identity.EnsureHub(t.Context(), c, registerNamespace, h.clock.Now()); err != nil {
		t.Fatal(err)
	}
	var secret corev1.Secret
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: registerNamespace, Name: identity.HubSecretName}, &secret); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"ca.key", "lease.key"} {
		block, _ := pem.Decode(secret.Data[key])
		h.secrets = append(h.secrets, string(block.Bytes), strings.Split(string(secret.Data[key]), "\n")[1])
	}
	h.serve()
	return h
}

func (h *registerHub) serve() {
	t := h.t
	t.Helper()
	logger := slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	membership := identity.NewMembership(identity.MembershipOptions{Client: h.client, Cache: h.client})
	registrar, err := agentapi.NewRegistrar(agentapi.RegistrarOptions{
		HubUID: h.hub.UID(),
		Tokens: identity.NewJoinTokens(identity.JoinTokensOptions{Reader: h.client, Namespace: registerNamespace, Clock: h.clock}),
		Claims: membership,
		Issuer: h.hub.Authority(),
		Clock:  h.clock,
		Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	service, err := agentapi.New(agentapi.Options{
		HubUID:       h.hub.UID(),
		Membership:   membership,
		Dispatcher:   dispatch.New(),
		Inventory:    inventory.New(inventory.Options{Clock: h.clock}),
		Leases:       noLeases{},
		Certificates: registrar,
		Keys:         func() []byte { return nil },
		Clock:        h.clock,
		Logger:       logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	serving, err := identity.NewServing(h.hub.Authority(), []string{"127.0.0.1"}, h.clock)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: service.Handler(), TLSConfig: serving.AgentTLS(), ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelInfo)}
	agentapi.ConfigureServer(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(listener, "", "")
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	h.url = "https://" + listener.Addr().String()
}

// dial returns a client that trusts the hub and shows the certificate, if one is given.
func (h *registerHub) dial(certificates ...tls.Certificate) agentv1connect.AgentServiceClient {
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		RootCAs: h.hub.Authority().Pool(), Certificates: certificates, Time: h.clock.Now, MinVersion: tls.VersionTLS13,
	}}
	h.t.Cleanup(transport.CloseIdleConnections)
	return agentv1connect.NewAgentServiceClient(connect.NewClient(connecthttp.NewTransport(&http.Client{Transport: transport}, h.url)))
}

func (h *registerHub) token(grant identity.JoinGrant, ttl time.Duration) string {
	h.t.Helper()
	token, text, err := identity.NewJoinToken(h.clock.Now(), grant, ttl)
	if err != nil {
		h.t.Fatal(err)
	}
	secret, err := token.Secret(registerNamespace)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := h.client.Create(h.t.Context(), secret); err != nil {
		h.t.Fatal(err)
	}
	_, hidden, _ := strings.Cut(text.Reveal(), ".")
	h.secrets = append(h.secrets, hidden, string(secret.Data["hash"]))
	return text.Reveal()
}

func cluster(uid string) *agentv1.MemberIdentity {
	return &agentv1.MemberIdentity{ClusterUid: uid, Namespace: "shoal-system"}
}

func request(t *testing.T, subject string) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: subject}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return key, csr
}

func pair(t *testing.T, chain []byte, key *ecdsa.PrivateKey) tls.Certificate {
	t.Helper()
	certificate := tls.Certificate{PrivateKey: key}
	for rest := chain; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate.Certificate = append(certificate.Certificate, block.Bytes)
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	certificate.Leaf = leaf
	return certificate
}

// noLeases knows of none.
type noLeases struct{}

func (noLeases) Leased(string) (proxies []string, known bool)          { return nil, false }
func (noLeases) Watch(string) (changed <-chan struct{}, cancel func()) { return nil, func() {} }

// TestRegister has the tests of Register and Renew, which share an API server.
func TestRegister(t *testing.T) {
	h := startRegisterHub(t)
	t.Run("JoinAndRenew", h.joinAndRenew)
	t.Run("Refusals", h.refusals)
	t.Run("JoinFurther", h.joinFurther)
	t.Run("Acceptance", h.acceptance)
	t.Run("RenewNeedsOurCertificate", h.renewNeedsOurCertificate)
	t.Run("Rate", h.rate)
	t.Run("SecretsStaySecret", func(t *testing.T) {
		log := h.log.String()
		if !strings.Contains(log, "agent registered") || !strings.Contains(log, "agent refused") {
			t.Fatalf("the log has not what it should have:\n%s", log)
		}
		for _, secret := range h.secrets {
			if strings.Contains(log, secret) {
				t.Errorf("the log shows a secret")
			}
		}
	})
}

func (h *registerHub) joinAndRenew(t *testing.T) {
	token := h.token(identity.JoinGrant{Members: []string{"east"}, Accept: true}, time.Hour)
	key, csr := request(t, "system:masters")
	register := &agentv1.RegisterRequest{Token: token, Csr: csr, Member: "east", Identity: cluster("uid-east"), Region: "us-east1", AgentVersion: "v1"}
	answer, err := h.dial().Register(t.Context(), register)
	if err != nil {
		t.Fatal(err)
	}
	first := pair(t, answer.GetCertificateChain(), key)
	if got, err := identity.AgentOf(first.Leaf); err != nil || got != answer.GetAgentName() || first.Leaf.Subject.CommonName == "system:masters" {
		t.Errorf("the certificate is for %q (%v), the answer for %q", got, err, answer.GetAgentName())
	}
	if answer.GetHubUid() != h.hub.UID() || !bytes.Equal(answer.GetCaBundle(), h.hub.Authority().Bundle()) {
		t.Error("the answer is of another hub")
	}
	var member v1alpha1.MemberCluster
	if err := h.client.Get(t.Context(), client.ObjectKey{Name: "east"}, &member); err != nil {
		t.Fatal(err)
	}
	if member.Spec.AgentRef == nil || member.Spec.AgentRef.Name != answer.GetAgentName() || member.Spec.Region != "us-east1" {
		t.Errorf("MemberCluster spec = %+v", member.Spec)
	}

	// An installation that was interrupted goes on: the same cluster, another key, the same name.
	_, csr = request(t, "")
	register.Csr = csr
	again, err := h.dial().Register(t.Context(), register)
	if err != nil || again.GetAgentName() != answer.GetAgentName() {
		t.Errorf("registering again: %q, %v; want %q", again.GetAgentName(), err, answer.GetAgentName())
	}

	// 19 of 24 hours later the token has ended and the certificate is enough.
	h.clock.Step(19 * time.Hour)
	nextKey, csr := request(t, "somebody-else")
	renewed, err := h.dial(first).Renew(t.Context(), &agentv1.RenewRequest{Csr: csr})
	if err != nil {
		t.Fatal(err)
	}
	second := pair(t, renewed.GetCertificateChain(), nextKey)
	if got, err := identity.AgentOf(second.Leaf); err != nil || got != answer.GetAgentName() {
		t.Errorf("the next certificate is for %q (%v), want %q", got, err, answer.GetAgentName())
	}
	if got := second.Leaf.NotAfter.Sub(h.clock.Now()); got != 24*time.Hour {
		t.Errorf("the next certificate lives %v, want 24h", got)
	}
	h.clock.Step(6 * time.Hour)
	_, csr = request(t, "")
	if _, err := h.dial(first).Renew(t.Context(), &agentv1.RenewRequest{Csr: csr}); err == nil {
		t.Error("an expired certificate was renewed")
	}
	if _, err := h.dial(second).Renew(t.Context(), &agentv1.RenewRequest{Csr: csr}); err != nil {
		t.Errorf("the next certificate does not work: %v", err)
	}
	if _, err := h.dial(second).Renew(t.Context(), &agentv1.RenewRequest{Csr: []byte("x")}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a bad request is answered with %v, want InvalidArgument", err)
	}
}

func (h *registerHub) refusals(t *testing.T) {
	accepting := h.token(identity.JoinGrant{Members: []string{"west", "north"}, Accept: true}, 24*time.Hour)
	waiting := h.token(identity.JoinGrant{Members: []string{"south"}}, 24*time.Hour)
	short := h.token(identity.JoinGrant{Members: []string{"short"}, Accept: true}, time.Minute)
	h.clock.Step(time.Minute)
	_, csr := request(t, "west")
	good := func() *agentv1.RegisterRequest {
		return &agentv1.RegisterRequest{Token: accepting, Csr: csr, Member: "west", Identity: cluster("uid-west")}
	}
	if _, err := h.dial().Register(t.Context(), good()); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		change func(*agentv1.RegisterRequest)
		code   connect.Code
		says   string
	}{
		"NoToken":      {"anybody can reach the listener", func(r *agentv1.RegisterRequest) { r.Token = "" }, connect.CodeUnauthenticated, "shoalctl member join-token"},
		"OtherSecret":  {"the id is in the open", func(r *agentv1.RegisterRequest) { r.Token = accepting[:13] + strings.Repeat("a", 52) }, connect.CodeUnauthenticated, "make another"},
		"ExpiredToken": {"it lies in somebody's shell history", func(r *agentv1.RegisterRequest) { r.Token, r.Member = short, "short" }, connect.CodeUnauthenticated, "ended at"},
		"OtherMember":  {"a token is bound to its members", func(r *agentv1.RegisterRequest) { r.Member = "east" }, connect.CodePermissionDenied, "is for west, north"},
		"OtherCluster": {"the name is taken", func(r *agentv1.RegisterRequest) { r.Identity = cluster("uid-else") }, connect.CodeAlreadyExists, "kubectl delete membercluster west"},
		"SecondName":   {"one cluster, two agents over one namespace", func(r *agentv1.RegisterRequest) { r.Member = "north" }, connect.CodeAlreadyExists, `member "west" already`},
		"BadCSR":       {"there is no key to certify", func(r *agentv1.RegisterRequest) { r.Csr = []byte("hello") }, connect.CodeInvalidArgument, "PKCS #10"},
		"NoIdentity":   {"it could not be told from another", func(r *agentv1.RegisterRequest) { r.Identity = nil }, connect.CodeInvalidArgument, "kube-system"},
		"LongRegion":   {"nothing needs it", func(r *agentv1.RegisterRequest) { r.Region = strings.Repeat("x", 10_000) }, connect.CodeInvalidArgument, "at most"},
		"WaitsForPerson": {"nobody has accepted it", func(r *agentv1.RegisterRequest) {
			r.Token, r.Member, r.Identity = waiting, "south", cluster("uid-south")
		}, connect.CodeFailedPrecondition, `kubectl patch membercluster south --type merge -p '{"spec":{"accepted":true}}'`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h.clock.Step(time.Second) // for the limit of the rate
			req := good()
			c.change(req)
			_, err := h.dial().Register(t.Context(), req)
			if got := connect.CodeOf(err); err == nil || got != c.code {
				t.Fatalf("%s: got %v, want %v", c.reason, err, c.code)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %q; it should say %q", err, c.says)
			}
			// The cluster that has a name is no secret, but who knows it can claim to be it.
			for _, secret := range append([]string{"uid-west"}, h.secrets...) {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error shows too much: %v", err)
				}
			}
		})
	}
}

func (h *registerHub) acceptance(t *testing.T) {
	token := h.token(identity.JoinGrant{Members: []string{"pole"}}, time.Hour)
	_, csr := request(t, "")
	req := &agentv1.RegisterRequest{Token: token, Csr: csr, Member: "pole", Identity: cluster("uid-pole")}
	if _, err := h.dial().Register(t.Context(), req); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Fatalf("before it is accepted: %v, want FailedPrecondition", err)
	}
	member := &v1alpha1.MemberCluster{}
	member.Name = "pole"
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"accepted":true}}`))
	if err := h.client.Patch(t.Context(), member, patch); err != nil {
		t.Fatal(err)
	}
	if _, err := h.dial().Register(t.Context(), req); err != nil {
		t.Errorf("after it is accepted: %v", err)
	}
}

func (h *registerHub) renewNeedsOurCertificate(t *testing.T) {
	_, csr := request(t, "")
	renew := &agentv1.RenewRequest{Csr: csr}
	if _, err := h.dial().Renew(t.Context(), renew); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("without a certificate: %v, want Unauthenticated", err)
	}
	listener, err := h.hub.Authority().IssueServing(h.clock.Now(), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.dial(*listener).Renew(t.Context(), renew); err == nil {
		t.Error("a listener's certificate was taken for an agent's")
	}
	other, err := identity.NewAuthority("other", h.clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	key, csr := request(t, "")
	chain, err := other.IssueAgent(h.clock.Now(), csr, "east")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.dial(pair(t, chain, key)).Renew(t.Context(), renew); err == nil {
		t.Error("another authority's certificate was taken")
	}
	if chain, err = h.hub.Authority().IssueAgent(h.clock.Now(), csr, "nobody"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.dial(pair(t, chain, key)).Renew(t.Context(), renew); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("an agent without a member: %v, want PermissionDenied", err)
	}
}

func (h *registerHub) rate(t *testing.T) {
	caller := h.dial()
	limited := 0
	for range 80 {
		_, err := caller.Register(t.Context(), &agentv1.RegisterRequest{Member: "east"})
		switch connect.CodeOf(err) {
		case connect.CodeResourceExhausted:
			limited++
		case connect.CodeUnauthenticated:
		default:
			t.Fatalf("got %v", err)
		}
	}
	if limited < 30 {
		t.Errorf("%d of 80 calls at once were turned away, want at least 30", limited)
	}
	h.clock.Step(time.Minute)
	if _, err := caller.Register(t.Context(), &agentv1.RegisterRequest{Member: "east"}); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a minute later: %v, want to be heard again", err)
	}
}

// joinFurther has an agent register for a second member, by the certificate that it got for the first.
func (h *registerHub) joinFurther(t *testing.T) {
	token := h.token(identity.JoinGrant{Members: []string{"home", "gce-eu"}, Accept: true}, time.Hour)
	key, csr := request(t, "")
	answer, err := h.dial().Register(t.Context(), &agentv1.RegisterRequest{Token: token, Csr: csr, Member: "home", Identity: cluster("uid-home")})
	if err != nil {
		t.Fatal(err)
	}
	mine := pair(t, answer.GetCertificateChain(), key)
	join := func(member, region, token string) (*agentv1.RegisterResponse, error) {
		h.clock.Step(time.Second) // for the limit of the rate
		id := cluster("uid-home")
		id.Project, id.Region = "my-project", region
		_, csr := request(t, "")
		return h.dial(mine).Register(t.Context(), &agentv1.RegisterRequest{Token: token, Csr: csr, Member: member, Identity: id})
	}
	further, err := join("gce-eu", "europe-west4", token)
	if err != nil || further.GetAgentName() != answer.GetAgentName() {
		t.Fatalf("a further member is agent %q's, %v; want %q's", further.GetAgentName(), err, answer.GetAgentName())
	}
	if _, err := join("gce-eu", "europe-west4", ""); err != nil {
		t.Errorf("what it speaks for already needs a token: %v", err)
	}
	_, err = join("gce-us", "us-east1", "")
	if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "shoalctl member accept gce-us") {
		t.Errorf("without a token: %v; want FailedPrecondition and what to run", err)
	}
	var member v1alpha1.MemberCluster
	if err := h.client.Get(t.Context(), client.ObjectKey{Name: "gce-us"}, &member); err != nil || member.Spec.Accepted {
		t.Errorf("the member that waits is %+v, %v", member.Spec, err)
	}
}
