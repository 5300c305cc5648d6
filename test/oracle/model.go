package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// The model of one proxy: which leases are on it, until when each was promised to live, and the last token. An
// operation's step has no time of its own, only the bounds between which it took effect. So a lease counts as alive for
// a step if it lives at the step's return, and as dead if it was dead at the step's call; in between both are allowed.

// step is one operation of the model.
type step struct {
	do    Kind
	lease string
	// ok is false for a lease that was said to be over.
	ok        bool
	exclusive bool
	token     Token
	expires   time.Time
	call      time.Time
	back      time.Time
}

// on is a lease on the proxy.
type on struct {
	lease   string
	slots   int
	expires time.Time
}

// proxyState is immutable; leases are in the order of their grants.
type proxyState struct {
	leases []on
	last   Token
}

func (s proxyState) find(lease string) int {
	return slices.IndexFunc(s.leases, func(l on) bool { return l.lease == lease })
}

// without is the state with one lease less.
func (s proxyState) without(i int) proxyState {
	return proxyState{leases: slices.Delete(slices.Clone(s.leases), i, i+1), last: s.last}
}

// model is the sequential specification of a proxy.
func model(limits Limits) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return proxyState{} },
		Step: func(state, input, _ any) (bool, any) {
			return next(state.(proxyState), input.(step), limits)
		},
		Equal: func(a, b any) bool {
			x, y := a.(proxyState), b.(proxyState)
			return x.last == y.last && slices.Equal(x.leases, y.leases)
		},
		Hash: func(state any) uint64 {
			s := state.(proxyState)
			return s.last.Epoch<<40 ^ s.last.Sequence<<8 ^ uint64(len(s.leases))
		},
		DescribeOperation: func(input, _ any) string { return input.(step).String() },
		DescribeState:     func(state any) string { return state.(proxyState).String() },
	}
}

// next is the state after a step, and whether the step can be.
func next(s proxyState, in step, limits Limits) (bool, proxyState) {
	i := s.find(in.lease)
	switch in.do {
	case Acquire:
		taken := 0
		for _, l := range s.leases {
			if l.expires.After(in.back.Add(limits.Slack)) {
				taken += l.slots
			}
		}
		slots := 1
		if in.exclusive {
			slots = limits.Slots
		}
		if i >= 0 || taken+slots > limits.Slots || in.token.Compare(s.last) <= 0 {
			return false, s
		}
		// What ended before the call is not needed any more: nothing that can be found alive follows.
		kept := slices.DeleteFunc(slices.Clone(s.leases), func(l on) bool {
			return l.expires.Before(in.call.Add(-forgetAfter))
		})
		return true, proxyState{leases: append(kept, on{lease: in.lease, slots: slots, expires: in.expires}), last: in.token}
	case Renew, Get:
		if !in.ok {
			if i >= 0 && s.leases[i].expires.After(in.back.Add(limits.Slack)) {
				return false, s
			}
			if i >= 0 {
				return true, s.without(i)
			}
			return true, s
		}
		if i < 0 || s.leases[i].expires.Before(in.call.Add(-limits.Slack)) {
			return false, s
		}
		if in.do == Get || !in.expires.After(s.leases[i].expires) {
			return true, s
		}
		leases := slices.Clone(s.leases)
		leases[i].expires = in.expires
		return true, proxyState{leases: leases, last: s.last}
	case Release:
		if i < 0 {
			return true, s
		}
		return true, s.without(i)
	case Ban:
	}
	return true, s
}

// forgetAfter is how long an expired lease stays in the model: longer than any operation takes.
const forgetAfter = time.Minute

// String describes the step, for the picture of a violation.
func (s step) String() string {
	switch {
	case s.do == Acquire:
		return fmt.Sprintf("grant %s %s until %s", s.lease, s.token, clock(s.expires))
	case s.do == Release:
		return "release " + s.lease
	case s.ok:
		return fmt.Sprintf("%s %s until %s", s.do, s.lease, clock(s.expires))
	default:
		return fmt.Sprintf("%s %s: over", s.do, s.lease)
	}
}

// String describes the state, for the picture of a violation.
func (s proxyState) String() string {
	var list []string
	for _, l := range s.leases {
		list = append(list, fmt.Sprintf("%s×%d until %s", l.lease, l.slots, clock(l.expires)))
	}
	return s.last.String() + " [" + strings.Join(list, ", ") + "]"
}

// operations are the steps of each proxy.
func (c *evidence) operations() map[string][]porcupine.Operation {
	byProxy := map[string][]porcupine.Operation{}
	add := func(l *held, op *Op, s step, back time.Time) {
		s.lease, s.call, s.back = l.id, op.Call, back
		byProxy[l.grant.Proxy] = append(byProxy[l.grant.Proxy], porcupine.Operation{
			ClientId: op.Client, Input: s, Call: op.Call.UnixNano(), Return: back.UnixNano(),
		})
	}
	for _, l := range c.order {
		asked := *l.granted
		asked.Call = l.asked
		add(l, &asked, step{do: Acquire, exclusive: l.exclusive, token: l.grant.Token, expires: l.grant.Expires}, l.granted.Return)
		for _, op := range l.looks {
			add(l, op, step{do: op.Kind, ok: op.Outcome == Done, expires: op.Expires}, op.Return)
		}
		for _, op := range l.releases {
			back := op.Return
			if op.Outcome == Unknown {
				// It may have taken effect until the lease ends by itself, after which it makes no difference.
				if back = l.end(); back.Before(op.Call) {
					continue
				}
			}
			add(l, op, step{do: Release}, back)
		}
	}
	return byProxy
}

// end is when the lease was promised to end, with all its renewals.
func (l *held) end() time.Time {
	until := l.grant.Expires
	for _, op := range l.renewals {
		if op.Expires.After(until) {
			until = op.Expires
		}
	}
	return until
}

// linear finds proxies whose history no order of its operations explains.
func (c *evidence) linear() []Violation {
	var found []Violation
	m := model(c.limits)
	for proxy, ops := range c.operations() {
		switch porcupine.CheckOperationsTimeout(m, ops, c.limits.ModelTimeout) {
		case porcupine.Ok:
		case porcupine.Illegal:
			found = append(found, violated(Linear, "no order of the %d operations on proxy %s explains their answers; the model is in test/oracle/model.go", len(ops), proxy))
		case porcupine.Unknown:
			found = append(found, violated(Undecidable, "the %d operations on proxy %s were not decided within %s", len(ops), proxy, c.limits.ModelTimeout))
		}
	}
	return found
}

// Picture returns, for a proxy whose history is not linearizable, a page that shows how far an order could be found.
func Picture(h History, limits Limits, proxy string) (porcupine.Model, porcupine.LinearizationInfo) {
	m := model(limits)
	_, info := porcupine.CheckOperationsVerbose(m, collect(h, limits).operations()[proxy], limits.ModelTimeout)
	return m, info
}
