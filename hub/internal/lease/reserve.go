package lease

// An exclusive lease needs a proxy with no slot taken, and where others wait
// for slots there never is one by chance. So the oldest exclusive waiter that
// has waited for Options.ReserveAfter gets a reservation: the least loaded
// proxy that fits is granted to nobody else, and in its stead another one that
// comes to be less loaded. A fleet has one reservation at a time, so that
// exclusive waiters cannot bring it to rest. An Acquire of several exclusive
// leases gets none.
//
// A reserved proxy stays where it is in its queue, and all views pass it over:
// so a reservation leaves no trace.

// reserve sees to a fleet's reservation: whose it is, and of which proxy.
func (e *Engine) reserve(r *room) {
	f := r.fleet
	if r.holder != nil && r.held != nil && !e.suits(r.holder, r.held) {
		f.unreserve()
	}
	for r.holder == nil && len(r.aged) > 0 {
		if w := r.aged[0]; !w.gone {
			r.holder = w
		}
		r.aged = r.aged[1:]
	}
	w := r.holder
	if w == nil || r.held != nil || !e.admitted(w.line.kind, w.cmd.Target) {
		return
	}
	if uid := w.line.kind.key.bound; uid != "" {
		if p := e.proxies[uid]; p != nil && e.suits(w, p) {
			f.reserveFor(w, p)
		}
		return
	}
	v := e.viewOf(w.line.kind, w.cmd.Target)
	for load := range f.slots() {
		if p := v.first(load); p != nil && e.suits(w, p) {
			f.reserveFor(w, p)
			return
		}
	}
}

// suits tells whether a proxy can be reserved for a waiter: it is not full,
// and fits but for the slots that are taken.
func (e *Engine) suits(w *waiter, p *proxy) bool {
	k := w.line.kind
	if p.queued == notQueued || p.fleet != w.fleet || k.key.bound != "" && k.key.bound != p.known.UID || e.revokedFrom(w.cmd.Principal, p.known.UID) {
		return false
	}
	v := e.viewOf(k, w.cmd.Target)
	return !v.held(p.index) && !v.unmatched.has(p.index)
}

// reserveFor keeps a proxy for a waiter, instead of the one before.
func (f *fleet) reserveFor(w *waiter, p *proxy) {
	f.unreserve()
	f.room.holder, f.room.held = w, p
	f.reserved = p.index
}

// unreserve lets everybody have the reserved proxy again.
func (f *fleet) unreserve() {
	p := f.room.held
	if p == nil {
		return
	}
	f.room.held, f.reserved = nil, gap
	for _, v := range f.views {
		v.welcome(p)
	}
	f.offer(p)
}
