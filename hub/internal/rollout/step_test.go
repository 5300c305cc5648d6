package rollout

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// proxy builds a ready proxy of revision r1 on member a, created in the order of its number; change edits it.
func proxy(n int, change ...func(*Proxy)) Proxy {
	p := Proxy{
		Name: ProxyName(fmt.Sprintf("p%d", n)), UID: ProxyUID(fmt.Sprintf("u%d", n)),
		Member: "a", Revision: "r1", Ready: true, CreatedAt: t0.Add(-time.Hour + time.Duration(n)*time.Second),
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func proxies(n int, change ...func(*Proxy)) []Proxy {
	var out []Proxy
	for i := range n {
		out = append(out, proxy(i, change...))
	}
	return out
}

func leased(p *Proxy)           { p.Leased = 1 }
func unready(p *Proxy)          { p.Ready = false }
func failed(p *Proxy)           { p.Ready, p.Failed = false, true }
func old(p *Proxy)              { p.Revision = "r0" }
func onB(p *Proxy)              { p.Member = "b" }
func terminating(p *Proxy)      { p.Terminating = true }
func burned(n int) func(*Proxy) { return func(p *Proxy) { p.Burned = n } }

func place(member, revision string, replicas int32, drain ...Drain) Placement {
	return Placement{Key: Key{MemberID(member), Revision(revision)}, Replicas: replicas, Drain: drain}
}

func gone(name string, at time.Time) Drain { return Drain{ProxyName(name), at} }

// with replaces the proxies of the given numbers.
func with(ps []Proxy, change func(*Proxy), numbers ...int) []Proxy {
	for _, n := range numbers {
		change(&ps[n])
	}
	return ps
}

func TestStep(t *testing.T) {
	const timeout = 15 * time.Minute
	later := t0.Add(timeout)
	cases := map[string]struct {
		reason     string
		members    []Member
		placements []Placement
		proxies    []Proxy
		budget     Budget
		want       []Placement
		finished   []Key
		held       int32
		short      int32
		done       bool
	}{
		"FirstPlacement": {
			reason:  "a new fleet is ordered at once",
			members: []Member{{ID: "a", Desired: 3}, {ID: "b", Desired: 3}},
			budget:  Budget{MaxSurge: 1},
			want:    []Placement{place("a", "r1", 3), place("b", "r1", 3)},
		},
		"NothingToDo": {
			reason:     "what is as it should be stays untouched, and is done",
			members:    []Member{{ID: "a", Desired: 3}},
			placements: []Placement{place("a", "r1", 3)},
			proxies:    proxies(3),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 3)},
			done:       true,
		},
		"ScaleUp": {
			reason:     "scaling up takes nothing, whatever the health",
			members:    []Member{{ID: "a", Desired: 8}},
			placements: []Placement{place("a", "r1", 3)},
			proxies:    with(with(proxies(3), unready, 1), failed, 2),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 8)},
		},
		"ScaleDownOrder": {
			reason:     "failed, then not ready, then ready: most burned, then oldest; the leased one stays",
			members:    []Member{{ID: "a", Desired: 2}},
			placements: []Placement{place("a", "r1", 6)},
			proxies:    with(with(with(with(proxies(6), leased, 0), failed, 5), unready, 4), burned(2), 3),
			budget:     Budget{MaxSurge: 1},
			want: []Placement{place("a", "r1", 2,
				gone("p1", t0), gone("p3", t0), gone("p4", t0), gone("p5", t0))},
		},
		"LeasedLastAndLater": {
			reason:     "when only leased ones are left they drain until their deadline, fewest leases first",
			members:    []Member{{ID: "a", Desired: 1}},
			placements: []Placement{place("a", "r1", 3)},
			proxies:    with(with(proxies(3), leased, 1), func(p *Proxy) { p.Leased = 3 }, 0, 2),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 1, gone("p0", later), gone("p1", later))},
		},
		"ScaleToZero": {
			reason:     "a fleet of none keeps none, leased ones for a while",
			members:    []Member{{ID: "a"}},
			placements: []Placement{place("a", "r1", 2)},
			proxies:    with(proxies(2), leased, 1),
			budget:     Budget{MaxUnavailable: 1},
			want:       []Placement{place("a", "r1", 0, gone("p0", t0), gone("p1", later))},
		},
		"LeaseEndsEarly": {
			reason:     "the deadline comes forward to now when nobody holds the proxy any more",
			members:    []Member{{ID: "a", Desired: 1}},
			placements: []Placement{place("a", "r1", 1, gone("p0", later))},
			proxies:    proxies(2),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 1, gone("p0", t0))},
		},
		"DeadlineNeverLater": {
			reason:     "neither a passed deadline nor one of a leased proxy is pushed back",
			members:    []Member{{ID: "a", Desired: 1}},
			placements: []Placement{place("a", "r1", 1, gone("p0", t0.Add(-time.Minute)), gone("p1", t0.Add(time.Second)))},
			proxies:    with(proxies(3), leased, 0, 1),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 1, gone("p0", t0.Add(-time.Minute)), gone("p1", t0.Add(time.Second)))},
		},
		"DrainedNeverReturns": {
			reason:     "scaling up again orders new ones; the drained ones keep draining",
			members:    []Member{{ID: "a", Desired: 8}},
			placements: []Placement{place("a", "r1", 2, gone("p2", t0), gone("p3", later))},
			proxies:    with(proxies(4), leased, 3),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 8, gone("p2", t0), gone("p3", later))},
		},
		"GoneLeavesTheList": {
			reason:     "what the member no longer reports is off the list",
			members:    []Member{{ID: "a", Desired: 1}},
			placements: []Placement{place("a", "r1", 1, gone("p2", t0))},
			proxies:    proxies(1),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 1)},
			done:       true,
		},
		"OrdersCalledOffFirst": {
			reason:     "what does not exist yet is the cheapest to lose",
			members:    []Member{{ID: "a", Desired: 2}},
			placements: []Placement{place("a", "r1", 6)},
			proxies:    proxies(3),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 2, gone("p0", t0))},
		},
		"SurplusIsAdopted": {
			reason:     "a member that has more than was ordered is told which must go: it never chooses itself",
			members:    []Member{{ID: "a", Desired: 2}},
			placements: []Placement{place("a", "r1", 2)},
			proxies:    proxies(3),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 2, gone("p0", t0))},
		},
		"TerminatingIsReplacedByTheMember": {
			reason:     "one that somebody deleted on the member is neither counted nor drained",
			members:    []Member{{ID: "a", Desired: 2}},
			placements: []Placement{place("a", "r1", 2)},
			proxies:    with(proxies(2), terminating, 0),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 2)},
		},
		"RollBegins": {
			reason:     "with nothing to spare below, a roll begins with the surge",
			members:    []Member{{ID: "a", Desired: 4}},
			placements: []Placement{place("a", "r0", 4)},
			proxies:    proxies(4, old),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r0", 4), place("a", "r1", 1)},
			held:       4, short: 3,
		},
		"RollWithoutSurge": {
			reason:     "with no surge, a roll begins by taking what may be unavailable",
			members:    []Member{{ID: "a", Desired: 4}},
			placements: []Placement{place("a", "r0", 4)},
			proxies:    proxies(4, old),
			budget:     Budget{MaxUnavailable: 1},
			want:       []Placement{place("a", "r0", 3, gone("p0", t0)), place("a", "r1", 1)},
			held:       3, short: 3,
		},
		"RollGoesOn": {
			reason:     "a new one that is ready lets an old one go and another be ordered",
			members:    []Member{{ID: "a", Desired: 4}},
			placements: []Placement{place("a", "r0", 4), place("a", "r1", 1)},
			proxies:    append(proxies(4, old), proxy(9)),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r0", 3, gone("p0", t0)), place("a", "r1", 2)},
			held:       3, short: 2,
		},
		"RollWaitsForReady": {
			reason:     "a new one that is not ready lets nothing go: a broken template stops here",
			members:    []Member{{ID: "a", Desired: 4}},
			placements: []Placement{place("a", "r0", 4), place("a", "r1", 1)},
			proxies:    append(proxies(4, old), proxy(9, unready)),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r0", 4), place("a", "r1", 1)},
			held:       4, short: 3,
		},
		"RollDuringAnOutageOfTheOld": {
			reason:     "a fleet that failed its probes for a moment is not thrown away in that moment",
			members:    []Member{{ID: "a", Desired: 4}},
			placements: []Placement{place("a", "r0", 4)},
			proxies:    proxies(4, old, unready),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r0", 4), place("a", "r1", 1)},
			held:       4, short: 3,
		},
		"RollTakesFailedAtOnce": {
			reason:     "old ones that failed for good make room at once",
			members:    []Member{{ID: "a", Desired: 4}},
			placements: []Placement{place("a", "r0", 4)},
			proxies:    with(proxies(4, old), failed, 1, 2),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r0", 2, gone("p1", t0), gone("p2", t0)), place("a", "r1", 3)},
			held:       2, short: 1,
		},
		"LeasedDoNotBlockARoll": {
			reason:     "old leased ones drain, are out of the sums, and the new revision is ordered in full",
			members:    []Member{{ID: "a", Desired: 2}},
			placements: []Placement{place("a", "r0", 2), place("a", "r1", 2)},
			proxies:    append(with(proxies(2, old), leased, 0, 1), proxy(8), proxy(9)),
			budget:     Budget{MaxSurge: 2},
			want:       []Placement{place("a", "r0", 0, gone("p0", later), gone("p1", later)), place("a", "r1", 2)},
		},
		"OldPlacementFinished": {
			reason:     "a placement with nothing left is to be deleted",
			members:    []Member{{ID: "a", Desired: 2}},
			placements: []Placement{place("a", "r0", 0, gone("p7", t0)), place("a", "r1", 2)},
			proxies:    proxies(2),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 2)},
			finished:   []Key{{"a", "r0"}},
			done:       true,
		},
		"MoveCreatesFirst": {
			reason:     "proxies that move to another member are ordered there before they go here",
			members:    []Member{{ID: "a", Desired: 2}, {ID: "b", Desired: 2}},
			placements: []Placement{place("a", "r1", 4)},
			proxies:    proxies(4),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 4), place("b", "r1", 1)},
			held:       2, short: 1,
		},
		"MemberLeaves": {
			reason:     "a member that is wanted for nothing gives up what others have taken over",
			members:    []Member{{ID: "b", Desired: 2}},
			placements: []Placement{place("a", "r1", 2), place("b", "r1", 2)},
			proxies:    append(proxies(2), proxy(8, onB), proxy(9, onB)),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 0, gone("p0", t0), gone("p1", t0)), place("b", "r1", 2)},
		},
		"FrozenStays": {
			reason:     "a member whose inventory is not complete is left alone, and holds nobody back",
			members:    []Member{{ID: "a", Desired: 1, Frozen: true}, {ID: "b", Desired: 1}},
			placements: []Placement{place("a", "r0", 3, gone("p8", later)), place("b", "r0", 1), place("b", "r1", 1)},
			proxies:    []Proxy{proxy(0, old), proxy(9, old, onB), proxy(10, onB)},
			budget:     Budget{MaxSurge: 1},
			want: []Placement{
				place("b", "r0", 0, gone("p9", t0)), place("a", "r0", 3, gone("p8", later)), place("b", "r1", 1),
			},
		},
		"MoveDuringAnOutage": {
			reason:     "proxies that are not ready are not thrown away for others that do not exist yet",
			members:    []Member{{ID: "a", Desired: 2}, {ID: "b", Desired: 2}},
			placements: []Placement{place("a", "r1", 4)},
			proxies:    proxies(4, unready),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 4), place("b", "r1", 1)},
			held:       2, short: 1,
		},
		"RollDuringAnOutageOfAll": {
			reason:     "new ones that are not ready yet are no reason to let go of the old ones that may return",
			members:    []Member{{ID: "a", Desired: 4}},
			placements: []Placement{place("a", "r0", 4), place("a", "r1", 1)},
			proxies:    append(proxies(4, old, unready), proxy(9, unready)),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r0", 4), place("a", "r1", 1)},
			held:       4, short: 3,
		},
		"OldOrdersStand": {
			reason:     "the old revision heals itself for as long as it is needed",
			members:    []Member{{ID: "a", Desired: 4}},
			placements: []Placement{place("a", "r0", 4)},
			proxies:    proxies(3, old),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r0", 4), place("a", "r1", 1)},
			held:       4, short: 3,
		},
		"OutdatedFirst": {
			reason:     "of two equally cheap ones the outdated goes, even if the other is burned",
			members:    []Member{{ID: "a", Desired: 1}, {ID: "b", Desired: 1}},
			placements: []Placement{place("a", "r0", 1), place("a", "r1", 2), place("b", "r1", 1)},
			proxies:    []Proxy{proxy(7, old), proxy(0, burned(9)), proxy(1)},
			budget:     Budget{MaxSurge: 2},
			want: []Placement{
				place("a", "r0", 0, gone("p7", t0)), place("a", "r1", 2), place("b", "r1", 1),
			},
			held: 1,
		},
		"LeasedNotReadyFirst": {
			reason:     "of leased ones the one that serves nobody goes first, however many hold it",
			members:    []Member{{ID: "a", Desired: 1}},
			placements: []Placement{place("a", "r1", 2)},
			proxies:    with(with(proxies(2, leased), unready, 1), func(p *Proxy) { p.Leased = 4 }, 1),
			budget:     Budget{MaxUnavailable: 1},
			want:       []Placement{place("a", "r1", 1, gone("p1", later))},
		},
		"FromTheFullest": {
			reason:     "they go from the member that is furthest above its share, and are ordered where most are missing",
			members:    []Member{{ID: "a", Desired: 2}, {ID: "b", Desired: 1}},
			placements: []Placement{place("a", "r0", 2), place("b", "r0", 3)},
			proxies:    append(proxies(2, old), proxy(5, old, onB), proxy(6, old, onB), proxy(7, old, onB)),
			budget:     Budget{MaxUnavailable: 1},
			want: []Placement{
				place("a", "r0", 1, gone("p0", t0)), place("b", "r0", 1, gone("p5", t0), gone("p6", t0)),
				place("a", "r1", 1),
			},
			held: 2, short: 2,
		},
		"OrderedWhereMostAreMissing": {
			reason:     "room for two goes to the member that has none",
			members:    []Member{{ID: "a", Desired: 3}, {ID: "b", Desired: 3}},
			placements: []Placement{place("a", "r1", 2), place("c", "r1", 2)},
			proxies:    append(proxies(2), proxy(8, func(p *Proxy) { p.Member = "c" }), proxy(9, func(p *Proxy) { p.Member = "c" })),
			budget:     Budget{MaxUnavailable: 2},
			want:       []Placement{place("a", "r1", 2), place("b", "r1", 2), place("c", "r1", 2)},
			held:       2, short: 2,
		},
		"WithoutPlacement": {
			reason:     "what belongs to a placement that is gone counts for nothing: the member removes it",
			members:    []Member{{ID: "a", Desired: 2}},
			placements: nil,
			proxies:    append(proxies(2), proxy(7, old)),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 2)},
		},
		"UnleasedBeforeLeasedEvenIfHeld": {
			reason:     "a leased proxy that blinks does not go for an idle one that the floor protects",
			members:    []Member{{ID: "a", Desired: 2}},
			placements: []Placement{place("a", "r1", 6)},
			proxies:    with(with(proxies(6), leased, 2), unready, 2),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 3, gone("p0", t0), gone("p1", t0), gone("p3", t0))},
			held:       1,
		},
		"LeasedAndUnreadyDoesNotBlockAMove": {
			reason:     "but it goes when it takes the room that a move to another member needs",
			members:    []Member{{ID: "a", Desired: 1}, {ID: "b", Desired: 1}},
			placements: []Placement{place("a", "r1", 3)},
			proxies:    with(with(proxies(3), leased, 2), unready, 2),
			budget:     Budget{MaxSurge: 1},
			want:       []Placement{place("a", "r1", 2, gone("p2", later)), place("b", "r1", 1)},
			held:       1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Step(Input{
				Now: t0, Current: "r1", Members: tc.members, Placements: tc.placements, Proxies: tc.proxies,
				Budget: tc.budget, DrainTimeout: timeout,
			})
			if diff := cmp.Diff(tc.want, got.Placements); diff != "" {
				t.Errorf("%s: placements (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.finished, got.Finished); diff != "" {
				t.Errorf("%s: finished (-want +got):\n%s", tc.reason, diff)
			}
			if got.Held != tc.held || got.Short != tc.short || got.Done != tc.done {
				t.Errorf("%s: held %d short %d done %v, want %d %d %v",
					tc.reason, got.Held, got.Short, got.Done, tc.held, tc.short, tc.done)
			}
		})
	}
}

