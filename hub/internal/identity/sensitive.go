package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strings"
)

// Sensitive is text that must not be seen by accident: formatted, logged or encoded it reads "[redacted]".
type Sensitive string

// String hides the text.
func (Sensitive) String() string { return "[redacted]" }

// GoString hides the text.
func (Sensitive) GoString() string { return "[redacted]" }

// MarshalText hides the text from encoders.
func (Sensitive) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// Reveal returns the text, for the one place that hands it to its owner.
func (s Sensitive) Reveal() string { return string(s) }

const (
	// secretBytes is the strength of a token. With so much of it one round of SHA-256 is all the hashing it needs.
	secretBytes = 32
	// idBytes makes ids that are short to type and do not meet by chance.
	idBytes   = 6
	idLen     = 2 * idBytes
	secretLen = 52 // of 32 bytes in base32
)

// tokenEncoding has no characters that a shell, a URL or a double click would stop at.
var tokenEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newSecret returns a fresh id and secret. Reading randomness never fails: the program dies instead.
func newSecret() (id, secret string) {
	raw := make([]byte, idBytes+secretBytes)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw[:idBytes]), tokenEncoding.EncodeToString(raw[idBytes:])
}

// digest is the form in which a token's secret is stored.
func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// matches compares a secret with a stored digest, in time that depends on neither.
func matches(secret, stored string) bool {
	return subtle.ConstantTimeCompare([]byte(digest(secret)), []byte(stored)) == 1
}

func validID(id string) bool {
	return len(id) == idLen && strings.Trim(id, "0123456789abcdef") == ""
}

func validSecret(secret string) bool {
	return len(secret) == secretLen && strings.Trim(secret, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

func checkDigest(stored string) error {
	if raw, err := hex.DecodeString(stored); err != nil || len(raw) != sha256.Size {
		return fmt.Errorf("%w: its hash is not a SHA-256 in hexadecimal", ErrDamaged)
	}
	return nil
}
