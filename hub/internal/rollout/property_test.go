package rollout

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// tally counts a plan's outcome by the definitions in the package comment, without any of the package's own sums.
type tally struct{ desired, aliveBefore, aliveAfter, availableBefore, availableAfter int }

func count(in Input, plan Plan) tally {
	var c tally
	frozen := map[MemberID]bool{}
	for _, m := range in.Members {
		frozen[m.ID] = m.Frozen
		if !m.Frozen {
			c.desired += int(m.Desired)
		}
	}
	written := map[Key]bool{}
	for _, p := range in.Placements {
		written[p.Key] = true
	}
	sum := func(placements []Placement) (alive, available int) {
		here := map[Key]int{}
		listed := map[Key]map[ProxyName]bool{}
		for _, p := range placements {
			listed[p.Key] = map[ProxyName]bool{}
			for _, d := range p.Drain {
				listed[p.Key][d.Name] = true
			}
		}
		for _, p := range in.Proxies {
			key := Key{p.Member, p.Revision}
			if frozen[p.Member] || p.Terminating || !written[key] || listed[key][p.Name] {
				continue
			}
			here[key]++
			if p.Ready && !p.Failed {
				available++
			}
		}
		for _, p := range placements {
			if !frozen[p.Member] {
				alive += max(int(p.Replicas), here[p.Key])
			}
		}
		return alive, available
	}
	c.aliveBefore, c.availableBefore = sum(in.Placements)
	c.aliveAfter, c.availableAfter = sum(plan.Placements)
	return c
}

// checkPlan holds a plan to the rules, whatever the input.
func checkPlan(t *rapid.T, in Input, plan Plan) {
	c := count(in, plan)
	floor := max(c.desired-int(in.Budget.MaxUnavailable), 0)
	ceiling := c.desired + int(in.Budget.MaxSurge)
	if c.availableAfter < min(floor, c.availableBefore) {
		t.Fatalf("available fell from %d to %d, floor %d\n%+v\n%+v", c.availableBefore, c.availableAfter, floor, in, plan)
	}
	if c.aliveAfter > max(ceiling, c.aliveBefore) {
		t.Fatalf("alive rose from %d to %d, ceiling %d\n%+v\n%+v", c.aliveBefore, c.aliveAfter, ceiling, in, plan)
	}

	after := map[Key]Placement{}
	shrinkingDone := false
	before := map[Key]Placement{}
	for _, p := range in.Placements {
		before[p.Key] = p
	}
	for _, p := range plan.Placements {
		if _, twice := after[p.Key]; twice || p.Replicas < 0 {
			t.Fatalf("placement %v is there twice, or below zero: %v", p.Key, plan.Placements)
		}
		after[p.Key] = p
		shrinks := p.Replicas < before[p.Key].Replicas
		if shrinks && shrinkingDone {
			t.Fatalf("%v shrinks but comes after one that does not: %v", p.Key, plan.Placements)
		}
		shrinkingDone = shrinkingDone || !shrinks
	}
	checkDrains(t, in, plan, before, after)
	checkVictims(t, in, plan, after)
}

// checkDrains holds that draining is one-way and that nothing is dropped from sight while it exists.
func checkDrains(t *rapid.T, in Input, plan Plan, before, after map[Key]Placement) {
	for _, m := range in.Members {
		for key, p := range before {
			if m.Frozen && key.Member == m.ID {
				if diff := cmp.Diff(p, after[key]); diff != "" {
					t.Fatalf("a frozen member's placement changed (-before +after):\n%s", diff)
				}
			}
		}
	}
	for _, p := range in.Proxies {
		key := Key{p.Member, p.Revision}
		first, was := deadlineOf(before[key], p.Name)
		last, is := deadlineOf(after[key], p.Name)
		switch {
		case was && !is:
			t.Fatalf("%s exists and left the drain list", p.Name)
		case was && last.After(first):
			t.Fatalf("%s: deadline moved back by %s", p.Name, last.Sub(first))
		case was && p.Leased > 0 && !last.Equal(first):
			t.Fatalf("%s is leased and its deadline moved", p.Name)
		}
	}
	for _, key := range plan.Finished {
		for _, p := range in.Proxies {
			if (Key{p.Member, p.Revision}) == key {
				t.Fatalf("%v is finished but %s exists", key, p.Name)
			}
		}
	}
}

