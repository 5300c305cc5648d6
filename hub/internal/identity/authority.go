package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"
)

// How long certificates live.
const (
	// CALifetime is the life of the hub's certificate authority.
	CALifetime = 10 * 365 * 24 * time.Hour
	// AgentLifetime is the life of an agent's certificate. Agents renew when a fifth to a quarter of it is left.
	AgentLifetime = 24 * time.Hour
	// ServingLifetime is the life of the certificate of a listener of the hub.
	ServingLifetime = 7 * 24 * time.Hour
	// backdate lets clocks that are a little behind accept a fresh certificate.
	backdate = 5 * time.Minute
)

// AgentURIPrefix begins the URI in an agent's certificate; the agent's name follows.
const AgentURIPrefix = "spiffe://shoal/agent/"

// Authority is the hub's certificate authority. It is immutable.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes an authority with a key of its own. The label tells authorities of several hubs apart, for people.
func NewAuthority(label string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of the certificate authority: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          newSerial(),
		Subject:               pkix.Name{CommonName: "shoal hub " + label},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(CALifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority back: %w", err)
	}
	return &Authority{certificate: certificate, key: key}, nil
}

// String names the authority without its key.
func (a *Authority) String() string { return "certificate authority " + a.Pin() }

// GoString is String.
func (a *Authority) GoString() string { return a.String() }

// Pin returns "sha256:" and the hash of the authority's public key (SubjectPublicKeyInfo) in hexadecimal. It is what
// a joining agent knows the hub by.
func (a *Authority) Pin() string { return Pin(a.certificate) }

// Pin returns the pin of a certificate; see [Authority.Pin].
func Pin(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Bundle returns the certificates to trust the hub by, PEM.
func (a *Authority) Bundle() []byte { return encodeCertificate(a.certificate.Raw) }

// Pool returns the certificates that agents' certificates are verified with.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// IssueAgent returns a certificate for the named agent, leaf first, PEM. Of the request (PKCS #10, DER) it takes the
// public key and nothing else. A request that cannot be used is an error that wraps [ErrInvalid].
func (a *Authority) IssueAgent(now time.Time, csr []byte, agent string) ([]byte, error) {
	public, err := publicKeyOf(csr)
	if err != nil {
		return nil, err
	}
	uri, err := url.Parse(AgentURIPrefix + agent)
	if err != nil {
		return nil, fmt.Errorf("%w: the agent's name %q does not fit into a URI", ErrInvalid, agent)
	}
	der, err := a.sign(now, AgentLifetime, public, &x509.Certificate{
		Subject:     pkix.Name{CommonName: agent},
		URIs:        []*url.URL{uri},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, err
	}
	return append(encodeCertificate(der), a.Bundle()...), nil
}

// IssueServing returns a certificate, with a key of its own, for a listener that is reached by the given DNS names and
// IP addresses. The authority is part of the chain that the listener shows, so that an agent that knows only its pin
// can verify it.
func (a *Authority) IssueServing(now time.Time, names []string) (*tls.Certificate, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: a listener needs at least one DNS name or IP address in its certificate", ErrInvalid)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "shoal hub"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of a listener: %w", err)
	}
	der, err := a.sign(now, ServingLifetime, key.Public(), template)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read a listener's certificate back: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.certificate.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

func (a *Authority) sign(now time.Time, life time.Duration, public crypto.PublicKey, template *x509.Certificate) ([]byte, error) {
	template.SerialNumber = newSerial()
	template.NotBefore = now.Add(-backdate)
	template.NotAfter = now.Add(life)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	if template.NotAfter.After(a.certificate.NotAfter) {
		template.NotAfter = a.certificate.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return der, nil
}

// AgentOf returns the name of the agent that a verified client certificate belongs to, or an error that wraps
// [ErrNotAnAgent].
func AgentOf(certificate *x509.Certificate) (string, error) {
	name := certificate.Subject.CommonName
	switch {
	case name == "" || len(certificate.URIs) != 1:
		return "", fmt.Errorf("%w: it has no name, or not exactly one URI", ErrNotAnAgent)
	case certificate.URIs[0].String() != AgentURIPrefix+name:
		return "", fmt.Errorf("%w: its name and its URI differ", ErrNotAnAgent)
	}
	return name, nil
}

// AgentOfConnection returns the name of the agent at the other end of a connection whose listener has verified client
// certificates against [Authority.Pool]. No certificate, or another kind of one, is an error that wraps
// [ErrNotAnAgent].
func AgentOfConnection(state *tls.ConnectionState) (string, error) {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return "", fmt.Errorf("%w: the connection has no verified client certificate", ErrNotAnAgent)
	}
	return AgentOf(state.VerifiedChains[0][0])
}

// newSerial returns a random positive serial number of 127 bits.
func newSerial() *big.Int {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw)
	raw[0] &= 0x7f
	return new(big.Int).SetBytes(raw)
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// decodeAuthority checks what a Secret holds. Its errors say which part is bad and show nothing of it.
func decodeAuthority(certificatePEM, keyPEM []byte, now time.Time) (*Authority, error) {
	block, rest := pem.Decode(certificatePEM)
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) != 0 {
		return nil, errors.New("ca.crt is not exactly one PEM certificate")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, errors.New("ca.crt is not a readable certificate")
	}
	private, err := decodePrivateKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("ca.key %w", err)
	}
	key, ok := private.(*ecdsa.PrivateKey)
	switch {
	case !ok || key.Curve != elliptic.P256():
		return nil, errors.New("ca.key is not an ECDSA P-256 key")
	case !key.PublicKey.Equal(certificate.PublicKey):
		return nil, errors.New("ca.key does not belong to ca.crt")
	case !certificate.IsCA || certificate.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, errors.New("ca.crt is not the certificate of an authority")
	case certificate.CheckSignatureFrom(certificate) != nil:
		return nil, errors.New("ca.crt is not signed by itself")
	case now.After(certificate.NotAfter):
		return nil, fmt.Errorf("ca.crt expired on %s", certificate.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(certificate.NotBefore):
		return nil, fmt.Errorf("ca.crt is valid only from %s; check the clock", certificate.NotBefore.UTC().Format(time.RFC3339))
	}
	return &Authority{certificate: certificate, key: key}, nil
}

func decodePrivateKey(data []byte) (crypto.PrivateKey, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "PRIVATE KEY" || len(bytes.TrimSpace(rest)) != 0 {
		return nil, errors.New("is not exactly one PEM private key (PKCS #8)")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		// The parser's text is left out: it might quote what it read.
		return nil, errors.New("is not a readable private key (PKCS #8)")
	}
	return key, nil
}

func encodePrivateKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, errors.New("a private key cannot be encoded")
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
