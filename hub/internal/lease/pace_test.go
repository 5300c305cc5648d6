package lease

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// fixed is a policy of five slots with one rule for all targets.
func fixed(rule TargetRule) Policy {
	rule.Match, rule.Pace = AnyTarget, PaceFixed
	return Policy{MaxLeasesPerProxy: 5, Targets: []TargetRule{rule}}
}

// TestRuleMatches checks which rule a target goes by.
func TestRuleMatches(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 5, Targets: []TargetRule{
		{Match: "Shop.Example.com", Pace: PaceFixed, MaxConcurrentPerExit: 1},
		{Match: "example.org", Pace: PaceOff},
	}})
	f := r.engine.fleets["crawl/news"]
	for host, want := range map[string]string{
		"shop.example.com": "shop.example.com", "a.b.shop.example.com": "shop.example.com",
		"www.example.com": "example.com", "www.example.org": "example.org", "xshop.example.com": "example.com",
	} {
		if got := f.keyed(MustParseTarget(host)).Key(); got != want {
			t.Errorf("the key of %s is %s, want %s", host, got, want)
		}
	}
}

// TestWrongRules checks what SetFleet refuses.
func TestWrongRules(t *testing.T) {
	for name, rules := range map[string][]TargetRule{
		"NoHost":       {{Match: "https://example.com"}},
		"Empty":        {{}},
		"Twice":        {{Match: "example.com"}, {Match: "EXAMPLE.com"}},
		"FixedNothing": {{Match: AnyTarget, Pace: PaceFixed}},
		"OffBounded":   {{Match: AnyTarget, Pace: PaceOff, MinInterval: time.Second}},
		"Negative":     {{Match: AnyTarget, MinInterval: -1}},
		"TooMany":      make([]TargetRule, MaxTargetRules+1),
		"Cooldown":     {{Match: AnyTarget, Cooldown: Cooldown{Base: time.Hour, Max: time.Minute}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			refusal := r.refused(SetFleet{Fleet: Fleet{ID: "crawl/news", Policy: Policy{MaxLeasesPerProxy: 1, Targets: rules}}})
			if refusal.Reason != InvalidRequest {
				t.Errorf("got %s", refusal.Reason)
			}
		})
	}
}

// TestConcurrencyByExit checks that fleets of two tenants divide what an exit
// may carry at once, and that an end makes room.
func TestConcurrencyByExit(t *testing.T) {
	r := newRig(t)
	r.fleet(fixed(TargetRule{MaxConcurrentPerExit: 2}))
	r.do(SetFleet{Fleet: Fleet{ID: "other/shop", Policy: fixed(TargetRule{MaxConcurrentPerExit: 2})}})
	r.proxies(1)
	shared := testProxy(1)
	shared.UID, shared.Fleet = "px-other", "other/shop"
	r.do(UpsertProxy{Proxy: shared})

	first := r.lease()
	r.lease(func(a *Acquire) { a.Principal, a.Fleet = "boris", "other/shop" })
	refusal := r.refused(acquire())
	if refusal.Reason != NoCapacity || refusal.Paced != 1 || refusal.RetryAfter != first.TTL {
		t.Errorf("got %+v", refusal)
	}
	r.lease(func(a *Acquire) { a.Target = MustParseTarget("example.org") })
	r.do(Release{Principal: "anna", ID: first.ID})
	r.lease(func(a *Acquire) { a.Principal, a.Fleet = "boris", "other/shop" })
	r.refused(acquire())
}

// TestIntervalByExit checks that proxies which share an exit share its
// interval, an IPv6 /64 being one exit, and that a batch keeps to it.
func TestIntervalByExit(t *testing.T) {
	r := newRig(t)
	r.fleet(fixed(TargetRule{MinInterval: 10 * time.Second}))
	for i := 1; i <= 2; i++ {
		p := testProxy(i)
		p.Exits = []netip.Addr{netip.MustParseAddr(fmt.Sprintf("2001:db8:0:7::%d", i))}
		r.do(UpsertProxy{Proxy: p})
	}
	other := testProxy(3)
	r.do(UpsertProxy{Proxy: other})
	if n := len(r.do(acquire(func(a *Acquire) { a.Count, a.MinCount = ptr(5), ptr(1) })).(Granted).Leases); n != 2 {
		t.Errorf("%d leases at once by two exits, want 2", n)
	}
	if refusal := r.refused(acquire()); refusal.Reason != NoCapacity || refusal.RetryAfter != 10*time.Second || refusal.Paced != 3 {
		t.Errorf("got %+v", refusal)
	}
	r.pass(10 * time.Second)
	r.lease()
	r.lease()
	r.refused(acquire())
}

