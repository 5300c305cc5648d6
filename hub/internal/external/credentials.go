package external

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Credentials are what proxies of one owner ask for. The zero value is for proxies that ask for nothing. However they are
// printed or logged, they do not show.
type Credentials struct {
	// Key names this version of them.
	Key                string
	Username, Password string
}

// IsZero tells whether there are none.
func (c Credentials) IsZero() bool { return c == Credentials{} }

// String hides what they are.
func (c Credentials) String() string { return "credentials " + c.Key }

// GoString hides what they are.
func (c Credentials) GoString() string { return c.String() }

// LogValue hides what they are.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalText hides what they are.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Problem is why a fleet's credentials cannot be used, for somebody to mend.
type Problem struct {
	// Reason is a condition reason of the API.
	Reason string
	// Message names the object, the cause and the way out, and holds nothing that is secret.
	Message string
}

// mostBytes bounds a user name and a password each, so that what is sent with every request stays small.
const mostBytes = 1024

// parse reads credentials from a Secret.
func parse(secret *corev1.Secret) (Credentials, *Problem) {
	name := secret.Namespace + "/" + secret.Name
	var values [2]string
	for i, key := range []string{v1alpha1.CredentialsUsernameKey, v1alpha1.CredentialsPasswordKey} {
		value, ok := secret.Data[key]
		if !ok {
			return Credentials{}, &Problem{v1alpha1.ReasonCredentialsMissing, fmt.Sprintf(
				"Secret %s has no key %s; give it the keys %s and %s, or take it out of spec.external",
				name, key, v1alpha1.CredentialsUsernameKey, v1alpha1.CredentialsPasswordKey)}
		}
		values[i] = string(value)
		if words := unfit(values[i]); words != "" {
			return Credentials{}, &Problem{v1alpha1.ReasonCredentialsInvalid, fmt.Sprintf("Secret %s, key %s: %s", name, key, words)}
		}
	}
	switch {
	case values[0] == "":
		return Credentials{}, &Problem{v1alpha1.ReasonCredentialsInvalid, fmt.Sprintf(
			"Secret %s has an empty user name; write one, or take the Secret out of spec.external for proxies that ask for none", name)}
	case strings.Contains(values[0], ":"):
		return Credentials{}, &Problem{v1alpha1.ReasonCredentialsInvalid, fmt.Sprintf(
			"Secret %s has a user name with a colon, which ends it in basic authentication; ask the proxies' owner for another", name)}
	}
	return Credentials{Key: keyOf(secret), Username: values[0], Password: values[1]}, nil
}

// unfit says why a value cannot be sent to a proxy; empty if it can. It does not quote.
func unfit(value string) string {
	switch {
	case len(value) > mostBytes:
		return fmt.Sprintf("it is longer than %d bytes", mostBytes)
	case !utf8.ValidString(value):
		return "it is not UTF-8"
	case strings.HasSuffix(value, "\n"):
		return "it ends with a newline; make the Secret with --from-literal, or the file with printf"
	case strings.ContainsFunc(value, unicode.IsControl):
		return "it has a control character"
	}
	return ""
}

// keyOf names the version of a Secret. Nothing of what it holds goes into the key.
func keyOf(secret *corev1.Secret) string {
	sum := sha256.Sum256([]byte(string(secret.UID) + "/" + secret.ResourceVersion))
	return "k" + hex.EncodeToString(sum[:8])
}
