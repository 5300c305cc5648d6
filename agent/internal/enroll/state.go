package enroll

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// State is what an enrolled agent keeps.
type State struct {
	// Key is the agent's private key, PEM (PKCS #8).
	Key []byte
	// Chain is its certificate chain, leaf first, PEM.
	Chain []byte
	// Bundle are the certificates to trust the hub by, PEM.
	Bundle []byte
	// Agent is the name that the hub has given the agent.
	Agent string
	// HubUID tells the hub from every other.
	HubUID string
	// Member is the member that the agent registered for.
	Member string
	// Pin is the pin that the hub was known by when the agent registered.
	Pin string
}

// String names the state without its key.
func (s State) String() string { return fmt.Sprintf("agent %q of hub %s", s.Agent, s.HubUID) }

// GoString is String.
func (s State) GoString() string { return s.String() }

// ErrNoState is what a [Store] returns when nothing has been saved yet.
var ErrNoState = errors.New("no saved identity")

// Store keeps a [State] over restarts of the agent.
type Store interface {
	// Load returns what was saved last, or an error that wraps [ErrNoState].
	Load(ctx context.Context) (State, error)
	// Save replaces what was saved, all or nothing.
	Save(ctx context.Context, state State) error
}

// credential is a State in a form that connections can use.
type credential struct {
	state State
	pair  *tls.Certificate
	roots *x509.CertPool
}

// parse checks that the parts of a state belong together.
func (s State) parse() (*credential, error) {
	pair, err := tls.X509KeyPair(s.Chain, s.Key)
	if err != nil {
		// The text of the cause is left out: nothing of a key may reach a log.
		return nil, errors.New("the certificate chain and the key are not readable, or do not belong together")
	}
	if pair.Leaf == nil {
		return nil, errors.New("the certificate chain has no readable leaf")
	}
	roots, err := Pool(s.Bundle)
	if err != nil {
		return nil, err
	}
	return &credential{state: s, pair: &pair, roots: roots}, nil
}

func (c *credential) notAfter() time.Time { return c.pair.Leaf.NotAfter }

// checkIssued verifies a certificate that the hub has just issued.
func (c *credential) checkIssued(now time.Time) error {
	_, err := c.pair.Leaf.Verify(x509.VerifyOptions{
		Roots:       c.roots,
		CurrentTime: now,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("the hub has issued a certificate that cannot be used (are the clocks of hub and member right?): %w", err)
	}
	return nil
}

// Pool returns the certificates of a bundle in PEM, or an error if it has none or cannot be read.
func Pool(bundle []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for rest := bundle; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			if len(bytes.TrimSpace(rest)) != 0 {
				return nil, errors.New("the bundle of the hub's certificates is not PEM")
			}
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.New("the bundle of the hub's certificates has one that is not readable")
		}
		pool.AddCert(certificate)
	}
	if pool.Equal(x509.NewCertPool()) {
		return nil, errors.New("the bundle of the hub's certificates is empty")
	}
	return pool, nil
}

// pinOf returns the pin of a certificate's public key.
func pinOf(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// newRequest makes a key (PEM) and a certificate request for it (DER). The hub takes nothing but the public key, so
// the request says nothing else.
func newRequest() (keyPEM, csr []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the agent's key: %w", err)
	}
	csr, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, crypto.Signer(key))
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate request: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, errors.New("encode the agent's key")
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), csr, nil
}
