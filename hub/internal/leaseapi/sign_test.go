package leaseapi_test

import (
	"crypto/ed25519"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	"github.com/shoal-dev/shoal/proto/credential"
)

// TestSharedSigner checks that many callers at once get, for each principal, proxy and window, the one token that the
// signer makes, whatever the cache had to drop meanwhile.
func TestSharedSigner(t *testing.T) {
	signer, err := credential.NewSigner(credential.SignerOptions{
		Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), Use: credential.UseLease, Window: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	shared, err := leaseapi.NewSharedSigner(signer, 32)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 200 {
				now := start.Add(time.Duration(i) * 10 * time.Second)
				proxy := credential.ProxyUID(uid((i + worker) % 50))
				principal := credential.Principal(fmt.Sprintf("token:%d", i%3))
				got, err := shared.Sign(now, proxy, principal, time.Hour)
				if err != nil {
					t.Errorf("Sign: %v", err)
					return
				}
				want, err := signer.Sign(now, proxy, principal, time.Hour)
				if err != nil || got != want {
					t.Errorf("%s for %s at %v: got %v, want %v (%v)", proxy, principal, now, got.NotAfter, want.NotAfter, err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := shared.Sign(start, credential.ProxyUID(uid(1)), "probe:east", time.Hour); err == nil {
		t.Error("a lease was signed for a principal that is an agent's probe")
	}
}

// BenchmarkSharedSigner is the cost of a password that was signed before in its window.
func BenchmarkSharedSigner(b *testing.B) {
	signer, err := credential.NewSigner(credential.SignerOptions{
		Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), Use: credential.UseLease, Window: time.Minute,
	})
	if err != nil {
		b.Fatal(err)
	}
	shared, err := leaseapi.NewSharedSigner(signer, 1000)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := shared.Sign(start, "0c7a1c52-0000-4000-8000-000000000001", "token:news", time.Hour); err != nil {
			b.Fatal(err)
		}
	}
}
