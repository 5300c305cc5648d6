package lease

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// restarted makes the engine anew from what it keeps.
func (r *rig) restarted() *rig {
	r.t.Helper()
	again := New(Options{IDs: r.engine.opts.IDs, Epoch: 13, HistoryComplete: true, StartedAt: rigStart})
	if err := again.Replay(r.engine.Snapshot()); err != nil {
		r.t.Fatal(err)
	}
	again.Tick(r.now)
	if diff := cmp.Diff(dump(r.engine), dump(again)); diff != "" {
		r.t.Errorf("after a restart (-before +after):\n%s", diff)
	}
	return &rig{t: r.t, engine: again, now: r.now}
}

func TestRevokeEverywhere(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 2, MaxTTL: 30 * time.Minute, MaxLifetime: 2 * time.Hour})
	r.proxies(3)
	one, two := r.lease(), r.lease()
	other := r.lease(func(a *Acquire) { a.Principal = "bert" })

	revoked := r.do(Revoke{Principal: "anna", Why: "lost her laptop"}).(Revoked)
	if len(revoked.Ended) != 2 || revoked.Ended[0].ID != one.ID || revoked.Ended[1].ID != two.ID {
		t.Errorf("ended %+v, want both leases of anna in order", revoked.Ended)
	}
	if want := r.now.Add(2*time.Hour + RevocationSlack); !revoked.Revocation.Until.Equal(want) {
		t.Errorf("stands until %s, want %s: every credential has ended then", revoked.Revocation.Until, want)
	}
	if got := r.do(Get{Principal: "anna", ID: one.ID}).(Found).Lease.State; got != StateRevoked {
		t.Errorf("the lease is %s", got)
	}
	if got := r.do(Get{Principal: "bert", ID: other.ID}).(Found).Lease.State; got != Live {
		t.Errorf("somebody else's lease is %s", got)
	}
	for name, rig := range map[string]*rig{"live": r, "restarted": r.restarted()} {
		refusal := rig.refused(acquire())
		want := "an operator has revoked anna; it may lease again in 2h2m, or when that is lifted: lost her laptop"
		if refusal.Reason != RevokedPrincipal || refusal.Message != want || refusal.RetryAfter != 2*time.Hour+RevocationSlack {
			t.Errorf("%s: %s %q %s", name, refusal.Reason, refusal.Message, refusal.RetryAfter)
		}
		if refusal := rig.refused(Renew{Principal: "anna", ID: two.ID}); refusal.Reason != LeaseExpired {
			t.Errorf("%s: renew is refused with %s", name, refusal.Reason)
		}
		if standing := rig.do(ListRevocations{}).(Revocations).Standing; len(standing) != 1 || standing[0].Principal != "anna" {
			t.Errorf("%s: %+v stand", name, standing)
		}
	}
	if lifted := r.do(Reinstate{Principal: "anna"}).(Lifted); lifted.Count != 1 {
		t.Errorf("lifted %d", lifted.Count)
	}
	if lifted := r.do(Reinstate{Principal: "anna"}).(Lifted); lifted.Count != 0 {
		t.Errorf("lifted %d the second time", lifted.Count)
	}
	r.lease()
}

func TestRevocationEnds(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 2})
	r.proxies(1)
	r.do(Revoke{Principal: "anna"})
	r.pass(DefaultMaxLifetime + RevocationSlack - time.Second)
	r.refused(acquire())
	r.pass(time.Second)
	r.lease()
	if standing := r.do(ListRevocations{}).(Revocations).Standing; len(standing) != 0 {
		t.Errorf("%+v stand", standing)
	}
	r.do(Revoke{Principal: "bert"})
	if len(r.engine.revocations) != 1 {
		t.Errorf("%d revocations are kept, want only the one that stands", len(r.engine.revocations))
	}
}

// TestRevokeOnProxy plays all sizes of pools and of requests: what is granted is never on the revoked proxy, and all
// else can be had.
func TestRevokeOnProxy(t *testing.T) {
	for _, count := range []int{1, 2, 3, 7} {
		for _, exclusive := range []bool{false, true} {
			t.Run(fmt.Sprintf("Count%d/Exclusive=%v", count, exclusive), func(t *testing.T) {
				r := newRig(t)
				r.fleet(Policy{MaxLeasesPerProxy: 4})
				r.proxies(3)
				r.do(Revoke{Principal: "anna", Proxy: "px-1"})
				slots, granted := 2*4, 0
				if exclusive {
					slots = 2
				}
				for granted < slots {
					got := r.do(acquire(func(a *Acquire) { a.Count, a.MinCount, a.Exclusive = ptr(count), ptr(1), exclusive })).(Granted)
					for _, l := range got.Leases {
						if granted++; l.Proxy == "px-1" {
							t.Fatalf("lease %d is on the revoked proxy", granted)
						}
					}
				}
				if refusal := r.refused(acquire(func(a *Acquire) { a.Exclusive = exclusive })); refusal.Reason != NoCapacity {
					t.Errorf("beyond that: %s", refusal.Reason)
				}
				if l := r.lease(func(a *Acquire) { a.Principal = "bert" }); l.Proxy != "px-1" {
					t.Errorf("bert got %s; the revocation is anna's", l.Proxy)
				}
			})
		}
	}
}