// TestStepAccounts looks at the parts of a plan that placements do not show.
func TestStepAccounts(t *testing.T) {
	got := Step(Input{
		Now: t0, Current: "r1", DrainTimeout: time.Minute,
		Members: []Member{{ID: "a", Desired: 2}},
		Placements: []Placement{
			place("a", "r0", 2, gone("p5", t0.Add(time.Hour))), place("a", "r1", 2),
		},
		Proxies: []Proxy{proxy(0, old, leased), proxy(1, old, unready), proxy(5, old, leased), proxy(8), proxy(9)},
		Budget:  Budget{MaxSurge: 2},
	})
	want := Plan{
		Placements: []Placement{
			place("a", "r0", 0, gone("p0", t0.Add(time.Minute)), gone("p1", t0), gone("p5", t0.Add(time.Hour))),
			place("a", "r1", 2),
		},
		Drained: []Victim{
			{Proxy: proxy(1, old, unready), Cause: Outdated, Deadline: t0},
			{Proxy: proxy(0, old, leased), Cause: Outdated, Deadline: t0.Add(time.Minute)},
		},
		Counts: Counts{
			Desired: 2, Alive: 4, Available: 3, Updated: 2, UpdatedAvailable: 2, Draining: 3,
		},
		NextDeadline: t0.Add(time.Minute),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// TestUnconfirmedIsNotFinished keeps an empty placement for a member that may still have created something for it.
func TestUnconfirmedIsNotFinished(t *testing.T) {
	in := Input{
		Now: t0, Current: "r1", Members: []Member{{ID: "a", Desired: 1}}, Budget: Budget{MaxSurge: 1},
		Placements:  []Placement{place("a", "r0", 0), place("a", "r1", 1)},
		Unconfirmed: map[Key]bool{{"a", "r0"}: true},
		Proxies:     proxies(1),
	}
	if got := Step(in); len(got.Finished) != 0 || len(got.Placements) != 2 || got.Done {
		t.Errorf("unconfirmed: finished %v, done %v, want nothing and not done", got.Finished, got.Done)
	}
	in.Unconfirmed = nil
	if got := Step(in); !cmp.Equal(got.Finished, []Key{{"a", "r0"}}) || !got.Done {
		t.Errorf("confirmed: finished %v, done %v, want a/r0 and done", got.Finished, got.Done)
	}
}

// TestSixTwoEight follows a fleet of six with one lease through 6 → 2 → 8.
func TestSixTwoEight(t *testing.T) {
	in := Input{
		Now: t0, Current: "r1", Members: []Member{{ID: "a", Desired: 2}},
		Placements: []Placement{place("a", "r1", 6)}, Proxies: with(proxies(6), leased, 3),
		Budget: Budget{MaxSurge: 2}, DrainTimeout: time.Minute,
	}
	down := Step(in)
	in.Placements, in.Members = down.Placements, []Member{{ID: "a", Desired: 8}}
	up := Step(in)
	want := []Placement{place("a", "r1", 8, gone("p0", t0), gone("p1", t0), gone("p2", t0), gone("p4", t0))}
	if diff := cmp.Diff(want, up.Placements); diff != "" {
		t.Errorf("the leased p3 and one other stay, six are ordered anew (-want +got):\n%s", diff)
	}
	if len(up.Drained) != 0 || up.Ordered != 6 {
		t.Errorf("scaling up drained %v and ordered %d, want none and 6", up.Drained, up.Ordered)
	}
}

func TestResolve(t *testing.T) {
	percent := func(n int32) Amount { return Amount{n, true} }
	count := func(n int32) Amount { return Amount{Value: n} }
	cases := map[string]struct {
		reason             string
		surge, unavailable Amount
		desired            int32
		want               Budget
		err                error
	}{
		"Rounding":        {"surge rounds up, unavailable down", percent(25), percent(25), 10, Budget{3, 2}, nil},
		"Exact":           {"no rounding where none is needed", percent(25), percent(25), 12, Budget{3, 3}, nil},
		"Numbers":         {"numbers are taken as they are", count(2), count(1), 10, Budget{2, 1}, nil},
		"NotBothZero":     {"else nothing could ever change", count(0), percent(5), 10, Budget{0, 1}, nil},
		"EmptyFleet":      {"percentages of nothing are nothing", percent(25), percent(0), 0, Budget{0, 1}, nil},
		"NoMoreThanAll":   {"no more than all can be unavailable", count(0), count(50), 10, Budget{0, 10}, nil},
		"SurgeOver100":    {"a surge may double a fleet and more", percent(150), count(0), 10, Budget{15, 0}, nil},
		"NegativeSurge":   {"refused", count(-1), count(0), 10, Budget{}, ErrNegative},
		"NegativeUnav":    {"refused", count(0), percent(-5), 10, Budget{}, ErrNegative},
		"UnavOver100":     {"refused", count(0), percent(101), 10, Budget{}, ErrOverHundred},
		"NegativeDesired": {"counts as none", percent(50), percent(50), -4, Budget{0, 1}, nil},
		"Huge":            {"does not overflow", percent(2147483647), count(0), 2147483647, Budget{2147483647, 0}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Resolve(tc.surge, tc.unavailable, tc.desired)
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s: Resolve(%s, %s, %d) = %v, %v, want %v, %v",
					tc.reason, tc.surge, tc.unavailable, tc.desired, got, err, tc.want, tc.err)
			}
		})
	}
}
