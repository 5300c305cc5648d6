package lease

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestCooldownRest checks how rests grow: by the factor, up to the maximum,
// and without overflow.
func TestCooldownRest(t *testing.T) {
	c := Cooldown{Base: 5 * time.Minute, Factor: 2, Max: 12 * time.Hour}
	for strikes, want := range map[int]time.Duration{
		1: 5 * time.Minute, 2: 10 * time.Minute, 8: 640 * time.Minute, 9: 12 * time.Hour, 5000: 12 * time.Hour,
	} {
		if got := c.rest(strikes); got != want {
			t.Errorf("after %d bans an exit rests %s, want %s", strikes, got, want)
		}
	}
}

// TestReporterGuard checks that one reporter's burst of bans stops acting,
// that others' bans still act, and that the next minute is a new one.
func TestReporterGuard(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 1})
	r.proxies(60)
	var held []Lease
	for range 30 {
		held = append(held, r.lease())
	}
	for i, l := range held[:22] {
		reported := r.ban(l)
		if guarded := reported.Guarded > 0; guarded != (i >= 20) || guarded == (reported.CoolingFor > 0) {
			t.Fatalf("ban %d: %+v", i+1, reported)
		}
	}
	if reported := r.ban(held[0]); reported.Guarded > 0 {
		t.Error("a ban of an exit that cools already burns nothing, and was guarded")
	}
	byBoris := r.lease(func(a *Acquire) { a.Principal = "boris" })
	if reported := r.ban(byBoris); reported.CoolingFor == 0 {
		t.Error("anna's burst guarded boris's ban")
	}
	other := MustParseTarget("example.org")
	reported := r.do(Report{Principal: "anna", ID: held[25].ID, Observations: []Observation{{Target: other, Outcome: Captcha}}}).(Reported)
	if reported.Guarded > 0 {
		t.Error("anna's burst on one target guarded another")
	}
	r.pass(time.Minute)
	if reported := r.ban(held[21]); reported.Guarded > 0 {
		t.Error("the minute was over, and the ban was guarded")
	}
}

// TestTargetGuardEnds checks that a guarded target is granted again.
func TestTargetGuardEnds(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 1})
	r.proxies(20)
	for range 11 {
		r.ban(r.lease())
	}
	if got := r.refused(acquire()).Reason; got != TargetGuarded {
		t.Fatalf("after the burst: %s", got)
	}
	r.lease(func(a *Acquire) { a.Target = MustParseTarget("example.org") })
	r.pass(time.Minute)
	r.lease()
}