func deadlineOf(p Placement, name ProxyName) (time.Time, bool) {
	for _, d := range p.Drain {
		if d.Name == name {
			return d.Deadline, true
		}
	}
	return time.Time{}, false
}

// checkVictims holds who may go, and when.
func checkVictims(t *rapid.T, in Input, plan Plan, after map[Key]Placement) {
	desired := map[MemberID]int32{}
	for _, m := range in.Members {
		desired[m.ID] = m.Desired
	}
	for _, v := range plan.Drained {
		key := Key{v.Proxy.Member, v.Proxy.Revision}
		deadline, listed := deadlineOf(after[key], v.Proxy.Name)
		if !listed || !deadline.Equal(v.Deadline) {
			t.Fatalf("%s is drained but not listed with that deadline", v.Proxy.Name)
		}
		if want := in.Now; v.Proxy.Leased == 0 && !deadline.Equal(want) {
			t.Fatalf("%s is free and drains until %s", v.Proxy.Name, deadline)
		}
		if want := in.Now.Add(in.DrainTimeout); v.Proxy.Leased > 0 && !deadline.Equal(want) {
			t.Fatalf("%s is leased and drains until %s, want %s", v.Proxy.Name, deadline, want)
		}
		if v.Cause == Outdated != (v.Proxy.Revision != in.Current) {
			t.Fatalf("%s of %s goes because %s", v.Proxy.Name, v.Proxy.Revision, v.Cause)
		}
		if v.Cause != ScaledDown {
			continue
		}
		if after[key].Replicas < desired[key.Member] {
			t.Fatalf("%s was taken although %v keeps %d of %d", v.Proxy.Name, key, after[key].Replicas, desired[key.Member])
		}
		if v.Proxy.Leased > 0 && !v.Proxy.Failed && plan.Held == 0 {
			for _, p := range in.Proxies {
				_, drains := deadlineOf(after[key], p.Name)
				if (Key{p.Member, p.Revision}) == key && p.Leased == 0 && !drains && !p.Terminating {
					t.Fatalf("%s is leased and was taken, %s is free and stays", v.Proxy.Name, p.Name)
				}
			}
		}
	}
}

// TestChaos lets a hub and its members do anything at any time, with old news in both directions, checks every plan,
// and expects that once things calm down the fleet becomes what is wanted.
func TestChaos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.IntRange(1, 3).Draw(t, "members"))
		w.drawBudget()
		w.drawDesired(5)
		revisions := []Revision{"r0", "r1", "r2"}
		member := func() MemberID { return rapid.SampledFrom(w.in.Members).Draw(t, "member").ID }
		change := func(f func(p *simProxy)) {
			if all := w.all(); len(all) > 0 {
				f(rapid.SampledFrom(all).Draw(t, "proxy"))
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"step":   func(*rapid.T) { w.step() },
			"step2":  func(*rapid.T) { w.step() },
			"sync":   func(*rapid.T) { w.sync(member()) },
			"act":    func(*rapid.T) { w.act(member(), 1) },
			"act3":   func(*rapid.T) { w.act(member(), 3) },
			"report": func(*rapid.T) { w.report(member()) },
			"time": func(*rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "seconds")) * time.Second)
			},
			"ready":   func(*rapid.T) { change(func(p *simProxy) { p.Ready, p.Failed = true, false }) },
			"blink":   func(*rapid.T) { change(func(p *simProxy) { p.Ready = false }) },
			"fail":    func(*rapid.T) { change(func(p *simProxy) { p.Ready, p.Failed = false, true }) },
			"burn":    func(*rapid.T) { change(func(p *simProxy) { p.Burned++ }) },
			"delete":  func(*rapid.T) { change(func(p *simProxy) { p.Terminating = true }) },
			"release": func(*rapid.T) { change(func(p *simProxy) { p.Leased = 0 }) },
			"lease": func(*rapid.T) {
				change(func(p *simProxy) {
					if p.Ready && !w.draining(p) {
						p.Leased++
					}
				})
			},
			"scale":  func(*rapid.T) { w.drawDesired(5) },
			"roll":   func(*rapid.T) { w.in.Current = rapid.SampledFrom(revisions).Draw(t, "revision") },
			"budget": func(*rapid.T) { w.drawBudget() },
			"freeze": func(*rapid.T) {
				m := &w.in.Members[rapid.IntRange(0, len(w.in.Members)-1).Draw(t, "which")]
				m.Frozen = !m.Frozen
			},
		})
		for i := range w.in.Members {
			w.in.Members[i].Frozen = false
		}
		// A proxy deleted on its member goes once the member looks.
		for _, set := range w.sets {
			for name, p := range set.proxies {
				if p.Terminating {
					delete(set.proxies, name)
				}
			}
		}
		w.calm()
	})
}

