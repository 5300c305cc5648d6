package credential

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ProxyUID is the Kubernetes UID of the Proxy object that a token opens.
type ProxyUID string

// Principal names who uses the proxy, as the hub authenticated them, or which agent probes it.
type Principal string

// KeyID is the short name of a public key, in lower-case hexadecimal. See [KeyIDOf].
type KeyID string

// Use says what a key may sign.
type Use string

const (
	// UseLease marks a hub's key, which signs for lease holders.
	UseLease Use = "lease"
	// UseProbe marks an agent's key, which signs for that agent's own probes.
	UseProbe Use = "probe"
)

// ProbePrefix begins the principal of every probe token and of no other: a probe key cannot sign for a lease holder,
// so traffic is never charged to a tenant on an agent's word alone.
const ProbePrefix = "probe:"

// Bounds of what a token carries, in bytes.
const (
	// MaxPrincipal is the length of the longest principal in a token. Longer ones are shortened by [ShortPrincipal].
	MaxPrincipal = 150
	// MaxProxyUID is the length of the longest proxy UID that is not a UUID.
	MaxProxyUID = 64
	// MaxTokenLength is the number of characters of the longest token.
	MaxTokenLength = 395
)

// MaxLifetime is the longest that a token can live, windows included.
const MaxLifetime = 366 * 24 * time.Hour

// Leeway is how far ahead of the verifier's clock a token's issuer may be. Expiry has no leeway.
const Leeway = 2 * time.Minute

// Why a token, a key set or a request to sign is refused. Callers branch on these with errors.Is; the text beside
// them is for people.
var (
	// ErrMalformed means that the text is no token of this version at all.
	ErrMalformed = errors.New("malformed token")
	// ErrUnknownKey means that the signing key is not in the key set: not arrived yet, or rolled away.
	ErrUnknownKey = errors.New("token signed by an unknown key")
	// ErrBadSignature means that the token was changed or forged.
	ErrBadSignature = errors.New("token with a bad signature")
	// ErrWrongUse means that a probe key signed for a lease holder or a lease key for a probe.
	ErrWrongUse = errors.New("token signed by a key meant for another use")
	// ErrWrongProxy means that the token opens another proxy.
	ErrWrongProxy = errors.New("token for another proxy")
	// ErrNotYetValid means that the token was issued more than Leeway in the future.
	ErrNotYetValid = errors.New("token not valid yet")
	// ErrExpired means that the token has ended.
	ErrExpired = errors.New("token expired")
	// ErrDenied means that the deny list names the token's principal or proxy.
	ErrDenied = errors.New("token revoked")
	// ErrInvalid means that a signer was asked for a token that cannot be expressed.
	ErrInvalid = errors.New("invalid token request")
	// ErrBadKeySet means that a key file cannot be used.
	ErrBadKeySet = errors.New("bad key set")
)

// Claims is what a verified token says.
type Claims struct {
	// Key is the id of the key that signed.
	Key KeyID
	// Use is what that key is for.
	Use Use
	// Proxy is the proxy that the token opens.
	Proxy ProxyUID
	// Principal is who uses it.
	Principal Principal
	// Issued is the start of the signer's window, in whole seconds.
	Issued time.Time
	// NotAfter is the first instant at which the token is refused.
	NotAfter time.Time
}

// KeyIDOf returns the id of a public key: 12 hexadecimal characters of its SHA-256.
func KeyIDOf(public ed25519.PublicKey) KeyID {
	sum := sha256.Sum256(public)
	return KeyID(hex.EncodeToString(sum[:keyIDLen]))
}

// ShortPrincipal returns p if it fits into a token, else its beginning, a tilde and a hash of all of it, which does.
// Deny lists go through it too, so that a long principal is denied by its full name.
func ShortPrincipal(p Principal) Principal {
	if len(p) <= MaxPrincipal {
		return p
	}
	sum := sha256.Sum256([]byte(p))
	tail := "~" + hex.EncodeToString(sum[:16])
	head := string(p[:MaxPrincipal-len(tail)])
	// Do not end the head in the middle of a character: the result must be valid UTF-8 if p is.
	for len(head) > 0 {
		if r, size := utf8.DecodeLastRuneInString(head); r != utf8.RuneError || size > 1 {
			break
		}
		head = head[:len(head)-1]
	}
	return Principal(head + tail)
}

const (
	version     = 1
	keyIDLen    = 6
	issuedLen   = 5
	lifetimeLen = 4
	fixedLen    = 1 + keyIDLen + issuedLen + lifetimeLen
	uuidLen     = 16
	maxRaw      = fixedLen + 1 + MaxProxyUID + 1 + MaxPrincipal + ed25519.SignatureSize
	// signingContext separates these signatures from any other use that a key may ever get.
	signingContext = "shoal credential v1\x00"
)

// encoding is strict: stray bits in the last character would give one token several spellings.
var encoding = base64.RawURLEncoding.Strict()

// payload is the signed part of a token in its parsed form.
type payload struct {
	key       [keyIDLen]byte
	issued    int64
	lifetime  uint32
	proxy     ProxyUID
	principal Principal
}

