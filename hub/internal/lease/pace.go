package lease

import (
	"math"
	"slices"
	"time"
)

// pace is what the engine knows of one exit's use for one target: how many
// leases live, when the next may begin, and how fast it has learnt to be. It
// counts the leases of all fleets that share the exit, so they divide what the
// target tolerates.
type pace struct {
	exit   *exit
	target *target
	live   int   // leases that live
	last   int64 // when the last one was granted
	free   int64 // until when the rate is spoken for
	tempo  tempo
	learnt bool  // from a report, here or on record
	armed  bool  // it may keep leases from its exit: counted in its target
	pooled int64 // the refusal that the target's pool knows of
	timer  timer
}

// never is an opening that no time brings, but the end of a lease may.
const never = math.MaxInt64

// forgetPace is how long a pace is remembered without use.
const forgetPace = 7 * 24 * time.Hour

// DefaultMaxPaces is for Options.MaxPaces. A pace takes about 400 bytes.
const DefaultMaxPaces = 250_000

// opens returns when a fleet may lease for the target by the exit again: 0 for
// now.
func (c *pace) opens(f *fleet) int64 {
	r := f.ruleFor(c.target.key)
	switch {
	case r.Pace == PaceOff:
		return 0
	case r.MaxConcurrentPerExit > 0 && c.live >= r.MaxConcurrentPerExit:
		return never
	}
	at := int64(0)
	if r.MinInterval > 0 && c.last != 0 {
		at = c.last + int64(r.MinInterval)
	}
	if c.target.spaced(r) {
		at = max(at, c.free)
	}
	if at <= *f.now {
		return 0
	}
	return at
}

// batch sees to it that several leases chosen at once do not ask more of an
// exit than one after the other could.
type batch struct {
	bounded bool
	target  *target
	single  bool // leases on one exit are apart in time
	most    int  // that may live on one exit
	taken   map[*exit]int
}

// begin starts a choice for a target key. The target may be nil.
func (b *batch) begin(f *fleet, t *target, key string) {
	b.bounded = false
	if key == "" {
		return
	}
	r := f.ruleFor(key)
	b.target = t
	b.single = r.MinInterval > 0 || t.spaced(r)
	b.most = MaxCount
	if r.MaxConcurrentPerExit > 0 {
		b.most = r.MaxConcurrentPerExit
	}
	if b.bounded = r.Pace != PaceOff && (b.single || b.most < MaxCount); b.bounded {
		clear(b.taken)
	}
}

// affords tells whether a proxy's exits bear one more lease, and counts it.
func (b *batch) affords(p *proxy) bool {
	if !b.bounded {
		return true
	}
	if b.taken == nil {
		b.taken = map[*exit]int{}
	}
	for _, x := range p.exits {
		taken := b.taken[x]
		live := taken
		if b.target != nil && b.target.paces[x] != nil {
			live += b.target.paces[x].live
		}
		if live >= b.most || b.single && taken > 0 {
			return false
		}
	}
	for _, x := range p.exits {
		b.taken[x]++
	}
	return true
}

// spaced tells whether leases are spaced by what was learnt.
func (t *target) spaced(r *TargetRule) bool {
	return r.Pace == PaceAuto && (!r.Implied || t != nil && t.reported)
}

// paceOpens returns when the last of the proxy's exits may be leased for the
// target again, or 0 for now. The target may be nil.
func (t *target) paceOpens(p *proxy) int64 {
	if t == nil || t.armed == 0 {
		return 0
	}
	at := int64(0)
	for _, x := range p.exits {
		if c := t.paces[x]; c != nil {
			at = max(at, c.opens(p.fleet))
		}
	}
	return at
}

// perLeaseNow returns how many pages a lease for the target brings.
func (t *target) perLeaseNow() float64 { return max(1, t.perLease) }

// paceFor returns the pace of an exit for a target, made if need be.
func (e *Engine) paceFor(t *target, x *exit) *pace {
	c := t.paces[x]
	if c != nil {
		return c
	}
	if e.paces >= e.opts.MaxPaces {
		e.forgetPaces(t)
	}
	c = &pace{exit: x, target: t, tempo: startTempo(e.now, t.pool.median)}
	c.timer = timer{owner: c, kind: timerPace}
	t.paces[x], x.paces[t] = c, c
	e.paces++
	c.count()
	return c
}

// count counts the leases that live, the slow way.
func (c *pace) count() {
	c.live = 0
	for p := range c.exit.proxies {
		for _, l := range p.leases {
			if l.target.key == c.target.key {
				c.live++
			}
		}
	}
}

// takes returns for how long some pages take up the rate.
func (c *pace) takes(pages float64, now int64) int64 {
	return int64(pages / c.tempo.at(now) * float64(time.Second))
}

// paceGranted counts a lease that has begun.
func (e *Engine) paceGranted(l *lease, at int64) {
	key := l.target.key
	if key == "" {
		return
	}
	t, r := e.targets[key], l.fleet.ruleFor(key)
	track := r.Pace != PaceOff && (!r.Implied || t != nil && t.reported)
	if t == nil {
		if !track || len(l.proxy.exits) == 0 {
			return
		}
		t = e.targetFor(key)
	}
	l.expect = t.perLeaseNow()
	for _, x := range l.proxy.exits {
		c := t.paces[x]
		switch {
		case c != nil:
			c.live++
		case !track:
			continue
		default:
			c = e.paceFor(t, x) // counts this lease already
		}
		c.last = max(c.last, at)
		if t.spaced(r) {
			c.free = max(c.free, at) + c.takes(l.expect, at)
		}
		e.repace(c)
	}
	t.lastUse = at
}

