package lease

import (
	"fmt"
	"math"
	"time"
)

// Fleet is what the engine knows of a ProxyFleet.
type Fleet struct {
	ID FleetID
	// Created is when the fleet came to be. A fleet younger than
	// [Options.StartedAt] cannot have leases from before it, so it has no
	// grace to wait for. Zero means unknown, thus old.
	Created time.Time
	Policy  Policy
}

// Same tells whether two fleets are equal.
func (f *Fleet) Same(g *Fleet) bool {
	return f.ID == g.ID && f.Created.Equal(g.Created) && f.Policy.Same(&g.Policy)
}

// Policy is the leasing part of a fleet. Zero durations mean the default,
// which SetFleet fills in; MaxLeasesPerProxy is as given.
type Policy struct {
	// MaxLeasesPerProxy is the number of slots of every proxy of the fleet,
	// 0 to 1000. With 0 its proxies are never leased.
	MaxLeasesPerProxy int
	// MaxLeasesPerPrincipal bounds the live leases of one principal in the
	// fleet. 0 means no bound.
	MaxLeasesPerPrincipal int
	// DefaultTTL is for an Acquire without ttl: 10 min by default, and never
	// more than MaxTTL.
	DefaultTTL time.Duration
	// MaxTTL bounds each grant and each renewal: 30 min by default.
	MaxTTL time.Duration
	// MaxLifetime bounds a lease with all its renewals: 1 h by default, and
	// never less than MaxTTL.
	MaxLifetime time.Duration
	// ReuseDelay holds a slot back after its lease has ended, because open
	// tunnels outlive leases: 0 by default.
	ReuseDelay time.Duration
	// Cooldown is for bans reported by holders of this fleet's leases.
	Cooldown Cooldown
	// Targets are rules for single targets, at most [MaxTargetRules]. They are
	// never changed once they are handed to the engine or received from it.
	Targets []TargetRule
}

// Cooldown says how long an exit rests for a target that banned it.
type Cooldown struct {
	// Base is the first rest: 5 min by default.
	Base time.Duration
	// Factor is by how much each further ban lengthens it: 2 by default, at
	// least 1.
	Factor float64
	// Max bounds a rest: 12 h by default, at least Base.
	Max time.Duration
}

// The defaults and bounds of a policy.
const (
	DefaultTTL         = 10 * time.Minute
	DefaultMaxTTL      = 30 * time.Minute
	DefaultMaxLifetime = time.Hour
	DefaultBase        = 5 * time.Minute
	DefaultFactor      = 2.0
	DefaultMax         = 12 * time.Hour

	// MinTTL is the shortest lease: below it a client spends its time on
	// renewing.
	MinTTL = time.Second
	// MostLeasesPerProxy bounds MaxLeasesPerProxy.
	MostLeasesPerProxy = 1000
)

// withDefaults fills in what is unset and checks the rest.
func (p Policy) withDefaults() (Policy, *Refusal) {
	if p.MaxLeasesPerProxy < 0 || p.MaxLeasesPerProxy > MostLeasesPerProxy {
		return p, invalid("maxLeasesPerProxy", fmt.Sprintf("maxLeasesPerProxy is %d; write 0 (never leased) to %d", p.MaxLeasesPerProxy, MostLeasesPerProxy))
	}
	if p.MaxLeasesPerPrincipal < 0 {
		return p, invalid("maxLeasesPerPrincipal", fmt.Sprintf("maxLeasesPerPrincipal is %d; write 0 (no bound) or more", p.MaxLeasesPerPrincipal))
	}
	if p.MaxTTL == 0 {
		p.MaxTTL = max(DefaultMaxTTL, p.DefaultTTL)
	}
	if p.DefaultTTL == 0 {
		p.DefaultTTL = min(DefaultTTL, p.MaxTTL)
	}
	if p.MaxLifetime == 0 {
		p.MaxLifetime = max(DefaultMaxLifetime, p.MaxTTL)
	}
	switch {
	case p.MaxTTL < MinTTL:
		return p, invalid("maxTTL", fmt.Sprintf("maxTTL is %s; write at least %s", p.MaxTTL, MinTTL))
	case p.DefaultTTL < MinTTL || p.DefaultTTL > p.MaxTTL:
		return p, invalid("defaultTTL", fmt.Sprintf("defaultTTL is %s; write %s to maxTTL, which is %s", p.DefaultTTL, MinTTL, p.MaxTTL))
	case p.MaxLifetime < p.MaxTTL:
		return p, invalid("maxLifetime", fmt.Sprintf("maxLifetime is %s; write at least maxTTL, which is %s", p.MaxLifetime, p.MaxTTL))
	case p.ReuseDelay < 0:
		return p, invalid("reuseDelay", fmt.Sprintf("reuseDelay is %s; write 0s or more", p.ReuseDelay))
	}
	var refusal *Refusal
	if p.Cooldown, refusal = p.Cooldown.withDefaults(); refusal != nil {
		return p, refusal
	}
	p.Targets, refusal = checkRules(p.Targets, p.Cooldown)
	return p, refusal
}

// withDefaults fills in what is unset and checks the rest.
func (c Cooldown) withDefaults() (Cooldown, *Refusal) {
	if c.Base == 0 {
		c.Base = DefaultBase
		if c.Max != 0 {
			c.Base = min(DefaultBase, c.Max)
		}
	}
	if c.Factor == 0 {
		c.Factor = DefaultFactor
	}
	if c.Max == 0 {
		c.Max = max(DefaultMax, c.Base)
	}
	switch {
	case c.Base < 0:
		return c, invalid("cooldown.base", fmt.Sprintf("cooldown.base is %s; write more than 0s", c.Base))
	case c.Max < c.Base:
		return c, invalid("cooldown.max", fmt.Sprintf("cooldown.max is %s; write at least cooldown.base, which is %s", c.Max, c.Base))
	case !(c.Factor >= 1) || math.IsInf(c.Factor, 0):
		return c, invalid("cooldown.factor", fmt.Sprintf("cooldown.factor is %v; write 1 or more", c.Factor))
	}
	return c, nil
}

// rest returns the length of the cooldown that follows the n-th ban in a row,
// counted from 1.
func (c Cooldown) rest(strikes int) time.Duration {
	length := float64(c.Base) * math.Pow(c.Factor, float64(strikes-1))
	if length >= float64(c.Max) {
		return c.Max
	}
	return time.Duration(length)
}
