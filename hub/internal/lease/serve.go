package lease

import (
	"cmp"
	"maps"
	"slices"
)

// settle serves those who wait with what came free. After it nobody waits who
// could be served, so whoever asks next overtakes nobody.
func (e *Engine) settle(out *Output) {
	for i := 0; i < len(e.unsettled); i++ { //nolint:intrange // a grant can add to them
		r := e.unsettled[i]
		r.listed = false
		if r.fleet.room == r {
			e.serve(r, out)
		}
	}
	clear(e.unsettled)
	e.unsettled = e.unsettled[:0]
}

// waitsDue does what is due in the queues: reservations begin, gates open,
// waits are over. Whoever can be served at this very moment is: what came free
// at the instant at which a wait ends goes to the waiter.
func (e *Engine) waitsDue(out *Output) {
	var over []*waiter
	for t, at := e.waits.first(); t != nil && at <= e.now; t, at = e.waits.first() {
		e.waits.remove(t)
		switch t.kind { //nolint:exhaustive // the others are in other heaps
		case timerWait:
			over = append(over, t.owner.(*waiter))
		case timerAge:
			w := t.owner.(*waiter)
			w.fleet.room.aged = append(w.fleet.room.aged, w)
			w.fleet.room.touch()
		case timerGate:
			e.reviveAll(t.owner.(*fleet))
			e.armGate(t.owner.(*fleet))
		}
	}
	e.settle(out)
	for _, w := range over {
		e.giveUp(w, out)
	}
	e.settle(out)
}

// armGate sets a timer to the moment at which a guard or the grace ends that
// may keep waiters from being served.
func (e *Engine) armGate(f *fleet) {
	if f.room == nil {
		return
	}
	first := int64(0)
	if f.graceUntil > e.now {
		first = f.graceUntil
	}
	for _, until := range f.paused {
		if until > e.now && (first == 0 || until < first) {
			first = until
		}
	}
	if first == 0 {
		e.waits.remove(&f.room.gate)
		return
	}
	e.waits.set(&f.room.gate, first)
}

// source is something that came free, and the first waiter it can serve.
type source struct {
	p *proxy // a proxy, or
	k *kind  // a kind that may be served by what was free already
	w *waiter
}

func (s *source) first(e *Engine) *waiter {
	if s.p != nil {
		return e.wanting(s.p)
	}
	return e.fitting(s.k)
}

// serve grants what came free, to the earliest waiters first. A grant can only
// take from what the others find, so it is enough to look again at the source
// whose turn it is.
func (e *Engine) serve(r *room, out *Output) {
	var sources []source // the last one's turn is next
	for {
		if sources = e.gather(r, sources); len(sources) == 0 {
			e.reserve(r)
			if len(r.offered) == 0 && len(r.revived) == 0 {
				return
			}
			continue
		}
		s := sources[len(sources)-1]
		sources = sources[:len(sources)-1]
		if w := s.first(e); w == s.w && !e.grantTo(w, out) {
			continue // nothing can be done about it here
		}
		if r.fleet.room != r {
			return
		}
		if s.w = s.first(e); s.w != nil {
			at, _ := slices.BinarySearchFunc(sources, s, laterFirst)
			sources = slices.Insert(sources, at, s)
		}
	}
}

// gather adds what came free, if it serves anybody.
func (e *Engine) gather(r *room, sources []source) []source {
	if len(r.offered) == 0 && len(r.revived) == 0 {
		return sources
	}
	closed := e.readOnly != "" || r.fleet.graceUntil > e.now
	add := func(s source) {
		if closed { // all of them are looked at when that is over
			return
		}
		if s.w = s.first(e); s.w != nil {
			sources = append(sources, s)
		}
	}
	offered, revived := r.offered, r.revived
	r.offered, r.revived = nil, nil
	for _, p := range offered {
		p.offered = false
		add(source{p: p})
	}
	for _, k := range revived {
		k.revived = false
		add(source{k: k})
	}
	slices.SortStableFunc(sources, laterFirst)
	return sources
}

func laterFirst(a, b source) int { return cmp.Compare(b.w.ticket, a.w.ticket) }

// grantTo grants what a waiter asked for, and tells whether that was so.
func (e *Engine) grantTo(w *waiter, out *Output) bool {
	if r := w.fleet.room; r.holder == w && r.held != nil {
		w.fleet.unreserve() // it is for this grant
	}
	result, refusal := e.acquire(&w.cmd, out)
	if refusal != nil && refusal.RetryAfter > 0 {
		return false
	}
	e.dismiss(w)
	out.Answers = append(out.Answers, Answer{Ticket: w.ticket, Result: result, Refusal: refusal})
	if refusal == nil {
		e.answerTwins(&w.cmd, out)
	}
	return true
}

