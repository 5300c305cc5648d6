package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is what an operation asks for.
type Kind string

// The kinds of operations.
const (
	// Acquire asks for leases.
	Acquire Kind = "acquire"
	// Renew extends a lease.
	Renew Kind = "renew"
	// Release ends a lease.
	Release Kind = "release"
	// Ban reports a target that refused the lease's exit.
	Ban Kind = "ban"
	// Get looks at a lease.
	Get Kind = "get"
)

// Outcome is how an operation ended.
type Outcome string

// The outcomes.
const (
	// Unknown operations have no answer: they took effect or not.
	Unknown Outcome = "unknown"
	// Done operations were answered.
	Done Outcome = "done"
	// Refused operations were answered with a reason.
	Refused Outcome = "refused"
)

// Token is a fencing token.
type Token struct {
	Epoch, Sequence uint64
}

// ParseToken reads a token as the API writes it.
func ParseToken(text string) (Token, error) {
	epoch, sequence, ok := strings.Cut(text, "-")
	e, err := strconv.ParseUint(epoch, 10, 64)
	if err != nil || !ok {
		return Token{}, fmt.Errorf("%q is not a fencing token, which is EPOCH-SEQUENCE", text)
	}
	s, err := strconv.ParseUint(sequence, 10, 64)
	if err != nil {
		return Token{}, fmt.Errorf("%q is not a fencing token, which is EPOCH-SEQUENCE", text)
	}
	return Token{Epoch: e, Sequence: s}, nil
}

// Compare orders tokens by the time of their grants.
func (t Token) Compare(other Token) int {
	return cmp.Or(cmp.Compare(t.Epoch, other.Epoch), cmp.Compare(t.Sequence, other.Sequence))
}

// String writes the token as the API does.
func (t Token) String() string { return fmt.Sprintf("%d-%d", t.Epoch, t.Sequence) }

// Grant is one lease of an answer to Acquire.
type Grant struct {
	Lease string `json:"lease"`
	Proxy string `json:"proxy"`
	Token Token  `json:"token"`
	// Exits are the addresses that the proxy leaves by.
	Exits []string `json:"exits,omitempty"`
	// Expires is by the hub's clock.
	Expires time.Time `json:"expires"`
	// Moved says that the session's proxy is another one than before.
	Moved bool `json:"moved,omitempty"`
}

// Op is one operation of a client, from its first try to its last.
type Op struct {
	// Client numbers who did it. A client does one operation at a time.
	Client int  `json:"client"`
	Kind   Kind `json:"kind"`
	// Call is when it was tried first, Return when it was answered. Return is zero if it never was.
	Call   time.Time `json:"call"`
	Return time.Time `json:"return,omitzero"`
	// LastCall is when it was tried last.
	LastCall time.Time `json:"lastCall,omitzero"`
	// Tries counts the tries; all but the last one had no answer.
	Tries   int     `json:"tries"`
	Outcome Outcome `json:"outcome"`
	// Reason is that of a refusal, as the API spells it.
	Reason string `json:"reason,omitempty"`
	// Message is that of a refusal.
	Message string `json:"message,omitempty"`
	// Expect is what the answer must be, where the client knows: Done in any case, or the reason of a refusal. Why goes
	// into the violation.
	Expect string `json:"expect,omitempty"`
	Why    string `json:"why,omitempty"`

	// Of an Acquire: its request id, target, session key, and whether it asks for a proxy of its own.
	Request   string  `json:"request,omitempty"`
	Target    string  `json:"target,omitempty"` // of a Ban, too
	Session   string  `json:"session,omitempty"`
	Exclusive bool    `json:"exclusive,omitempty"`
	Grants    []Grant `json:"grants,omitempty"`

	// Lease is what all others are about.
	Lease string `json:"lease,omitempty"`
	// Expires is the answer of a Renew or Get.
	Expires time.Time `json:"expires,omitzero"`
	// Exits are those of a Ban's lease, Cooling is for how long they rest. Zero is for bans that a guard held back.
	Exits   []string      `json:"exits,omitempty"`
	Cooling time.Duration `json:"cooling,omitempty"`
}

// History is what a run of clients did, in any order.
type History []Op

// Limits are what the history is judged by.
type Limits struct {
	// Slots is how many leases a proxy carries at once.
	Slots int
	// Slack is how far the clients' clock and the hub's may be apart.
	Slack time.Duration
	// ModelTimeout bounds the search for a linearization; no bound by default. One that is not found in time is reported.
	ModelTimeout time.Duration
}

// Violation is a broken promise.
type Violation struct {
	// Promise names it.
	Promise string
	// Detail says what was seen.
	Detail string
}

// String returns both.
func (v Violation) String() string { return v.Promise + ": " + v.Detail }