func TestRevokeEndsSessions(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 4})
	r.proxies(2)
	in := func(a *Acquire) { a.SessionKey = "cart" }
	first := r.lease(in)
	r.do(Revoke{Principal: "anna", Proxy: first.Proxy})
	if refusal := r.refused(acquire(in)); refusal.Reason != RevokedPrincipal {
		t.Errorf("the session goes on with %s", refusal.Reason)
	}
	moved := r.do(acquire(in, func(a *Acquire) { a.AllowMove = true })).(Granted)
	if !moved.Moved || moved.Leases[0].Proxy == first.Proxy {
		t.Errorf("moved %v to %s", moved.Moved, moved.Leases[0].Proxy)
	}
}

func TestPauseTarget(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 5})
	r.proxies(2)
	before := r.lease()
	r.do(PauseTarget{Target: MustParseTarget("shop.example.com"), For: 10 * time.Minute, Why: "they asked us to"})
	for name, rig := range map[string]*rig{"live": r, "restarted": r.restarted()} {
		refusal := rig.refused(acquire())
		want := "an operator has paused grants for example.com for 10m: they asked us to"
		if refusal.Reason != TargetHeld || refusal.Message != want || refusal.RetryAfter != 10*time.Minute {
			t.Errorf("%s: %s %q %s", name, refusal.Reason, refusal.Message, refusal.RetryAfter)
		}
		rig.do(Renew{Principal: "anna", ID: before.ID})
		rig.lease(func(a *Acquire) { a.Target = MustParseTarget("example.org") })
		rig.lease(func(a *Acquire) { a.Target = Target{} })
	}
	r.pass(10 * time.Minute)
	r.lease()

	r.do(PauseTarget{Target: MustParseTarget("example.com")})
	r.pass(48 * time.Hour)
	if refusal := r.refused(acquire()); refusal.Message != "an operator has paused grants for example.com until that is lifted" {
		t.Error(refusal.Message)
	}
	if standing := r.do(ListPauses{}).(Pauses).Standing; len(standing) != 1 || standing[0].Target != "example.com" {
		t.Errorf("%+v stand", standing)
	}
	if lifted := r.do(ResumeTarget{Target: MustParseTarget("example.com")}).(Lifted); lifted.Count != 1 {
		t.Errorf("lifted %d", lifted.Count)
	}
	r.lease()
}

func TestClearBan(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 5})
	r.proxies(2)
	r.ban(r.lease())
	r.ban(r.lease())
	r.refused(acquire())
	bans := r.do(ListBans{}).(Bans)
	exit := ExitOf(netip.MustParseAddr("203.0.113.1"))
	want := Ban{Exit: exit, Target: "example.com", Active: true, Until: r.now.Add(DefaultBase), Banned: true, Strikes: 1, Fleets: []FleetID{"crawl/news"}}
	same := cmp.Comparer(func(a, b Exit) bool { return a == b })
	if bans.Total != 2 || !cmp.Equal(bans.Bans[0], want, same) {
		t.Fatalf("%+v", bans)
	}
	if one := r.do(ListBans{Target: "example.com", Exit: exit, Limit: 1}).(Bans); one.Total != 1 {
		t.Errorf("%d bans of the exit", one.Total)
	}
	if lifted := r.do(ClearBan{Target: "example.com", Exit: exit}).(Lifted); lifted.Count != 1 {
		t.Errorf("lifted %d", lifted.Count)
	}
	r.restarted()
	if l := r.lease(); l.Proxy != "px-1" {
		t.Errorf("got %s", l.Proxy)
	}
	// The strikes are forgotten too: the next ban is a first one.
	if got := r.ban(r.lease()).CoolingFor; got != DefaultBase {
		t.Errorf("the next ban cools for %s", got)
	}
	if lifted := r.do(ClearBan{Target: "example.com"}).(Lifted); lifted.Count != 2 {
		t.Errorf("lifted %d", lifted.Count)
	}
	if bans := r.do(ListBans{}).(Bans); bans.Total != 0 {
		t.Errorf("%+v are left", bans)
	}
}

func TestOperatorCommandsRefuse(t *testing.T) {
	r := newRig(t)
	r.fleet(Policy{MaxLeasesPerProxy: 5})
	for name, cmd := range map[string]Command{
		"NoPrincipal": Revoke{}, "NoProxy": Revoke{Principal: "anna", Proxy: "px-9"}, "NegativeFor": Revoke{Principal: "anna", For: -1},
		"LongWhy": Revoke{Principal: "anna", Why: string(make([]byte, 201))}, "NoOne": Reinstate{},
		"NoTarget": PauseTarget{}, "NegativePause": PauseTarget{Target: MustParseTarget("a.example"), For: -1}, "NoResume": ResumeTarget{},
		"NoBan": ClearBan{}, "Limit": ListBans{Limit: 1001},
	} {
		t.Run(name, func(t *testing.T) {
			if refusal := r.refused(cmd); refusal.Reason != InvalidRequest || refusal.Field == "" {
				t.Errorf("%+v", refusal)
			}
		})
	}
}
