package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// TargetRule says what a fleet allows for the targets that it matches, on each
// exit.
type TargetRule struct {
	// Match is a host, which stands for itself and all hosts below it, or
	// [AnyTarget]. The longest rule that matches counts. Targets that match
	// the same host are one: bans, cooldowns and paces go by it. Targets of
	// [AnyTarget] stay apart, by their registrable domains.
	Match string
	// Pace says how leases are spaced.
	Pace Pace
	// MaxConcurrentPerExit bounds the live leases for the target on one exit,
	// those of other fleets included. 0 means no bound.
	MaxConcurrentPerExit int
	// MinInterval is the least time between two leases for the target on one
	// exit, and between two requests of its holders together. 0 means none.
	MinInterval time.Duration
	// Cooldown is for bans by the target; the zero Cooldown is the fleet's.
	Cooldown Cooldown
	// Implied says that nobody wrote the rule. With [PaceAuto] it holds for a
	// target from the first report on it on, while a written rule holds from
	// the first lease on: a holder that never reports teaches nothing, and
	// should not be slowed down by what it has not asked for.
	Implied bool
}

// AnyTarget is the Match of the rule for targets that no other rule matches.
const AnyTarget = "*"

// Bounds of rules.
const (
	// MaxTargetRules bounds the rules of a fleet.
	MaxTargetRules = 64
	// MaxMinInterval bounds MinInterval.
	MaxMinInterval = 24 * time.Hour
)

// Pace says how the leases for a target are spaced on an exit.
type Pace uint8

// The paces.
const (
	// PaceAuto learns what the target tolerates from what holders report, and
	// keeps to MaxConcurrentPerExit and MinInterval too.
	PaceAuto Pace = iota
	// PaceFixed keeps to MaxConcurrentPerExit and MinInterval and learns
	// nothing.
	PaceFixed
	// PaceOff does not space leases at all. Cooldowns still act.
	PaceOff
)

var paceNames = [...]string{PaceAuto: "Auto", PaceFixed: "Fixed", PaceOff: "Off"}

// String names the pace as the API writes it.
func (p Pace) String() string {
	if int(p) < len(paceNames) {
		return paceNames[p]
	}
	return "unknown"
}

// Same tells whether two policies are equal.
func (p *Policy) Same(q *Policy) bool {
	return p.MaxLeasesPerProxy == q.MaxLeasesPerProxy && p.MaxLeasesPerPrincipal == q.MaxLeasesPerPrincipal &&
		p.DefaultTTL == q.DefaultTTL && p.MaxTTL == q.MaxTTL && p.MaxLifetime == q.MaxLifetime && p.ReuseDelay == q.ReuseDelay &&
		p.Cooldown == q.Cooldown && slices.Equal(p.Targets, q.Targets)
}

// checkRules normalises rules and refuses what cannot be kept to. It changes
// nothing that it is given.
func checkRules(rules []TargetRule, general Cooldown) ([]TargetRule, *Refusal) {
	if len(rules) > MaxTargetRules {
		return nil, invalid("targets", fmt.Sprintf("there are %d target rules; write at most %d", len(rules), MaxTargetRules))
	}
	checked := slices.Clone(rules)
	seen := map[string]bool{}
	for i := range checked {
		r := &checked[i]
		if r.Match != AnyTarget {
			t, err := ParseTarget(r.Match)
			if err != nil || t.IsZero() {
				return nil, invalid("match", quote("match", r.Match)+` is not a host; write one such as example.com, or "*" for all other targets`)
			}
			r.Match = t.host
		}
		if seen[r.Match] {
			return nil, invalid("match", quote("match", r.Match)+" has two rules; write one")
		}
		seen[r.Match] = true
		if refusal := r.check(general); refusal != nil {
			return nil, refusal
		}
	}
	return checked, nil
}

func (r *TargetRule) check(general Cooldown) *Refusal {
	bounded := r.MaxConcurrentPerExit > 0 || r.MinInterval > 0
	switch {
	case int(r.Pace) >= len(paceNames):
		return invalid("pace", fmt.Sprintf("the pace of %s is not known; write Auto, Fixed or Off", r.Match))
	case r.MaxConcurrentPerExit < 0:
		return invalid("maxConcurrentPerExit", fmt.Sprintf("maxConcurrentPerExit of %s is %d; write 0 (no bound) or more", r.Match, r.MaxConcurrentPerExit))
	case r.MinInterval < 0 || r.MinInterval > MaxMinInterval:
		return invalid("minInterval", fmt.Sprintf("minInterval of %s is %s; write 0s (none) to %s", r.Match, r.MinInterval, humane(MaxMinInterval)))
	case r.Pace == PaceFixed && !bounded:
		return invalid("pace", fmt.Sprintf("the pace of %s is Fixed at nothing; write maxConcurrentPerExit or minInterval, or pace Off", r.Match))
	case r.Pace == PaceOff && bounded:
		return invalid("pace", fmt.Sprintf("the pace of %s is Off, so maxConcurrentPerExit and minInterval would not be kept to; leave them out, or write pace Fixed", r.Match))
	}
	if r.Cooldown == (Cooldown{}) {
		r.Cooldown = general
		return nil
	}
	var refusal *Refusal
	r.Cooldown, refusal = r.Cooldown.withDefaults()
	return refusal
}

// ruleFor returns what holds for a target key: without any rule, no pace.
func (f *fleet) ruleFor(key string) *TargetRule {
	if r := f.rules[key]; r != nil {
		return r
	}
	return &f.otherwise
}

// setRules takes the rules of a new policy.
func (f *fleet) setRules() {
	f.rules = nil
	f.otherwise = TargetRule{Match: AnyTarget, Pace: PaceOff, Cooldown: f.policy.Cooldown}
	for i := range f.policy.Targets {
		r := &f.policy.Targets[i]
		if r.Match == AnyTarget {
			f.otherwise = *r
			continue
		}
		if f.rules == nil {
			f.rules = map[string]*TargetRule{}
		}
		f.rules[r.Match] = r
	}
}

// keyed gives a target the key that it has in this fleet: that of the longest
// rule that matches its host, else its registrable domain.
func (f *fleet) keyed(t Target) Target {
	if len(f.rules) == 0 {
		return t
	}
	for host := t.host; host != ""; {
		if f.rules[host] != nil {
			t.key = host
			return t
		}
		_, host, _ = strings.Cut(host, ".")
	}
	return t
}