func (p payload) notAfter() int64 { return p.issued + int64(p.lifetime) }

// append adds the encoded payload to b. The payload must have passed check.
func (p payload) append(b []byte) []byte {
	b = append(b, version)
	b = append(b, p.key[:]...)
	b = append(b, byte(p.issued>>32), byte(p.issued>>24), byte(p.issued>>16), byte(p.issued>>8), byte(p.issued))
	b = append(b, byte(p.lifetime>>24), byte(p.lifetime>>16), byte(p.lifetime>>8), byte(p.lifetime))
	if id, ok := parseUUID(string(p.proxy)); ok {
		b = append(b, 0)
		b = append(b, id[:]...)
	} else {
		b = append(b, byte(len(p.proxy)))
		b = append(b, p.proxy...)
	}
	b = append(b, byte(len(p.principal)))
	return append(b, p.principal...)
}

// check reports what keeps the payload from being encoded, in words for whoever asked to sign it.
func (p payload) check() error {
	switch {
	case p.issued < 0 || p.notAfter() >= 1<<(8*issuedLen):
		return errors.New("the time is outside of what a token can carry")
	case p.lifetime == 0:
		return errors.New("the lifetime must be at least one second")
	case p.proxy == "":
		return errors.New("the proxy UID is empty")
	case len(p.proxy) > MaxProxyUID:
		return fmt.Errorf("the proxy UID has %d bytes; use the Proxy's Kubernetes UID, at most %d", len(p.proxy), MaxProxyUID)
	case !printable(string(p.proxy)):
		return errors.New("the proxy UID has control characters or is not UTF-8")
	case p.principal == "":
		return errors.New("the principal is empty")
	case len(p.principal) > MaxPrincipal:
		return fmt.Errorf("the principal has %d bytes, more than %d", len(p.principal), MaxPrincipal)
	case !printable(string(p.principal)):
		return errors.New("the principal has control characters or is not UTF-8")
	}
	return nil
}

// parse splits a token into payload, signed bytes and signature. It accepts exactly what append writes.
func parse(token string) (p payload, signed, signature []byte, err error) {
	if len(token) > MaxTokenLength {
		return payload{}, nil, nil, fmt.Errorf("%w: %d characters, more than %d", ErrMalformed, len(token), MaxTokenLength)
	}
	// base64 skips line breaks; a token has none.
	if strings.ContainsAny(token, "\r\n") {
		return payload{}, nil, nil, fmt.Errorf("%w: it has line breaks", ErrMalformed)
	}
	raw, err := encoding.DecodeString(token)
	if err != nil {
		return payload{}, nil, nil, fmt.Errorf("%w: not base64url", ErrMalformed)
	}
	if len(raw) == 0 || raw[0] != version {
		return payload{}, nil, nil, fmt.Errorf("%w: not of version %d", ErrMalformed, version)
	}
	if len(raw) < fixedLen+1+1+1+ed25519.SignatureSize {
		return payload{}, nil, nil, fmt.Errorf("%w: too short", ErrMalformed)
	}
	signed, signature = raw[:len(raw)-ed25519.SignatureSize], raw[len(raw)-ed25519.SignatureSize:]
	rest := signed[1:]
	rest = rest[copy(p.key[:], rest):]
	for _, b := range rest[:issuedLen] {
		p.issued = p.issued<<8 | int64(b)
	}
	rest = rest[issuedLen:]
	for _, b := range rest[:lifetimeLen] {
		p.lifetime = p.lifetime<<8 | uint32(b)
	}
	rest = rest[lifetimeLen:]

	n, rest := int(rest[0]), rest[1:]
	switch {
	case n == 0 && len(rest) > uuidLen:
		p.proxy, rest = ProxyUID(formatUUID([uuidLen]byte(rest))), rest[uuidLen:]
	case n > 0 && n < len(rest):
		p.proxy, rest = ProxyUID(rest[:n]), rest[n:]
		if _, ok := parseUUID(string(p.proxy)); ok {
			return payload{}, nil, nil, fmt.Errorf("%w: a UUID in long form", ErrMalformed)
		}
	default:
		return payload{}, nil, nil, fmt.Errorf("%w: cut off in the proxy UID", ErrMalformed)
	}
	if int(rest[0]) != len(rest)-1 {
		return payload{}, nil, nil, fmt.Errorf("%w: the principal's length does not fit", ErrMalformed)
	}
	p.principal = Principal(rest[1:])
	if err := p.check(); err != nil {
		return payload{}, nil, nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return p, signed, signature, nil
}

// signingInput is what the signature covers.
func signingInput(signed []byte) []byte {
	return append(append(make([]byte, 0, len(signingContext)+len(signed)), signingContext...), signed...)
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// parseUUID reads the canonical lower-case form only: any other spelling is a different UID.
func parseUUID(s string) (id [uuidLen]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return id, false
	}
	digits := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil {
		return id, false
	}
	return id, formatUUID(id) == s
}

func formatUUID(id [uuidLen]byte) string {
	h := hex.EncodeToString(id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
