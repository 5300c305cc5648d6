package lease

import (
	"fmt"
	"slices"
	"time"
)

// refuse says why a view has not enough proxies for an Acquire, and when that
// can change. It costs the same in a fleet of any size.
func (e *Engine) refuse(v *view, cmd *Acquire, least int, chosen []*proxy) *Refusal {
	f := v.fleet
	r := &Refusal{
		Matching: v.matching, Cooling: v.cooling, Busy: v.classes[usable] - v.cooling - distinct(chosen), Paced: v.pacing,
		RetryAfter: idleRetry,
	}
	fitting := f.fitting(v, cmd)
	switch {
	case v.matching == 0:
		r.Reason, r.Busy = NoMatch, 0
		if f.plain().matching == 0 {
			r.Message = fmt.Sprintf("%s has no proxies yet", f.id)
		} else {
			r.Message = fmt.Sprintf("none of the %s of %s fits %s; leave something out of the selector, or see what there is with ListProxies",
				plural(f.plain().matching, "proxy", "proxies"), f.id, describe(cmd))
		}
	case f.slots() == 0:
		r.Reason, r.RetryAfter, r.Busy = NoCapacity, 0, 0
		r.Message = fmt.Sprintf("%s has maxLeasesPerProxy 0, so its proxies are never leased", f.id)
	case v.classes[usable] == 0 && v.classes[stale] > 0:
		r.Reason = StaleInventory
		r.Message = fmt.Sprintf("the hub does not hear from the members that have %s; they can be leased again once it does", fitting)
	case v.classes[usable] == 0:
		r.Reason = NoCapacity
		what := "none of " + fitting + " is"
		if v.matching == 1 {
			what = fitting + " is not"
		}
		r.Message = fmt.Sprintf("%s ready (%d not ready, %d saturated, %d draining)",
			what, v.classes[down], v.classes[saturated], v.classes[draining])
	case v.cooling == v.classes[usable]:
		r.Reason = CoolingDown
		r.RetryAfter = e.firstOpening(v, cmd)
		r.Message = fmt.Sprintf("%s cooling down for %s; the first is back in %s", f.whoCools(v, fitting), v.target.key, humane(r.RetryAfter))
	case v.cooling+v.pacing == v.classes[usable]:
		r.Reason = NoCapacity
		r.RetryAfter = e.firstOpening(v, cmd)
		r.Message = fmt.Sprintf("%s at the pace that %s bears; the next is free in %s", f.whoPaces(v, r, fitting), v.target.key, humane(r.RetryAfter))
	default:
		r.Reason = NoCapacity
		r.RetryAfter = e.firstCapacity(v, cmd.Exclusive)
		r.Message = e.busyMessage(v, cmd, r, fitting, least, len(chosen))
	}
	return r
}

// distinct counts the proxies of a choice, in which one can come repeatedly.
// It is shorter than MaxCount, as it was not enough.
func distinct(chosen []*proxy) int {
	n := 0
	for i, p := range chosen {
		if !slices.Contains(chosen[:i], p) {
			n++
		}
	}
	return n
}

// whoCools names what cools down: the exits, if it is all of them.
func (f *fleet) whoCools(v *view, fitting string) string {
	switch {
	case v.key.selector == "" && v.exits == f.exits && f.exits == 1:
		return fmt.Sprintf("the only exit of %s is", f.id)
	case v.key.selector == "" && v.exits == f.exits:
		return fmt.Sprintf("all %d exits of %s are", f.exits, f.id)
	case v.matching == 1:
		return fitting + " is"
	case v.cooling == v.matching:
		return "all of " + fitting + " are"
	default:
		return "all usable ones of " + fitting + " are"
	}
}

// whoPaces names those that wait for their exits' pace.
func (f *fleet) whoPaces(v *view, r *Refusal, fitting string) string {
	switch {
	case v.matching == 1:
		return fitting + " is"
	case v.pacing == v.matching:
		return "all of " + fitting + " are"
	case v.cooling == 0:
		return "all usable ones of " + fitting + " are"
	default:
		return fmt.Sprintf("of %s, %d %s down for %s and %d %s", fitting,
			v.cooling, verb(v.cooling, "cools", "cool"), v.target.key, r.Paced, verb(r.Paced, "is", "are"))
	}
}

