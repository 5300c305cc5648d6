package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const (
	joinTokenSecretPrefix = "shoal-join-token-"
	keyGrant              = "grant"

	// MaxJoinTTL is the longest that a join token can live.
	MaxJoinTTL = 24 * time.Hour
	// maxMembers bounds the members of one join token.
	maxMembers = 256
	// maxMemberName is the length of the longest name of a member: it becomes the value of a label.
	maxMemberName = 63
)

// JoinGrant is what a join token allows.
type JoinGrant struct {
	// Members may be joined with the token, each by one cluster.
	Members []string `json:"members"`
	// Accept lets members join without waiting for a person.
	Accept bool `json:"accept,omitempty"`
	// Labels are given to MemberClusters that the token creates.
	Labels map[string]string `json:"labels,omitempty"`
	// Region is given to MemberClusters that have none, before what the agent says of itself.
	Region string `json:"region,omitempty"`
	// Country is given like Region; an ISO 3166 code.
	Country string `json:"country,omitempty"`
}

// JoinToken lets the agents of new members register, without the secret that proves it. It can be used any number of
// times until it expires, so that an interrupted installation can go on: each of its members is claimed by the first
// cluster that registers for it, and from then on the token does nothing but let that cluster register again.
type JoinToken struct {
	// ID tells the token from others. It is the visible part of the token's text.
	ID string
	// Grant is what the token allows.
	Grant JoinGrant
	// Expires is when the token ends.
	Expires time.Time

	hash string
}

// NewJoinToken makes a token and its text, which is "<id>.<secret>" and is kept nowhere. What cannot be made is an
// error that wraps [ErrInvalid].
func NewJoinToken(now time.Time, grant JoinGrant, ttl time.Duration) (JoinToken, Sensitive, error) {
	if ttl < time.Minute || ttl > MaxJoinTTL {
		return JoinToken{}, "", fmt.Errorf("%w: the ttl is %v; use 1m to 24h", ErrInvalid, ttl)
	}
	if err := grant.check(); err != nil {
		return JoinToken{}, "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	id, secret := newSecret()
	grant.Members, grant.Labels = slices.Clone(grant.Members), maps.Clone(grant.Labels)
	t := JoinToken{ID: id, Grant: grant, Expires: now.Add(ttl).UTC().Truncate(time.Second), hash: digest(secret)}
	return t, Sensitive(id + "." + secret), nil
}

func (g JoinGrant) check() error {
	if len(g.Members) == 0 || len(g.Members) > maxMembers {
		return fmt.Errorf("it has %d members; name 1 to %d", len(g.Members), maxMembers)
	}
	for _, member := range g.Members {
		if err := checkMemberName(member); err != nil {
			return err
		}
	}
	for key, value := range g.Labels {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return fmt.Errorf("the label is %s=%s; write a Kubernetes label such as shoal.dev/egress=true", key, value)
		}
	}
	return checkPlace(g.Region, g.Country)
}

func checkMemberName(member string) error {
	if len(validation.IsDNS1123Label(member)) > 0 {
		return fmt.Errorf("the member is %q; use up to %d lower-case letters, digits and dashes, such as us-east1", member, maxMemberName)
	}
	return nil
}

