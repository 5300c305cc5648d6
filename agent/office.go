package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/shoal-dev/shoal/agent/internal/enroll"
)

// office has the agent's one certificate, for all of its members. The first member registers; the others join by its
// certificate. An agent that has been enrolled needs no hub to start.
type office struct {
	c     Config
	store enroll.Store
	// turn has a value while nobody is registering: the first member to come does, the others wait for it.
	turn     chan struct{}
	enroller atomic.Pointer[enroll.Enroller]
	// first is closed when there is an enroller, and saved is what the hub was known by before it has enrolled.
	first chan struct{}
	saved *x509.CertPool
}

func newOffice(c Config, store enroll.Store) *office {
	o := &office{c: c, store: store, turn: make(chan struct{}, 1), first: make(chan struct{})}
	o.turn <- struct{}{}
	return o
}

// enrolled waits until the agent has been enrolled once, by this member if by nobody before. Where what it was enrolled
// with has ended meanwhile, nobody waits: the proxies that are there are led on, and run registers again.
func (o *office) enrolled(ctx context.Context, m enroll.Member) error {
	select {
	case <-o.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { o.turn <- struct{}{} }()
	if o.enroller.Load() != nil {
		return nil
	}
	e, saved, err := o.enroll(ctx, m)
	if err != nil {
		return err
	}
	o.saved = saved
	o.enroller.Store(e)
	close(o.first)
	return nil
}

func (o *office) enroll(ctx context.Context, m enroll.Member) (*enroll.Enroller, *x509.CertPool, error) {
	state, err := o.store.Load(ctx)
	if err != nil && !errors.Is(err, enroll.ErrNoState) {
		return nil, nil, fmt.Errorf("agent: %w", err)
	}
	// What was saved may be damaged. Without certificates to know the hub's targets by, nothing could be probed.
	saved, damage := enroll.Pool(state.Bundle)
	if damage != nil && err == nil {
		o.c.Logger.Warn("what was saved of the hub is damaged, so this agent registers again", "secret", enroll.SecretName, "err", damage)
	}
	token, err := readJoinToken(o.c.JoinTokenFile)
	if err != nil && damage != nil {
		return nil, nil, fmt.Errorf("agent: %w", err)
	}
	e, err := enroll.New(enroll.Options{
		HubURL: o.c.Settings.Hub.URL, CAPin: o.c.Settings.Hub.CAPin, Token: token,
		Member: m.Name, Identity: m.Identity, Region: m.Region, Country: m.Country,
		Version: o.c.Version, Store: o.store, Clock: o.c.Clock, Logger: o.c.Logger.With("logger", "enroll"),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("agent: %w", err)
	}
	if damage == nil {
		return e, saved, nil
	}
	// Only the first start of an agent waits for the hub, and one whose saved certificates are damaged.
	if err := e.Enroll(ctx); err != nil {
		return nil, nil, fmt.Errorf("agent: %w", err)
	}
	return e, nil, nil
}

// run keeps the certificate good until ctx ends. Where only a person can mend that, the proxies that are there are led on
// without the hub.
func (o *office) run(ctx context.Context) error {
	select {
	case <-o.first:
	case <-ctx.Done():
		return nil
	}
	if err := o.enroller.Load().Run(ctx); err != nil && ctx.Err() == nil {
		o.c.Logger.Error("the agent is not enrolled; its proxies go on without the hub", "err", err)
	}
	return nil
}

// join makes the agent speak for one more member. The token is read anew: it may have been replaced.
func (o *office) join(ctx context.Context, m enroll.Member) error {
	e := o.enroller.Load()
	if e == nil {
		return errors.New("the agent is not enrolled yet")
	}
	token, err := readJoinToken(o.c.JoinTokenFile)
	if err != nil {
		token = "" // Then a person has to accept the member; the hub says how.
	}
	return e.Join(ctx, m, token)
}

// roots are the hub's authorities, which are replaced while the agent runs; nil before it is enrolled.
func (o *office) roots() *x509.CertPool {
	e := o.enroller.Load()
	if e == nil {
		return nil
	}
	if current := e.Roots(); current != nil {
		return current
	}
	return o.saved
}

// tls is how the hub is reached once the agent is enrolled.
func (o *office) tls() *tls.Config { return o.enroller.Load().TLSConfig() }
