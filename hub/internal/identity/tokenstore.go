package identity

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Caller is who calls the lease service.
type Caller struct {
	// Principal owns the leases that the caller takes.
	Principal string

	fleets []string
}

// AllowsFleet reports whether the caller may lease from the fleet "namespace/name".
func (c Caller) AllowsFleet(fleet string) bool { return allowsFleet(c.fleets, fleet) }

// TokenStore authenticates callers by API tokens.
type TokenStore struct {
	reader    client.Reader
	namespace string
	clock     clock.PassiveClock
}

// TokenStoreOptions configures a [TokenStore].
type TokenStoreOptions struct {
	// Reader reads the Secrets of API tokens; in the hub a cache, because it is asked on every call.
	Reader client.Reader
	// Namespace is where the Secrets are.
	Namespace string
	// Clock decides what has expired.
	Clock clock.PassiveClock
}

// NewTokenStore returns a store.
func NewTokenStore(o TokenStoreOptions) *TokenStore {
	return &TokenStore{reader: o.Reader, namespace: o.Namespace, clock: o.Clock}
}

// Authenticate returns who a token's text speaks for. Errors wrap [ErrMalformedToken], [ErrUnknownToken] (which does
// not tell a wrong secret from a wrong id), [ErrExpiredToken] or [ErrDamaged]; any other means that the store could not
// be read and that trying again may help. A deleted token is refused as soon as the cache has heard of it.
func (s *TokenStore) Authenticate(ctx context.Context, bearer string) (Caller, error) {
	id, secret, err := splitAPIToken(bearer)
	if err != nil {
		return Caller{}, err
	}
	var object corev1.Secret
	err = s.reader.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: APITokenSecretName(id)}, &object)
	switch {
	case apierrors.IsNotFound(err):
		return Caller{}, unknownAPIToken(id)
	case err != nil:
		return Caller{}, fmt.Errorf("look up API token %s: %w", id, err)
	}
	token, err := DecodeAPIToken(&object)
	if errors.Is(err, ErrDamaged) {
		return Caller{}, fmt.Errorf("API token %s: %w; delete Secret %s/%s and create another token", id, err, s.namespace, object.Name)
	}
	if err != nil {
		return Caller{}, err
	}
	if !matches(secret, token.hash) {
		return Caller{}, unknownAPIToken(id)
	}
	if !token.Expires.IsZero() && !s.clock.Now().Before(token.Expires) {
		return Caller{}, fmt.Errorf("%w: API token %s of %q ended at %s; make another with `shoalctl token create --name %s`",
			ErrExpiredToken, id, token.Name, token.Expires.UTC().Format("2006-01-02T15:04:05Z"), token.Name)
	}
	return Caller{Principal: token.Name, fleets: token.Fleets}, nil
}

func unknownAPIToken(id string) error {
	return fmt.Errorf("%w: there is no API token %s with this secret; it may have been revoked", ErrUnknownToken, id)
}
