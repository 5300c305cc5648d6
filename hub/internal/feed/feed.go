package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/hub/internal/inventory"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Keeper carries out commands of the lease engine.
type Keeper interface {
	// Do carries out one command; a refused one is a *lease.Refusal.
	Do(ctx context.Context, cmd lease.Command) (lease.Result, error)
}

// Options are what a Feed is made with.
type Options struct {
	// Keeper is told. Required.
	Keeper Keeper
	// Inventory is what members reported. Required.
	Inventory *inventory.Inventory
	// Reader reads ProxyFleets, ProxyPlacements and MemberClusters. Required.
	Reader client.Reader
	// Clock is the hub's. Required.
	Clock clock.WithTicker
	// StartedAt is when the lease engine's history begins, as in lease.Options.
	StartedAt time.Time
	// Logger is for what operators should know.
	Logger logr.Logger
}

// Feed keeps the lease engine informed.
type Feed struct {
	opts    Options
	watch   *inventory.Watcher
	changed chan struct{}

	// The loop's own.
	world   world
	fleets  map[lease.FleetID]lease.Fleet
	members map[string]bool // suspect, as last told
	proxies map[string]lease.Proxy
	dirty   dirty
	seeded  bool
	recall  recall

	mu sync.Mutex
	// before are the fleets that an earlier hub had taken up when the feed first looked; nil until then.
	before map[types.UID]struct{}
	stale  bool
}

// dirty is what has to be compared with what the keeper was told.
type dirty struct {
	members, heard, proxies map[string]struct{}
}

// New makes a feed that has told nothing. It panics if something required is missing: that is a mistake in the wiring.
func New(opts Options) *Feed {
	if opts.Keeper == nil || opts.Inventory == nil || opts.Reader == nil || opts.Clock == nil {
		panic("feed: Options.Keeper, Inventory, Reader and Clock are required")
	}
	return &Feed{
		opts:    opts,
		watch:   opts.Inventory.Watch(),
		changed: make(chan struct{}, 1),
		fleets:  map[lease.FleetID]lease.Fleet{},
		members: map[string]bool{},
		proxies: map[string]lease.Proxy{},
		dirty: dirty{
			members: map[string]struct{}{}, heard: map[string]struct{}{}, proxies: map[string]struct{}{},
		},
		stale: true,
	}
}

