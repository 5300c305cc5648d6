package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/identity"
)

const (
	// Audience is whom a ServiceAccount token must be meant for: one for the API server is refused, so that a hub never
	// holds what would open the cluster.
	Audience = "shoal"
	// VerbLease allows to lease from a fleet: on proxyfleets, in the fleet's namespace, by name or all.
	VerbLease = "lease"
	// VerbOperate allows to act on everybody's leases: on proxyfleets in all namespaces.
	VerbOperate = "operate"
	// Remembered is how long an answer of the API server holds. A token or a right that is taken away ends with it at
	// the latest, plus what the API server itself remembers of tokens: 10 s by its own default.
	Remembered = 10 * time.Second

	// serviceAccount begins the principals of ServiceAccounts. Those of API tokens have no colon, so that neither can be
	// taken for the other.
	serviceAccount = "system:serviceaccount:"
	// apiToken begins the text of API tokens.
	apiToken = "shoal_"

	// mostTokens and mostDecisions bound what is remembered, good and bad each: some 200 bytes apiece.
	mostTokens, mostDecisions = 8192, 16384
	// mostFlights bounds the questions under way, of those who are known and of strangers each.
	mostFlights = 64
	// askTimeout bounds one question.
	askTimeout = 5 * time.Second
)

// ErrRefused means that a token is not one to let in: unknown, expired, revoked, or meant for somebody else. The text
// that wraps it is for the hub's log and holds no token; callers are not told which.
var ErrRefused = errors.New("token refused")

// User is whom a ServiceAccount token speaks for, as the API server says.
type User struct {
	Name   string
	UID    string
	Groups []string
}

// Kubernetes answers the questions.
type Kubernetes interface {
	// WhoIs returns whom a token for the audience speaks for, or an error that wraps [ErrRefused] if it is not good. Any
	// other error means that the API server did not answer.
	WhoIs(ctx context.Context, token, audience string) (User, error)
	// May tells whether somebody may do the verb on the ProxyFleet; on all of a namespace without a name, and of all
	// namespaces without either.
	May(ctx context.Context, who User, verb, namespace, name string) (bool, error)
}

// APITokens knows the hub's own tokens. *[identity.TokenStore] does.
type APITokens interface {
	Authenticate(ctx context.Context, bearer string) (identity.Caller, error)
}

// Options are what a [Gate] is made with.
type Options struct {
	// Kubernetes is required; [NewKubernetes] makes one.
	Kubernetes Kubernetes
	// APITokens is required.
	APITokens APITokens
	// Clock decides how long answers hold. Required.
	Clock clock.PassiveClock
}

// Gate lets callers in. It is safe for concurrent use.
type Gate struct {
	kubernetes Kubernetes
	tokens     APITokens
	clock      clock.PassiveClock
	who        *cache[verdict]
	may        *cache[struct{}]
}

// verdict is what became of a token: somebody, or why nobody.
type verdict struct {
	user User
	why  error
}

// New makes a gate. It panics without one of its options: that is a mistake in the hub's wiring.
func New(o Options) *Gate {
	if o.Kubernetes == nil || o.APITokens == nil || o.Clock == nil {
		panic("access: Options need Kubernetes, APITokens and Clock")
	}
	return &Gate{
		kubernetes: o.Kubernetes, tokens: o.APITokens, clock: o.Clock,
		who: newCache[verdict](o.Clock, mostTokens, mostFlights, askTimeout),
		may: newCache[struct{}](o.Clock, mostDecisions, mostFlights, askTimeout),
	}
}

// Caller is somebody who was let in.
type Caller struct {
	// Principal owns the leases that the caller takes: the name of an API token, or
	// system:serviceaccount:NAMESPACE:NAME.
	Principal string

	gate   *Gate
	user   User            // of a ServiceAccount
	tokens identity.Caller // of an API token
}

