package lease

import (
	"maps"
	"slices"
	"time"
)

// advance lets time pass in a live engine. What only time decides changes
// state without a record, as a replay finds the same; expiries are recorded,
// at the moment they were due, because renewals compete with them.
func (e *Engine) advance(now int64, out *Output) {
	e.now = max(e.now, now)
	e.goLive()
	defer e.waitsDue(out)
	for {
		t, at := e.timers.first()
		if t == nil || at > e.now {
			return
		}
		if t.kind == timerFleet {
			f := t.owner.(*fleet)
			if first, due := f.ends.first(); first.kind == timerExpiry {
				l := first.owner.(*lease)
				e.commit(&Finished{At: moment(due), ID: l.id, State: StateExpired, HeldUntil: moment(e.holdUntil(l, due))}, out)
				out.Notices = append(out.Notices, Ended{Of: l.subject(), State: StateExpired, At: moment(due)})
				continue
			}
		}
		e.due(t, at)
	}
}

// goLive ends a replay: from now on silent members go stale. Which of them
// were silent in the past is not durable, so a replay does not ask.
func (e *Engine) goLive() {
	if e.live {
		return
	}
	e.live = true
	for _, id := range slices.Sorted(maps.Keys(e.members)) {
		m := e.members[id]
		e.timers.set(&m.timer, m.seen+int64(e.opts.Freshness))
	}
}

// replayUntil lets time pass in a replay, up to the time of the next record.
// Expiries wait: they have records of their own.
func (e *Engine) replayUntil(at int64) {
	e.now = max(e.now, at)
	for {
		t, due := e.timers.first()
		if t == nil || due > e.now {
			break
		}
		if t.kind == timerFleet {
			if first, _ := t.owner.(*fleet).ends.first(); first.kind == timerExpiry {
				e.timers.remove(t)
				e.waiting = append(e.waiting, timerItem{at: due, t: t})
				continue
			}
		}
		e.due(t, due)
	}
	for _, item := range e.waiting {
		e.timers.set(item.t, item.at)
	}
	e.waiting = e.waiting[:0]
}

// due does what a timer is for. It moves or removes the timer.
func (e *Engine) due(t *timer, at int64) {
	switch t.kind {
	case timerFleet:
		first, due := t.owner.(*fleet).ends.first()
		e.holdOver(first.owner.(*lease), due)
	case timerCooldown:
		e.cooldownDue(t.owner.(*cooldown), at)
	case timerForget:
		e.timers.remove(t)
		e.forget(t.owner.(*lease))
	case timerSession:
		e.timers.remove(t)
		delete(e.sessions, t.owner.(*session).key)
		e.regroup(e.seekers[t.owner.(*session).key])
	case timerMember:
		e.memberDue(t.owner.(*member))
	case timerPace:
		e.repace(t.owner.(*pace))
	case timerHold, timerExpiry: // in their fleet's heap only
	case timerWait, timerAge, timerGate: // in the heap of waits only
	}
}

// rearm keeps a fleet's place among the engine's timers.
func (e *Engine) rearm(f *fleet) {
	t, at := f.ends.first()
	switch {
	case t == nil:
		e.timers.remove(&f.timer)
	case f.timer.place == 0 || e.timers.items[f.timer.place-1].at != at:
		e.timers.set(&f.timer, at)
	}
}

// holdUntil returns until when an ending lease's slots are held back.
func (e *Engine) holdUntil(l *lease, ended int64) int64 {
	return ended + int64(l.fleet.policy.ReuseDelay)
}

// finish ends a lease: its slots are free now, or once the hold is over.
func (e *Engine) finish(l *lease, state State, at, heldUntil int64) {
	f, p := l.fleet, l.proxy
	l.state, l.expires = state, at
	for i, other := range p.leases {
		if other == l {
			p.leases = append(p.leases[:i], p.leases[i+1:]...)
			break
		}
	}
	p.lastUsed = max(p.lastUsed, at)
	e.paceEnded(l, at)
	f.leased--
	f.taken -= l.slots
	if f.holders[l.principal]--; f.holders[l.principal] <= 0 {
		delete(f.holders, l.principal)
	}
	e.relieve(f, l.principal)
	if heldUntil > at {
		f.held += l.slots
		l.timer.kind = timerHold
		f.ends.set(&l.timer, heldUntil)
		e.rearm(f)
		return
	}
	f.ends.remove(&l.timer)
	e.rearm(f)
	f.occupy(p, -l.slots, l.exclusive)
	e.dropFleet(f)
	e.rememberUntil(l)
}

// holdOver frees the slots that an ended lease held back.
func (e *Engine) holdOver(l *lease, at int64) {
	f := l.fleet
	f.held -= l.slots
	f.ends.remove(&l.timer)
	e.rearm(f)
	l.proxy.lastUsed = max(l.proxy.lastUsed, at)
	f.occupy(l.proxy, -l.slots, l.exclusive)
	e.dropFleet(f)
	e.rememberUntil(l)
}

// rememberUntil keeps an ended lease for reports and repeated requests.
func (e *Engine) rememberUntil(l *lease) {
	l.timer.kind = timerForget
	e.timers.set(&l.timer, l.expires+int64(Remembered))
}

// forget drops an ended lease, and the request that asked for it with the
// last of its leases.
func (e *Engine) forget(l *lease) {
	delete(e.leases, l.id)
	if l.request == nil {
		return
	}
	if l.request.remembered--; l.request.remembered == 0 {
		delete(e.requests, l.request.key)
	}
}

// memberDue finds out whether a member has gone stale.
func (e *Engine) memberDue(m *member) {
	if until := m.seen + int64(e.opts.Freshness); until > e.now {
		e.timers.set(&m.timer, until)
		return
	}
	e.timers.remove(&m.timer)
	e.presence(m)
}

// hear notes a word from a member.
func (e *Engine) hear(m *member, at int64) {
	if at <= m.seen {
		return
	}
	m.seen = at
	if e.live && m.timer.place == 0 {
		e.timers.set(&m.timer, at+int64(e.opts.Freshness))
	}
	e.presence(m)
}

// presence finds out anew whether proxies of a member can be granted.
func (e *Engine) presence(m *member) {
	present := !m.suspect && m.seen != 0 && m.seen+int64(e.opts.Freshness) > e.now
	if present == m.present {
		return
	}
	m.present = present
	for _, p := range m.proxies {
		p.fleet.reclass(p)
	}
}

// memberFor returns the engine's record of a member, made if need be.
func (e *Engine) memberFor(id MemberID) *member {
	m := e.members[id]
	if m == nil {
		m = &member{id: id}
		m.timer = timer{owner: m, kind: timerMember}
		e.members[id] = m
	}
	return m
}

// fleetFor returns the engine's record of a fleet, made if need be.
func (e *Engine) fleetFor(id FleetID) *fleet {
	f := e.fleets[id]
	if f == nil {
		f = newFleet(id, &e.now)
		e.fleets[id] = f
	}
	return f
}

// dropFleet forgets a fleet that nothing needs.
func (e *Engine) dropFleet(f *fleet) {
	if !f.exists && f.count == 0 && len(f.ends.items) == 0 && e.fleets[f.id] == f {
		delete(e.fleets, f.id)
	}
}

// left returns the time from now until a moment, at least zero.
func (e *Engine) left(at int64) time.Duration {
	return time.Duration(max(0, at-e.now))
}