// The promises, as violations name them.
const (
	OneHolder   = "no slot is granted twice"
	Remembered  = "no lease is forgotten before its end"
	Released    = "no release is forgotten"
	Banned      = "no ban is forgotten"
	Fenced      = "fencing tokens only grow"
	Repeatable  = "a request id is given the same leases"
	Sticky      = "a session keeps its proxy"
	Linear      = "the slots of a proxy are linearizable"
	Answerable  = "refusals name a reason that can be"
	AtRest      = "a fleet at rest answers as it must"
	WellFormed  = "the history makes sense"
	Undecidable = "the search for a linearization ends in time"
)

// Check returns all violations that it finds, in the order of the promises.
func Check(h History, limits Limits) []Violation {
	c := collect(h, limits)
	var all []Violation
	for _, check := range []func() []Violation{
		c.wellFormed, c.slots, c.remembered, c.released, c.bans, c.tokens, c.repeats, c.sessions, c.reasons, c.expectations, c.linear,
	} {
		all = append(all, check()...)
	}
	return all
}

// held is a lease with all operations that are about it.
type held struct {
	id        string
	grant     Grant
	granted   *Op       // the first Acquire that was answered with it
	asked     time.Time // when its request was first asked for, perhaps without an answer
	exclusive bool
	renewals  []*Op     // answered
	looks     []*Op     // Renew and Get that were answered or refused
	releases  []*Op     // answered or not
	doubted   time.Time // when a renewal without an answer was asked for
}

// evidence is a history prepared for the checks.
type evidence struct {
	limits Limits
	ops    []*Op // by call
	leases map[string]*held
	order  []*held // by the answer to their Acquire
	orphan []*Op   // about leases that nobody was granted
	// requests are the tries of each request id, by call; given are the answers that hold each lease.
	requests map[string][]*Op
	given    map[string][]*Op
}

func collect(h History, limits Limits) *evidence {
	c := &evidence{limits: limits, leases: map[string]*held{}, requests: map[string][]*Op{}, given: map[string][]*Op{}}
	for i := range h {
		c.ops = append(c.ops, &h[i])
	}
	slices.SortStableFunc(c.ops, func(a, b *Op) int { return a.Call.Compare(b.Call) })
	acquires := slices.DeleteFunc(slices.Clone(c.ops), func(op *Op) bool { return op.Kind != Acquire || op.Outcome != Done })
	slices.SortStableFunc(acquires, func(a, b *Op) int { return a.Return.Compare(b.Return) })
	for _, op := range acquires {
		for _, g := range op.Grants {
			c.given[g.Lease] = append(c.given[g.Lease], op)
			if c.leases[g.Lease] == nil {
				l := &held{id: g.Lease, grant: g, granted: op, exclusive: op.Exclusive}
				c.leases[g.Lease] = l
				c.order = append(c.order, l)
			}
		}
	}
	for _, op := range c.ops {
		if op.Kind == Acquire {
			if op.Request != "" {
				c.requests[op.Request] = append(c.requests[op.Request], op)
			}
			continue
		}
		l := c.leases[op.Lease]
		if l == nil {
			c.orphan = append(c.orphan, op)
			continue
		}
		switch op.Kind {
		case Release:
			l.releases = append(l.releases, op)
		case Renew, Get:
			if op.Kind == Renew && op.Outcome == Unknown {
				l.doubted = op.Call
			}
			if op.Outcome != Unknown {
				l.looks = append(l.looks, op)
			}
			if op.Kind == Renew && op.Outcome == Done {
				l.renewals = append(l.renewals, op)
			}
		case Ban, Acquire:
		}
	}
	for _, l := range c.order {
		l.asked = l.granted.Call
		if tries := c.requests[l.granted.Request]; len(tries) > 0 {
			l.asked = tries[0].Call
		}
	}
	return c
}

// slotsOf is how many slots the lease takes.
func (c *evidence) slotsOf(l *held) int {
	if l.exclusive {
		return c.limits.Slots
	}
	return 1
}

// expiry is the latest that the lease was known to live until at a moment.
func (l *held) expiry(at time.Time) time.Time {
	until := l.grant.Expires
	for _, op := range l.renewals {
		if op.Return.Before(at) && op.Expires.After(until) {
			until = op.Expires
		}
	}
	return until
}

// letGo is when the lease's release was first asked for, or zero.
func (l *held) letGo() time.Time {
	var first time.Time
	for _, op := range l.releases {
		if first.IsZero() || op.Call.Before(first) {
			first = op.Call
		}
	}
	return first
}

func violated(promise, format string, args ...any) Violation {
	return Violation{Promise: promise, Detail: fmt.Sprintf(format, args...)}
}

// clock writes a time as the checks compare it.
func clock(t time.Time) string { return t.UTC().Format("15:04:05.000000") }
