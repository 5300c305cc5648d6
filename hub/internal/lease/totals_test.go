package lease

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadHeld(t *testing.T) {
	r := newRig(t)
	for _, id := range []FleetID{"crawl/news", "crawl/weather", "lab/x"} {
		r.do(SetFleet{Fleet: Fleet{ID: id, Policy: Policy{MaxLeasesPerProxy: 5}}})
		p := testProxy(1)
		p.UID, p.Fleet = ProxyUID(id), id
		r.do(UpsertProxy{Proxy: p})
	}
	r.lease()
	r.lease(func(a *Acquire) { a.Fleet, a.RequestID = "crawl/weather", "r1" })
	r.lease(func(a *Acquire) { a.Fleet = "lab/x" })
	gone := r.lease(func(a *Acquire) { a.Principal = "bert" })
	r.do(Release{Principal: "bert", ID: gone.ID})
	for cmd, want := range map[ReadHeld]Held{
		{Fleet: "crawl/news", Principal: "anna"}:                     {Tenant: 2, Principal: 3},
		{Fleet: "crawl/weather", Principal: "anna", RequestID: "r1"}: {Tenant: 2, Principal: 3, Repeated: true},
		{Fleet: "crawl/news", Principal: "anna", RequestID: "r1"}:    {Tenant: 2, Principal: 3},
		{Fleet: "lab/unknown", Principal: "bert"}:                    {Tenant: 1},
		{Fleet: "crawl/weather", Principal: "bert", RequestID: "r1"}: {Tenant: 2},
	} {
		if got := r.do(cmd).(Held); got != want {
			t.Errorf("%+v: %+v, want %+v", cmd, got, want)
		}
	}
}

func TestReadTotals(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Guard = Guard{TargetFloor: 1, TargetShare: 0.01} })
	r.fleet(Policy{MaxLeasesPerProxy: 5})
	r.proxies(3)
	r.ban(r.lease())
	r.ban(r.lease(func(a *Acquire) { a.Selector.Exit = ExitOf(testProxy(2).Exits[0]) }))
	r.lease(func(a *Acquire) { a.Target = MustParseTarget("example.org") })
	r.do(PauseTarget{Target: MustParseTarget("example.net")})
	r.do(Revoke{Principal: "bert"})
	got := r.do(ReadTotals{}).(Totals)
	stats := r.do(ReadStats{Fleet: "crawl/news"}).(Stats)
	want := Totals{
		Fleets: []FleetTotals{{ID: "crawl/news", Stats: stats, Guarded: 1}},
		Exits:  3, Cooldowns: 2, Targets: 1, Revocations: 1, Pauses: 1, GuardTrips: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" || stats.Leases != 3 {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
}
