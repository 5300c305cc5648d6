package lease

import (
	"math"
	"time"
)

// Limits are what a lease's holder should keep to for the lease's target, so
// that all holders of an exit together stay within what the target tolerates.
// They change: each answer about a lease has the present ones.
type Limits struct {
	// MaxConcurrency is how many requests to make at once; 0 for no bound.
	MaxConcurrency int
	// MinInterval is the time from the beginning of one request to the next;
	// 0 for none.
	MinInterval time.Duration
}

// latencyAllowed is how long a fetch may take without being slowed down by
// MaxConcurrency.
const latencyAllowed = 2.0 // seconds

// limits returns the limits for a lease, none if it has ended.
func (e *Engine) limits(l *lease) Limits {
	if l.state != Live || l.target.key == "" {
		return Limits{}
	}
	r, t := l.fleet.ruleFor(l.target.key), e.targets[l.target.key]
	var limits Limits
	if r.Pace == PaceOff {
		return limits
	}
	holders, rate := 1, 0.0
	for _, x := range l.proxy.exits {
		if t == nil || t.paces[x] == nil {
			continue
		}
		c := t.paces[x]
		holders = max(holders, c.live)
		if at := c.tempo.at(e.now); t.spaced(r) && (rate == 0 || at < rate) {
			rate = at
		}
	}
	limits.MinInterval = max(limits.MinInterval, time.Duration(holders)*r.MinInterval)
	if rate > 0 {
		limits.MinInterval = max(limits.MinInterval, time.Duration(float64(holders)/rate*float64(time.Second)))
		limits.MaxConcurrency = max(1, int(math.Ceil(latencyAllowed*rate/float64(holders))))
	}
	if most := r.MaxConcurrentPerExit; most > 0 {
		share := max(1, most/holders)
		if limits.MaxConcurrency == 0 || share < limits.MaxConcurrency {
			limits.MaxConcurrency = share
		}
	}
	return limits
}

// learns tells whether reports on a target teach a pace.
func (l *lease) learns(key string) bool { return l.fleet.ruleFor(key).Pace == PaceAuto }

// fetched learns from pages that came.
func (e *Engine) fetched(l *lease, key string, pages int, out *Output) {
	if !l.learns(key) {
		return
	}
	own := key == l.target.key && l.state == Live
	if own {
		l.pages += pages
	}
	if t := e.targets[key]; own && t != nil && l.expect > 0 && float64(l.pages) > l.expect { // it goes on for longer than most
		l.expect = 2 * float64(l.pages)
		t.perLease = max(t.perLease, float64(l.pages))
	}
	for _, known := range l.proxy.list {
		x := e.exits[known]
		if x == nil {
			continue // no proxy has it any more
		}
		c := e.learner(key, x)
		c.tempo.fetched(e.now, pages, c.target.pool.median)
		if more := l.expect - float64(l.pages); own && c.live > 0 && l.pages > 1 && more > 0 {
			c.free = max(c.free, e.now+c.takes(more, e.now)) // it will use the exit for as long
		}
		e.repace(c)
		if c.tempo.worthRecording(e.now) {
			e.commit(c.record(e.now), out)
		}
	}
}

// learner returns the pace that reports on an exit teach.
func (e *Engine) learner(key string, x *exit) *pace {
	t := e.targetFor(key)
	t.reported = true
	t.lastUse = e.now
	c := e.paceFor(t, x)
	c.learnt = true
	return c
}

// refused learns from a refusal, and returns for how long the exit should
// pause because of it.
func (e *Engine) refused(l *lease, key string, known Exit, out *Output) time.Duration {
	x := e.exits[known]
	if x == nil || !l.learns(key) {
		return 0
	}
	l.refused = l.refused || key == l.target.key
	c := e.learner(key, x)
	streak := c.tempo.refused(e.now)
	e.commit(c.record(e.now), out)
	return min(maxPause, l.fleet.ruleFor(key).Cooldown.rest(streak))
}

// maxPause bounds the pause after refusals that are no bans.
const maxPause = time.Hour

// record writes down what was learnt.
func (c *pace) record(now int64) *PaceLearned {
	return &PaceLearned{
		At: moment(now), Exit: c.exit.exit, Target: c.target.key, Rate: c.tempo.rate, Limit: c.tempo.limit, Borne: c.tempo.borne,
		RefusedAt: moment(c.tempo.refusedAt), Streak: c.tempo.streak, LastPage: moment(c.tempo.lastPage), PerLease: c.target.perLease,
	}
}

// applyLearned takes what was learnt from a record. In the engine that wrote
// it, it changes nothing but what the target's exits know together.
func (e *Engine) applyLearned(r *PaceLearned) {
	c := e.learner(r.Target, e.exitFor(r.Exit))
	t := &c.tempo
	if at := nanos(r.RefusedAt); r.Limit > 0 && at != c.pooled {
		c.pooled = at
		c.target.pool.learn(r.Borne)
	}
	t.rate, t.limit, t.borne, t.refusedAt, t.streak, t.lastPage = r.Rate, r.Limit, r.Borne, nanos(r.RefusedAt), r.Streak, nanos(r.LastPage)
	t.recorded, t.recordedAt = r.Rate, nanos(r.At)
	c.target.perLease = r.PerLease
	e.repace(c)
}