// checkPlace holds the bounds that MemberCluster has, so that a bad value is refused before anything is written.
func checkPlace(region, country string) error {
	if len(region) > 63 {
		return fmt.Errorf("the region has %d characters; use at most 63", len(region))
	}
	if country != "" && (len(country) != 2 || strings.Trim(country, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "") {
		return fmt.Errorf("the country is %q; use two capital letters (ISO 3166), such as DE", country)
	}
	return nil
}

// Secret returns the object that the token is stored as.
func (t JoinToken) Secret(namespace string) (*corev1.Secret, error) {
	grant, err := json.Marshal(t.Grant)
	if err != nil {
		return nil, fmt.Errorf("encode a join token: %w", err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      JoinTokenSecretName(t.ID),
			Labels:    map[string]string{v1alpha1.LabelComponent: v1alpha1.ComponentJoinToken},
		},
		Data: map[string][]byte{
			keyHash:    []byte(t.hash),
			keyGrant:   grant,
			keyExpires: []byte(t.Expires.UTC().Format(time.RFC3339)),
		},
	}, nil
}

// JoinTokenSecretName is the name of the Secret of the token with this id.
func JoinTokenSecretName(id string) string { return joinTokenSecretPrefix + id }

// DecodeJoinToken reads a token from its Secret. What cannot be read is an error that wraps [ErrDamaged].
func DecodeJoinToken(secret *corev1.Secret) (JoinToken, error) {
	t := JoinToken{ID: strings.TrimPrefix(secret.Name, joinTokenSecretPrefix), hash: string(secret.Data[keyHash])}
	if !validID(t.ID) || secret.Labels[v1alpha1.LabelComponent] != v1alpha1.ComponentJoinToken {
		return JoinToken{}, fmt.Errorf("%w: %s is not a join token", ErrDamaged, secret.Name)
	}
	if err := checkDigest(t.hash); err != nil {
		return JoinToken{}, fmt.Errorf("%s: %w", secret.Name, err)
	}
	if err := json.Unmarshal(secret.Data[keyGrant], &t.Grant); err != nil {
		return JoinToken{}, fmt.Errorf("%s: %w: its grant is not JSON", secret.Name, ErrDamaged)
	}
	if err := t.Grant.check(); err != nil {
		return JoinToken{}, fmt.Errorf("%s: %w: %w", secret.Name, ErrDamaged, err)
	}
	expires, err := decodeTime(secret.Data[keyExpires])
	if err != nil {
		return JoinToken{}, fmt.Errorf("%s: %w", secret.Name, err)
	}
	if expires.IsZero() {
		return JoinToken{}, fmt.Errorf("%s: %w: it has no expiry", secret.Name, ErrDamaged)
	}
	t.Expires = expires
	return t, nil
}

// JoinTokens authenticates members that join.
type JoinTokens struct {
	reader    client.Reader
	namespace string
	clock     clock.PassiveClock
}

// JoinTokensOptions configures [JoinTokens].
type JoinTokensOptions struct {
	// Reader reads the Secrets of join tokens. It should not be a cache: a token is often used seconds after it was
	// made, and rarely at all.
	Reader client.Reader
	// Namespace is where the Secrets are.
	Namespace string
	// Clock decides what has expired.
	Clock clock.PassiveClock
}

// NewJoinTokens returns a store of join tokens.
func NewJoinTokens(o JoinTokensOptions) *JoinTokens {
	return &JoinTokens{reader: o.Reader, namespace: o.Namespace, clock: o.Clock}
}

// Redeem returns what a token's text allows the member. Errors wrap [ErrMalformedToken], [ErrUnknownToken] (which does
// not tell a wrong secret from a wrong id), [ErrExpiredToken], [ErrOtherMember] or [ErrDamaged]; any other means that
// the store could not be read and that trying again may help.
func (j *JoinTokens) Redeem(ctx context.Context, text, member string) (JoinGrant, error) {
	id, secret, ok := strings.Cut(text, ".")
	if !ok || !validID(id) || !validSecret(secret) {
		return JoinGrant{}, fmt.Errorf("%w: a join token looks like <id>.<secret>, as printed by `shoalctl member join-token`", ErrMalformedToken)
	}
	unknown := fmt.Errorf("%w: there is no join token %s with this secret; make another with `shoalctl member join-token %s`", ErrUnknownToken, id, member)
	var object corev1.Secret
	err := j.reader.Get(ctx, client.ObjectKey{Namespace: j.namespace, Name: JoinTokenSecretName(id)}, &object)
	switch {
	case apierrors.IsNotFound(err):
		return JoinGrant{}, unknown
	case err != nil:
		return JoinGrant{}, fmt.Errorf("look up join token %s: %w", id, err)
	}
	token, err := DecodeJoinToken(&object)
	if errors.Is(err, ErrDamaged) {
		return JoinGrant{}, fmt.Errorf("join token %s: %w; delete Secret %s/%s and make another token", id, err, j.namespace, object.Name)
	}
	if err != nil {
		return JoinGrant{}, err
	}
	switch {
	case !matches(secret, token.hash):
		return JoinGrant{}, unknown
	case !j.clock.Now().Before(token.Expires):
		return JoinGrant{}, fmt.Errorf("%w: join token %s ended at %s; make another with `shoalctl member join-token %s`",
			ErrExpiredToken, id, token.Expires.UTC().Format("2006-01-02T15:04:05Z"), member)
	case !slices.Contains(token.Grant.Members, member):
		return JoinGrant{}, fmt.Errorf("%w: join token %s is for %s, not for %q; make one with `shoalctl member join-token %s`",
			ErrOtherMember, id, strings.Join(token.Grant.Members, ", "), member, member)
	}
	return token.Grant, nil
}
