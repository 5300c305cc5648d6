package uplink

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1/agentv1connect"
	"github.com/shoal-dev/shoal/proto/session"
)

// Item is what the hub desires of one ProxySet.
type Item struct {
	// UID is that of the ProxyPlacement on the hub.
	UID string
	// Generation is the placement's.
	Generation int64
	// Hash is of Spec, as the hub computes it.
	Hash string
	// Spec is the canonical JSON of a ProxySetSpec. It must not be changed.
	Spec []byte
	// Credentials are what Spec names as credentials of proxies that someone else runs, as far as the hub knows them.
	Credentials []Credentials
}

// Credentials are a user name and a password, and how a Spec names them. However they are printed, they do not show.
type Credentials struct{ Key, Username, Password string }

// String hides what they are.
func (c Credentials) String() string { return "credentials " + c.Key }

// GoString hides what they are.
func (c Credentials) GoString() string { return c.String() }

// Applier keeps what the hub desires. For one uid there is at most one call of Apply or Delete at a time, and later
// calls are newer; for several uids they run at the same time. What fails is tried again after some seconds, growing.
type Applier interface {
	// Held returns the version of everything that is kept. What is in it and not in the hub's first complete list is
	// deleted.
	Held(ctx context.Context) ([]*agentv1.Held, error)
	// Apply keeps the item and returns once it is kept durably. It is called again for items that are kept already, in
	// each session. The text of an error reaches the hub, for people.
	Apply(ctx context.Context, item Item) error
	// Delete removes the item. It is no error if there is none.
	Delete(ctx context.Context, uid string) error
	// SetKeys keeps what credentials of leases are checked with. It is tried again until it succeeds or newer keys
	// come.
	SetKeys(ctx context.Context, keys []byte) error
	// Welcomed tells who the hub and the member are. It must return at once.
	Welcomed(hubUID, memberUID string)
}

// Options are what an [Uplink] is made with. Dial, Member, Identity, Applier, Outbox and Clock are required.
type Options struct {
	// Dial returns a client for the next session; [Dialer] has one.
	Dial func(ctx context.Context) (agentv1connect.AgentServiceClient, error)
	// Member is the name of the member that the session is for.
	Member   string
	Identity *agentv1.MemberIdentity
	// Instance must differ between starts of the agent; random by default.
	Instance string
	// Version is the agent's.
	Version string
	// Providers and Networks are what the member offers.
	Providers, Networks []string

	// Join makes the agent speak for the member. It is called where the hub says that it does not; nil means that only a
	// person can change that.
	Join func(ctx context.Context) error
	// Leased is told which of the member's proxies are leased: all of them each time, or that all there are must be taken
	// for leased. It must return at once. Nil where nobody wants to know.
	Leased func(proxies []string, all bool)

	Applier Applier
	Outbox  *Outbox
	Clock   clock.Clock
	// Logger gets the beginnings and ends of sessions and what could not be applied: discarded by default.
	Logger *slog.Logger
	// Parallel is how many calls of Apply and Delete may run at a time; 16.
	Parallel int
	// ApplyTimeout bounds each call of the Applier; 30 s.
	ApplyTimeout time.Duration
	// Session holds the figures of the protocol.
	Session session.Config
}

var errJoined = errors.New("the agent has just been let speak for the member")

// Uplink keeps a session with the hub. See [New].
type Uplink struct {
	o         Options
	connected atomic.Bool
	// epoch is the last that a Welcome has named. Only Run uses it.
	epoch uint64
}

// New returns an uplink, or says which option is missing.
func New(o Options) (*Uplink, error) {
	if o.Dial == nil || o.Member == "" || o.Identity == nil || o.Applier == nil || o.Outbox == nil || o.Clock == nil {
		return nil, errors.New("uplink: Options need Dial, Member, Identity, Applier, Outbox and Clock")
	}
	if o.Instance == "" {
		o.Instance = rand.Text()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Parallel <= 0 {
		o.Parallel = 16
	}
	if o.ApplyTimeout <= 0 {
		o.ApplyTimeout = 30 * time.Second
	}
	if o.Session.Jitter == nil {
		o.Session.Jitter = mathrand.Float64
	}
	o.Logger = o.Logger.With("member", o.Member, "instance", o.Instance)
	return &Uplink{o: o}, nil
}

// Connected tells whether a session is open. It is safe for concurrent use.
func (u *Uplink) Connected() bool { return u.connected.Load() }

// Run keeps a session with the hub until ctx ends, and returns nil then. It must not be called twice.
func (u *Uplink) Run(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		began := u.o.Clock.Now()
		err := u.converse(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the session ended because it was told to
		}
		lived := u.o.Clock.Since(began)
		if lived >= steady {
			attempt = 0
		}
		if u.o.Join != nil && stranger(err) {
			if err = u.o.Join(ctx); err == nil {
				err = errJoined // a session is next, but not at once: it may be refused again
			}
		}
		wait := pause(err, attempt, mathrand.Float64())
		u.o.Logger.Info("no session with the hub", "err", err, "lived", lived.Round(time.Millisecond).String(),
			"retryIn", wait.Round(time.Millisecond).String())
		timer := u.o.Clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}