// ObjectsChanged says that a ProxyFleet, ProxyPlacement or MemberCluster has changed. It returns at once and may be
// called from any goroutine.
func (f *Feed) ObjectsChanged() {
	f.mu.Lock()
	f.stale = true
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// HeldBefore tells whether an earlier hub has taken the fleet up, so that leases that it granted may live. known is
// false until the feed has looked at all fleets once; before is true then, to be safe. Nobody may take up a fleet (set its
// finalizer, place it) while that is not known.
func (f *Feed) HeldBefore(uid types.UID) (before, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before == nil {
		return true, false
	}
	_, before = f.before[uid]
	return before, true
}

// Start tells the keeper what changes until ctx ends. The reader's caches must have synced.
func (f *Feed) Start(ctx context.Context) error {
	defer f.watch.Close()
	for {
		var retry <-chan time.Time
		if err := f.Sync(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			f.opts.Logger.Error(err, "cannot tell the lease engine everything; trying again")
			retry = f.opts.Clock.After(500 * time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.watch.Changed():
		case <-f.changed:
		case <-retry:
		}
	}
}

// Sync tells the keeper everything that has changed since the last Sync. It must not run beside Start. After an error
// what was not taken stays to be told.
func (f *Feed) Sync(ctx context.Context) error {
	if err := f.remember(ctx); err != nil {
		return err
	}
	if err := f.refresh(ctx); err != nil {
		return err
	}
	f.collect()
	f.review()
	return errors.Join(f.tellFleets(ctx), f.tellMembers(ctx), f.tellProxies(ctx), f.tellHeard(ctx))
}

// refresh reads the objects again if they changed, and marks what they bear on.
func (f *Feed) refresh(ctx context.Context) error {
	f.mu.Lock()
	stale := f.stale
	f.stale = false
	f.mu.Unlock()
	if !stale {
		return nil
	}
	heldBefore := f.HeldBefore
	if !f.seeded {
		heldBefore = nil // this look decides
	}
	next, served, err := readWorld(ctx, f.opts.Reader, heldBefore, f.opts.StartedAt)
	if err != nil {
		f.mu.Lock()
		f.stale = true
		f.mu.Unlock()
		return err
	}
	f.mu.Lock()
	if f.before == nil {
		f.before = served
	}
	f.mu.Unlock()
	for uid := range next.changedPlacements(f.world) {
		for _, p := range f.opts.Inventory.Proxies(uid) {
			f.dirty.proxies[p.UID] = struct{}{}
		}
	}
	for _, known := range []map[string]site{f.world.sites, next.sites} {
		for name := range known {
			f.dirty.members[name] = struct{}{}
		}
	}
	f.world = next
	return nil
}

// collect takes the changes of the inventory.
func (f *Feed) collect() {
	changes := f.watch.Take()
	if !f.seeded {
		f.seeded = true
		changes.Members = append(changes.Members, f.opts.Inventory.Members()...)
		for _, p := range f.opts.Inventory.All() {
			changes.Proxies = append(changes.Proxies, p.UID)
		}
	}
	mark(f.dirty.members, changes.Members)
	mark(f.dirty.heard, changes.Heard)
	mark(f.dirty.proxies, changes.Proxies)
}

func mark(set map[string]struct{}, names []string) {
	for _, name := range names {
		set[name] = struct{}{}
	}
}

func (f *Feed) tellFleets(ctx context.Context) error {
	var todo []task
	for id, known := range f.fleets {
		if _, wanted := f.world.fleets[id]; !wanted {
			todo = append(todo, task{lease.RemoveFleet{ID: known.ID}, func() { delete(f.fleets, id) }})
		}
	}
	for id, fleet := range f.world.fleets {
		if known, ok := f.fleets[id]; !ok || !known.Same(&fleet) {
			todo = append(todo, task{lease.SetFleet{Fleet: fleet}, func() { f.fleets[id] = fleet }})
		}
	}
	return f.tell(ctx, todo)
}

func (f *Feed) tellMembers(ctx context.Context) error {
	var todo []task
	for name := range f.dirty.members {
		s, exists := f.world.sites[name]
		view := f.opts.Inventory.Member(name)
		suspect := !exists || !s.accepted || view.State != inventory.Ready && !f.trusted(name, view)
		if told, ok := f.members[name]; ok && told == suspect {
			delete(f.dirty.members, name)
			continue
		}
		todo = append(todo, task{lease.SetMember{ID: lease.MemberID(name), Suspect: suspect}, func() {
			delete(f.dirty.members, name)
			f.members[name] = suspect
			if !exists && view.State == inventory.NeverHeard {
				delete(f.members, name)
			}
		}})
	}
	return f.tell(ctx, todo)
}

func (f *Feed) tellProxies(ctx context.Context) error {
	var todo []task
	for uid := range f.dirty.proxies {
		known, told := f.proxies[uid]
		view, exists := f.opts.Inventory.Proxy(uid)
		if !exists {
			if !told || f.awaited(uid, known) {
				delete(f.dirty.proxies, uid)
				continue
			}
			todo = append(todo, task{lease.RemoveProxy{UID: known.UID}, func() {
				delete(f.dirty.proxies, uid)
				delete(f.proxies, uid)
			}})
			continue
		}
		proxy, ok := f.world.proxy(view)
		switch {
		case !ok && !told: // nobody's, or not yet anybody's: its placement will mark it
			delete(f.dirty.proxies, uid)
			continue
		case !ok: // its placement is gone, and it will follow
			proxy = known
			proxy.Draining = true
		}
		if told && known.Same(&proxy) {
			delete(f.dirty.proxies, uid)
			continue
		}
		todo = append(todo, task{lease.UpsertProxy{Proxy: proxy}, func() {
			delete(f.dirty.proxies, uid)
			f.proxies[uid] = proxy
		}})
	}
	return f.tell(ctx, todo)
}

func (f *Feed) tellHeard(ctx context.Context) error {
	var todo []task
	for name := range f.dirty.heard {
		view := f.opts.Inventory.Member(name)
		if view.LastHeard.IsZero() {
			delete(f.dirty.heard, name)
			continue
		}
		todo = append(todo, task{lease.Touch{ID: lease.MemberID(name), At: view.LastHeard}, func() {
			delete(f.dirty.heard, name)
		}})
	}
	return f.tell(ctx, todo)
}

// task is a command and what to remember once the keeper has taken it.
type task struct {
	cmd   lease.Command
	taken func()
}

// inFlight is how many commands wait in the keeper's queue at once, so that they share one append.
const inFlight = 128

// tell gives the commands to the keeper. A refusal is remembered as taken: the same command would be refused again.
func (f *Feed) tell(ctx context.Context, todo []task) error {
	var failed error
	for batch := range slices.Chunk(todo, inFlight) {
		errs := make([]error, len(batch))
		var wait sync.WaitGroup
		for i, t := range batch {
			wait.Go(func() { _, errs[i] = f.opts.Keeper.Do(ctx, t.cmd) })
		}
		wait.Wait()
		for i, t := range batch {
			var refusal *lease.Refusal
			switch {
			case errs[i] == nil:
				t.taken()
			case errors.As(errs[i], &refusal):
				f.opts.Logger.Error(refusal, "the lease engine refuses what the hub tells it", "command", fmt.Sprintf("%T", t.cmd))
				t.taken()
			default:
				failed = errs[i]
			}
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}
