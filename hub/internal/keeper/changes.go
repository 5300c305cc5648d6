package keeper

import (
	"sync"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// mostChanges is how many changed proxies are remembered for a reader one by one.
const mostChanges = 4096

// Changes collects which proxies of a fleet have changed, for one reader. It says which and not how: the reader asks for
// their present state, so a slow one costs no memory and misses nothing that still holds.
type Changes struct {
	hub   *noticeHub
	fleet lease.FleetID
	wake  chan struct{}

	mu      sync.Mutex
	proxies map[lease.ProxyUID]struct{}
	all     bool
	closed  bool
}

// WatchFleet begins to collect changes of a fleet's proxies: those that came, went, or are described otherwise. That they
// are leased is no change. Close must be called in the end.
func (k *Keeper) WatchFleet(fleet lease.FleetID) *Changes {
	c := &Changes{hub: &k.hub, fleet: fleet, wake: make(chan struct{}, 1), proxies: map[lease.ProxyUID]struct{}{}}
	k.hub.mu.Lock()
	defer k.hub.mu.Unlock()
	if k.hub.closed {
		c.end()
		return c
	}
	if k.hub.changes == nil {
		k.hub.changes = map[*Changes]struct{}{}
	}
	k.hub.changes[c] = struct{}{}
	return c
}

// Ready receives when there is something to [Changes.Take]; now and then when there is not.
func (c *Changes) Ready() <-chan struct{} { return c.wake }

// Take returns the proxies that have changed since the last Take; some of them may be of other fleets. All says that any
// may have changed, and the fleet itself. Open is false once the keeper has stopped or the watch was closed.
func (c *Changes) Take() (proxies []lease.ProxyUID, all, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid := range c.proxies {
		proxies = append(proxies, uid)
	}
	all = c.all
	clear(c.proxies)
	c.all = false
	return proxies, all, !c.closed
}

// Close ends the watch. It may be called more than once.
func (c *Changes) Close() {
	c.hub.mu.Lock()
	delete(c.hub.changes, c)
	c.hub.mu.Unlock()
	c.end()
}

func (c *Changes) end() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	poke(c.wake)
}

// record takes note of what became true.
func (c *Changes) record(record lease.Record) {
	switch record := record.(type) {
	case *lease.ProxySet:
		if record.Proxy.Fleet == c.fleet {
			c.note(record.Proxy.UID)
		}
	case *lease.ProxyRemoved:
		c.note(record.UID) // the record does not say of which fleet
	case *lease.FleetSet:
		if record.Fleet.ID == c.fleet {
			c.noteAll()
		}
	case *lease.FleetRemoved:
		if record.ID == c.fleet {
			c.noteAll()
		}
	}
}

func (c *Changes) note(uid lease.ProxyUID) {
	c.mu.Lock()
	if len(c.proxies) < mostChanges {
		c.proxies[uid] = struct{}{}
	} else {
		c.all = true
	}
	c.mu.Unlock()
	poke(c.wake)
}

func (c *Changes) noteAll() {
	c.mu.Lock()
	c.all = true
	c.mu.Unlock()
	poke(c.wake)
}
