package identity

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const (
	apiTokenPrefix       = "shoal_"
	apiTokenSecretPrefix = "shoal-api-token-"

	keyHash    = "hash"
	keyName    = "name"
	keyFleets  = "fleets"
	keyExpires = "expires"

	// maxFleets bounds the patterns of one token: they are compared one by one on every call.
	maxFleets = 64
)

// principalPattern keeps principals of tokens apart from those of other kinds, which contain a colon.
var principalPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// APIToken is a crawler's right to lease, without the secret that proves it.
type APIToken struct {
	// ID tells the token from others. It is the visible part of the token's text.
	ID string
	// Name is the principal that the token speaks for. Tokens with the same name share their leases, so that one can
	// replace the other.
	Name string
	// Fleets are what may be leased from: "namespace/name", or "namespace/*" for all of a namespace.
	Fleets []string
	// Expires is when the token ends; zero is never.
	Expires time.Time

	hash string
}

// NewAPIToken makes a token and its text, which is "shoal_<id>_<secret>" and is kept nowhere. A zero ttl is for ever.
// What cannot be made is an error that wraps [ErrInvalid].
func NewAPIToken(now time.Time, name string, fleets []string, ttl time.Duration) (APIToken, Sensitive, error) {
	if ttl < 0 {
		return APIToken{}, "", fmt.Errorf("%w: the ttl is %v; use a positive duration such as 720h, or 0 for a token without an end", ErrInvalid, ttl)
	}
	id, secret := newSecret()
	t := APIToken{ID: id, Name: name, Fleets: slices.Clone(fleets), hash: digest(secret)}
	if ttl > 0 {
		t.Expires = now.Add(ttl).UTC().Truncate(time.Second)
	}
	if err := t.check(); err != nil {
		return APIToken{}, "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return t, Sensitive(apiTokenPrefix + id + "_" + secret), nil
}

// AllowsFleet reports whether the token may lease from the fleet "namespace/name".
func (t APIToken) AllowsFleet(fleet string) bool { return allowsFleet(t.Fleets, fleet) }

func allowsFleet(patterns []string, fleet string) bool {
	namespace, name, ok := strings.Cut(fleet, "/")
	if !ok || namespace == "" || name == "" {
		return false
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ns, n, _ := strings.Cut(pattern, "/")
		return ns == namespace && (n == "*" || n == name)
	})
}

func (t APIToken) check() error {
	if !principalPattern.MatchString(t.Name) {
		return fmt.Errorf("the name is %q; use up to 63 lower-case letters, digits, dots and dashes", t.Name)
	}
	if len(t.Fleets) == 0 || len(t.Fleets) > maxFleets {
		return fmt.Errorf("it has %d fleets; name 1 to %d as namespace/name, or namespace/* for all of a namespace", len(t.Fleets), maxFleets)
	}
	for _, fleet := range t.Fleets {
		namespace, name, ok := strings.Cut(fleet, "/")
		if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || name != "*" && len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf("the fleet is %q; write namespace/name, or namespace/* for all of a namespace", fleet)
		}
	}
	return nil
}

// Secret returns the object that the token is stored as.
func (t APIToken) Secret(namespace string) *corev1.Secret {
	data := map[string][]byte{
		keyHash:   []byte(t.hash),
		keyName:   []byte(t.Name),
		keyFleets: []byte(strings.Join(t.Fleets, ",")),
	}
	if !t.Expires.IsZero() {
		data[keyExpires] = []byte(t.Expires.UTC().Format(time.RFC3339))
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      APITokenSecretName(t.ID),
			Labels:    map[string]string{v1alpha1.LabelComponent: v1alpha1.ComponentAPIToken},
		},
		Data: data,
	}
}

// APITokenSecretName is the name of the Secret of the token with this id.
func APITokenSecretName(id string) string { return apiTokenSecretPrefix + id }

// DecodeAPIToken reads a token from its Secret. What cannot be read is an error that wraps [ErrDamaged].
func DecodeAPIToken(secret *corev1.Secret) (APIToken, error) {
	t := APIToken{
		ID:     strings.TrimPrefix(secret.Name, apiTokenSecretPrefix),
		Name:   string(secret.Data[keyName]),
		Fleets: strings.Split(string(secret.Data[keyFleets]), ","),
		hash:   string(secret.Data[keyHash]),
	}
	if !validID(t.ID) || secret.Labels[v1alpha1.LabelComponent] != v1alpha1.ComponentAPIToken {
		return APIToken{}, fmt.Errorf("%w: %s is not an API token", ErrDamaged, secret.Name)
	}
	if err := checkDigest(t.hash); err != nil {
		return APIToken{}, fmt.Errorf("%s: %w", secret.Name, err)
	}
	expires, err := decodeTime(secret.Data[keyExpires])
	if err != nil {
		return APIToken{}, fmt.Errorf("%s: %w", secret.Name, err)
	}
	t.Expires = expires
	if err := t.check(); err != nil {
		return APIToken{}, fmt.Errorf("%s: %w: %w", secret.Name, ErrDamaged, err)
	}
	return t, nil
}

// splitAPIToken returns the parts of a token's text, or an error that wraps [ErrMalformedToken].
func splitAPIToken(text string) (id, secret string, err error) {
	rest, ok := strings.CutPrefix(text, apiTokenPrefix)
	if ok {
		id, secret, ok = strings.Cut(rest, "_")
	}
	if !ok || !validID(id) || !validSecret(secret) {
		return "", "", fmt.Errorf("%w: an API token looks like shoal_<id>_<secret>, as printed by `shoalctl token create`", ErrMalformedToken)
	}
	return id, secret, nil
}

func decodeTime(data []byte) (time.Time, error) {
	if len(data) == 0 {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, string(data))
	if err != nil {
		// A time that cannot be read must not mean never.
		return time.Time{}, fmt.Errorf("%w: its expiry is not a time like 2026-01-02T15:04:05Z", ErrDamaged)
	}
	return at, nil
}
