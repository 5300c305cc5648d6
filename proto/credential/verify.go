package credential

import (
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"time"
)

// Verify checks a token that somebody presented to the proxy and returns what it says. The error wraps one of
// [ErrMalformed], [ErrUnknownKey], [ErrBadSignature], [ErrWrongUse], [ErrWrongProxy], [ErrNotYetValid], [ErrExpired]
// and [ErrDenied], looked for in this order: nothing is said about a token before its signature is known to be good.
func Verify(keys KeySet, deny DenyList, proxy ProxyUID, token string, now time.Time) (Claims, error) {
	p, signed, signature, err := parse(token)
	if err != nil {
		return Claims{}, err
	}
	id := KeyID(hex.EncodeToString(p.key[:]))
	key, ok := keys.lookup(id)
	if !ok {
		return Claims{}, fmt.Errorf("%w: %s", ErrUnknownKey, id)
	}
	if !ed25519.Verify(key.Public, signingInput(signed), signature) {
		return Claims{}, ErrBadSignature
	}
	claims := Claims{
		Key:       id,
		Use:       key.Use,
		Proxy:     p.proxy,
		Principal: p.principal,
		Issued:    time.Unix(p.issued, 0).UTC(),
		NotAfter:  time.Unix(p.notAfter(), 0).UTC(),
	}
	if err := checkUse(key.Use, claims.Principal); err != nil {
		return Claims{}, err
	}
	switch {
	case claims.Proxy != proxy:
		return Claims{}, fmt.Errorf("%w: it opens %s", ErrWrongProxy, claims.Proxy)
	case claims.Issued.After(now.Add(Leeway)):
		return Claims{}, fmt.Errorf("%w: issued at %s", ErrNotYetValid, claims.Issued.Format(time.RFC3339))
	case !now.Before(claims.NotAfter):
		return Claims{}, fmt.Errorf("%w: it ended at %s", ErrExpired, claims.NotAfter.Format(time.RFC3339))
	case deny.denies(claims):
		return Claims{}, ErrDenied
	}
	return claims, nil
}
