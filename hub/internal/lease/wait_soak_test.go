package lease

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestWaitersSoak plays random histories with all that can keep somebody
// waiting: bounds per principal, sessions, request ids, guards, read-only,
// fleets that come and go. verify finds whoever waits for what could be
// granted, and whoever waits twice or nowhere.
func TestWaitersSoak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := modelStart
		e := New(Options{
			IDs: &CountingIDs{}, Epoch: 1, StartedAt: modelStart, HistoryComplete: rapid.Bool().Draw(t, "complete"),
			Guard: Guard{TargetFloor: 2, TargetShare: 0.1, Window: 20 * time.Second}, MaxWaiters: 12, MaxWaitersPerPrincipal: 8,
		})
		waiting := map[Ticket]bool{}
		live := map[ID]Principal{}
		follow := func(out Output) {
			for _, a := range out.Answers {
				if !waiting[a.Ticket] || (a.Result == nil) == (a.Refusal == nil) {
					t.Fatalf("answer %+v", a)
				}
				delete(waiting, a.Ticket)
			}
			for _, rec := range out.Records {
				switch rec := rec.(type) {
				case *LeasesGranted:
					for _, l := range rec.Leases {
						live[l.ID] = rec.Principal
					}
				case *Finished:
					delete(live, rec.ID)
				}
			}
			if len(waiting) != len(e.waiters) {
				t.Fatalf("%d wait, the engine has %d", len(waiting), len(e.waiters))
			}
			if err := verify(e); err != nil {
				t.Fatal(err)
			}
		}
		step := func(cmd Command) {
			out, _ := e.Step(now, cmd)
			if w, ok := out.Result.(Waiting); ok {
				waiting[w.Ticket] = true
			}
			follow(out)
		}
		principal := func(t *rapid.T) Principal {
			return Principal(rapid.SampledFrom([]string{"anna", "boris", "carla"}).Draw(t, "principal"))
		}
		policy := func(t *rapid.T) {
			step(SetFleet{Fleet: Fleet{ID: modelFleet, Policy: Policy{
				MaxLeasesPerProxy: rapid.IntRange(0, 3).Draw(t, "slots"), MaxLeasesPerPrincipal: rapid.SampledFrom([]int{0, 0, 2, 3}).Draw(t, "most"),
				DefaultTTL: 10 * time.Second, MaxTTL: 40 * time.Second, MaxLifetime: 90 * time.Second, ReuseDelay: 3 * time.Second,
				Cooldown: Cooldown{Base: 10 * time.Second, Factor: 2, Max: time.Minute},
			}}})
		}
		upsert := func(t *rapid.T) {
			var m model
			step(UpsertProxy{Proxy: m.drawProxy(t)})
		}
		acquire := func(t *rapid.T) {
			cmd := Acquire{
				Principal: principal(t), Fleet: modelFleet, Target: rapid.SampledFrom(modelTargets).Draw(t, "target"),
				Wait: time.Duration(rapid.IntRange(0, 30).Draw(t, "wait")) * time.Second, Exclusive: rapid.IntRange(0, 2).Draw(t, "exclusive") == 0,
			}
			cmd.Selector.Region = rapid.SampledFrom(append([]string{"", ""}, modelRegions...)).Draw(t, "region")
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				cmd.SessionKey = rapid.SampledFrom([]string{"s", "t"}).Draw(t, "session")
				cmd.AllowMove = rapid.Bool().Draw(t, "move")
				cmd.SessionTTL = ptr(time.Duration(rapid.IntRange(1, 20).Draw(t, "sessionTTL")) * time.Second)
			case 1:
				cmd.RequestID = RequestID(rapid.SampledFrom([]string{"r", "q"}).Draw(t, "id"))
			case 2:
				cmd.Count = ptr(rapid.IntRange(1, 4).Draw(t, "count"))
				cmd.MinCount = ptr(rapid.IntRange(1, *cmd.Count).Draw(t, "least"))
			}
			step(cmd)
		}
		lease := func(t *rapid.T) (ID, Principal) {
			if len(live) == 0 {
				return "lse_0", "anna"
			}
			id := rapid.SampledFrom(slices.Sorted(maps.Keys(live))).Draw(t, "lease")
			return id, live[id]
		}
		policy(t)
		for range 3 {
			upsert(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": acquire, "acquire2": acquire, "acquire3": acquire, "acquire4": acquire, "policy": policy, "upsert": upsert, "upsert2": upsert,
			"release": func(t *rapid.T) {
				id, holder := lease(t)
				step(Release{Principal: holder, ID: id})
			},
			"abandon": func(t *rapid.T) {
				id, holder := lease(t)
				step(Abandon{Principal: holder, IDs: []ID{id, "lse_0"}})
			},
			"ban": func(t *rapid.T) {
				id, holder := lease(t)
				step(Report{Principal: holder, ID: id, Observations: []Observation{{
					Target: rapid.SampledFrom(modelTargets[1:]).Draw(t, "target"), Outcome: Blocked,
				}}})
			},
			"cancel": func(t *rapid.T) {
				if len(waiting) == 0 {
					return
				}
				ticket := rapid.SampledFrom(slices.Sorted(maps.Keys(waiting))).Draw(t, "ticket")
				delete(waiting, ticket)
				step(Cancel{Ticket: ticket})
			},
			"remove": func(t *rapid.T) {
				step(RemoveProxy{UID: ProxyUID(fmt.Sprintf("uid-%d", rapid.IntRange(0, 6).Draw(t, "proxy")))})
			},
			"drain": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "spare") == 0 {
					step(Drain{UID: ProxyUID(fmt.Sprintf("uid-%d", rapid.IntRange(0, 6).Draw(t, "proxy")))})
				}
			},
			"suspect": func(t *rapid.T) {
				step(SetMember{ID: "m-0", Suspect: rapid.Bool().Draw(t, "suspect")})
				step(Touch{ID: "m-1"})
			},
			"operator": func(t *rapid.T) {
				revocation := Revoke{Principal: principal(t)}
				if rapid.IntRange(0, 4).Draw(t, "everywhere") > 0 {
					revocation.Proxy = ProxyUID(fmt.Sprintf("uid-%d", rapid.IntRange(0, 6).Draw(t, "proxy")))
				}
				target := rapid.SampledFrom(modelTargets[1:]).Draw(t, "target")
				switch rapid.IntRange(0, 6).Draw(t, "what") {
				case 0:
					step(revocation)
				case 1, 2:
					step(Reinstate{Principal: revocation.Principal, Proxy: revocation.Proxy})
				case 3:
					step(PauseTarget{Target: target, For: 10 * time.Second})
				case 4:
					step(ResumeTarget{Target: target})
				default:
					step(ClearBan{Target: target.Key()})
				}
			},
			"readOnly": func(t *rapid.T) {
				step(SetReadOnly{On: rapid.Bool().Draw(t, "on"), Why: "the disk is full"})
			},
			"fleet": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "spare") == 0 {
					step(RemoveFleet{ID: modelFleet})
				}
			},
			"pass": func(t *rapid.T) {
				for end := now.Add(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond); now.Before(end); {
					now = end
					if at, ok := e.NextDeadline(); ok && at.Before(end) {
						now = at
					}
					follow(e.Tick(now))
				}
			},
			"late": func(t *rapid.T) { // a keeper that was held up
				now = now.Add(time.Duration(rapid.IntRange(1, 100).Draw(t, "s")) * time.Second)
				follow(e.Tick(now))
			},
		})
		now = now.Add(MaxWait)
		follow(e.Tick(now))
		if len(e.waiters)+len(e.twins)+len(e.seekers)+len(e.waitersOf)+len(e.waits.items) > 0 {
			t.Fatalf("after a minute somebody still waits: %v", e.waiters)
		}
	})
}
