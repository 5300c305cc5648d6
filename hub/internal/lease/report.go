package lease

import (
	"fmt"
	"time"
)

// MaxObservations bounds the observations of one Report.
const MaxObservations = 100

// report acts on what a holder saw.
func (e *Engine) report(cmd *Report, out *Output) (Result, *Refusal) {
	l, refusal := e.heldBy(cmd.Principal, cmd.ID)
	if refusal != nil {
		return nil, refusal
	}
	if n := len(cmd.Observations); n == 0 || n > MaxObservations {
		return nil, invalid("outcomes", fmt.Sprintf("the report has %d outcomes; write 1 to %d", n, MaxObservations))
	}
	for i := range cmd.Observations {
		if refusal := l.checkObservation(&cmd.Observations[i]); refusal != nil {
			return nil, refusal
		}
	}
	var result Reported
	for i := range cmd.Observations {
		e.observe(l, &cmd.Observations[i], &result, out)
	}
	e.answer(l, &result.Lease)
	return result, nil
}

// checkObservation refuses what cannot be acted on.
func (l *lease) checkObservation(o *Observation) *Refusal {
	switch {
	case o.Outcome == outcomeUnset || int(o.Outcome) >= len(outcomeNames):
		return invalid("outcome", "outcome is not known; write ok, blocked, captcha, rate_limited, target_error, proxy_error or timeout")
	case o.Target.IsZero() && l.target.IsZero():
		return invalid("target", fmt.Sprintf("target is empty and lease %s has none; write the host that the outcome is about", l.id))
	case o.Pages < 0:
		return invalid("pages", fmt.Sprintf("pages is %d; write 0 or more", o.Pages))
	case o.Pages > 0 && o.Outcome != OK:
		return invalid("pages", fmt.Sprintf("pages is %d with outcome %s; pages come with ok only", o.Pages, o.Outcome))
	case o.RetryAfter < 0:
		return invalid("retry_after", fmt.Sprintf("retry_after is %s; write 0s or more", o.RetryAfter))
	case o.RetryAfter > 0 && o.Outcome != RateLimited:
		return invalid("retry_after", fmt.Sprintf("retry_after is %s with outcome %s; it comes with rate_limited only", o.RetryAfter, o.Outcome))
	}
	return nil
}

// observe acts on one outcome.
func (e *Engine) observe(l *lease, o *Observation, result *Reported, out *Output) {
	key := l.fleet.keyed(o.Target).key
	if key == "" {
		key = l.target.key
	}
	switch o.Outcome {
	case OK:
		e.fetched(l, key, max(1, o.Pages), out) // which never lifts a ban
	case Blocked, Captcha:
		e.ban(l, key, result, out)
	case RateLimited:
		e.rateLimit(l, key, o.RetryAfter, out)
	case TargetError, ProxyError, Timeout, outcomeUnset:
		// Errors of targets say nothing about exits,
		// and whether a proxy works is for its agent's probes to judge.
	}
	for _, x := range l.proxy.list {
		if c := e.cooldownOf(x, key); c != nil && c.active {
			result.CoolingFor = max(result.CoolingFor, e.left(c.until))
		}
	}
}

// ban rests all exits of a proxy for a target: they are one to it. Bans that
// come while an exit rests because of a ban are the same ban, seen by another
// fetch: they begin its rest anew but do not lengthen the next one.
func (e *Engine) ban(l *lease, key string, result *Reported, out *Output) {
	if len(l.proxy.list) == 0 {
		return
	}
	fresh := false
	for _, x := range l.proxy.list {
		c := e.cooldownOf(x, key)
		fresh = fresh || c == nil || !c.active || !c.banned
	}
	if fresh && e.guarded(l, key) {
		result.Guarded++
		return
	}
	policy := l.fleet.ruleFor(key).Cooldown
	for _, x := range l.proxy.list {
		c := e.cooldownOf(x, key)
		if c == nil || !c.active {
			e.refused(l, key, x, out)
			c = e.cooldownOf(x, key)
		}
		strikes := c.strikesAt(e.now)
		if c == nil || !c.active || !c.banned || strikes == 0 {
			strikes++
		}
		rest := policy.rest(strikes)
		until := e.now + int64(rest)
		if c != nil && c.active {
			until = max(until, c.until)
		}
		e.commit(&ExitCooled{
			At: moment(e.now), Exit: x, Target: key, Until: moment(until),
			Banned: true, Strikes: strikes, Rest: rest,
		}, out)
	}
	if fresh {
		e.countBan(l, key, out)
	}
}

// rateLimit rests all exits of a proxy for as long as the target asked, within
// the policy's bounds, or for the first rest of a ban. Where the pace is learnt
// an exit rests for at least that long: targets count refusals, and a pause
// lets them forget the last one. It is no strike, and never shortens a rest.
func (e *Engine) rateLimit(l *lease, key string, asked time.Duration, out *Output) {
	policy := l.fleet.ruleFor(key).Cooldown
	if asked <= 0 {
		asked = policy.Base
	}
	for _, x := range l.proxy.list {
		c := e.cooldownOf(x, key)
		pause := asked
		if c == nil || !c.active { // else it is the same refusal, seen by another fetch
			pause = max(asked, e.refused(l, key, x, out))
		}
		until := e.now + int64(max(time.Second, min(pause, policy.Max)))
		rec := &ExitCooled{At: moment(e.now), Exit: x, Target: key, Until: moment(until)}
		if c != nil {
			if c.active && c.until >= until {
				continue
			}
			rec.Banned = c.active && c.banned
			rec.Strikes, rec.Rest = c.strikesAt(e.now), c.rest
		}
		e.commit(rec, out)
	}
}

// cooldownOf returns what is known of an exit for a target key, or nil. The
// exit may be one of a proxy that is gone.
func (e *Engine) cooldownOf(known Exit, key string) *cooldown {
	t, x := e.targets[key], e.exits[known]
	if t == nil || x == nil {
		return nil
	}
	return t.cooldowns[x]
}
