package oracle

import (
	"slices"
	"strings"
)

// repeats finds request ids that were given different leases, and leases that were given to two requests.
func (c *evidence) repeats() []Violation {
	var found []Violation
	given := map[string]map[string]bool{} // leases by request
	owner := map[string]string{}          // request by lease
	for _, op := range c.ops {
		if op.Kind != Acquire || op.Outcome != Done || op.Request == "" {
			continue
		}
		first := given[op.Request] == nil
		if first {
			given[op.Request] = map[string]bool{}
		}
		for _, g := range op.Grants {
			if other, known := owner[g.Lease]; known && other != op.Request {
				found = append(found, violated(Repeatable, "lease %s was given to request %s and to request %s", g.Lease, other, op.Request))
			}
			owner[g.Lease] = op.Request
			if l := c.leases[g.Lease]; l.grant.Proxy != g.Proxy || l.grant.Token != g.Token {
				found = append(found, violated(Repeatable, "lease %s was granted on %s with token %s and is on %s with %s", g.Lease, l.grant.Proxy, l.grant.Token, g.Proxy, g.Token))
			}
			if !first && !given[op.Request][g.Lease] && !partOf(op, given[op.Request]) {
				found = append(found, violated(Repeatable, "request %s was given %s before and %s at %s", op.Request, names(given[op.Request]), g.Lease, clock(op.Call)))
			}
		}
		for _, g := range op.Grants {
			given[op.Request][g.Lease] = true
		}
	}
	return found
}

// partOf tells answers that share a lease with an earlier one: of several leases, each answer has those that live.
func partOf(op *Op, given map[string]bool) bool {
	return slices.ContainsFunc(op.Grants, func(g Grant) bool { return given[g.Lease] })
}

func names(set map[string]bool) string {
	var list []string
	for name := range set {
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// sessions finds sessions that were given another proxy without being told so. Keys are the clients' own and live longer
// than any history.
func (c *evidence) sessions() []Violation {
	var found []Violation
	bound := map[string]*held{}
	for _, l := range c.order {
		key := l.granted.Session
		if key == "" {
			continue
		}
		if other := bound[key]; other != nil && other.grant.Proxy != l.grant.Proxy && !l.grant.Moved {
			found = append(found, violated(Sticky, "session %s was on %s with %s and is on %s with %s, asked for at %s",
				key, other.grant.Proxy, other.id, l.grant.Proxy, l.id, clock(l.granted.Call)))
		}
		bound[key] = l
	}
	return found
}

// possible are the reasons that an operation of each kind can be refused for. A ban can come too late for a lease that
// nobody remembers, but no client of a history waits that long.
var possible = map[Kind][]string{
	Acquire: {"NO_CAPACITY", "COOLING_DOWN", "TARGET_GUARDED", "STALE_INVENTORY", "QUOTA", "READ_ONLY", "LEASE_EXPIRED", "SESSION_LOST"},
	Renew:   {"LEASE_EXPIRED"},
	Get:     {"LEASE_EXPIRED"},
	Release: {},
	Ban:     {},
}

// reasons finds refusals that nothing can explain: of a lease of one's own as somebody else's, of a fleet that is there as
// unknown, of a report on a lease that is remembered.
func (c *evidence) reasons() []Violation {
	var found []Violation
	for _, op := range c.ops {
		if op.Outcome == Refused && !slices.Contains(possible[op.Kind], op.Reason) {
			found = append(found, violated(Answerable, "client %d's %s of %s%s at %s was refused with %s: %s",
				op.Client, op.Kind, op.Lease, op.Request, clock(op.Call), op.Reason, op.Message))
		}
		// Only a request that was granted before can be told that its leases are over.
		if op.Outcome == Refused && op.Kind == Acquire && op.Reason == "LEASE_EXPIRED" && op.Tries == 1 && !c.repeated(op) {
			found = append(found, violated(Answerable, "client %d's new request %s at %s was refused with %s: %s",
				op.Client, op.Request, clock(op.Call), op.Reason, op.Message))
		}
	}
	return found
}

// repeated tells whether the request was asked for before.
func (c *evidence) repeated(op *Op) bool {
	tries := c.requests[op.Request]
	return len(tries) > 0 && tries[0] != op
}

// expectations finds answers that are not what the client knew they must be.
func (c *evidence) expectations() []Violation {
	var found []Violation
	for _, op := range c.ops {
		got := string(op.Outcome)
		if op.Outcome == Refused {
			got = op.Reason
		}
		if op.Expect != "" && got != op.Expect {
			found = append(found, violated(AtRest, "client %d's %s at %s: want %s, since %s; got %s %s",
				op.Client, op.Kind, clock(op.Call), op.Expect, op.Why, got, op.Message))
		}
	}
	return found
}
