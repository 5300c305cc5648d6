// Package busy tells members which of their proxies are leased, so that nobody takes those away who can wait.
//
// It is level-based: a [Board] looks at the lease engine every few seconds and keeps, by member, all proxies that are
// leased. Sessions watch it. What changes twice between two looks is told once, and a mark is late by one look at most.
package busy

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

const (
	// interval is how often the engine is looked at: a look costs it some 100 µs for 1,000 proxies.
	interval = 3 * time.Second
	// repeat is how often members are told what has not changed, so that they know that it has not.
	repeat = time.Minute
)

// Keeper answers for the lease engine. *keeper.Keeper is one.
type Keeper interface {
	Busy(ctx context.Context) (lease.Busy, error)
}

// Options are what a Board is made with. Keeper and Clock are required.
type Options struct {
	Keeper Keeper
	Clock  clock.Clock
	// Logger is for what operators should know.
	Logger logr.Logger
}

// Board knows which proxies are leased. It is safe for concurrent use, and but for Run its methods return at once. Its
// memory is bounded by the number of leased proxies and of sessions.
type Board struct {
	o Options

	mu       sync.Mutex
	known    bool
	leased   map[string][]string
	watchers map[string]map[*watcher]struct{}
	told     time.Time
}

type watcher struct{ signal chan struct{} }

// New makes a board that knows nothing yet. It panics if something required is missing: that is a mistake in the wiring.
func New(o Options) *Board {
	if o.Keeper == nil || o.Clock == nil {
		panic("busy: Options.Keeper and Clock are required")
	}
	return &Board{o: o, watchers: map[string]map[*watcher]struct{}{}}
}

// Run looks at the engine until ctx ends.
func (b *Board) Run(ctx context.Context) error {
	timer := b.o.Clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C():
		}
		if err := b.Look(ctx); err != nil && ctx.Err() == nil {
			b.o.Logger.Error(err, "cannot read which proxies are leased; members keep what they were told")
		}
		timer.Reset(interval)
	}
}

// Look looks at the engine once, and signals to those whose proxies have changed hands. While the engine lacks leases
// that may live, what was known stands.
func (b *Board) Look(ctx context.Context) error {
	busy, err := b.o.Keeper.Busy(ctx)
	if err != nil || !busy.Known {
		return err
	}
	leased := make(map[string][]string, len(busy.Proxies))
	for member, uids := range busy.Proxies {
		proxies := make([]string, len(uids))
		for i, uid := range uids {
			proxies[i] = string(uid)
		}
		leased[string(member)] = proxies
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	before, first, now := b.leased, !b.known, b.o.Clock.Now()
	again := now.Sub(b.told) >= repeat
	if again {
		b.told = now
	}
	b.leased, b.known = leased, true
	for member, watchers := range b.watchers {
		if first || again || !slices.Equal(before[member], leased[member]) {
			for w := range watchers {
				w.poke()
			}
		}
	}
	return nil
}

// Leased gives the proxies of a member that are leased, in the order of their UIDs. Nobody may change the slice. Until
// that is known there is nothing to tell.
func (b *Board) Leased(member string) (proxies []string, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leased[member], b.known
}

// Watch signals when Leased is worth another look, the first time at once. Cancel must be called in the end.
func (b *Board) Watch(member string) (changed <-chan struct{}, cancel func()) {
	w := &watcher{signal: make(chan struct{}, 1)}
	w.poke()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers[member] == nil {
		b.watchers[member] = map[*watcher]struct{}{}
	}
	b.watchers[member][w] = struct{}{}
	return w.signal, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers[member], w)
		if len(b.watchers[member]) == 0 {
			delete(b.watchers, member)
		}
	}
}

func (w *watcher) poke() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}