// paceEnded counts a lease that has ended, and frees what it did not use.
func (e *Engine) paceEnded(l *lease, at int64) {
	t := e.targets[l.target.key]
	if t == nil {
		return
	}
	if l.pages > 0 && !l.refused {
		t.perLease += (float64(l.pages) - t.perLease) / 4
	}
	for _, x := range l.proxy.exits {
		c := t.paces[x]
		if c == nil {
			continue
		}
		c.live--
		if c.live == 0 { // what the lease did not use is free
			c.free = min(c.free, at+c.takes(1, at))
		}
		e.repace(c)
	}
}

// repace follows whatever has changed about a pace: it tells the views, and
// keeps the timer at the next moment at which something changes by itself.
func (e *Engine) repace(c *pace) {
	next := int64(0)
	for f := range c.exit.fleets {
		if at := c.opens(f); at != 0 && at != never && (next == 0 || at < next) {
			next = at
		}
	}
	if armed := next != 0 || c.live > 0; armed != c.armed {
		c.armed = armed
		if armed {
			c.target.armed++
		} else {
			c.target.armed--
		}
	}
	if next == 0 {
		next = max(c.last, c.tempo.lastPage) + int64(forgetPace)
	}
	c.retell()
	switch {
	case c.live == 0 && !c.armed && (!c.learnt || next <= e.now):
		e.forgetPace(c)
	case c.timer.place == 0 || e.timers.items[c.timer.place-1].at != next:
		e.timers.set(&c.timer, next)
	}
}

// retell tells the views of a pace's target what became of its exit.
func (c *pace) retell() {
	for f := range c.exit.fleets {
		if f.room == nil || c.opens(f) != 0 {
			continue
		}
		for p := range c.exit.proxies {
			if p.fleet == f {
				f.offer(p)
			}
		}
	}
	for _, v := range c.target.views {
		if c.exit.fleets[v.fleet] == 0 {
			continue
		}
		for p := range c.exit.proxies {
			if p.fleet == v.fleet {
				v.weigh(p)
			}
		}
	}
}

// forgetPace drops a pace that keeps nothing from its exit.
func (e *Engine) forgetPace(c *pace) {
	e.timers.remove(&c.timer)
	delete(c.target.paces, c.exit)
	delete(c.exit.paces, c.target)
	e.paces--
	e.dropTarget(c.target)
	e.dropExit(c.exit)
}

// forgetPaces makes room for another pace: first those of exits that no proxy
// has, then those of the targets that were not used for longest, up to a
// sixteenth of all. A pace that is in use stays.
func (e *Engine) forgetPaces(spare *target) {
	targets := make([]*target, 0, len(e.targets))
	for _, t := range e.targets {
		if len(t.paces) > 0 && t != spare {
			targets = append(targets, t)
		}
	}
	targets = append(sortedTargets(targets), spare)
	want := e.paces - max(1, e.opts.MaxPaces/16)
	for _, unused := range []bool{true, false} {
		for _, t := range targets {
			for _, c := range t.sortedPaces() {
				if e.paces <= want {
					return
				}
				if c.live == 0 && !c.armed && (!unused || len(c.exit.proxies) == 0) && (t != spare || len(t.paces) > 1) {
					e.forgetPace(c)
				}
			}
		}
	}
}

// sortedTargets sorts targets by their last use, the oldest first.
func sortedTargets(targets []*target) []*target {
	slices.SortFunc(targets, func(a, b *target) int {
		switch {
		case a.lastUse < b.lastUse:
			return -1
		case a.lastUse > b.lastUse:
			return 1
		case a.key < b.key:
			return -1
		default:
			return 1
		}
	})
	return targets
}

// sortedPaces returns a target's paces in the order of their exits.
func (t *target) sortedPaces() []*pace {
	paces := make([]*pace, 0, len(t.paces))
	for _, c := range t.paces {
		paces = append(paces, c)
	}
	slices.SortFunc(paces, func(a, b *pace) int { return a.exit.exit.prefix.Compare(b.exit.exit.prefix) })
	return paces
}

// recount follows exits that a proxy with leases has got or lost.
func (e *Engine) recount(exits []*exit) {
	for _, x := range exits {
		for _, c := range x.paces {
			c.count()
			e.repace(c)
		}
	}
}

// repaceFleet follows a change of a fleet's rules: they count the leases that
// live already.
func (e *Engine) repaceFleet(f *fleet) {
	for _, p := range f.proxies {
		if p == nil {
			continue
		}
		for _, l := range p.leases {
			if r := f.ruleFor(l.target.key); l.target.key != "" && !r.Implied && r.Pace != PaceOff {
				for _, x := range p.exits {
					e.paceFor(e.targetFor(l.target.key), x)
				}
			}
		}
	}
	for _, t := range e.targets {
		for x, c := range t.paces {
			if x.fleets[f] > 0 {
				e.repace(c)
			}
		}
	}
}
