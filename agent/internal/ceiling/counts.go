package ceiling

import (
	"cmp"
	"time"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// defaultInterval is how often a proxy is probed whose health check does not say.
const defaultInterval = 10 * time.Second

// Ahead is what the member hosts already where it is asked for one more proxy.
type Ahead struct {
	// Proxies counts those that come before the one that is asked for.
	Proxies int
	// ProbesPerSecond is what the health checks of those of them add up to that are not refused.
	ProbesPerSecond float64
}

// Add counts one more proxy. Refused says that it breaks a rule itself, and is not probed.
func (a *Ahead) Add(spec v1alpha1.ProxySpec, refused bool) {
	a.Proxies++
	if !refused {
		a.ProbesPerSecond += probesPerSecond(spec)
	}
}

func probesPerSecond(spec v1alpha1.ProxySpec) float64 {
	return 1 / cmp.Or(spec.HealthCheck.Interval.Duration, defaultInterval).Seconds()
}

func checkCounts(p Policy, spec v1alpha1.ProxySpec, ahead Ahead, f *findings) {
	if most := p.maxProxies(); ahead.Proxies >= most {
		f.refuse(RuleMaxProxies, "this member hosts at most %d proxies and has them; place fewer here, or have its owner raise the number", most)
	}
	// Sums of tenths are not exact.
	const rounding = 1e-6
	most := cmp.Or(p.MaxProbesPerSecond, DefaultMaxProbesPerSecond)
	if own := probesPerSecond(spec); !(ahead.ProbesPerSecond+own <= float64(most)+rounding) || own < 0 {
		f.refuse(RuleMaxProbes, "healthCheck.interval is %s; the proxies of this member are probed %.0f times a second without this one, and its owner allows %d in all; write longer intervals, or have its owner raise the number",
			cmp.Or(spec.HealthCheck.Interval.Duration, defaultInterval), ahead.ProbesPerSecond, most)
	}
}

func (p Policy) maxProxies() int { return cmp.Or(p.MaxProxies, DefaultMaxProxies) }

// Room is how many more proxies the member takes where it has some already. It is asked before any is made: what is
// refused only afterwards has filled the API server by then.
func (p Policy) Room(have int) int { return max(0, p.maxProxies()-have) }

// Full is the violation of a member without room.
func (p Policy) Full(missing int) Violation {
	f := &findings{}
	f.refuse(RuleMaxProxies, "%d proxies are not made: this member hosts at most %d and has them; place fewer here, or have its owner raise the number", missing, p.maxProxies())
	return f.list[0]
}

// CheckSet compares a placement with the policy before anything of it is kept. Others counts the placements that are kept
// already, without this one; size is the length of its spec as it came.
func CheckSet(p Policy, size, others int) []Violation {
	f := &findings{}
	if size > MaxSpecBytes {
		f.refuse(RuleSpecSize, "the placement's spec is %d bytes long, and %d is the most a member takes; shorten its cloudInit", size, MaxSpecBytes)
	}
	if most := cmp.Or(p.MaxProxySets, DefaultMaxProxySets); others >= most {
		f.refuse(RuleMaxProxySets, "this member takes at most %d placements and has them; place fewer fleets here, or have its owner raise the number", most)
	}
	return f.list
}
