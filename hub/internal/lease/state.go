package lease

import (
	"slices"
	"time"
)

// class is what a proxy is good for.
type class uint8

const (
	usable    class = iota // ready, fresh, not saturated, not draining
	stale                  // would be usable, but its member is silent or suspect
	saturated              // ready, but full of connections
	draining               // going away
	down                   // not ready
	classes                // how many there are
)

const notQueued = -1

// proxy is a known proxy.
type proxy struct {
	known  Proxy
	exits  []*exit
	list   []Exit // the same for answers; replaced, never changed
	change int    // grows whenever exits change
	fleet  *fleet
	member *member
	index  int32 // in its fleet; used again after it is gone
	onSite int   // position among its member's proxies

	class     class
	load      int // slots taken or held back
	exclusive int // exclusive leases that take or hold back slots: 0 or 1
	leases    []*lease
	lastUsed  int64

	queued   int // the load at which it waits in a queue, or notQueued
	seq      uint64
	position int
	offered  bool // among those that came free for somebody who waits
}

// classify finds the class anew.
func (p *proxy) classify() class {
	switch {
	case p.known.Draining:
		return draining
	case !p.known.Ready || len(p.known.Endpoints) == 0:
		return down
	case p.known.Saturated:
		return saturated
	case !p.member.present:
		return stale
	default:
		return usable
	}
}

// lastExpiry returns when the last of the proxy's leases ends, or 0.
func (p *proxy) lastExpiry() int64 {
	last := int64(0)
	for _, l := range p.leases {
		last = max(last, l.expires)
	}
	return last
}

// lease is a lease that lives or is remembered.
type lease struct {
	id          ID
	token       FencingToken
	principal   Principal
	fleet       *fleet
	proxy       *proxy
	target      Target
	session     string
	network     Network
	state       State
	exclusive   bool
	slots       int
	ttl         time.Duration
	granted     int64
	expires     int64 // when it ended, if it has
	lifetimeEnd int64
	change      int     // the proxy's at the grant
	expect      float64 // pages that it was taken to bring, for the pace
	pages       int     // reported for its own target so far; not durable
	refused     bool    // by its own target; not durable
	request     *request
	timer       timer // expiry, then hold, then forget
}

// fleet is a fleet, or the promise of one that proxies named first.
type fleet struct {
	id         FleetID
	now        *int64 // the engine's
	exists     bool   // SetFleet came, and no RemoveFleet since
	policy     Policy
	rules      map[string]*TargetRule // those for one target each, by Match
	otherwise  TargetRule             // for all other targets
	created    int64
	graceUntil int64

	proxies []*proxy // by index; nil where free
	free    []int32
	count   int
	sorted  []*proxy // by uid; nil if it must be sorted anew

	queues []queue // by load; only the first slots ones are in use
	seq    uint64
	views  []*view // the first one is plain: no target, any proxy
	byKey  map[viewKey]*view
	used   uint64 // counts uses of views

	ends      timerHeap // expiries and holds
	timer     timer     // the first of ends, in the engine's heap
	ready     int
	draining  int
	leased    int
	taken     int
	held      int
	exits     int
	cooling   int
	holders   map[Principal]int
	paused    map[string]int64 // target keys whose guard tripped
	scratch   []mark
	candidate []*proxy
	batch     batch // scratch of a choice of several
	room      *room // who waits; nil if nobody does
	reserved  int32 // the index of the reserved proxy, or gap
}

func newFleet(id FleetID, now *int64) *fleet {
	f := &fleet{
		id: id, now: now, byKey: map[viewKey]*view{}, holders: map[Principal]int{}, paused: map[string]int64{}, reserved: gap,
	}
	f.timer = timer{owner: f, kind: timerFleet}
	f.views = []*view{{fleet: f}}
	return f
}

// slots is the number of slots of each proxy of the fleet.
func (f *fleet) slots() int {
	if !f.exists {
		return 0
	}
	return f.policy.MaxLeasesPerProxy
}

// plain is the view without target and selector.
func (f *fleet) plain() *view { return f.views[0] }