// TestManyTargets checks that grants stay right when more targets cool than a
// fleet keeps views for.
func TestManyTargets(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Guard.ReporterFloor = 1 << 20 })
	r.fleet(Policy{MaxLeasesPerProxy: 5})
	r.proxies(3)
	first := r.lease()
	target := func(i int) Target { return MustParseTarget(fmt.Sprintf("site-%d.com", i)) }
	for i := range maxViews + 50 {
		o := Observation{Target: target(i), Outcome: Blocked}
		if _, err := r.engine.Step(r.now, Report{Principal: "anna", ID: first.ID, Observations: []Observation{o}}); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 {
		for i := range maxViews + 50 {
			out, err := r.engine.Step(r.now, acquire(func(a *Acquire) { a.Target = target(i) }))
			if err != nil {
				t.Fatal(err)
			}
			l := out.Result.(Granted).Leases[0]
			if l.Proxy == first.Proxy {
				t.Fatalf("round %d: %s cools for %s and was granted", round, l.Proxy, l.Target)
			}
			if _, err := r.engine.Step(r.now, Release{Principal: "anna", ID: l.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(r.engine.fleets["crawl/news"].views); n > maxViews+1 {
		t.Errorf("%d views, want at most %d", n, maxViews+1)
	}
	r.pass(6 * time.Minute) // the cooldowns end
	r.pass(6 * time.Minute) // and are forgotten
	if n, m := len(r.engine.targets), len(r.engine.fleets["crawl/news"].views); n > 0 || m > 1 {
		t.Errorf("%d targets and %d views are left after all cooldowns", n, m)
	}
	if err := verify(r.engine); err != nil {
		t.Error(err)
	}
}

// TestNothingIsLeft checks that an engine whose proxies, fleets and leases are
// gone has forgotten them.
func TestNothingIsLeft(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 2, ReuseDelay: time.Minute})
	r.proxies(4)
	l := r.lease(func(a *Acquire) { a.RequestID, a.SessionKey = "r", "s" })
	r.ban(l)
	r.lease(func(a *Acquire) { a.Exclusive = true })
	for i := 1; i <= 4; i++ {
		r.do(RemoveProxy{UID: testProxy(i).UID})
	}
	r.do(RemoveFleet{ID: "crawl/news"})
	r.now = r.now.Add(25 * time.Hour)
	r.engine.Tick(r.now)
	e := r.engine
	left := map[string]int{
		"fleets": len(e.fleets), "proxies": len(e.proxies), "members": len(e.members), "leases": len(e.leases), "exits": len(e.exits),
		"targets": len(e.targets), "requests": len(e.requests), "sessions": len(e.sessions), "timers": len(e.timers.items),
	}
	for what, n := range left {
		if n > 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
	if at, ok := e.NextDeadline(); ok {
		t.Errorf("something is still due at %s", at)
	}
}

// TestSlotsChange checks that a changed maxLeasesPerProxy acts at once and
// cuts nothing.
func TestSlotsChange(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 3})
	r.proxies(1)
	held := []Lease{r.lease(), r.lease(), r.lease()}
	r.fleet(Policy{MaxLeasesPerProxy: 1})
	for _, l := range held[1:] {
		if got := r.refused(acquire()).Reason; got != NoCapacity {
			t.Fatalf("beyond the slots: %s", got)
		}
		r.do(Renew{Principal: "anna", ID: l.ID})
		r.do(Release{Principal: "anna", ID: l.ID})
	}
	r.do(Release{Principal: "anna", ID: held[0].ID})
	l := r.lease(func(a *Acquire) { a.Exclusive = true })
	r.fleet(Policy{MaxLeasesPerProxy: 4})
	if got := r.refused(acquire()).Reason; got != NoCapacity {
		t.Fatalf("new slots of a proxy under an exclusive lease: %s", got)
	}
	r.do(Release{Principal: "anna", ID: l.ID})
	for range 4 {
		r.lease()
	}
	r.refused(acquire())
}

// TestReports checks what a repeated report costs, and that a member stays
// fresh by it.
func TestReports(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 1})
	r.proxies(1)
	records := 0
	for range 20 {
		r.now = r.now.Add(10 * time.Second)
		out, err := r.engine.Step(r.now, UpsertProxy{Proxy: testProxy(1)})
		if err != nil {
			t.Fatal(err)
		}
		records += len(out.Records)
	}
	r.lease()
	if most := 7; records > most {
		t.Errorf("20 equal reports in 200s gave %d records, want at most %d (one in half a freshness window)", records, most)
	}
}

// TestListPages checks that pages neither repeat nor miss a proxy while the
// list changes between them.
func TestListPages(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 1})
	r.proxies(9)
	var seen []string
	cmd := List{Fleet: "crawl/news", PageSize: 4}
	for {
		page := r.do(cmd).(Page)
		for _, p := range page.Proxies {
			seen = append(seen, string(p.Proxy.UID))
		}
		if page.Next == "" {
			break
		}
		cmd.After = page.Next
		r.do(RemoveProxy{UID: page.Next}) // the page goes on behind it all the same
	}
	if got, want := strings.Join(seen, " "), "px-1 px-2 px-3 px-4 px-5 px-6 px-7 px-8 px-9"; got != want {
		t.Errorf("pages give %s, want %s", got, want)
	}
	page := r.do(List{Fleet: "crawl/news", Selector: Selector{Exit: ExitOf(netip.MustParseAddr("203.0.113.7"))}}).(Page)
	if len(page.Proxies) != 1 || page.Proxies[0].Proxy.UID != "px-7" {
		t.Errorf("by exit: %+v", page.Proxies)
	}
}

