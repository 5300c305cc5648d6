package enroll

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// Why an agent cannot enroll. Trying again does not help before somebody has changed something.
var (
	// ErrRefused means that the hub has refused to register the agent; its words are in the error's text.
	ErrRefused = errors.New("the hub refuses to register this agent")
	// ErrWrongHub means that whoever answers at the hub's address is not the hub of the pin.
	ErrWrongHub = errors.New("not the hub of hub.caPin")
	// ErrNoToken means that the agent must register and has no join token.
	ErrNoToken = errors.New("no join token")
)

// How long to wait.
const (
	// callTimeout bounds one call to the hub, or to the store.
	callTimeout = 30 * time.Second
	// retryFirst and retryCap bound the wait before another attempt to reach a hub that does not answer.
	retryFirst = time.Second
	retryCap   = 30 * time.Second
	// retrySlow is the wait when a person must act first, for example accept the member.
	retrySlow = 30 * time.Second
)

// Options are what an [Enroller] is made with.
type Options struct {
	// HubURL is where agents reach the hub: https://host:port.
	HubURL string
	// CAPin is "sha256:" and the hash of the public key of the hub's certificate authority, in hexadecimal. It is
	// needed to register; empty trusts the hub that the agent is enrolled at already.
	CAPin string
	// Token is the join token. It is needed to register.
	Token string
	// Member is the name of the member that the agent registers with. It may speak for others, too: see [Enroller.Join].
	Member string
	// Identity is what makes the member the one it is.
	Identity *agentv1.MemberIdentity
	// Region and Country are where the member is; both may be empty.
	Region, Country string
	// Version is the agent's version, for people.
	Version string
	// Store keeps the agent's key and certificates.
	Store Store
	// Clock says when to renew, and waits: the real one by default.
	Clock clock.Clock
	// Rand returns numbers from 0 to below 1 to spread agents in time: math/rand by default.
	Rand func() float64
	// Dial opens connections to the hub: a [net.Dialer] by default.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger gets what was done, and what a person must do: discarded by default.
	Logger *slog.Logger
}

// Member is a member that the agent speaks for, or wants to.
type Member struct {
	// Name is the member's name, and Identity what makes it the one it is.
	Name     string
	Identity *agentv1.MemberIdentity
	// Region and Country are where the member is; both may be empty.
	Region, Country string
}

// Enroller holds the agent's certificate and keeps it fresh. [Enroller.Enroll] and [Enroller.Run] belong to one
// goroutine; everything else is safe for concurrent use.
type Enroller struct {
	o       Options
	baseURL string
	host    string
	current atomic.Pointer[credential]
}

var pinPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// IsPin tells whether a text has the form of Options.CAPin.
func IsPin(text string) bool { return pinPattern.MatchString(text) }

