package feed

import (
	"context"
	"errors"

	"github.com/shoal-dev/shoal/hub/internal/inventory"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// recall is what the engine knew when the feed began: what its journal told it of an earlier hub's time. It counts as
// told, so that what is gone since then is taken back.
type recall struct {
	done bool
	// members that have not reported everything yet: until then the engine goes by the journal, for as long as it takes a
	// silent member to go stale. Each has the proxies that wait for its word.
	members map[string]map[string]struct{}
}

// remember asks the engine what it knows, once.
func (f *Feed) remember(ctx context.Context) error {
	if f.recall.done {
		return nil
	}
	result, err := f.opts.Keeper.Do(ctx, lease.ReadInventory{})
	if err != nil {
		return err
	}
	known, ok := result.(lease.Inventory)
	if !ok {
		return errors.New("the lease engine does not tell what it knows")
	}
	f.recall.done = true
	f.recall.members = map[string]map[string]struct{}{}
	for _, fleet := range known.Fleets {
		f.fleets[fleet.ID] = fleet
	}
	for _, m := range known.Members {
		f.members[string(m.ID)] = m.Suspect
		f.recall.members[string(m.ID)] = map[string]struct{}{}
		f.dirty.members[string(m.ID)] = struct{}{}
	}
	for _, p := range known.Proxies {
		f.proxies[string(p.UID)] = p
		waiting := f.recall.members[string(p.Member)]
		if waiting == nil {
			waiting = map[string]struct{}{}
			f.recall.members[string(p.Member)] = waiting
		}
		waiting[string(p.UID)] = struct{}{}
	}
	return nil
}

// review ends the wait for members that have reported everything, or that are no more: what they did not report is
// gone. Whoever looks after proxies learns it in the same Sync.
func (f *Feed) review() {
	for name, waiting := range f.recall.members {
		if f.waits(name) {
			continue
		}
		delete(f.recall.members, name)
		f.dirty.members[name] = struct{}{}
		for uid := range waiting {
			f.dirty.proxies[uid] = struct{}{}
		}
	}
}

// waits tells whether the member exists and has yet to report everything.
func (f *Feed) waits(name string) bool {
	view := f.opts.Inventory.Member(name)
	_, exists := f.world.sites[name]
	return exists && (!view.Complete || view.Doubted)
}

// awaited tells whether a proxy that nobody has reported may still be.
func (f *Feed) awaited(uid string, p lease.Proxy) bool {
	_, waiting := f.recall.members[string(p.Member)][uid]
	return waiting
}

// trusted tells whether the engine may go by what the journal says of the member, which begins to report. If it stays
// silent, the engine notices by itself.
func (f *Feed) trusted(name string, view inventory.MemberView) bool {
	_, waiting := f.recall.members[name]
	return waiting && !f.members[name] && (view.State == inventory.NeverHeard || view.State == inventory.Syncing)
}