// TestApplyRefusesForeignJournals checks that a replay does not go on from
// records that make no sense.
func TestApplyRefusesForeignJournals(t *testing.T) {
	for name, rec := range map[string]Record{
		"GrantOnUnknownProxy": &LeasesGranted{At: rigStart, Fleet: "a/b", Leases: []GrantedLease{{ID: "lse_1", Proxy: "px-1"}}},
		"RenewOfUnknown":      &Extended{At: rigStart, ID: "lse_1"},
		"EndOfUnknown":        &Finished{At: rigStart, ID: "lse_1"},
	} {
		t.Run(name, func(t *testing.T) {
			e := New(Options{IDs: &CountingIDs{}})
			if err := e.Replay([]Record{rec}); err == nil {
				t.Error("it was applied")
			}
		})
	}
}

// TestExits checks what is one exit to a target.
func TestExits(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.9": "203.0.113.9", "::ffff:203.0.113.9": "203.0.113.9", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
		"2001:db8:1:2::/64": "2001:db8:1:2::/64", "203.0.113.0/24": "", "2001:db8::/48": "", "example.com": "", "": "",
	} {
		exit, err := ParseExit(text)
		if (err != nil) != (want == "") || exit.String() != want && err == nil {
			t.Errorf("ParseExit(%q) is %q, %v, want %q", text, exit, err, want)
		}
	}
}

// TestLeaseIDs checks that ids fit a user name in a URL.
func TestLeaseIDs(t *testing.T) {
	ids := NewRandomIDs(strings.NewReader(strings.Repeat("\xff\x00\x7f\xfe", 40)))
	for range 10 {
		id := string(ids.NextID())
		if len(id) != 26 || !strings.HasPrefix(id, "lse_") || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			t.Errorf("id %q", id)
		}
	}
}

// TestRestsAreNeverCut checks that a ban with a short rest does not cut the
// long one that the target asked for, nor the other way round.
func TestRestsAreNeverCut(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 1, Cooldown: Cooldown{Base: time.Minute}})
	r.proxies(1)
	l := r.lease()
	limited := func(d time.Duration) Reported {
		return r.do(Report{Principal: "anna", ID: l.ID, Observations: []Observation{{Outcome: RateLimited, RetryAfter: d}}}).(Reported)
	}
	if got := limited(10 * time.Minute).CoolingFor; got != 10*time.Minute {
		t.Fatalf("the target asked for 10m and got %s", got)
	}
	if got := r.ban(l).CoolingFor; got != 10*time.Minute {
		t.Errorf("a ban left %s of the 10m", got)
	}
	if got := limited(time.Second).CoolingFor; got != 10*time.Minute {
		t.Errorf("a shorter limit left %s of the 10m", got)
	}
}

// TestRenewNeverShortens checks that a shorter ttl leaves a longer lease as it
// is.
func TestRenewNeverShortens(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 1})
	r.proxies(1)
	l := r.lease(func(a *Acquire) { a.TTL = ptr(20 * time.Minute) })
	renewed := r.do(Renew{Principal: "anna", ID: l.ID, TTL: ptr(time.Minute)}).(Renewed)
	if renewed.Lease.TTL != 20*time.Minute || renewed.Capped != NotCapped || renewed.Lease.RenewAfter != 10*time.Minute {
		t.Errorf("renewed to %s (renew after %s, capped %d)", renewed.Lease.TTL, renewed.Lease.RenewAfter, renewed.Capped)
	}
}