// New checks the options and returns an enroller. Each error names the value to change.
func New(o Options) (*Enroller, error) {
	hub, err := url.Parse(o.HubURL)
	switch {
	case err != nil || hub.Scheme != "https" || hub.Hostname() == "" || strings.Trim(hub.Path, "/") != "" || hub.RawQuery != "" || hub.User != nil:
		return nil, fmt.Errorf("hub.url is %q; write https://host:port, as printed by `shoalctl member join-token`", o.HubURL)
	case o.CAPin != "" && !IsPin(o.CAPin):
		return nil, fmt.Errorf("hub.caPin is %q; write sha256: and 64 hexadecimal digits, as printed by `shoalctl member join-token`", o.CAPin)
	case o.Member == "":
		return nil, errors.New("member.name is empty; write the name that the join token was made for")
	case o.Identity.GetClusterUid() == "" || o.Identity.GetNamespace() == "":
		return nil, errors.New("enroll: Identity needs a cluster UID and a namespace")
	case o.Store == nil:
		return nil, errors.New("enroll: Store is missing")
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Enroller{o: o, baseURL: "https://" + hub.Host, host: hub.Hostname()}, nil
}

// Agent returns the name that the hub has given the agent, empty before it is enrolled.
func (e *Enroller) Agent() string {
	if c := e.current.Load(); c != nil {
		return c.state.Agent
	}
	return ""
}

// HubUID returns the UID of the hub that the agent is enrolled at, empty before it is.
func (e *Enroller) HubUID() string {
	if c := e.current.Load(); c != nil {
		return c.state.HubUID
	}
	return ""
}

// NotAfter returns the end of the certificate in use, zero before there is one.
func (e *Enroller) NotAfter() time.Time {
	if c := e.current.Load(); c != nil {
		return c.notAfter()
	}
	return time.Time{}
}

// Enroll makes sure that the agent has a certificate that is good now: the saved one, which needs no hub, else one
// from Register. It waits, for as long as it takes, for a hub that does not answer and for a person who has yet to
// accept the member. It returns an error that wraps [ErrRefused], [ErrWrongHub] or [ErrNoToken] when waiting does not
// help, and the context's when that ends.
func (e *Enroller) Enroll(ctx context.Context) error {
	for attempt := 0; ; attempt++ {
		err := e.enrollOnce(ctx)
		switch {
		case err == nil || final(err):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		wait := e.jitter(attempt)
		if errors.Is(err, errNotYet) {
			wait = retrySlow
		}
		e.o.Logger.WarnContext(ctx, "not enrolled yet", "member", e.o.Member, "hub", e.baseURL, "err", err, "retryIn", wait.Round(time.Millisecond).String())
		if !e.sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

func final(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, ErrWrongHub) || errors.Is(err, ErrNoToken)
}

func (e *Enroller) enrollOnce(ctx context.Context) error {
	state, err := e.load(ctx)
	switch {
	case errors.Is(err, ErrNoState):
		return e.register(ctx)
	case err != nil:
		return err
	}
	saved, why := e.usable(state)
	if why == "" {
		e.current.Store(saved)
		e.o.Logger.InfoContext(ctx, "enrolled already", "agent", state.Agent, "hubUID", state.HubUID, "notAfter", saved.notAfter())
		return nil
	}
	e.o.Logger.InfoContext(ctx, "the saved certificate is of no use", "why", why)
	return e.register(ctx)
}

// usable returns the saved state in usable form, or why it is not usable.
func (e *Enroller) usable(state State) (*credential, string) {
	saved, err := state.parse()
	switch {
	case err != nil:
		return nil, err.Error()
	case e.o.CAPin != "" && state.Pin != e.o.CAPin:
		return nil, "it is from another hub"
	case !e.o.Clock.Now().Before(saved.notAfter()):
		return nil, "it expired at " + saved.notAfter().UTC().Format(time.RFC3339)
	}
	return saved, ""
}

func (e *Enroller) load(ctx context.Context) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return e.o.Store.Load(ctx)
}

// adopt checks, saves and uses a new state, in this order: what cannot be saved is not used, so that a restart never
// falls back behind what the hub has seen.
func (e *Enroller) adopt(ctx context.Context, state State) error {
	next, err := state.parse()
	if err != nil {
		return fmt.Errorf("the hub's answer cannot be used: %w", err)
	}
	if err := next.checkIssued(e.o.Clock.Now()); err != nil {
		return err
	}
	if err := e.o.Store.Save(ctx, state); err != nil {
		return err
	}
	e.current.Store(next)
	return nil
}

// jitter returns a wait before the next attempt: anything up to a bound that doubles from retryFirst to retryCap, so
// that agents which lost the hub together do not come back together.
func (e *Enroller) jitter(attempt int) time.Duration {
	bound := retryCap
	if attempt < 5 {
		bound = min(bound, retryFirst<<attempt)
	}
	return time.Duration(e.o.Rand() * float64(bound))
}

// sleep waits, and reports false if the context ended first.
func (e *Enroller) sleep(ctx context.Context, d time.Duration) bool {
	timer := e.o.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
