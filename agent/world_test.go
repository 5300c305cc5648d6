package agent

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
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
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/enroll"
	"github.com/shoal-dev/shoal/agent/internal/mirror"
	"github.com/shoal-dev/shoal/proto/credential"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1/agentv1connect"
)

// echoAddress is where the hub's echo listener would be. Only the proxy ever dials it.
const echoAddress = "198.51.100.7"

// authority is the certificate authority of a hub.
type authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hub of tests"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) pin() string {
	sum := sha256.Sum256(a.cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// issue makes a certificate for an address, good for both sides, and its key in PEM.
func (a *authority) issue(ip string) (pair tls.Certificate, chain, key []byte) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "agent"}, IPAddresses: []net.IP{net.ParseIP(ip)},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	chain = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	if pair, err = tls.X509KeyPair(chain, key); err != nil {
		a.t.Fatal(err)
	}
	return pair, chain, key
}

// enrolled makes a namespace as an agent leaves it that has joined once: a certificate, and who hub and member are.
func (a *authority) enrolled(member string) string {
	a.t.Helper()
	ns := server.Namespace(a.t)
	_, chain, key := a.issue("192.0.2.1")
	state := enroll.State{
		Key: key, Chain: chain, Bundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}),
		Agent: "agent", HubUID: "hub-1", Member: member, Pin: a.pin(),
	}
	if err := enroll.NewSecretStore(server.Client, ns).Save(a.t.Context(), state); err != nil {
		a.t.Fatal(err)
	}
	a.known(ns, member)
	return ns
}

// known leaves in a namespace what a member has learnt of the hub and itself.
func (a *authority) known(ns, member string) {
	a.t.Helper()
	a.knownIn(server.Client, ns, member)
}

// knownIn is known on another API server.
func (a *authority) knownIn(c client.Client, ns, member string) {
	a.t.Helper()
	m, err := mirror.New(mirror.Options{Member: member, Client: c, Reader: c, Namespace: ns})
	if err != nil {
		a.t.Fatal(err)
	}
	m.Welcomed("hub-1", "uid-of-"+member)
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	signer, err := credential.NewSigner(credential.SignerOptions{Key: private, Use: credential.UseLease, Window: time.Minute})
	if err != nil {
		a.t.Fatal(err)
	}
	keys, err := credential.Marshal([]credential.Key{signer.PublicKey()}, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := m.SetKeys(a.t.Context(), keys); err != nil {
		a.t.Fatal(err)
	}
}

// hub is the agents' listener of a hub that registers whoever asks, and has no session for anybody.
type hub struct {
	agentv1connect.UnimplementedAgentServiceHandler
	authority  *authority
	address    string
	registered atomic.Int64
}

func startHub(t *testing.T, a *authority) *hub {
	t.Helper()
	h := &hub{authority: a}
	calls := connect.NewServer()
	agentv1connect.RegisterAgentServiceHandler(calls, h)
	mux := http.NewServeMux()
	connecthttp.Mount(mux, calls)
	pair, _, _ := a.issue("127.0.0.1")
	pair.Certificate = append(pair.Certificate, a.cert.Raw) // what the pin is of
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.address = listener.Addr().String()
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: mux, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(func() { _ = s.Close() })
	return h
}

func (h *hub) Register(_ context.Context, req *agentv1.RegisterRequest) (*agentv1.RegisterResponse, error) {
	h.registered.Add(1)
	csr, err := x509.ParseCertificateRequest(req.GetCsr())
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "agent"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, h.authority.cert, csr.PublicKey, h.authority.key)
	if err != nil {
		return nil, err
	}
	return &agentv1.RegisterResponse{
		CertificateChain: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		CaBundle:         pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.authority.cert.Raw}),
		AgentName:        req.GetMember() + "-01",
		HubUid:           "hub-1",
	}, nil
}

// startEcho answers as the hub's echo listener does, and gives the address where it really is.
func startEcho(t *testing.T, a *authority) string {
	t.Helper()
	pair, _, _ := a.issue(echoAddress)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"remote":"203.0.113.9"}`)
	})}
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(func() { _ = s.Close() })
	return listener.Addr().String()
}

// startProxy is a forward proxy as Squid is one here: CONNECT only, to the echo only, with the credentials that the keys
// of the namespace open. It gives its port.
func startProxy(t *testing.T, ns, echo string) int32 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				tunnel(conn, ns, echo)
			}()
		}
	}()
	return int32(listener.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
}

func tunnel(conn net.Conn, ns, echo string) {
	reader := bufio.NewReader(conn)
	r, err := http.ReadRequest(reader)
	if err != nil {
		return
	}
	if !opens(r.Header.Get("Proxy-Authorization"), ns) {
		_, _ = io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n")
		return
	}
	if r.Method != http.MethodConnect || r.Host != echoAddress+":443" {
		_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		return
	}
	far, err := net.Dial("tcp", echo)
	if err != nil {
		return
	}
	defer far.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() { _, _ = io.Copy(far, reader); _ = far.Close() }()
	_, _ = io.Copy(conn, far)
}

// opens checks a credential as shoal-auth does, but for the proxy that it names: any of this test's will do.
func opens(header, ns string) bool {
	r := &http.Request{Header: http.Header{"Authorization": {header}}}
	user, token, ok := r.BasicAuth()
	if !ok || user != probeUser {
		return false
	}
	object := &corev1.ConfigMap{}
	if err := server.Client.Get(context.Background(), types.NamespacedName{Namespace: ns, Name: mirror.KeysConfigMap}, object); err != nil {
		return false
	}
	keys, _, err := credential.Parse([]byte(object.Data[mirror.AgentKeys]))
	if err != nil {
		return false
	}
	set, err := credential.NewKeySet(keys...)
	if err != nil {
		return false
	}
	for _, uid := range proxyUIDs(ns) {
		if claims, err := credential.Verify(set, credential.DenyList{}, uid, token, time.Now()); err == nil {
			return strings.HasPrefix(string(claims.Principal), credential.ProbePrefix)
		}
	}
	return false
}
