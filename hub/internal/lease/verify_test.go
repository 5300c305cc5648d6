package lease

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// verify recounts everything that the engine counts as it goes, the slow way,
// and returns what differs.
func verify(e *Engine) error {
	for id, f := range e.fleets {
		if err := verifyFleet(e, f); err != nil {
			return fmt.Errorf("fleet %s: %w", id, err)
		}
		if err := verifyHeap(&f.ends); err != nil {
			return fmt.Errorf("fleet %s: %w", id, err)
		}
		if first, at := f.ends.first(); first != nil && (f.timer.place == 0 || e.timers.items[f.timer.place-1].at != at) {
			return fmt.Errorf("fleet %s is not among the engine's timers at %d", id, at)
		}
	}
	for key, t := range e.targets {
		active := 0
		for x, c := range t.cooldowns {
			if c.active {
				active++
			}
			if x.cooldowns[t] != c {
				return fmt.Errorf("target %s: exit %s does not know its cooldown", key, x.exit)
			}
		}
		armed := 0
		for x, c := range t.paces {
			live := c.live
			if c.count(); c.live != live {
				return fmt.Errorf("target %s: %d leases live by exit %s, counted %d", key, c.live, x.exit, live)
			}
			if c.armed {
				armed++
			}
			if x.paces[t] != c || c.timer.place == 0 {
				return fmt.Errorf("target %s: exit %s does not know its pace, or it has no timer", key, x.exit)
			}
		}
		if armed != t.armed {
			return fmt.Errorf("target %s: %d armed paces, counted %d", key, armed, t.armed)
		}
		if active != t.active {
			return fmt.Errorf("target %s: %d active cooldowns, counted %d", key, active, t.active)
		}
	}
	if err := verifyWaiters(e); err != nil {
		return err
	}
	return errors.Join(verifyHeap(&e.timers), verifyHeap(&e.waits))
}

func verifyHeap(h *timerHeap) error {
	for i, item := range h.items {
		if item.t.place != i+1 {
			return fmt.Errorf("timer at %d thinks it is at %d", i, item.t.place-1)
		}
		if i > 0 && item.before(h.items[(i-1)/2]) {
			return fmt.Errorf("timer at %d is before its parent", i)
		}
	}
	return nil
}

func verifyFleet(e *Engine, f *fleet) error {
	var ready, drains, leased, taken, held, count, waiting int
	exits, cooling := map[*exit]bool{}, map[*exit]bool{}
	for _, p := range f.proxies {
		if p == nil {
			continue
		}
		count++
		leased += len(p.leases)
		switch {
		case p.known.Draining:
			drains++
		case p.known.Ready:
			ready++
		}
		for _, x := range p.exits {
			exits[x] = true
			if x.active > 0 {
				cooling[x] = true
			}
		}
		if p.class != p.classify() {
			return fmt.Errorf("proxy %s has class %d, not %d", p.known.UID, p.class, p.classify())
		}
		want := notQueued
		if p.class == usable && p.exclusive == 0 && p.load < f.slots() {
			want, waiting = p.load, waiting+1
		}
		if p.queued != want {
			return fmt.Errorf("proxy %s waits at load %d, not %d", p.known.UID, p.queued, want)
		}
		if want != notQueued {
			if en := f.queues[want].entries[p.position]; en.proxy != p.index || en.seq != p.seq {
				return fmt.Errorf("proxy %s is not where it thinks it is", p.known.UID)
			}
		}
	}
	for load := range f.queues {
		q := &f.queues[load]
		live := 0
		for i, en := range q.entries {
			if en.proxy != gap {
				live++
			}
			if i > 0 && q.entries[i-1].seq >= en.seq {
				return fmt.Errorf("queue %d is out of order", load)
			}
		}
		if live != q.live {
			return fmt.Errorf("queue %d has %d proxies, counted %d", load, live, q.live)
		}
		waiting -= live
	}
	for _, l := range e.leases {
		if l.fleet != f {
			continue
		}
		switch {
		case l.state == Live:
			taken += l.slots
		case l.timer.kind == timerHold:
			held += l.slots
		}
	}
	got := []int{f.count, f.ready, f.draining, f.leased, f.taken, f.held, f.exits, f.cooling, waiting}
	want := []int{count, ready, drains, leased, taken, held, len(exits), len(cooling), 0}
	if !slices.Equal(got, want) {
		return fmt.Errorf("counts %v, want %v (proxies, ready, draining, leased, taken, held, exits, cooling, queues' surplus)", got, want)
	}
	for _, v := range f.views {
		if err := verifyView(v); err != nil {
			return fmt.Errorf("view %q: %w", v.key, err)
		}
	}
	return nil
}

