package oracle

import (
	"slices"
	"strings"
	"time"
)

// wellFormed finds what the driver did wrong: with it no verdict means anything.
func (c *evidence) wellFormed() []Violation {
	var found []Violation
	for _, op := range c.ops {
		switch {
		case op.Outcome == Unknown != op.Return.IsZero():
			found = append(found, violated(WellFormed, "client %d's %s of %s is %s and returned at %s", op.Client, op.Kind, clock(op.Call), op.Outcome, clock(op.Return)))
		case !op.Return.IsZero() && op.Return.Before(op.Call):
			found = append(found, violated(WellFormed, "client %d's %s of %s returned before it was called, at %s", op.Client, op.Kind, clock(op.Call), clock(op.Return)))
		}
	}
	for _, op := range c.orphan {
		found = append(found, violated(WellFormed, "client %d's %s of %s is about lease %q, which nobody was granted", op.Client, op.Kind, clock(op.Call), op.Lease))
	}
	for _, l := range c.order {
		if l.doubted.IsZero() {
			continue
		}
		for _, op := range append(slices.Clone(l.looks), c.given[l.id]...) {
			if op.Call.After(l.doubted) && !l.releasedBefore(op.Call) {
				found = append(found, violated(WellFormed, "client %d's %s of %s is about lease %s, whose renewal of %s had no answer: who asks for it again knows nothing of its end",
					op.Client, op.Kind, clock(op.Call), l.id, clock(l.doubted)))
			}
		}
	}
	return found
}

// releasedBefore tells whether a release was acknowledged before a moment.
func (l *held) releasedBefore(at time.Time) bool {
	return slices.ContainsFunc(l.releases, func(op *Op) bool { return op.Outcome == Done && op.Return.Before(at) })
}

// span is a time in which a lease certainly lived: from the answer that granted it until its release was asked for, or
// its last acknowledged expiry.
type span struct {
	lease      *held
	begin, end time.Time
}

// certain returns the leases' certain lives, proxy by proxy, in the order of their beginnings.
func (c *evidence) certain() map[string][]span {
	lives := map[string][]span{}
	for _, l := range c.order {
		end := l.grant.Expires
		// Renewals that were answered while it lived: each bridges to the next.
		for _, op := range l.renewals {
			if !op.Call.After(end) && op.Expires.After(end) {
				end = op.Expires
			}
		}
		if gone := l.letGo(); !gone.IsZero() && gone.Before(end) {
			end = gone
		}
		end = end.Add(-c.limits.Slack)
		if begin := l.granted.Return; begin.Before(end) {
			lives[l.grant.Proxy] = append(lives[l.grant.Proxy], span{lease: l, begin: begin, end: end})
		}
	}
	for _, spans := range lives {
		slices.SortFunc(spans, func(a, b span) int { return a.begin.Compare(b.begin) })
	}
	return lives
}

// slots finds proxies that certainly carried more leases than they have slots, at the moment that shows it.
func (c *evidence) slots() []Violation {
	var found []Violation
	for proxy, spans := range c.certain() {
		var live []span
		for _, s := range spans {
			live = slices.DeleteFunc(live, func(other span) bool { return !other.end.After(s.begin) })
			live = append(live, s)
			taken := 0
			var who []string
			for _, other := range live {
				taken += c.slotsOf(other.lease)
				who = append(who, other.lease.id)
			}
			if taken > c.limits.Slots {
				found = append(found, violated(OneHolder, "at %s proxy %s with %d slots carries leases that take %d: %s",
					clock(s.begin), proxy, c.limits.Slots, taken, strings.Join(who, ", ")))
			}
		}
	}
	return found
}

// remembered finds leases that were said to be over, or not known, while they must have lived.
func (c *evidence) remembered() []Violation {
	var found []Violation
	for _, l := range c.order {
		gone := l.letGo()
		for _, op := range l.looks {
			until := l.expiry(op.Call)
			alive := op.Return.Before(until.Add(-c.limits.Slack)) && (gone.IsZero() || op.Return.Before(gone))
			if op.Outcome == Refused && endsLease(op.Reason) && alive {
				found = append(found, violated(Remembered, "lease %s on %s, good until %s: client %d's %s (%s to %s) was refused with %s: %s",
					l.id, l.grant.Proxy, clock(until), op.Client, op.Kind, clock(op.Call), clock(op.Return), op.Reason, op.Message))
			}
		}
		// A renewal that shortens a lease forgets the acknowledged one.
		for _, op := range l.renewals {
			if until := l.expiry(op.Call); op.Expires.Before(until) {
				found = append(found, violated(Remembered, "lease %s was good until %s, and client %d's renewal of %s made it end at %s",
					l.id, clock(until), op.Client, clock(op.Call), clock(op.Expires)))
			}
		}
	}
	return append(found, c.rememberedRequests()...)
}

