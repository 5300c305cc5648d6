package credential

import (
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// SignerOptions configures a [Signer].
type SignerOptions struct {
	// Key is the private key.
	Key ed25519.PrivateKey
	// Use is what the key's entry in the key set says.
	Use Use
	// Window is how long a signature is shared, in whole seconds, at least one. A minute is a good value: tokens
	// live up to this much longer than asked for.
	Window time.Duration
}

// Signer makes tokens. It is immutable and safe for concurrent use.
type Signer struct {
	key    ed25519.PrivateKey
	id     [keyIDLen]byte
	use    Use
	window int64 // seconds
}

// Token is a signed credential and the times that matter to whoever keeps it.
type Token struct {
	// Password is the token's text.
	Password string
	// NotAfter is the first instant at which proxies refuse it.
	NotAfter time.Time
	// FreshUntil is the end of the window: from then on, Sign returns another token for the same request.
	FreshUntil time.Time
}

// NewSigner checks the options and returns a signer, or an error that wraps [ErrInvalid].
func NewSigner(o SignerOptions) (*Signer, error) {
	switch {
	case len(o.Key) != ed25519.PrivateKeySize:
		return nil, fmt.Errorf("%w: the private key has %d bytes, an Ed25519 key has %d", ErrInvalid, len(o.Key), ed25519.PrivateKeySize)
	case o.Use != UseLease && o.Use != UseProbe:
		return nil, fmt.Errorf("%w: the use is %q; say %q or %q", ErrInvalid, o.Use, UseLease, UseProbe)
	case o.Window < time.Second || o.Window%time.Second != 0 || o.Window > MaxLifetime:
		return nil, fmt.Errorf("%w: the window is %v; use whole seconds, at least 1s", ErrInvalid, o.Window)
	}
	s := &Signer{key: o.Key, use: o.Use, window: int64(o.Window / time.Second)}
	id, err := hex.DecodeString(string(KeyIDOf(o.Key.Public().(ed25519.PublicKey))))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	copy(s.id[:], id)
	return s, nil
}

// PublicKey returns the signer's entry for a key set.
func (s *Signer) PublicKey() Key {
	public := s.key.Public().(ed25519.PublicKey)
	return Key{ID: KeyIDOf(public), Public: public, Use: s.use}
}

// Sign returns the token that opens the proxy to the principal for at least the lifetime from now on, and for less
// than one window more. Within a window it returns the same token for the same arguments. Principals that are too
// long are shortened by [ShortPrincipal]. What cannot be signed is an error that wraps [ErrInvalid] or, for a
// principal of the other kind of key, [ErrWrongUse].
func (s *Signer) Sign(now time.Time, proxy ProxyUID, principal Principal, lifetime time.Duration) (Token, error) {
	principal = ShortPrincipal(principal)
	if lifetime < time.Second || lifetime > MaxLifetime {
		return Token{}, fmt.Errorf("%w: the lifetime is %v; use 1s to %v", ErrInvalid, lifetime, MaxLifetime)
	}
	if err := checkUse(s.use, principal); err != nil {
		return Token{}, err
	}
	start := windowStart(now.Unix(), s.window, proxy, principal)
	p := payload{
		key:    s.id,
		issued: start,
		// Round up: a token never lives shorter than asked for.
		lifetime:  uint32(int64((lifetime+time.Second-1)/time.Second) + s.window),
		proxy:     proxy,
		principal: principal,
	}
	if err := p.check(); err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	raw := p.append(make([]byte, 0, maxRaw))
	raw = append(raw, ed25519.Sign(s.key, signingInput(raw))...)
	return Token{
		Password:   encoding.EncodeToString(raw),
		NotAfter:   time.Unix(p.notAfter(), 0).UTC(),
		FreshUntil: time.Unix(start+s.window, 0).UTC(),
	}, nil
}

// windowStart rounds a time down to the window of this principal and proxy. Each pair's windows are shifted by a hash
// of the two: if all began together, a hub with many proxies would have to sign for all of them in one burst.
func windowStart(now, window int64, proxy ProxyUID, principal Principal) int64 {
	h := fnv.New64a()
	// Writing to a hash never fails. The zero byte separates the two: neither contains one.
	h.Write([]byte(proxy))
	h.Write([]byte{0})
	h.Write([]byte(principal))
	shift := int64(h.Sum64() % uint64(window))
	start := now - (now-shift)%window
	if now < shift { // Before the first window of the epoch; only tests come here.
		start = 0
	}
	return start
}

func checkUse(use Use, principal Principal) error {
	if strings.HasPrefix(string(principal), ProbePrefix) == (use == UseProbe) {
		return nil
	}
	if use == UseProbe {
		return fmt.Errorf("%w: a probe key signs only for principals that begin with %q", ErrWrongUse, ProbePrefix)
	}
	return fmt.Errorf("%w: principals that begin with %q are for probe keys", ErrWrongUse, ProbePrefix)
}
