package leaseapi

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"connectrpc.com/connect/v2"

	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// ErrUnknownToken is what an [Authenticator] returns, wrapped or not, for a token that is unknown, expired or
// revoked. Callers are not told which.
var ErrUnknownToken = errors.New("unknown bearer token")

// Caller is who makes a call.
type Caller struct {
	// Principal is the name that leases are held under. It is never empty.
	Principal string
	// AllowsFleet says whether the caller may lease from a fleet, named "namespace/name". It is never nil. It may have to
	// ask somebody; an error says that it cannot find out at the moment.
	AllowsFleet func(ctx context.Context, fleet string) (bool, error)
	// MayOperate says whether the caller may act on everybody's leases: see OperatorService. Nil says no.
	MayOperate func(ctx context.Context) (bool, error)
}

// Authenticator knows the bearer tokens of crawlers.
type Authenticator interface {
	// Authenticate returns whose token it is. [ErrUnknownToken] refuses the caller; any other error says that the
	// tokens cannot be looked up at the moment. Neither may repeat the token.
	Authenticate(ctx context.Context, bearer string) (Caller, error)
}

// AuthenticatorFunc is an [Authenticator] that is a function.
type AuthenticatorFunc func(ctx context.Context, bearer string) (Caller, error)

// Authenticate implements [Authenticator].
func (f AuthenticatorFunc) Authenticate(ctx context.Context, bearer string) (Caller, error) {
	return f(ctx, bearer)
}

// maxToken is more than any token we make or Kubernetes signs.
const maxToken = 16 << 10

const (
	headerAuthorization = "Authorization"
	headerChallenge     = "WWW-Authenticate"
	challenge           = `Bearer realm="shoal"`
)

// identity is who makes a call, and by which token: calls that last look it up again.
type identity struct {
	caller Caller
	token  string
}

type identityKey struct{}

// callerFrom returns who makes the call; the interceptor has put it there.
func callerFrom(ctx context.Context) Caller {
	if known, ok := ctx.Value(identityKey{}).(*identity); ok {
		return known.caller
	}
	return Caller{}
}

// bearerFrom returns the token that the call came with.
func bearerFrom(ctx context.Context) string {
	if known, ok := ctx.Value(identityKey{}).(*identity); ok {
		return known.token
	}
	return ""
}

// gatekeeper decides who is let in.
type gatekeeper struct {
	tokens Authenticator
	log    *slog.Logger
}

// admit returns whose token it is, or the refusal.
func (g gatekeeper) admit(ctx context.Context, token string) (Caller, error) {
	caller, err := g.tokens.Authenticate(ctx, token)
	switch {
	case errors.Is(err, ErrUnknownToken):
		return Caller{}, unauthenticated("the bearer token is unknown, expired or revoked; ask for a new one (shoalctl token create)")
	case err != nil && ctx.Err() != nil:
		return Caller{}, ctx.Err()
	case err != nil:
		// An error of someone else's store: make sure that it does not carry the token into the log.
		g.log.WarnContext(ctx, "cannot look up bearer tokens", "err", strings.ReplaceAll(err.Error(), token, "…"))
		return Caller{}, fault.New(leasev1.Refusal_UNAVAILABLE, "the hub cannot look up bearer tokens at the moment; try again",
			fault.Details{RetryAfter: retryUnavailable})
	case caller.Principal == "" || caller.AllowsFleet == nil:
		return Caller{}, errors.New("leaseapi: the authenticator returned a caller without a principal or its fleets")
	}
	return caller, nil
}

func unauthenticated(message string) error {
	return fault.New(leasev1.Refusal_UNAUTHENTICATED, message, fault.Details{})
}

// allowed refuses a caller that may not lease from the fleet.
func (s *service) allowed(ctx context.Context, caller Caller, fleet string) error {
	allowed, err := caller.AllowsFleet(ctx, fleet)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		s.log.WarnContext(ctx, "cannot find out what a caller may do", "principal", caller.Principal, "fleet", fleet, "err", err)
		return fault.New(leasev1.Refusal_UNAVAILABLE, "the hub cannot find out at the moment which fleets this token may lease from; try again",
			fault.Details{RetryAfter: retryUnavailable})
	case !allowed:
		return unknownFleet(fleet)
	}
	return nil
}

// authenticate lets only callers with a token in. It reads headers alone, so that strangers cannot make the hub
// decompress or decode anything.
func authenticate(gate gatekeeper) connect.ServerInterceptor {
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			info, ok := connect.CallInfoForServerContext(ctx)
			if !ok {
				return errors.New("leaseapi: a call without metadata")
			}
			token, problem := bearer(info.RequestHeader().Values(headerAuthorization))
			var caller Caller
			var err error
			if problem != "" {
				err = unauthenticated(problem)
			} else {
				caller, err = gate.admit(ctx, token)
			}
			if err != nil {
				if fault.ReasonOf(err) == leasev1.Refusal_UNAUTHENTICATED {
					info.ResponseHeader().Set(headerChallenge, challenge)
				}
				return err
			}
			return next(context.WithValue(ctx, identityKey{}, &identity{caller: caller, token: token}), spec, stream)
		}
	}
}

// bearer reads the token of an Authorization header, or says what is wrong with it.
func bearer(values []string) (token, problem string) {
	const how = "send the header Authorization: Bearer TOKEN"
	switch len(values) {
	case 0:
		return "", "no bearer token; " + how
	case 1:
	default:
		return "", "more than one Authorization header; send one"
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	switch {
	case !strings.EqualFold(scheme, "Bearer"):
		return "", "the Authorization header is not of the Bearer scheme; " + how
	case token == "":
		return "", "the bearer token is empty; " + how
	case len(token) > maxToken || strings.ContainsFunc(token, notVisible):
		return "", "the bearer token is malformed; " + how + " as shoalctl token create printed it"
	}
	return token, ""
}

func notVisible(r rune) bool { return r <= ' ' || r > '~' }