// resize follows a changed number of slots.
func (f *fleet) resize() {
	for len(f.queues) < f.slots() {
		f.queues = append(f.queues, queue{})
	}
	for _, v := range f.views {
		v.resize(len(f.queues))
	}
	for _, p := range f.proxies {
		if p != nil {
			f.requeue(p)
		}
	}
}

// requeue puts a proxy where its class and load belong. It goes to the end of
// a queue only if that is another one than before.
func (f *fleet) requeue(p *proxy) {
	want := notQueued
	if p.class == usable && p.exclusive == 0 && p.load < f.slots() {
		want = p.load
	}
	if want == p.queued {
		return
	}
	switch {
	case want != notQueued && (p.queued == notQueued || want < p.queued):
		f.offer(p)
	case p.index == f.reserved:
		f.room.touch() // it may be no good any more
	}
	if p.queued != notQueued {
		f.queues[p.queued].leave(p)
	}
	p.queued = want
	if want != notQueued {
		f.seq++
		f.queues[want].push(p, f.seq, f.proxies)
	}
}

// reclass finds a proxy's class anew.
func (f *fleet) reclass(p *proxy) {
	to := p.classify()
	if to == p.class {
		return
	}
	for _, v := range f.views {
		v.reclass(p, to)
	}
	p.class = to
	f.requeue(p)
}

// occupy takes or frees slots of a proxy.
func (f *fleet) occupy(p *proxy, slots int, exclusive bool) {
	p.load += slots
	switch {
	case exclusive && slots > 0:
		p.exclusive++
	case exclusive:
		p.exclusive--
	}
	f.requeue(p)
}

// add makes room for a new proxy.
func (f *fleet) add(p *proxy) {
	if n := len(f.free); n > 0 {
		p.index, f.free = f.free[n-1], f.free[:n-1]
		f.proxies[p.index] = p
	} else {
		p.index = int32(len(f.proxies))
		f.proxies = append(f.proxies, p)
	}
	f.count++
	f.sorted = nil
}

// remove takes a proxy out of the fleet; it has left its queue and views.
func (f *fleet) remove(p *proxy) {
	f.proxies[p.index] = nil
	f.free = append(f.free, p.index)
	f.count--
	f.sorted = nil
}

// byUID returns the proxies in the order of their uids.
func (f *fleet) byUID() []*proxy {
	if f.sorted == nil {
		f.sorted = make([]*proxy, 0, f.count)
		for _, p := range f.proxies {
			if p != nil {
				f.sorted = append(f.sorted, p)
			}
		}
		slices.SortFunc(f.sorted, func(a, b *proxy) int {
			switch {
			case a.known.UID < b.known.UID:
				return -1
			case a.known.UID > b.known.UID:
				return 1
			default:
				return 0
			}
		})
	}
	return f.sorted
}

// member is a member cluster or region.
type member struct {
	id        MemberID
	suspect   bool
	seen      int64
	journaled int64 // seen as of the last record
	present   bool  // not suspect, and seen within the freshness window
	proxies   []*proxy
	timer     timer
}

func (m *member) add(p *proxy) {
	p.onSite = len(m.proxies)
	m.proxies = append(m.proxies, p)
}

func (m *member) remove(p *proxy) {
	last := len(m.proxies) - 1
	m.proxies[p.onSite] = m.proxies[last]
	m.proxies[p.onSite].onSite = p.onSite
	m.proxies[last] = nil
	m.proxies = m.proxies[:last]
}

// requestKey scopes a request id.
type requestKey struct {
	principal Principal
	fleet     FleetID
	id        RequestID
}

// request is an Acquire that is remembered until its last lease is forgotten.
type request struct {
	key         requestKey
	fingerprint [32]byte
	leases      []*lease
	remembered  int // leases not yet forgotten
}

// sessionKey scopes a session key.
type sessionKey struct {
	principal Principal
	fleet     FleetID
	key       string
}

// session binds a key to a proxy.
type session struct {
	key   sessionKey
	proxy ProxyUID
	until int64
	timer timer
}