// wanting returns the first waiter that can be granted a proxy, or nil.
func (e *Engine) wanting(p *proxy) *waiter {
	f := p.fleet
	r := f.room
	if r == nil || p.queued == notQueued {
		return nil
	}
	if p.index == f.reserved {
		if w := r.holder; p.load == 0 && e.suits(w, p) && e.admitted(w.line.kind, w.cmd.Target) {
			return w
		}
		return nil
	}
	var best *waiter
	for _, k := range r.order {
		if w := e.firstFor(k, p); w != nil && (best == nil || w.ticket < best.ticket) {
			best = w
		}
	}
	for _, k := range r.bound[p.known.UID] {
		if w := e.firstFor(k, p); w != nil && (best == nil || w.ticket < best.ticket) {
			best = w
		}
	}
	if w := r.holder; w != nil && w != best && (best == nil || w.ticket < best.ticket) && e.suits(w, p) &&
		(r.held == nil || p.load < r.held.load) {
		f.reserveFor(w, p)
		return nil
	}
	return best
}

// firstFor returns the first waiter of a kind that can be granted a proxy.
func (e *Engine) firstFor(k *kind, p *proxy) *waiter {
	if k.key.exclusive && p.queued > 0 || !e.withinBound(k) || !k.selector.matches(&p.known, k.network) ||
		e.revokedFrom(k.key.principal, p.known.UID) {
		return nil
	}
	for l := range k.order.inOrder() {
		if e.pausedFor(p.fleet, l.target) {
			continue
		}
		v := e.viewOf(k, l.target)
		if v.blocked(p.index) || k.key.least > 1 && !e.enough(k, v, l.target) {
			continue
		}
		return l.waiters[0]
	}
	return nil
}

// fitting returns the first waiter of a kind that can be granted what is free.
func (e *Engine) fitting(k *kind) *waiter {
	if len(k.order) == 0 || !e.withinBound(k) || !k.room.fleet.anyFree() {
		return nil
	}
	var full *view // many lines share one
	for l := range k.order.inOrder() {
		v := e.viewOf(k, l.target)
		if v == full || e.pausedFor(v.fleet, l.target) {
			continue
		}
		if !e.enough(k, v, l.target) {
			if k.key.least == 1 { // else exits' paces may have decided
				full = v
			}
			continue
		}
		return l.waiters[0]
	}
	return nil
}

// enough tells whether a view has as many free slots as a kind wants.
func (e *Engine) enough(k *kind, v *view, target Target) bool {
	wants := Acquire{Principal: k.key.principal, Exclusive: k.key.exclusive, Target: target}
	return len(e.allowed(v, &wants, k.key.least)) >= k.key.least
}

// viewOf is the view of a line.
func (e *Engine) viewOf(k *kind, target Target) *view {
	return e.viewWith(k.room.fleet, target, k.key.selector, &k.selector, k.network)
}

// admitted tells whether nothing but proxies keeps a waiter from its grant.
func (e *Engine) admitted(k *kind, target Target) bool {
	return e.withinBound(k) && !e.pausedFor(k.room.fleet, target)
}

// withinBound tells whether the principal of a kind may have what it asks for.
func (e *Engine) withinBound(k *kind) bool {
	f := k.room.fleet
	most := f.policy.MaxLeasesPerPrincipal
	return most == 0 || f.holders[k.key.principal]+k.key.least <= most
}

// pausedFor tells whether the guard keeps a fleet from granting for a target.
func (e *Engine) pausedFor(f *fleet, target Target) bool {
	until, paused := f.paused[target.key]
	return paused && until > e.now
}

// anyFree tells whether any proxy has a slot.
func (f *fleet) anyFree() bool {
	for load := range f.slots() {
		if f.queues[load].live > 0 {
			return true
		}
	}
	return false
}

// relieve notes that a principal holds one lease less: if that was too many,
// its waiters may be granted what is free.
func (e *Engine) relieve(f *fleet, holder Principal) {
	most := f.policy.MaxLeasesPerPrincipal
	if f.room == nil || most == 0 {
		return
	}
	for _, k := range f.room.kinds {
		if k.key.principal == holder && f.holders[holder]+k.key.least == most {
			e.revive(k)
		}
	}
}

// revokedSomewhere tells whether a principal was revoked on single proxies.
func (e *Engine) revokedSomewhere(principal Principal) bool {
	for key := range e.revocations {
		if key.principal == principal && key.proxy != "" {
			return true
		}
	}
	return false
}

// regroupAll regroups everybody who waits: it is for what operators do.
func (e *Engine) regroupAll() {
	for _, id := range slices.Sorted(maps.Keys(e.fleets)) {
		if r := e.fleets[id].room; r != nil {
			e.regroup(r.inOrder())
		}
	}
}

// regroup puts waiters where they belong now, and has them looked at.
func (e *Engine) regroup(waiting []*waiter) {
	for _, w := range waiting {
		key := e.kindOf(w.fleet, &w.cmd)
		if w.line.kind.key != key {
			w.fleet.room.leave(w)
			w.fleet.room.kind(key, &w.cmd).join(w)
		}
		e.revive(w.line.kind)
	}
}
