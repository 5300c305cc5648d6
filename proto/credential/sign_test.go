package credential_test

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/shoal-dev/shoal/proto/credential"
)

func TestSignRefuses(t *testing.T) {
	hub, probe := newSigner(t, "hub", credential.UseLease), newSigner(t, "probe", credential.UseProbe)
	for name, tc := range map[string]struct {
		signer    *credential.Signer
		now       time.Time
		proxy     credential.ProxyUID
		principal credential.Principal
		lifetime  time.Duration
		err       error
	}{
		"NoProxy":            {signer: hub, now: epoch, principal: "p", lifetime: time.Hour, err: credential.ErrInvalid},
		"LongProxy":          {signer: hub, now: epoch, proxy: credential.ProxyUID(strings.Repeat("x", 65)), principal: "p", lifetime: time.Hour, err: credential.ErrInvalid},
		"ControlInProxy":     {signer: hub, now: epoch, proxy: "a\nb", principal: "p", lifetime: time.Hour, err: credential.ErrInvalid},
		"NoPrincipal":        {signer: hub, now: epoch, proxy: proxyA, lifetime: time.Hour, err: credential.ErrInvalid},
		"ControlInPrincipal": {signer: hub, now: epoch, proxy: proxyA, principal: "a\x00b", lifetime: time.Hour, err: credential.ErrInvalid},
		"NotUTF8":            {signer: hub, now: epoch, proxy: proxyA, principal: "a\xff", lifetime: time.Hour, err: credential.ErrInvalid},
		"NoLifetime":         {signer: hub, now: epoch, proxy: proxyA, principal: "p", err: credential.ErrInvalid},
		"EndlessLifetime":    {signer: hub, now: epoch, proxy: proxyA, principal: "p", lifetime: credential.MaxLifetime + 1, err: credential.ErrInvalid},
		"BeforeTheEpoch":     {signer: hub, now: time.Unix(-1e6, 0), proxy: proxyA, principal: "p", lifetime: -time.Hour, err: credential.ErrInvalid},
		"HubAsProbe":         {signer: hub, now: epoch, proxy: proxyA, principal: "probe:east", lifetime: time.Hour, err: credential.ErrWrongUse},
		"ProbeAsTenant":      {signer: probe, now: epoch, proxy: proxyA, principal: "sa:crawl/news", lifetime: time.Hour, err: credential.ErrWrongUse},
	} {
		t.Run(name, func(t *testing.T) {
			token, err := tc.signer.Sign(tc.now, tc.proxy, tc.principal, tc.lifetime)
			if !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			if token != (credential.Token{}) {
				t.Errorf("a token beside the error: %+v", token)
			}
		})
	}
}

func TestNewSignerRefuses(t *testing.T) {
	for name, o := range map[string]credential.SignerOptions{
		"NoKey":          {Use: credential.UseLease, Window: time.Minute},
		"PublicKeyGiven": {Key: ed25519.PrivateKey(privateKey("hub").Public().(ed25519.PublicKey)), Use: credential.UseLease, Window: time.Minute},
		"NoUse":          {Key: privateKey("hub"), Window: time.Minute},
		"UnknownUse":     {Key: privateKey("hub"), Use: "admin", Window: time.Minute},
		"NoWindow":       {Key: privateKey("hub"), Use: credential.UseLease},
		"BrokenWindow":   {Key: privateKey("hub"), Use: credential.UseLease, Window: 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := credential.NewSigner(o); !errors.Is(err, credential.ErrInvalid) {
				t.Errorf("error %v, want %v", err, credential.ErrInvalid)
			}
		})
	}
}

// Signing is shared: within a window the password is the same, in the next it is another one.
func TestSignIsTheSameWithinAWindow(t *testing.T) {
	hub := newSigner(t, "hub", credential.UseLease)
	rapid.Check(t, func(t *rapid.T) {
		now := epoch.Add(time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "age")))
		first, err := hub.Sign(now, proxyA, "p", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		start := first.FreshUntil.Add(-window)
		if now.Before(start) || !now.Before(first.FreshUntil) {
			t.Fatalf("%v is outside of its window from %v to %v", now, start, first.FreshUntil)
		}
		for at, same := range map[time.Time]bool{start: true, first.FreshUntil.Add(-1): true, first.FreshUntil: false, start.Add(-1): false} {
			other, err := hub.Sign(at, proxyA, "p", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if (other.Password == first.Password) != same {
				t.Fatalf("at %v the password is the same: %v, want %v", at, !same, same)
			}
		}
	})
}

// A hub with many proxies signs at an even rate, not for all of them at the turn of the minute.
func TestWindowsAreSpread(t *testing.T) {
	hub := newSigner(t, "hub", credential.UseLease)
	const proxies = 6000
	starts := make(map[int64]int)
	for i := range proxies {
		token := sign(t, hub, epoch, credential.ProxyUID(fmt.Sprintf("proxy-%d", i)), "p", time.Hour)
		starts[token.FreshUntil.Unix()]++
	}
	for second, n := range starts {
		if n > 2*proxies/60 {
			t.Errorf("%d of %d windows end in second %d", n, proxies, second)
		}
	}
}

func TestCache(t *testing.T) {
	hub := newSigner(t, "hub", credential.UseLease)
	// Against the plain signer: the cache never changes an answer, and never outgrows its bound.
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 4).Draw(t, "size")
		cache, err := credential.NewCache(credential.CacheOptions{Signer: hub, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		now := epoch
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			// Clocks also step back.
			now = now.Add(time.Duration(rapid.Int64Range(-20, 40).Draw(t, "passed")) * time.Second)
			proxy := credential.ProxyUID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "proxy"))
			principal := credential.Principal(rapid.SampledFrom([]string{"p", "q", "probe:no"}).Draw(t, "principal"))
			lifetime := rapid.SampledFrom([]time.Duration{time.Minute, time.Hour}).Draw(t, "lifetime")
			want, wantErr := hub.Sign(now, proxy, principal, lifetime)
			got, err := cache.Get(now, proxy, principal, lifetime)
			if got != want || (err == nil) != (wantErr == nil) {
				t.Fatalf("cache says %+v %v, signer says %+v %v", got, err, want, wantErr)
			}
			if cache.Len() > size {
				t.Fatalf("%d entries in a cache of %d", cache.Len(), size)
			}
		}
	})
}

func TestNewCacheRefuses(t *testing.T) {
	for name, o := range map[string]credential.CacheOptions{
		"NoSigner": {Size: 1},
		"NoSize":   {Signer: newSigner(t, "hub", credential.UseLease)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := credential.NewCache(o); !errors.Is(err, credential.ErrInvalid) {
				t.Errorf("error %v, want %v", err, credential.ErrInvalid)
			}
		})
	}
}

func BenchmarkSign(b *testing.B) {
	hub := newSigner(b, "hub", credential.UseLease)
	for b.Loop() {
		sign(b, hub, epoch, proxyA, "sa:crawl/news", time.Hour)
	}
}

func BenchmarkCacheGet(b *testing.B) {
	hub := newSigner(b, "hub", credential.UseLease)
	cache, err := credential.NewCache(credential.CacheOptions{Signer: hub, Size: 16})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cache.Get(epoch, proxyA, "sa:crawl/news", time.Hour); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	hub := newSigner(b, "hub", credential.UseLease)
	keys, token := keySet(b, hub), sign(b, hub, epoch, proxyA, "sa:crawl/news", time.Hour).Password
	for b.Loop() {
		if _, err := credential.Verify(keys, credential.DenyList{}, proxyA, token, epoch); err != nil {
			b.Fatal(err)
		}
	}
}
