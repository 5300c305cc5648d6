package lease

import (
	"fmt"
	"time"
)

// refuse says why a view has not enough proxies for an Acquire, and when that
// can change. It costs the same in a fleet of any size.
func (e *Engine) refuse(v *view, cmd *Acquire, least, got int) *Refusal {
	f := v.fleet
	r := &Refusal{
		Matching: v.matching, Cooling: v.cooling, Busy: v.classes[usable] - v.cooling,
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
		r.Message = fmt.Sprintf("the hub does not hear from the members that have %s; they are leased again when their members report", fitting)
	case v.classes[usable] == 0:
		r.Reason = NoCapacity
		r.Message = fmt.Sprintf("none of %s is ready (%d not ready, %d saturated, %d draining)",
			fitting, v.classes[down], v.classes[saturated], v.classes[draining])
	case v.cooling == v.classes[usable]:
		r.Reason = CoolingDown
		r.RetryAfter = retryIn(e.now, v.firstEnd())
		who := "all usable ones of " + fitting
		if v.key.selector == "" && v.exits == f.exits {
			who = fmt.Sprintf("all %d exits of %s", f.exits, f.id)
			if f.exits == 1 {
				who = "the only exit of " + string(f.id)
			}
		} else if v.cooling == v.matching {
			who = "all of " + fitting
		}
		r.Message = fmt.Sprintf("%s %s cooling down for %s; the first is back in %s",
			who, isAre(f.exits == 1 && v.key.selector == ""), v.target.key, humane(r.RetryAfter))
	default:
		r.Reason = NoCapacity
		r.RetryAfter = e.firstCapacity(v, cmd.Exclusive)
		r.Message = e.busyMessage(v, cmd, r, fitting, least, got)
	}
	return r
}

// busyMessage tells what is missing when proxies are usable but taken.
func (e *Engine) busyMessage(v *view, cmd *Acquire, r *Refusal, fitting string, least, got int) string {
	what := "have all their slots taken"
	if cmd.Exclusive {
		what = "have slots taken, and exclusive needs an empty one"
	}
	cooling := ""
	if r.Cooling > 0 {
		cooling = fmt.Sprintf(" and %d cool down for %s", r.Cooling, v.target.key)
	}
	if got > 0 {
		return fmt.Sprintf("%s can give %s now, not %d%s; ask for fewer, set min_count, or retry in %s",
			fitting, plural(got, "lease", "leases"), least, parenthesis(cooling), humane(r.RetryAfter))
	}
	return fmt.Sprintf("of %s, %d %s%s; one may be free in %s", fitting, r.Busy, what, cooling, humane(r.RetryAfter))
}

// firstCapacity returns the time until a slot may be free: at the end of a
// lease or of a hold, or of a cooldown.
func (e *Engine) firstCapacity(v *view, exclusive bool) time.Duration {
	free := v.fleet.firstFree(func(l *lease) bool {
		p := l.proxy
		return p.class == usable && !v.blocked(p.index) && (!exclusive || len(p.leases) <= 1)
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
	if v.key.selector == "" {
		return fmt.Sprintf("the %s of %s", plural(v.matching, "proxy", "proxies"), f.id)
	}
	return fmt.Sprintf("the %s of %s with %s", plural(v.matching, "proxy", "proxies"), f.id, describe(cmd))
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

func isAre(one bool) string {
	if one {
		return "is"
	}
	return "are"
}

func parenthesis(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text[len(" and "):] + ")"
}
