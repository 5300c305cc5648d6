package agent

import (
	"crypto/x509"
	"testing"
)

// The hub's authorities are replaced while the agent runs; those that its owner added stay.
func TestAuthoritiesOfTheOwnerStay(t *testing.T) {
	first, second, owners := newAuthority(t), newAuthority(t), newAuthority(t)
	pool := func(a *authority) *x509.CertPool {
		p := x509.NewCertPool()
		p.AddCert(a.cert)
		return p
	}
	var hubs *x509.CertPool
	roots := withAuthorities(func() *x509.CertPool { return hubs }, []*x509.Certificate{owners.cert})
	if roots() != nil {
		t.Error("before the hub is known there are roots")
	}
	vouches := func(a *authority) bool {
		pair, _, _ := a.issue("192.0.2.1")
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		_, err = leaf.Verify(x509.VerifyOptions{Roots: roots()})
		return err == nil
	}
	for _, now := range []*authority{first, second} {
		hubs = pool(now)
		if !vouches(now) || !vouches(owners) {
			t.Errorf("the hub's authority is trusted: %v, and the owner's: %v", vouches(now), vouches(owners))
		}
		if former := roots(); former != roots() {
			t.Error("the roots are made anew for each probe")
		}
	}
	if vouches(first) {
		t.Error("the hub's former authority is still trusted")
	}
}
