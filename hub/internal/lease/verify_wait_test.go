package lease

import (
	"fmt"
	"maps"
	"slices"
)

// verifyWaiters checks that those who wait are where they belong, and that
// none of them waits for what could be granted now.
func verifyWaiters(e *Engine) error {
	found := 0
	of := map[Principal]int{}
	for _, ticket := range slices.Sorted(maps.Keys(e.waiters)) {
		w := e.waiters[ticket]
		of[w.cmd.Principal]++
		r := w.fleet.room
		switch {
		case w.ticket != ticket || w.gone || w.deadline.place == 0:
			return fmt.Errorf("waiter %d is gone", ticket)
		case e.fleets[w.cmd.Fleet] != w.fleet || !w.fleet.exists || r == nil:
			return fmt.Errorf("waiter %d waits for a fleet that is gone", ticket)
		case w.line.kind.key != e.kindOf(w.fleet, &w.cmd) || r.kinds[w.line.kind.key] != w.line.kind:
			return fmt.Errorf("waiter %d is of kind %v, not %v", ticket, w.line.kind.key, e.kindOf(w.fleet, &w.cmd))
		case w.line.waiters[w.place] != w || w.line.kind.lines[w.cmd.Target.key] != w.line || w.line.kind.order[w.line.place] != w.line:
			return fmt.Errorf("waiter %d is not in its line", ticket)
		case e.now >= e.waits.items[w.deadline.place-1].at:
			return fmt.Errorf("waiter %d waits too long", ticket)
		}
		if e.mayLease(w.cmd.Principal) != nil || e.targetPaused(w.cmd.Target.key) != nil {
			return fmt.Errorf("waiter %d was not turned away", ticket)
		}
		if could(e, w) {
			return fmt.Errorf("waiter %d %+v could be served", ticket, w.cmd)
		}
	}
	for _, f := range e.fleets {
		r := f.room
		if r == nil {
			if f.reserved != gap {
				return fmt.Errorf("proxy %d of %s is reserved for nobody", f.reserved, f.id)
			}
			continue
		}
		if err := verifyRoom(e, r); err != nil {
			return fmt.Errorf("room of %s: %w", f.id, err)
		}
		found += r.waiters
	}
	if found != len(e.waiters) || !maps.Equal(of, e.waitersOf) || len(e.unsettled) != 0 {
		return fmt.Errorf("%d waiters in rooms, %d in all; by principal %v, counted %v; %d unsettled", found, len(e.waiters), of, e.waitersOf, len(e.unsettled))
	}
	for key, twins := range e.twins {
		for _, w := range twins {
			if w.gone || w.cmd.requestKey() != key {
				return fmt.Errorf("waiter %d is found under request %v", w.ticket, key)
			}
		}
	}
	for key, list := range e.seekers {
		for _, w := range list {
			if w.gone || w.cmd.session() != key {
				return fmt.Errorf("waiter %d is found under session %v", w.ticket, key)
			}
		}
	}
	return nil
}

func verifyRoom(e *Engine, r *room) error {
	waiters, kinds := 0, len(r.order)
	for uid, bound := range r.bound {
		kinds += len(bound)
		if len(bound) == 0 {
			return fmt.Errorf("nobody waits for %s", uid)
		}
	}
	for key, k := range r.kinds {
		if len(k.lines) == 0 || len(k.lines) != len(k.order) {
			return fmt.Errorf("kind %v has %d lines, %d in order", key, len(k.lines), len(k.order))
		}
		for i, l := range k.order {
			if l.place != i || i > 0 && k.order[(i-1)/2].rank() > l.rank() {
				return fmt.Errorf("kind %v: line %d is out of order", key, i)
			}
			for j, w := range l.waiters {
				if w.place != j || w.line != l || j > 0 && l.waiters[(j-1)/2].ticket > w.ticket {
					return fmt.Errorf("kind %v: waiter %d is out of order", key, w.ticket)
				}
			}
			waiters += len(l.waiters)
		}
	}
	switch {
	case waiters != r.waiters || waiters == 0 || kinds != len(r.kinds):
		return fmt.Errorf("%d waiters, counted %d; %d kinds of %d in order", waiters, r.waiters, kinds, len(r.kinds))
	case len(r.offered)+len(r.revived) > 0:
		return fmt.Errorf("%d proxies and %d kinds were not looked at", len(r.offered), len(r.revived))
	case (r.held != nil) != (r.fleet.reserved != gap), r.held != nil && r.held.index != r.fleet.reserved, r.held != nil && r.holder == nil:
		return fmt.Errorf("proxy %d is reserved, for %v", r.fleet.reserved, r.holder)
	case r.holder != nil && (r.holder.gone || !r.holder.cmd.Exclusive):
		return fmt.Errorf("the reservation is of waiter %d", r.holder.ticket)
	case r.held != nil && !e.suits(r.holder, r.held):
		return fmt.Errorf("proxy %s is reserved and does not suit", r.held.known.UID)
	}
	return nil
}

// could tells, the slow way, whether a waiter could be granted what it wants.
func could(e *Engine, w *waiter) bool {
	f, cmd := w.fleet, &w.cmd
	_, least := cmd.counts()
	most := f.policy.MaxLeasesPerPrincipal
	held := 0
	for _, l := range e.leases {
		if l.fleet == f && l.principal == cmd.Principal && l.state == Live {
			held++
		}
	}
	if e.readOnly != "" || f.graceUntil > e.now || f.paused[cmd.Target.key] > e.now || most > 0 && held+least > most {
		return false
	}
	room := 0
	s := e.sessions[cmd.session()]
	for _, p := range f.proxies {
		switch {
		case p == nil, p.classify() != usable, p.exclusive > 0, !cmd.Selector.matches(&p.known, cmd.Network),
			e.targets[cmd.Target.key].coolUntil(p) != 0, p.index == f.reserved && (f.room.holder != w || p.load > 0):
		case e.revokedFrom(cmd.Principal, p.known.UID):
		case cmd.SessionKey != "" && s != nil && !cmd.AllowMove && s.proxy != p.known.UID:
		case cmd.Exclusive && p.load == 0 && f.slots() > 0:
			room++
		case !cmd.Exclusive:
			room += max(0, f.slots()-p.load)
		}
	}
	return room >= least
}