// firstOpening returns the time until an exit may be leased again: when time
// says so, or else when a lease for the target ends.
func (e *Engine) firstOpening(v *view, cmd *Acquire) time.Duration {
	at := v.firstEnd()
	if at == 0 {
		at = v.fleet.firstFree(func(l *lease) bool { return l.target.key == cmd.Target.key })
	}
	if at == 0 {
		return idleRetry
	}
	return retryIn(e.now, at)
}

// busyMessage tells what is missing when proxies are usable but taken.
func (e *Engine) busyMessage(v *view, cmd *Acquire, r *Refusal, fitting string, least, got int) string {
	if got > 0 {
		return fmt.Sprintf("%s can give %s now, not %d; ask for fewer, set min_count, or retry in %s",
			fitting, plural(got, "lease", "leases"), least, humane(r.RetryAfter))
	}
	busy := r.Busy - r.Paced
	one := busy == 1
	what := "have all their slots taken"
	switch {
	case cmd.Exclusive && one:
		what = "has slots taken, and exclusive needs an empty one"
	case cmd.Exclusive:
		what = "have slots taken, and exclusive needs an empty one"
	case one:
		what = "has all its slots taken"
	}
	if busy == r.Matching {
		who := "all of " + fitting
		if one {
			who = fitting
		}
		return fmt.Sprintf("%s %s; one may be free in %s", who, what, humane(r.RetryAfter))
	}
	parts := []string{fmt.Sprintf("%d %s", busy, what)}
	if r.Paced > 0 {
		parts = append(parts, fmt.Sprintf("%d %s at the pace that %s bears", r.Paced, verb(r.Paced, "is", "are"), v.target.key))
	}
	if r.Cooling > 0 {
		parts = append(parts, fmt.Sprintf("%d %s down for %s", r.Cooling, verb(r.Cooling, "cools", "cool"), v.target.key))
	}
	if rest := r.Matching - r.Busy - r.Cooling; rest > 0 {
		parts = append(parts, fmt.Sprintf("%d %s not usable", rest, verb(rest, "is", "are")))
	}
	text := parts[0]
	for i, part := range parts[1:] {
		if i == len(parts)-2 {
			text += " and " + part
		} else {
			text += ", " + part
		}
	}
	return fmt.Sprintf("of %s, %s; one may be free in %s", fitting, text, humane(r.RetryAfter))
}

// firstCapacity returns the time until a slot may be free: at the end of a
// lease or of a hold, or of a cooldown.
func (e *Engine) firstCapacity(v *view, exclusive bool) time.Duration {
	free := v.fleet.firstFree(func(l *lease) bool {
		p := l.proxy
		i := p.index
		return p.class == usable && !v.cool.has(i) && !v.unmatched.has(i) && (!v.paced.has(i) || l.target.key == v.key.target) &&
			(!exclusive || len(p.leases) <= 1)
	})
	if end := v.firstEnd(); end != 0 && (free == 0 || end < free) {
		free = end
	}
	if free == 0 {
		return idleRetry
	}
	return retryIn(e.now, free)
}

// fitting names the proxies in question.
func (f *fleet) fitting(v *view, cmd *Acquire) string {
	text := "the only proxy of " + string(f.id)
	if v.matching != 1 {
		text = fmt.Sprintf("the %d proxies of %s", v.matching, f.id)
	}
	if v.key.selector != "" {
		text += " with " + describe(cmd)
	}
	return text
}

// describe names what an Acquire asks of a proxy.
func describe(cmd *Acquire) string {
	text := cmd.Selector.String()
	switch {
	case cmd.Network == "":
		return text
	case text == "":
		return "network=" + string(cmd.Network)
	default:
		return text + ",network=" + string(cmd.Network)
	}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