// TestLimitsAreTold checks that holders are told what they share.
func TestLimitsAreTold(t *testing.T) {
	r := newRig(t)
	r.fleet(fixed(TargetRule{MinInterval: time.Second, MaxConcurrentPerExit: 4}))
	r.proxies(1)
	first := r.lease()
	if want := (Limits{MaxConcurrency: 4, MinInterval: time.Second}); first.Limits != want {
		t.Errorf("alone: %+v, want %+v", first.Limits, want)
	}
	r.pass(time.Second)
	r.lease()
	renewed := r.do(Renew{Principal: "anna", ID: first.ID}).(Renewed)
	if want := (Limits{MaxConcurrency: 2, MinInterval: 2 * time.Second}); renewed.Lease.Limits != want {
		t.Errorf("with another: %+v, want %+v", renewed.Lease.Limits, want)
	}
}

// TestNoCascade bans exits one after the other, and checks that the others'
// load does not rise: nobody gets what the banned ones may not have.
func TestNoCascade(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 5, Targets: []TargetRule{{Match: AnyTarget}}})
	r.proxies(4)
	granted := map[ProxyUID]int{}
	minute := func() int {
		clear(granted)
		most := 0
		for end := r.now.Add(time.Minute); r.now.Before(end); r.pass(time.Second) {
			for {
				out, err := r.engine.Step(r.now, acquire())
				if err != nil {
					break
				}
				l := out.Result.(Granted).Leases[0]
				granted[l.Proxy]++
				most = max(most, granted[l.Proxy])
				r.do(Release{Principal: "anna", ID: l.ID})
			}
		}
		return most
	}
	before := minute()
	for range 3 {
		r.pass(time.Minute)
		r.ban(r.lease())
		if after := minute(); after > before {
			t.Errorf("an exit carries %d leases in a minute after a ban, %d before", after, before)
		}
	}
}

// TestAddressComesBack checks that an address keeps its cooldown and its pace
// while no proxy has it.
func TestAddressComesBack(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 5, Targets: []TargetRule{{Match: AnyTarget}}})
	r.proxies(1)
	r.ban(r.lease())
	r.do(RemoveProxy{UID: "px-1"})
	r.pass(time.Minute)
	back := testProxy(1)
	back.UID = "px-again"
	r.do(UpsertProxy{Proxy: back})
	if refusal := r.refused(acquire()); refusal.Reason != CoolingDown || refusal.RetryAfter != 4*time.Minute {
		t.Errorf("got %+v", refusal)
	}
	r.pass(4 * time.Minute)
	if l := r.lease(); l.Limits.MinInterval <= 10*time.Second {
		t.Errorf("after a ban the interval is %s, want more than the first of all", l.Limits.MinInterval)
	}
}

// TestClockJumps checks that a jump forward ends what is due and a jump back
// changes nothing: no interval is cut short.
func TestClockJumps(t *testing.T) {
	r := newRig(t)
	r.fleet(fixed(TargetRule{MinInterval: time.Minute}))
	r.proxies(1)
	r.lease()
	r.pass(time.Hour)
	r.lease()
	r.now = r.now.Add(-time.Hour)
	if refusal := r.refused(acquire()); refusal.RetryAfter != time.Minute {
		t.Errorf("after the jump back: %+v", refusal)
	}
	r.now = r.now.Add(time.Hour + time.Minute)
	r.do(Touch{ID: "east"})
	r.lease()
}

// TestPacesAreBounded checks that the targets used longest ago are forgotten.
func TestPacesAreBounded(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxPaces = 32 })
	r.fleet(Policy{MaxLeasesPerProxy: 5, Targets: []TargetRule{{Match: AnyTarget}}})
	r.proxies(1)
	l := r.lease()
	for i := range 100 {
		r.now = r.now.Add(time.Millisecond)
		r.do(Report{Principal: "anna", ID: l.ID, Observations: []Observation{{Outcome: OK, Target: MustParseTarget(fmt.Sprintf("site-%d.com", i))}}})
	}
	if r.engine.paces > 32 {
		t.Errorf("%d paces are known, want at most 32", r.engine.paces)
	}
	if r.engine.targets["site-99.com"] == nil || r.engine.targets["site-3.com"] != nil {
		t.Error("the wrong target was forgotten")
	}
	if r.engine.targets["example.com"] == nil {
		t.Error("a target with a live lease was forgotten")
	}
}
