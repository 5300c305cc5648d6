package credential_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/shoal-dev/shoal/proto/credential"
)

const (
	proxyA = credential.ProxyUID("3f6c1a2e-9b1d-4c57-8f7e-0d2b5a1c9e44")
	proxyB = credential.ProxyUID("77777777-9b1d-4c57-8f7e-0d2b5a1c9e44")
	window = time.Minute
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// privateKey derives a key from a name, so that tests are the same every time.
func privateKey(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

func newSigner(t testing.TB, name string, use credential.Use) *credential.Signer {
	t.Helper()
	s, err := credential.NewSigner(credential.SignerOptions{Key: privateKey(name), Use: use, Window: window})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keySet(t testing.TB, signers ...*credential.Signer) credential.KeySet {
	t.Helper()
	keys := make([]credential.Key, 0, len(signers))
	for _, s := range signers {
		keys = append(keys, s.PublicKey())
	}
	set, err := credential.NewKeySet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func denyList(t testing.TB, denials ...credential.Denial) credential.DenyList {
	t.Helper()
	list, err := credential.NewDenyList(denials...)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func sign(t testing.TB, s *credential.Signer, now time.Time, proxy credential.ProxyUID, principal credential.Principal, lifetime time.Duration) credential.Token {
	t.Helper()
	token, err := s.Sign(now, proxy, principal, lifetime)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestVerify(t *testing.T) {
	hub, next, probe := newSigner(t, "hub", credential.UseLease), newSigner(t, "next", credential.UseLease), newSigner(t, "probe", credential.UseProbe)
	token := sign(t, hub, epoch, proxyA, "sa:crawl/news", time.Hour)
	issued := token.FreshUntil.Add(-window)
	good := credential.Claims{
		Key: hub.PublicKey().ID, Use: credential.UseLease, Proxy: proxyA, Principal: "sa:crawl/news",
		Issued: issued, NotAfter: token.NotAfter,
	}
	long := credential.Principal("sa:" + strings.Repeat("é", 200))
	longToken := sign(t, hub, epoch, proxyA, long, time.Hour)

	type args struct {
		keys  credential.KeySet
		deny  credential.DenyList
		proxy credential.ProxyUID
		token string
		now   time.Time
	}
	cases := map[string]struct {
		reason string
		args   args
		want   credential.Claims
		err    error
	}{
		"Valid": {
			reason: "a fresh token opens its proxy",
			args:   args{keys: keySet(t, hub, probe), proxy: proxyA, token: token.Password, now: epoch},
			want:   good,
		},
		"ValidUntilItsLastInstant": {
			reason: "the lifetime asked for is served in full",
			args:   args{keys: keySet(t, hub), proxy: proxyA, token: token.Password, now: token.NotAfter.Add(-1)},
			want:   good,
		},
		"OldKeyBesideNewKey": {
			reason: "while a key rolls, both sign",
			args:   args{keys: keySet(t, next, hub), proxy: proxyA, token: token.Password, now: epoch},
			want:   good,
		},
		"ClockBehindWithinLeeway": {
			reason: "the member's clock may be behind the hub's",
			args:   args{keys: keySet(t, hub), proxy: proxyA, token: token.Password, now: issued.Add(-credential.Leeway)},
			want:   good,
		},
		"NotYetValid": {
			reason: "a token from further in the future is refused",
			args:   args{keys: keySet(t, hub), proxy: proxyA, token: token.Password, now: issued.Add(-credential.Leeway - 1)},
			err:    credential.ErrNotYetValid,
		},
		"Expired": {
			reason: "the end itself is too late",
			args:   args{keys: keySet(t, hub), proxy: proxyA, token: token.Password, now: token.NotAfter},
			err:    credential.ErrExpired,
		},
		"WrongProxy": {
			reason: "a credential for one proxy is refused by another",
			args:   args{keys: keySet(t, hub), proxy: proxyB, token: token.Password, now: epoch},
			err:    credential.ErrWrongProxy,
		},
		"UnknownKey": {
			reason: "the key was rolled away",
			args:   args{keys: keySet(t, next), proxy: proxyA, token: token.Password, now: epoch},
			err:    credential.ErrUnknownKey,
		},
		"NoKeys": {
			reason: "the zero set accepts nothing",
			args:   args{proxy: proxyA, token: token.Password, now: epoch},
			err:    credential.ErrUnknownKey,
		},
		"DeniedPrincipal": {
			reason: "a revoked principal is refused everywhere",
			args: args{
				keys: keySet(t, hub), deny: denyList(t, credential.Denial{Principal: "sa:crawl/news"}),
				proxy: proxyA, token: token.Password, now: epoch,
			},
			err: credential.ErrDenied,
		},
		"DeniedLongPrincipal": {
			reason: "a principal that was shortened in the token is denied by its full name",
			args: args{
				keys: keySet(t, hub), deny: denyList(t, credential.Denial{Principal: long}),
				proxy: proxyA, token: longToken.Password, now: epoch,
			},
			err: credential.ErrDenied,
		},
		"DeniedProxy": {
			reason: "a rule without principal closes the proxy",
			args: args{
				keys: keySet(t, hub), deny: denyList(t, credential.Denial{Proxy: proxyA}),
				proxy: proxyA, token: token.Password, now: epoch,
			},
			err: credential.ErrDenied,
		},
		"DeniedElsewhere": {
			reason: "a principal denied on one proxy may use the others",
			args: args{
				keys: keySet(t, hub), deny: denyList(t, credential.Denial{Principal: "sa:crawl/news", Proxy: proxyB}, credential.Denial{Principal: "sa:other"}),
				proxy: proxyA, token: token.Password, now: epoch,
			},
			want: good,
		},
		"DeniedByIssueTime": {
			reason: "tokens issued before the revocation are refused",
			args: args{
				keys: keySet(t, hub), deny: denyList(t, credential.Denial{Principal: "sa:crawl/news", IssuedBefore: issued.Add(time.Second)}),
				proxy: proxyA, token: token.Password, now: epoch,
			},
			err: credential.ErrDenied,
		},
		"SparedByIssueTime": {
			reason: "tokens issued after the revocation are good",
			args: args{
				keys: keySet(t, hub), deny: denyList(t, credential.Denial{Principal: "sa:crawl/news", IssuedBefore: issued}),
				proxy: proxyA, token: token.Password, now: epoch,
			},
			want: good,
		},
		"Empty":           {reason: "no token", args: args{keys: keySet(t, hub), proxy: proxyA, now: epoch}, err: credential.ErrMalformed},
		"NotBase64":       {reason: "a typed password", args: args{keys: keySet(t, hub), proxy: proxyA, token: "hunter2!", now: epoch}, err: credential.ErrMalformed},
		"Padded":          {reason: "another spelling of the same bytes", args: args{keys: keySet(t, hub), proxy: proxyA, token: token.Password + "==", now: epoch}, err: credential.ErrMalformed},
		"LineBreakInside": {reason: "base64 decoders skip line breaks; we do not", args: args{keys: keySet(t, hub), proxy: proxyA, token: token.Password[:9] + "\n" + token.Password[9:], now: epoch}, err: credential.ErrMalformed},
		"Truncated":       {reason: "the end is missing", args: args{keys: keySet(t, hub), proxy: proxyA, token: token.Password[:80], now: epoch}, err: credential.ErrMalformed},
		"TooLong":         {reason: "work is bounded before decoding", args: args{keys: keySet(t, hub), proxy: proxyA, token: strings.Repeat("A", 1<<20), now: epoch}, err: credential.ErrMalformed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := credential.Verify(tc.args.keys, tc.args.deny, tc.args.proxy, tc.args.token, tc.args.now)
			if !errors.Is(err, tc.err) {
				t.Errorf("%s: error %v, want %v", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: claims (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A key in the set for one use does not sign for the other, whoever holds it.
func TestVerifyHoldsKeysToTheirUse(t *testing.T) {
	lease, probe := newSigner(t, "one", credential.UseLease), newSigner(t, "one", credential.UseProbe)
	leaseToken := sign(t, lease, epoch, proxyA, "sa:crawl/news", time.Hour)
	probeToken := sign(t, probe, epoch, proxyA, "probe:east", time.Hour)
	for name, tc := range map[string]struct {
		keys  credential.KeySet
		token string
		err   error
	}{
		"LeaseByLeaseKey": {keys: keySet(t, lease), token: leaseToken.Password},
		"ProbeByProbeKey": {keys: keySet(t, probe), token: probeToken.Password},
		"LeaseByProbeKey": {keys: keySet(t, probe), token: leaseToken.Password, err: credential.ErrWrongUse},
		"ProbeByLeaseKey": {keys: keySet(t, lease), token: probeToken.Password, err: credential.ErrWrongUse},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := credential.Verify(tc.keys, credential.DenyList{}, proxyA, tc.token, epoch); !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
		})
	}
}

// Every bit of a token's bytes and every bit of its characters is covered.
func TestVerifyRefusesEveryBitFlip(t *testing.T) {
	hub := newSigner(t, "hub", credential.UseLease)
	keys := keySet(t, hub)
	for name, tc := range map[string]struct {
		proxy     credential.ProxyUID
		principal credential.Principal
	}{
		"UUIDProxy":  {proxy: proxyA, principal: "sa:crawl/news"},
		"OtherProxy": {proxy: "vm-1", principal: "é"},
	} {
		t.Run(name, func(t *testing.T) {
			token := sign(t, hub, epoch, tc.proxy, tc.principal, time.Hour).Password
			for i := range len(token) {
				for bit := range 8 {
					flipped := []byte(token)
					flipped[i] ^= 1 << bit
					if claims, err := credential.Verify(keys, credential.DenyList{}, tc.proxy, string(flipped), epoch); err == nil {
						t.Fatalf("bit %d of character %d flipped: accepted as %+v", bit, i, claims)
					}
				}
			}
			for i := range len(token) {
				if _, err := credential.Verify(keys, credential.DenyList{}, tc.proxy, token[:i], epoch); err == nil {
					t.Fatalf("accepted when cut to %d characters", i)
				}
			}
		})
	}
}

// What Sign makes, Verify accepts, with the same claims, for every request that Sign takes.
func TestSignVerifyRoundTrip(t *testing.T) {
	hub := newSigner(t, "hub", credential.UseLease)
	keys := keySet(t, hub)
	charset := regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	rapid.Check(t, func(t *rapid.T) {
		proxy := credential.ProxyUID(rapid.OneOf(
			rapid.StringMatching(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`),
			rapid.StringMatching(`[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}`),
			rapid.StringMatching(`[a-z0-9-]{1,64}`),
		).Draw(t, "proxy"))
		principal := credential.Principal(rapid.StringMatching(`[^\pC]{1,200}`).Draw(t, "principal"))
		if strings.HasPrefix(string(principal), credential.ProbePrefix) {
			t.Skip("a probe's principal")
		}
		lifetime := time.Duration(rapid.Int64Range(1, int64(credential.MaxLifetime/time.Second)).Draw(t, "lifetime")) * time.Second
		now := epoch.Add(time.Duration(rapid.Int64Range(0, 1e18).Draw(t, "age")))
		token, err := hub.Sign(now, proxy, principal, lifetime)
		if err != nil {
			t.Fatal(err)
		}
		if !charset.MatchString(token.Password) || len(token.Password) > credential.MaxTokenLength {
			t.Fatalf("token %q: other characters, or %d of them", token.Password, len(token.Password))
		}
		if left := token.NotAfter.Sub(now); left < lifetime || left > lifetime+window {
			t.Fatalf("lives for %v when asked for %v", left, lifetime)
		}
		claims, err := credential.Verify(keys, credential.DenyList{}, proxy, token.Password, now)
		if err != nil {
			t.Fatal(err)
		}
		want := credential.Claims{
			Key: hub.PublicKey().ID, Use: credential.UseLease, Proxy: proxy, Principal: credential.ShortPrincipal(principal),
			Issued: token.FreshUntil.Add(-window), NotAfter: token.NotAfter,
		}
		if diff := cmp.Diff(want, claims); diff != "" {
			t.Fatalf("claims (-want +got):\n%s", diff)
		}
	})
}

func TestShortPrincipal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := credential.Principal(rapid.StringN(0, 300, -1).Draw(t, "principal"))
		short := credential.ShortPrincipal(p)
		if len(short) > credential.MaxPrincipal {
			t.Fatalf("%d bytes", len(short))
		}
		if utf8.ValidString(string(p)) && !utf8.ValidString(string(short)) {
			t.Fatalf("not UTF-8: %q", short)
		}
		if len(p) <= credential.MaxPrincipal && short != p {
			t.Fatalf("%q became %q", p, short)
		}
		if other := credential.ShortPrincipal(p + "x"); len(p) >= credential.MaxPrincipal && other == short {
			t.Fatalf("two principals became %q", short)
		}
	})
}
