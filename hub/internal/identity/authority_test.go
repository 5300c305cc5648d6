package identity_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/hub/internal/identity"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newAuthority(t *testing.T) *identity.Authority {
	t.Helper()
	authority, err := identity.NewAuthority("test", now)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newCSR(t *testing.T, key crypto.Signer, template *x509.CertificateRequest) []byte {
	t.Helper()
	csr, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

func parseChain(t *testing.T, chain []byte) []*x509.Certificate {
	t.Helper()
	var certificates []*x509.Certificate
	for rest := chain; len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			t.Fatalf("the chain is not PEM: %q", rest)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		certificates = append(certificates, certificate)
	}
	return certificates
}

func TestIssueAgentIgnoresWhatTheRequestSays(t *testing.T) {
	authority := newAuthority(t)
	foreign, err := url.Parse("spiffe://shoal/agent/somebody-else")
	if err != nil {
		t.Fatal(err)
	}
	key := newKey(t)
	csr := newCSR(t, key, &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "somebody-else", Organization: []string{"system:masters"}},
		DNSNames:    []string{"hub.example"},
		IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)},
		URIs:        []*url.URL{foreign},
	})
	chain, err := authority.IssueAgent(now, csr, "east-01")
	if err != nil {
		t.Fatal(err)
	}
	leaf := parseChain(t, chain)[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: authority.Pool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("the certificate does not verify: %v", err)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: authority.Pool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err == nil {
		t.Error("an agent's certificate can be used by a server")
	}
	if !key.PublicKey.Equal(leaf.PublicKey) {
		t.Error("the certificate is for another key than the request")
	}
	type said struct {
		Subject, URI string
		DNS          []string
		IPs          int
		CA           bool
		Life         time.Duration
	}
	got := said{leaf.Subject.String(), leaf.URIs[0].String(), leaf.DNSNames, len(leaf.IPAddresses), leaf.IsCA, leaf.NotAfter.Sub(now)}
	want := said{"CN=east-01", "spiffe://shoal/agent/east-01", nil, 0, false, 24 * time.Hour}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("certificate (-want +got):\n%s", diff)
	}
	name, err := identity.AgentOf(leaf)
	if err != nil || name != "east-01" {
		t.Errorf("AgentOf = %q, %v; want east-01", name, err)
	}
}

func TestIssueAgentRefusesRequests(t *testing.T) {
	authority := newAuthority(t)
	good := newCSR(t, newKey(t), &x509.CertificateRequest{})
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	resigned := bytes.Clone(good)
	resigned[len(resigned)-1] ^= 1
	cases := map[string]struct {
		reason string
		csr    []byte
	}{
		"Empty":        {"there is no key to certify", nil},
		"NotARequest":  {"it cannot be parsed", []byte("hello")},
		"Truncated":    {"it cannot be parsed", good[:len(good)-5]},
		"BadSignature": {"whoever sends it may not hold the private key", resigned},
		"TooLarge":     {"nobody needs so large a request", make([]byte, 1<<20)},
		"P521":         {"one curve more to support for no gain", newCSR(t, p521, &x509.CertificateRequest{})},
		"RSA":          {"its signatures are dear on the hub", newCSR(t, rsaKey, &x509.CertificateRequest{})},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			chain, err := authority.IssueAgent(now, c.csr, "east")
			if !errors.Is(err, identity.ErrInvalid) || chain != nil {
				t.Errorf("%s: got chain of %d bytes, %v; want ErrInvalid", c.reason, len(chain), err)
			}
			if err := identity.CheckCSR(c.csr); !errors.Is(err, identity.ErrInvalid) {
				t.Errorf("CheckCSR = %v, want ErrInvalid", err)
			}
		})
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, csr := range [][]byte{good, newCSR(t, edKey, &x509.CertificateRequest{})} {
		if err := identity.CheckCSR(csr); err != nil {
			t.Errorf("a good request is refused: %v", err)
		}
	}
}

func TestAgentOfRefusesOtherCertificates(t *testing.T) {
	uri := func(s string) []*url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return []*url.URL{u}
	}
	cases := map[string]struct {
		reason      string
		certificate x509.Certificate
	}{
		"Listener":    {"a listener's certificate has no URI", x509.Certificate{Subject: pkix.Name{CommonName: "shoal hub"}}},
		"NoName":      {"the URI alone is not enough", x509.Certificate{URIs: uri("spiffe://shoal/agent/")}},
		"OtherDomain": {"another trust domain's agent", x509.Certificate{Subject: pkix.Name{CommonName: "east"}, URIs: uri("spiffe://other/agent/east")}},
		"OtherName":   {"name and URI must agree", x509.Certificate{Subject: pkix.Name{CommonName: "east"}, URIs: uri("spiffe://shoal/agent/east-2")}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got, err := identity.AgentOf(&c.certificate); !errors.Is(err, identity.ErrNotAnAgent) {
				t.Errorf("%s: got %q, %v; want ErrNotAnAgent", c.reason, got, err)
			}
		})
	}
	for name, state := range map[string]*tls.ConnectionState{
		"Plain":      nil,
		"Anonymous":  {},
		"Unverified": {PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "east"}, URIs: uri("spiffe://shoal/agent/east")}}},
	} {
		if got, err := identity.AgentOfConnection(state); !errors.Is(err, identity.ErrNotAnAgent) {
			t.Errorf("%s connection: got %q, %v; want ErrNotAnAgent", name, got, err)
		}
	}
}

func TestServingRenewsItself(t *testing.T) {
	authority := newAuthority(t)
	clock := clocktesting.NewFakePassiveClock(now)
	serving, err := identity.NewServing(authority, []string{"hub.example", "127.0.0.1", "::1"}, clock)
	if err != nil {
		t.Fatal(err)
	}
	get := func() *tls.Certificate {
		t.Helper()
		certificate, err := serving.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"hub.example", "127.0.0.1", "::1"} {
			_, err := certificate.Leaf.Verify(x509.VerifyOptions{Roots: authority.Pool(), CurrentTime: clock.Now(), DNSName: name})
			if err != nil {
				t.Errorf("at %v the certificate does not verify for %s: %v", clock.Now(), name, err)
			}
		}
		root, err := x509.ParseCertificate(certificate.Certificate[len(certificate.Certificate)-1])
		if err != nil || identity.Pin(root) != authority.Pin() {
			t.Errorf("the chain does not end in the pinned authority: %v", err)
		}
		return certificate
	}
	first := get()
	clock.SetTime(now.Add(identity.ServingLifetime / 2))
	if get() != first {
		t.Error("renewed with half of its life left")
	}
	clock.SetTime(now.Add(identity.ServingLifetime * 3 / 4))
	second := get()
	if second == first {
		t.Error("not renewed with a quarter of its life left")
	}
	clock.SetTime(now.Add(identity.ServingLifetime * 10))
	if get() == second {
		t.Error("not renewed after a long sleep")
	}
	if _, err := identity.NewServing(authority, nil, clock); !errors.Is(err, identity.ErrInvalid) {
		t.Errorf("a certificate without names: %v, want ErrInvalid", err)
	}
}
