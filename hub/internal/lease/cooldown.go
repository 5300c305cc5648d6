package lease

import (
	"time"
)

// exit is an exit that some proxy has or that is remembered for its cooldowns:
// an address that the cloud hands back is still cooling.
type exit struct {
	exit      Exit
	proxies   map[*proxy]struct{}
	fleets    map[*fleet]int // how many proxies of each fleet have it
	cooldowns map[*target]*cooldown
	active    int // cooldowns that are not over
	paces     map[*target]*pace
}

// target is a target key for which some exit cools or has strikes, or is
// paced.
type target struct {
	key       string
	cooldowns map[*exit]*cooldown
	active    int
	views     []*view

	paces    map[*exit]*pace
	armed    int     // paces that may keep leases from their exits
	reported bool    // a holder has reported on it
	perLease float64 // pages that a lease brings, on average; 0 if unknown
	lastUse  int64
	pool     pool
}

// targetFor returns the engine's record of a target key, made if need be.
func (e *Engine) targetFor(key string) *target {
	t := e.targets[key]
	if t == nil {
		t = &target{key: key, cooldowns: map[*exit]*cooldown{}, paces: map[*exit]*pace{}}
		e.targets[key] = t
	}
	return t
}

// dropTarget forgets a target that nothing needs, and its views.
func (e *Engine) dropTarget(t *target) {
	if len(t.cooldowns) > 0 || len(t.paces) > 0 {
		return
	}
	for _, v := range t.views {
		v.fleet.dropView(v)
	}
	t.views = nil
	delete(e.targets, t.key)
}

// coolUntil returns when the last of the proxy's exits stops cooling for the
// target, or 0 if none cools. The target may be nil.
func (t *target) coolUntil(p *proxy) int64 {
	if t == nil || t.active == 0 {
		return 0
	}
	until := int64(0)
	for _, x := range p.exits {
		if c := t.cooldowns[x]; c != nil && c.active {
			until = max(until, c.until)
		}
	}
	return until
}

// cooldown is the rest of one exit for one target, and its memory of strikes.
type cooldown struct {
	exit    *exit
	target  *target
	active  bool
	until   int64
	banned  bool // the present rest began with a ban, not with a rate limit
	strikes int
	rest    time.Duration
	timer   timer
}

// strikesAt returns what is left of the strikes: each rest without a ban
// after the last cooldown forgives one.
func (c *cooldown) strikesAt(now int64) int {
	if c == nil {
		return 0
	}
	if now <= c.until || c.rest <= 0 {
		return c.strikes
	}
	return max(0, c.strikes-int((now-c.until)/int64(c.rest)))
}

// forgetAt returns when the last strike is forgiven.
func (c *cooldown) forgetAt() int64 { return c.until + int64(c.strikes)*int64(c.rest) }

// exitFor returns the engine's record of an exit, made if need be.
func (e *Engine) exitFor(known Exit) *exit {
	x := e.exits[known]
	if x == nil {
		x = &exit{exit: known, proxies: map[*proxy]struct{}{}, fleets: map[*fleet]int{}, cooldowns: map[*target]*cooldown{}, paces: map[*target]*pace{}}
		e.exits[known] = x
	}
	return x
}

// attach gives a proxy an exit.
func (e *Engine) attach(p *proxy, x *exit) {
	x.proxies[p] = struct{}{}
	x.fleets[p.fleet]++
	if x.fleets[p.fleet] > 1 {
		return
	}
	p.fleet.exits++
	if x.active > 0 {
		p.fleet.cooling++
		x.countIn(p.fleet, 1)
	}
}

// detach takes an exit from a proxy.
func (e *Engine) detach(p *proxy, x *exit) {
	delete(x.proxies, p)
	x.fleets[p.fleet]--
	if x.fleets[p.fleet] > 0 {
		return
	}
	p.fleet.exits--
	if x.active > 0 {
		p.fleet.cooling--
		x.countIn(p.fleet, -1)
	}
	delete(x.fleets, p.fleet)
	e.dropExit(x)
}

// countIn adjusts the counts of cooling exits of a fleet's views.
func (x *exit) countIn(f *fleet, by int) {
	for t, c := range x.cooldowns {
		if !c.active {
			continue
		}
		for _, v := range t.views {
			if v.fleet == f {
				v.exits += by
			}
		}
	}
}

// dropExit forgets an exit that nothing needs.
func (e *Engine) dropExit(x *exit) {
	if len(x.proxies) == 0 && len(x.cooldowns) == 0 && len(x.paces) == 0 {
		delete(e.exits, x.exit)
	}
}

// applyCooled makes an exit rest.
func (e *Engine) applyCooled(r *ExitCooled) {
	x := e.exitFor(r.Exit)
	t := e.targetFor(r.Target)
	c := t.cooldowns[x]
	if c == nil {
		c = &cooldown{exit: x, target: t}
		c.timer = timer{owner: c, kind: timerCooldown}
		t.cooldowns[x], x.cooldowns[t] = c, c
	}
	c.until, c.banned, c.strikes, c.rest = nanos(r.Until), r.Banned, r.Strikes, r.Rest
	if !c.active {
		c.active = true
		t.active++
		x.active++
		if x.active == 1 {
			for f := range x.fleets {
				f.cooling++
			}
		}
		for _, v := range t.views {
			if x.fleets[v.fleet] > 0 {
				v.exits++
			}
		}
	}
	e.timers.set(&c.timer, c.until)
	e.recool(c)
}

// recool tells the views of a cooldown's target what became of its exit.
func (e *Engine) recool(c *cooldown) {
	for p := range c.exit.proxies {
		p.fleet.offer(p)
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

// cooldownDue ends a cooldown, or forgets one that has ended.
func (e *Engine) cooldownDue(c *cooldown, now int64) {
	if c.active {
		c.active = false
		c.target.active--
		c.exit.active--
		if c.exit.active == 0 {
			for f := range c.exit.fleets {
				f.cooling--
			}
		}
		for _, v := range c.target.views {
			if c.exit.fleets[v.fleet] > 0 {
				v.exits--
			}
		}
		e.recool(c)
	}
	if at := c.forgetAt(); at > now {
		e.timers.set(&c.timer, at)
		return
	}
	e.timers.remove(&c.timer)
	delete(c.target.cooldowns, c.exit)
	delete(c.exit.cooldowns, c.target)
	e.dropTarget(c.target)
	e.dropExit(c.exit)
}