// rememberedRequests finds repeated requests that were told that their leases are over while one must have lived.
func (c *evidence) rememberedRequests() []Violation {
	var found []Violation
	given := map[string][]*held{}
	for _, l := range c.order {
		if l.granted.Request != "" {
			given[l.granted.Request] = append(given[l.granted.Request], l)
		}
	}
	for _, op := range c.ops {
		if op.Kind != Acquire || op.Outcome != Refused || !endsLease(op.Reason) {
			continue
		}
		for _, l := range given[op.Request] {
			gone, until := l.letGo(), l.expiry(op.Call)
			if l.granted.Return.Before(op.Call) && op.Return.Before(until.Add(-c.limits.Slack)) && (gone.IsZero() || op.Return.Before(gone)) {
				found = append(found, violated(Remembered, "lease %s, good until %s: repeating its request %s at %s was refused with %s: %s",
					l.id, clock(until), op.Request, clock(op.Call), op.Reason, op.Message))
			}
		}
	}
	return found
}

// endsLease tells refusals that say that a lease is over or was never there.
func endsLease(reason string) bool {
	return reason == "LEASE_EXPIRED" || reason == "UNKNOWN_LEASE" || reason == "NOT_HOLDER"
}

// released finds leases that live after the answer to their release, or after they were said to be over, and leases that
// live beyond their time.
func (c *evidence) released() []Violation {
	var found []Violation
	for _, l := range c.order {
		var ended time.Time
		for _, op := range append(slices.Clone(l.releases), l.looks...) {
			over := op.Kind == Release && op.Outcome == Done || op.Kind != Release && op.Outcome == Refused && endsLease(op.Reason)
			if over && (ended.IsZero() || op.Return.Before(ended)) {
				ended = op.Return
			}
		}
		if ended.IsZero() {
			continue
		}
		for _, op := range l.looks {
			if op.Outcome == Done && op.Call.After(ended) {
				found = append(found, violated(Released, "lease %s on %s was over at %s, and client %d's %s of %s found it alive",
					l.id, l.grant.Proxy, clock(ended), op.Client, op.Kind, clock(op.Call)))
			}
		}
		for _, op := range c.given[l.id] {
			if op.Call.After(ended) {
				found = append(found, violated(Released, "lease %s on %s was over at %s, and client %d's acquire of %s was given it",
					l.id, l.grant.Proxy, clock(ended), op.Client, clock(op.Call)))
			}
		}
	}
	return found
}

// bans finds grants for a target on an exit that must have been cooling for it.
func (c *evidence) bans() []Violation {
	type place struct{ exit, target string }
	rests := map[place][]*Op{}
	for _, op := range c.ops {
		if op.Kind != Ban || op.Outcome != Done || op.Cooling <= 0 {
			continue
		}
		for _, exit := range op.Exits {
			at := place{exit, op.Target}
			rests[at] = append(rests[at], op)
		}
	}
	var found []Violation
	for _, op := range c.ops {
		if op.Kind != Acquire || op.Outcome != Done || op.Target == "" {
			continue
		}
		for _, g := range op.Grants {
			l := c.leases[g.Lease]
			if l.granted != op {
				continue // given again: it was granted before
			}
			for _, exit := range g.Exits {
				for _, ban := range rests[place{exit, op.Target}] {
					// The answer was given at or after the call, so the rest ends that long after it at the earliest.
					until := ban.LastCall.Add(ban.Cooling - c.limits.Slack)
					if l.asked.After(ban.Return) && op.Return.Before(until) {
						found = append(found, violated(Banned, "%s rests for %s until %s, and client %d was granted %s on %s for it between %s and %s",
							exit, op.Target, clock(until), op.Client, g.Lease, g.Proxy, clock(l.asked), clock(op.Return)))
					}
				}
			}
		}
	}
	return found
}

// tokens finds tokens that were used twice, and later grants with lesser tokens.
func (c *evidence) tokens() []Violation {
	var found []Violation
	used := map[Token]string{}
	for _, l := range c.order {
		if other, twice := used[l.grant.Token]; twice {
			found = append(found, violated(Fenced, "%s and %s have the same token %s", other, l.id, l.grant.Token))
		}
		used[l.grant.Token] = l.id
	}
	byCall := slices.SortedStableFunc(slices.Values(c.order), func(a, b *held) int { return a.asked.Compare(b.asked) })
	var greatest *held
	answered := 0 // c.order is in the order of answers
	for _, l := range byCall {
		for ; answered < len(c.order) && c.order[answered].granted.Return.Before(l.asked); answered++ {
			if before := c.order[answered]; greatest == nil || before.grant.Token.Compare(greatest.grant.Token) > 0 {
				greatest = before
			}
		}
		if greatest != nil && l.grant.Token.Compare(greatest.grant.Token) <= 0 {
			found = append(found, violated(Fenced, "%s was asked for at %s, after %s was answered, and its token %s is not greater than %s",
				l.id, clock(l.asked), greatest.id, l.grant.Token, greatest.grant.Token))
		}
	}
	return found
}
