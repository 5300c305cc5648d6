package enroll

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// TLSConfig returns a configuration for connections to the hub. Each handshake uses the certificate, and trusts the
// certificates of the hub, that are current then: a renewal needs no new configuration, only a new connection. Before
// the agent is enrolled, handshakes fail.
func (e *Enroller) TLSConfig() *tls.Config {
	config := e.tlsConfig(func(state tls.ConnectionState) error {
		current := e.current.Load()
		if current == nil {
			return errors.New("the agent is not enrolled yet")
		}
		return e.verify(state.PeerCertificates, current.roots)
	})
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if current := e.current.Load(); current != nil {
			return current.pair, nil
		}
		return new(tls.Certificate), nil
	}
	return config
}

// Roots returns the certificate authorities of the hub that are current, nil before the agent is enrolled. The pool must
// not be changed.
func (e *Enroller) Roots() *x509.CertPool {
	if current := e.current.Load(); current != nil {
		return current.roots
	}
	return nil
}

// pinnedConfig trusts whoever shows a chain that ends in a certificate authority with the pinned key. It shows no
// certificate: an agent that registers has none, or one that has ended, for which the hub would turn it away.
func (e *Enroller) pinnedConfig() *tls.Config {
	return e.tlsConfig(func(state tls.ConnectionState) error {
		roots := x509.NewCertPool()
		found := false
		for _, certificate := range state.PeerCertificates {
			if certificate.IsCA && pinOf(certificate) == e.o.CAPin {
				roots.AddCert(certificate)
				found = true
			}
		}
		if !found {
			return fmt.Errorf("%w: %s shows no certificate authority with the key %s; check hub.url, and take both from `shoalctl member join-token`",
				ErrWrongHub, e.baseURL, e.o.CAPin)
		}
		if err := e.verify(state.PeerCertificates, roots); err != nil {
			return fmt.Errorf("%w: %w", ErrWrongHub, err)
		}
		return nil
	})
}

// tlsConfig replaces the standard verification, whose roots are fixed when a configuration is made, by one that sees
// the current ones. It runs on every handshake, resumed ones too.
func (e *Enroller) tlsConfig(verify func(tls.ConnectionState) error) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		ServerName:         e.host,
		Time:               e.o.Clock.Now,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does all that the standard verification does
		VerifyConnection:   verify,
	}
}

// verify checks the chain, the times, the purpose and the name (or address) of the hub. The name is the one of
// hub.url, not the connection's: for an address, the handshake names none.
func (e *Enroller) verify(chain []*x509.Certificate, roots *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("the hub shows no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		DNSName:       e.host,
		Roots:         roots,
		Intermediates: intermediates,
		CurrentTime:   e.o.Clock.Now(),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("verify the certificate of %s: %w", e.baseURL, err)
	}
	return nil
}