// Authenticate returns whose bearer token it is. The error wraps [ErrRefused] if it is nobody's; any other means that
// this cannot be found out at the moment.
func (g *Gate) Authenticate(ctx context.Context, bearer string) (Caller, error) {
	if strings.HasPrefix(bearer, apiToken) {
		return g.byAPIToken(ctx, bearer)
	}
	// Refused here, tokens of other kinds cost the API server nothing.
	expires, err := forUs(bearer, g.clock.Now())
	if err != nil {
		return Caller{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	got, err := g.who.get(ctx, sha256.Sum256([]byte(bearer)), func(ctx context.Context) (answer[verdict], error) {
		return g.ask(ctx, bearer, expires)
	})
	switch {
	case err != nil:
		return Caller{}, fmt.Errorf("ask the API server about a ServiceAccount token: %w", err)
	case got.value.why != nil:
		return Caller{}, got.value.why
	}
	return Caller{Principal: got.value.user.Name, gate: g, user: got.value.user}, nil
}

func (g *Gate) byAPIToken(ctx context.Context, bearer string) (Caller, error) {
	caller, err := g.tokens.Authenticate(ctx, bearer)
	for _, refusal := range []error{identity.ErrMalformedToken, identity.ErrUnknownToken, identity.ErrExpiredToken, identity.ErrDamaged} {
		if errors.Is(err, refusal) {
			return Caller{}, fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	if err != nil {
		return Caller{}, err
	}
	return Caller{Principal: caller.Principal, gate: g, tokens: caller}, nil
}

// ask asks the API server whose token it is. A good answer holds no longer than the token.
func (g *Gate) ask(ctx context.Context, bearer string, expires time.Time) (answer[verdict], error) {
	until := g.clock.Now().Add(Remembered)
	user, err := g.kubernetes.WhoIs(ctx, bearer, Audience)
	switch {
	case errors.Is(err, ErrRefused):
		return answer[verdict]{value: verdict{why: err}, until: until}, nil
	case err != nil:
		return answer[verdict]{}, err
	case !strings.HasPrefix(user.Name, serviceAccount):
		why := fmt.Errorf("%w: it is the token of %q, not of a ServiceAccount", ErrRefused, user.Name)
		return answer[verdict]{value: verdict{why: why}, until: until}, nil
	}
	if expires.Before(until) {
		until = expires
	}
	return answer[verdict]{value: verdict{user: user}, good: true, until: until}, nil
}

// AllowsFleet reports whether the caller may lease from the fleet "namespace/name". An error means that this cannot be
// found out at the moment.
func (c Caller) AllowsFleet(ctx context.Context, fleet string) (bool, error) {
	if c.user.Name == "" {
		return c.tokens.AllowsFleet(fleet), nil
	}
	namespace, name, ok := strings.Cut(fleet, "/")
	if !ok || namespace == "" || name == "" {
		return false, nil
	}
	return c.gate.allows(ctx, c.user, VerbLease, namespace, name)
}

// MayOperate reports whether the caller may act on everybody's leases. Holders of API tokens never may.
func (c Caller) MayOperate(ctx context.Context) (bool, error) {
	if c.user.Name == "" {
		return false, nil
	}
	return c.gate.allows(ctx, c.user, VerbOperate, "", "")
}

func (g *Gate) allows(ctx context.Context, who User, verb, namespace, name string) (bool, error) {
	question := sha256.New()
	for _, word := range append([]string{who.Name, who.UID, verb, namespace, name}, who.Groups...) {
		fmt.Fprintf(question, "%d:%s", len(word), word) // a hash never fails
	}
	got, err := g.may.get(ctx, key(question.Sum(nil)), func(ctx context.Context) (answer[struct{}], error) {
		until := g.clock.Now().Add(Remembered)
		allowed, err := g.kubernetes.May(ctx, who, verb, namespace, name)
		return answer[struct{}]{good: allowed, until: until}, err
	})
	if err != nil {
		return false, fmt.Errorf("ask the API server what %s may do: %w", who.Name, err)
	}
	return got.good, nil
}