func verifyView(v *view) error {
	var matching, cooling, pacing int
	var byClass [classes]int
	exits := map[*exit]bool{}
	for _, p := range v.fleet.proxies {
		if p == nil {
			continue
		}
		for _, x := range p.exits {
			if v.target != nil && v.target.cooldowns[x] != nil && v.target.cooldowns[x].active {
				exits[x] = true
			}
		}
		fits := v.selector.matches(&p.known, v.network)
		if v.unmatched.has(p.index) == fits {
			return fmt.Errorf("proxy %s: unmatched is %v", p.known.UID, fits)
		}
		if !fits {
			continue
		}
		matching++
		byClass[p.class]++
		cools := v.target.coolUntil(p) != 0
		if v.cool.has(p.index) != cools {
			return fmt.Errorf("proxy %s: cool is %v", p.known.UID, !cools)
		}
		if cools && p.class == usable {
			cooling++
		}
		paced := !cools && v.target.paceOpens(p) != 0
		if v.paced.has(p.index) != paced {
			return fmt.Errorf("proxy %s: paced is %v", p.known.UID, !paced)
		}
		if paced && p.class == usable {
			pacing++
		}
		if !cools && !paced && p.queued != notQueued && p.index != v.fleet.reserved && !v.finds(p) {
			return fmt.Errorf("proxy %s waits at load %d and cannot be found", p.known.UID, p.queued)
		}
	}
	got := []int{v.matching, v.cooling, v.pacing, v.exits}
	want := []int{matching, cooling, pacing, len(exits)}
	if !slices.Equal(got, want) || v.classes != byClass {
		return fmt.Errorf("counts %v %v, want %v %v (matching, cooling, pacing, exits; classes)", got, v.classes, want, byClass)
	}
	return nil
}

// finds tells whether a proxy is ahead of the view's cursor or among the
// returned ones.
func (v *view) finds(p *proxy) bool {
	if p.seq >= v.cursors[p.queued].seq {
		return true
	}
	return slices.Contains(v.returned[p.queued], mark{key: int64(p.seq), proxy: p.index})
}

// dump writes down the durable state, and the order of the queues, for the
// comparison of two engines.
func dump(e *Engine) string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for id, f := range e.fleets {
		add("fleet %s %v %+v grace %d leased %d taken %d held %d", id, f.exists, f.policy, f.graceUntil, f.leased, f.taken, f.held)
		for target, until := range f.paused {
			if until > e.now {
				add("fleet %s paused %s %d", id, target, until)
			}
		}
		for load := range f.queues {
			var order []string
			for _, en := range f.queues[load].entries {
				if en.proxy != gap {
					order = append(order, string(f.proxies[en.proxy].known.UID))
				}
			}
			add("fleet %s queue %d %v", id, load, order)
		}
	}
	for uid, p := range e.proxies {
		known := p.known
		known.LastSeen, known.LastReady = e.Now(), e.Now() // not durable word for word
		add("proxy %s %+v load %d used %d", uid, known, p.load, p.lastUsed)
	}
	for id, l := range e.leases {
		add("lease %s %v %s %s %s %v expires %d life %d slots %d timer %d", id, l.token, l.principal, l.proxy.known.UID, l.target, l.state,
			l.expires, l.lifetimeEnd, l.slots, l.timer.kind)
	}
	for key, t := range e.targets {
		for x, c := range t.cooldowns {
			add("cooldown %s %s active %v until %d banned %v strikes %d rest %s", key, x.exit, c.active, c.until, c.banned, c.strikes, c.rest)
		}
	}
	for key, t := range e.targets {
		for x, c := range t.paces {
			if c.learnt {
				add("pace %s %s %v limit %v at %d in a row %d", key, x.exit, c.tempo.recorded, c.tempo.limit, c.tempo.refusedAt, c.tempo.streak)
			}
		}
	}
	for key, req := range e.requests {
		add("request %v %x %d of %d", key, req.fingerprint[:4], req.remembered, len(req.leases))
	}
	for key, s := range e.sessions {
		add("session %v %s %d", key, s.proxy, s.until)
	}
	for _, r := range e.standing() {
		add("revoked %+v", r)
	}
	for _, p := range e.pausesNow() {
		add("halted %+v", p)
	}
	add("sequence %d now %d", e.sequence, e.now)
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}
