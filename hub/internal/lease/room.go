package lease

import "slices"

// What comes free must find the first waiter that can use it without looking
// at all who wait. So a fleet's waiters stand in lines, and all of a line can
// use the same proxies: they want the same of a proxy (their kind) and the
// same target. Of each line only the first one is ever looked at. A proxy
// that came free is offered to each kind, there to the lines in the order of
// their first waiters, until one is not kept off the proxy by a cooldown. The
// earliest of those found is served.
//
// What came free is noted where it happens, by room.offer and room.revive,
// and served once the command, or the passing of time, is done.

// room is where the waiters of a fleet are. A fleet has one while anybody
// waits.
type room struct {
	waiters int
	kinds   map[kindKey]*kind
	order   []*kind              // those of no session, as they came
	bound   map[ProxyUID][]*kind // those whose session has a proxy
	gate    timer                // the first end of a guard or a grace

	offered   []*proxy // came free since the last serving
	revived   []*kind  // may be served by what was free already
	listed    bool     // among the engine's unsettled ones
	unsettled *[]*room
	fleet     *fleet

	aged   []*waiter // exclusive ones that waited for long, by ticket
	holder *waiter   // whom the reservation is for
	held   *proxy    // what is reserved, if it is found
}

// kindKey is what a kind of waiters has in common.
type kindKey struct {
	selector  string // as a view's key has it
	exclusive bool
	least     int
	principal Principal // if the fleet bounds the leases of each, or it is revoked on some proxy
	bound     ProxyUID  // the proxy of their session, which no other can replace
}

// kind is the lines of waiters that want the same of a proxy.
type kind struct {
	key      kindKey
	selector Selector
	network  Network
	room     *room
	lines    map[string]*line
	order    ranks[*line]
	revived  bool
}

// line is the waiters of a kind with one target key, in the order of tickets.
type line struct {
	kind    *kind
	target  Target
	waiters ranks[*waiter]
	place   int
}

func (l *line) rank() Ticket { return l.waiters[0].ticket }
func (l *line) at() *int     { return &l.place }

// openRoom gives a fleet a room if it has none.
func (e *Engine) openRoom(f *fleet) *room {
	if f.room == nil {
		f.room = &room{fleet: f, kinds: map[kindKey]*kind{}, bound: map[ProxyUID][]*kind{}, unsettled: &e.unsettled}
		f.room.gate = timer{owner: f, kind: timerGate}
	}
	return f.room
}

// closeRoom takes the room of a fleet for which nobody waits any more.
func (e *Engine) closeRoom(f *fleet) {
	r := f.room
	f.room = nil
	e.waits.remove(&r.gate)
	for _, p := range r.offered {
		p.offered = false
	}
}

// kindOf says which kind a command is of.
func (e *Engine) kindOf(f *fleet, cmd *Acquire) kindKey {
	_, least := cmd.counts()
	key := kindKey{selector: cmd.Selector.key(cmd.Network), exclusive: cmd.Exclusive, least: least}
	if f.policy.MaxLeasesPerPrincipal > 0 || e.revokedSomewhere(cmd.Principal) {
		key.principal = cmd.Principal
	}
	if s := e.sessionOf(cmd); s != nil && !cmd.AllowMove {
		key.bound = s.proxy
	}
	return key
}

// kind returns the kind with a key, made if need be.
func (r *room) kind(key kindKey, cmd *Acquire) *kind {
	k := r.kinds[key]
	if k != nil {
		return k
	}
	k = &kind{key: key, selector: cmd.Selector, network: cmd.Network, room: r, lines: map[string]*line{}}
	r.kinds[key] = k
	if key.bound != "" {
		r.bound[key.bound] = append(r.bound[key.bound], k)
	} else {
		r.order = append(r.order, k)
	}
	return k
}

// join puts a waiter into its line.
func (k *kind) join(w *waiter) {
	l := k.lines[w.cmd.Target.key]
	if l == nil {
		l = &line{kind: k, target: w.cmd.Target}
		k.lines[w.cmd.Target.key] = l
	} else {
		k.order.remove(l) // its rank is that of its first waiter
	}
	w.line = l
	l.waiters.add(w)
	k.order.add(l)
}

// leave takes a waiter out of its line, and the line and the kind out of the
// room if nobody else is there.
func (r *room) leave(w *waiter) {
	l := w.line
	k := l.kind
	w.line = nil
	k.order.remove(l)
	l.waiters.remove(w)
	if len(l.waiters) > 0 {
		k.order.add(l)
		return
	}
	delete(k.lines, l.target.key)
	if len(k.lines) > 0 {
		return
	}
	delete(r.kinds, k.key)
	same := func(other *kind) bool { return other == k }
	if k.key.bound == "" {
		r.order = slices.DeleteFunc(r.order, same)
		return
	}
	if r.bound[k.key.bound] = slices.DeleteFunc(r.bound[k.key.bound], same); len(r.bound[k.key.bound]) == 0 {
		delete(r.bound, k.key.bound)
	}
}

// inOrder returns all waiters by ticket. It looks at all of them.
func (r *room) inOrder() []*waiter {
	all := make([]*waiter, 0, r.waiters)
	for _, k := range r.kinds {
		for _, l := range k.lines {
			all = append(all, l.waiters...)
		}
	}
	slices.SortFunc(all, func(a, b *waiter) int {
		if a.ticket < b.ticket {
			return -1
		}
		return 1
	})
	return all
}

// touch notes that there is something to serve.
func (r *room) touch() {
	if !r.listed {
		r.listed = true
		*r.unsettled = append(*r.unsettled, r)
	}
}

// offer notes that a proxy can be granted to somebody that it could not be
// granted to before. Whatever makes that so calls it: a slot that came free, a
// cooldown that ended, other labels. It costs nothing while nobody waits.
func (f *fleet) offer(p *proxy) {
	if f.room == nil || p.offered {
		return
	}
	p.offered = true
	f.room.offered = append(f.room.offered, p)
	f.room.touch()
}

// revive notes that waiters of a kind may be granted what is free already.
func (e *Engine) revive(k *kind) {
	r := k.room
	if r.held != nil && r.holder.line.kind == k {
		r.fleet.offer(r.held) // all others pass it over
	}
	switch {
	case k.key.bound != "":
		if p := e.proxies[k.key.bound]; p != nil && p.fleet == r.fleet {
			r.fleet.offer(p)
		}
	case !k.revived && len(k.lines) > 0:
		k.revived = true
		r.revived = append(r.revived, k)
		r.touch()
	}
}

// reviveAll does so for everybody who waits for a fleet.
func (e *Engine) reviveAll(f *fleet) {
	if f.room == nil {
		return
	}
	for _, k := range f.room.order {
		e.revive(k)
	}
	for uid := range f.room.bound {
		if p := e.proxies[uid]; p != nil && p.fleet == f {
			f.offer(p)
		}
	}
}