// TestRollsWithinBounds rolls, moves and resizes fleets whose proxies behave, with leases coming and going, and holds
// the bounds at every moment between the hub's steps as well.
func TestRollsWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, rapid.IntRange(1, 3).Draw(t, "members"))
		w.drawBudget()
		w.drawDesired(5)
		w.calm()

		// Same size, another revision, other shares: nothing may dip or swell.
		w.quiet = true
		w.in.Current = "r1"
		for range rapid.IntRange(0, 3).Draw(t, "moves") {
			from := &w.in.Members[rapid.IntRange(0, len(w.in.Members)-1).Draw(t, "from")]
			to := &w.in.Members[rapid.IntRange(0, len(w.in.Members)-1).Draw(t, "to")]
			if from.Desired > 0 {
				from.Desired--
				to.Desired++
			}
		}
		w.step()
		t.Repeat(map[string]func(*rapid.T){
			"step": func(*rapid.T) { w.step() },
			"member": func(*rapid.T) {
				id := rapid.SampledFrom(w.in.Members).Draw(t, "member").ID
				w.sync(id)
				w.act(id, rapid.IntRange(0, 2).Draw(t, "create"))
			},
			"ready": func(*rapid.T) {
				if all := w.all(); len(all) > 0 {
					p := rapid.SampledFrom(all).Draw(t, "proxy")
					p.Ready = true
				}
			},
			"report": func(*rapid.T) { w.report(rapid.SampledFrom(w.in.Members).Draw(t, "member").ID) },
			"lease": func(*rapid.T) {
				if all := w.all(); len(all) > 0 {
					if p := rapid.SampledFrom(all).Draw(t, "proxy"); p.Ready && !w.draining(p) {
						p.Leased++
					}
				}
			},
			"release": func(*rapid.T) {
				if all := w.all(); len(all) > 0 {
					rapid.SampledFrom(all).Draw(t, "proxy").Leased = 0
				}
			},
			"time": func(*rapid.T) { w.now = w.now.Add(7 * time.Second) },
			"":     func(*rapid.T) { w.checkBounds() },
		})
		w.calm()
	})
}

// TestScaleUpTakesNothing grows settled or unsettled fleets of one revision.
func TestScaleUpTakesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 6).Draw(t, "have")
		in := Input{
			Now: t0, Current: "r1", Budget: Budget{MaxSurge: 1},
			Members:    []Member{{ID: "a", Desired: int32(n + rapid.IntRange(0, 5).Draw(t, "more"))}},
			Placements: []Placement{place("a", "r1", int32(n))},
		}
		for i := range n {
			p := proxy(i)
			p.Ready = rapid.Bool().Draw(t, "ready")
			p.Failed = rapid.Bool().Draw(t, "failed")
			p.Leased = rapid.IntRange(0, 1).Draw(t, "leased")
			in.Proxies = append(in.Proxies, p)
		}
		plan := Step(in)
		checkPlan(t, in, plan)
		if len(plan.Drained) > 0 {
			t.Fatalf("scaling up took %v", plan.Drained)
		}
		if got := plan.Placements; len(got) > 0 && got[0].Replicas != in.Members[0].Desired {
			t.Fatalf("ordered %d, want %d at once", got[0].Replicas, in.Members[0].Desired)
		}
	})
}
