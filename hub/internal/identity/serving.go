package identity

import (
	"crypto/tls"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Serving is the certificate of a listener, renewed while it is in use.
type Serving struct {
	authority *Authority
	names     []string
	clock     clock.PassiveClock

	mu      sync.Mutex
	current *tls.Certificate
}

// NewServing issues the first certificate for a listener that is reached by the given DNS names and IP addresses.
func NewServing(authority *Authority, names []string, c clock.PassiveClock) (*Serving, error) {
	first, err := authority.IssueServing(c.Now(), names)
	if err != nil {
		return nil, err
	}
	return &Serving{authority: authority, names: slices.Clone(names), clock: c, current: first}, nil
}

// GetCertificate is for [tls.Config]. It renews when less than a third of the certificate's life is left; issuing one
// takes less than a millisecond, so it happens in the handshake that needs it. If it fails, the old one is used to its
// end.
func (s *Serving) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	left := s.current.Leaf.NotAfter.Sub(now)
	if left >= ServingLifetime/3 {
		return s.current, nil
	}
	next, err := s.authority.IssueServing(now, s.names)
	switch {
	case err == nil:
		s.current = next
	case left <= 0:
		return nil, err
	}
	return s.current, nil
}

// NotAfter is the end of the certificate in use.
func (s *Serving) NotAfter() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.Leaf.NotAfter
}

// TLS returns the configuration of a listener that shows this certificate and asks for none.
func (s *Serving) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.GetCertificate, Time: s.clock.Now}
}

// AgentTLS returns the configuration of the agents' listener: a client certificate is optional, because an agent that
// registers has none, but one that is shown must be the authority's. [AgentOfConnection] says whose it is.
func (s *Serving) AgentTLS() *tls.Config {
	config := s.TLS()
	config.MinVersion = tls.VersionTLS13
	config.ClientAuth = tls.VerifyClientCertIfGiven
	config.ClientCAs = s.authority.Pool()
	return config
}
