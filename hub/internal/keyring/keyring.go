// Package keyring keeps the document by which members check the credentials of leases: the hub's public keys, and the
// principals that operators have revoked.
//
// The revocations are the lease engine's, so that they are as durable as leases are. A [Ring] reads them at its start,
// when it is told that they have changed, and every minute, as they end by time; sessions of agents watch it.
package keyring

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/proto/credential"
)

// interval is how often the revocations are read without being asked to.
const interval = time.Minute

// Keeper answers for the lease engine. *keeper.Keeper is one.
type Keeper interface {
	Do(ctx context.Context, cmd lease.Command) (lease.Result, error)
}

// Options are what a Ring is made with. All but Logger is required.
type Options struct {
	// Keys are those that sign credentials.
	Keys   []credential.Key
	Keeper Keeper
	Clock  clock.Clock
	// Logger is for what operators should know.
	Logger logr.Logger
}

// Ring holds the document. It is safe for concurrent use.
type Ring struct {
	o     Options
	stale chan struct{}

	mu       sync.Mutex
	document []byte
	watchers map[chan struct{}]struct{}
}

// New reads the revocations and makes the document. The keeper must be ready.
func New(ctx context.Context, o Options) (*Ring, error) {
	r := &Ring{o: o, stale: make(chan struct{}, 1), watchers: map[chan struct{}]struct{}{}}
	return r, r.refresh(ctx)
}

// Run keeps the document up to date until ctx ends.
func (r *Ring) Run(ctx context.Context) error {
	for {
		timer := r.o.Clock.NewTimer(interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-r.stale:
		case <-timer.C():
		}
		timer.Stop()
		if err := r.refresh(ctx); err != nil && ctx.Err() == nil {
			r.o.Logger.Error(err, "cannot read who is revoked; members keep what they were told")
		}
	}
}

// Refresh says that the revocations have changed. It returns at once.
func (r *Ring) Refresh() { poke(r.stale) }

// Document returns the JSON document of package credential. Nobody may change it.
func (r *Ring) Document() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.document
}

// Watch signals when the document has changed, and the first time at once. Cancel must be called in the end.
func (r *Ring) Watch() (changed <-chan struct{}, cancel func()) {
	signal := make(chan struct{}, 1)
	poke(signal)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers[signal] = struct{}{}
	return signal, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, signal)
	}
}

func (r *Ring) refresh(ctx context.Context) error {
	result, err := r.o.Keeper.Do(ctx, lease.ListRevocations{})
	if err != nil {
		return fmt.Errorf("ask the lease engine who is revoked: %w", err)
	}
	revocations, ok := result.(lease.Revocations)
	if !ok {
		return fmt.Errorf("ask the lease engine who is revoked: the answer is a %T", result)
	}
	denials := make([]credential.Denial, 0, len(revocations.Standing))
	for _, s := range revocations.Standing {
		denials = append(denials, credential.Denial{Principal: credential.Principal(s.Principal), Proxy: credential.ProxyUID(s.Proxy)})
	}
	document, err := credential.Marshal(r.o.Keys, denials)
	if err != nil {
		return fmt.Errorf("write down the keys for members: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if bytes.Equal(document, r.document) {
		return nil
	}
	r.document = document
	for signal := range r.watchers {
		poke(signal)
	}
	return nil
}

func poke(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}