// TestUse checks what the choice of a proxy to remove goes by.
func TestUse(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 2})
	r.proxies(3)
	r.now = rigStart.Add(10 * time.Second)
	l := r.lease(func(a *Acquire) { a.TTL = ptr(time.Minute) })
	r.ban(l)
	r.do(Report{Principal: "anna", ID: l.ID, Observations: []Observation{{Target: MustParseTarget("example.org"), Outcome: Blocked}}})
	r.now = rigStart.Add(20 * time.Second)
	other := r.lease(func(a *Acquire) { a.Target = Target{} })
	r.now = rigStart.Add(30 * time.Second)
	r.do(Release{Principal: "anna", ID: other.ID})
	got := r.do(ReadUse{Fleet: "crawl/news"}).(UseList).Proxies
	want := []Use{
		{UID: "px-1", Member: "east", Leases: 1, LastExpiry: rigStart.Add(70 * time.Second), LastUsed: rigStart.Add(10 * time.Second), CoolingTargets: 2},
		{UID: "px-2", Member: "east", LastUsed: rigStart.Add(30 * time.Second)},
		{UID: "px-3", Member: "east"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("use (-want +got):\n%s", diff)
	}
}

// TestBusy checks which proxies count as leased, and when that is not known.
func TestBusy(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 2, ReuseDelay: time.Minute})
	r.proxies(3)
	busy := func(want ...ProxyUID) {
		t.Helper()
		got := r.do(ReadBusy{}).(Busy)
		if !got.Known || !slices.Equal(got.Proxies["east"], want) {
			t.Errorf("busy are %v (known %v), want %v", got.Proxies, got.Known, want)
		}
	}
	busy()
	l := r.lease()
	r.lease()
	busy("px-1", "px-2")
	r.do(Release{Principal: "anna", ID: l.ID})
	busy("px-1", "px-2") // its slot is held back: connections may still be open
	r.pass(time.Minute)
	busy("px-2")
	r.do(RemoveProxy{UID: "px-2"})
	busy()

	forgetful := newRig(t, func(o *Options) { o.HistoryComplete = false })
	known := func(want bool, why string) {
		t.Helper()
		if got := forgetful.do(ReadBusy{}).(Busy).Known; got != want {
			t.Errorf("known %v, want %v: %s", got, want, why)
		}
	}
	known(false, "no fleet has been told of, so nobody knows how long leases live")
	forgetful.fleet(Policy{MaxLeasesPerProxy: 1, MaxTTL: 10 * time.Minute})
	known(false, "leases of an earlier hub may live")
	forgetful.now = rigStart.Add(10*time.Minute + time.Second)
	known(true, "the longest of them has ended")
}

// TestRetryFollowsReadiness checks that the retryAfter of a cooling fleet
// counts a proxy out while it is not ready, and in again afterwards.
func TestRetryFollowsReadiness(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 1, Cooldown: Cooldown{Base: time.Minute}})
	r.proxies(2)
	r.ban(r.lease())
	r.pass(20 * time.Second)
	r.ban(r.lease())
	retry := func() time.Duration { return r.refused(acquire()).RetryAfter }
	if got := retry(); got != 40*time.Second {
		t.Fatalf("px-1 is back in %s, want 40s", got)
	}
	sick := testProxy(1)
	sick.Ready = false
	r.do(UpsertProxy{Proxy: sick})
	if got := retry(); got != time.Minute {
		t.Errorf("with px-1 not ready, px-2 is back in %s, want 1m", got)
	}
	r.do(UpsertProxy{Proxy: testProxy(1)})
	if got := retry(); got != 40*time.Second {
		t.Errorf("px-1 is ready again and back in %s, want 40s", got)
	}
}

// TestLateTime checks that a clock that runs backwards changes nothing.
func TestLateTime(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 1})
	r.proxies(1)
	l := r.lease(func(a *Acquire) { a.TTL = ptr(time.Minute) })
	r.now = rigStart.Add(30 * time.Second)
	r.do(Touch{ID: "east"})
	r.now = rigStart.Add(-time.Hour)
	found := r.do(Get{Principal: "anna", ID: l.ID}).(Found)
	if found.Lease.TTL != 30*time.Second || !r.engine.Now().Equal(rigStart.Add(30*time.Second)) {
		t.Errorf("an hour earlier the lease has %s left, and it is %s", found.Lease.TTL, r.engine.Now())
	}
}
