package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// simProxy is a proxy as it is on its member, whatever the hub knows of it.
type simProxy struct {
	Proxy
	// of is the placement it was made for.
	of int
}

// simSet is a member's copy of one placement and the proxies it made for it.
type simSet struct {
	applied Placement
	// of and version say which placement, and which write of it, was applied.
	of, version int
	proxies     map[ProxyName]*simProxy
}

// world is a hub, some naive members, and the delays between them: members see placements when they synchronize and the
// hub sees proxies when they report.
type world struct {
	t       *rapid.T
	now     time.Time
	in      Input
	written map[Key]Placement
	sets    map[Key]*simSet
	// uid and version number the placements of a key, and the writes.
	uid, version map[Key]int
	// reported is the hub's view of each member.
	reported map[MemberID][]simProxy
	// unconfirmed are the placements that were written and not reported upon.
	unconfirmed map[Key]bool
	// drains remembers, by UID, the earliest deadline ever written for a proxy.
	drains map[ProxyUID]time.Time
	next   int
	// quiet members have no accidents.
	quiet bool
}

func newWorld(t *rapid.T, members int) *world {
	w := &world{
		t: t, now: t0, written: map[Key]Placement{}, sets: map[Key]*simSet{},
		reported: map[MemberID][]simProxy{}, drains: map[ProxyUID]time.Time{},
		unconfirmed: map[Key]bool{}, uid: map[Key]int{}, version: map[Key]int{},
	}
	w.in = Input{Current: "r0", DrainTimeout: 30 * time.Second}
	for i := range members {
		w.in.Members = append(w.in.Members, Member{ID: MemberID(fmt.Sprintf("m%d", i))})
	}
	return w
}

func (w *world) drawDesired(most int32) {
	for i := range w.in.Members {
		w.in.Members[i].Desired = rapid.Int32Range(0, most).Draw(w.t, "desired")
	}
}

func (w *world) drawBudget() {
	w.in.Budget = Budget{
		MaxSurge:       rapid.Int32Range(0, 3).Draw(w.t, "surge"),
		MaxUnavailable: rapid.Int32Range(0, 2).Draw(w.t, "unavailable"),
	}
	if w.in.Budget == (Budget{}) {
		w.in.Budget.MaxUnavailable = 1
	}
}

// sync brings a member's copy up to date with what is written.
func (w *world) sync(id MemberID) {
	for key, p := range w.written {
		if key.Member != id {
			continue
		}
		// Another placement of the same name replaces what the last one made.
		if set := w.sets[key]; set == nil || set.of != w.uid[key] {
			w.sets[key] = &simSet{of: w.uid[key], proxies: map[ProxyName]*simProxy{}}
		}
		w.sets[key].applied, w.sets[key].version = p, w.version[key]
	}
	for key := range w.sets {
		if _, ok := w.written[key]; key.Member == id && !ok {
			delete(w.sets, key) // with the proxies, as a tombstone does
		}
	}
}

// act lets a member create up to n missing proxies and remove all overdue ones.
func (w *world) act(id MemberID, n int) {
	for _, key := range slices.SortedFunc(maps.Keys(w.sets), compareKeys) {
		set := w.sets[key]
		if key.Member != id {
			continue
		}
		draining := map[ProxyName]bool{}
		for _, d := range set.applied.Drain {
			draining[d.Name] = true
			if p := set.proxies[d.Name]; p != nil && !d.Deadline.After(w.now) {
				w.checkRemoval(p)
				delete(set.proxies, d.Name)
			}
		}
		staying := 0
		for name := range set.proxies {
			if !draining[name] {
				staying++
			}
		}
		for ordinal := 0; staying < int(set.applied.Replicas) && n > 0; ordinal++ {
			name := ProxyName(fmt.Sprintf("%s-%s-%d", key.Member, key.Revision, ordinal))
			if set.proxies[name] != nil || draining[name] {
				continue
			}
			w.next++
			set.proxies[name] = &simProxy{of: set.of, Proxy: Proxy{
				Name: name, UID: ProxyUID(fmt.Sprintf("uid-%05d", w.next)),
				Member: key.Member, Revision: key.Revision, CreatedAt: w.now,
			}}
			staying, n = staying+1, n-1
		}
	}
}

// checkRemoval holds that a member never removes a proxy before the hub's word.
func (w *world) checkRemoval(p *simProxy) {
	deadline, ok := w.drains[p.UID]
	if !ok {
		w.t.Fatalf("%s (%s) is removed but was never put on a drain list", p.Name, p.UID)
	}
	if deadline.After(w.now) {
		w.t.Fatalf("%s is removed %s before its deadline", p.Name, deadline.Sub(w.now))
	}
}

func (w *world) report(id MemberID) {
	var out []simProxy
	for _, key := range slices.SortedFunc(maps.Keys(w.sets), compareKeys) {
		if key.Member != id {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(w.sets[key].proxies)) {
			out = append(out, *w.sets[key].proxies[name])
		}
		if set := w.sets[key]; set.of == w.uid[key] && set.version == w.version[key] {
			delete(w.unconfirmed, key)
		}
	}
	w.reported[id] = out
}

// all lists the proxies that exist, in a fixed order.
func (w *world) all() []*simProxy {
	var out []*simProxy
	for _, set := range w.sets {
		for _, p := range set.proxies {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *simProxy) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// draining reports whether the hub has written that the proxy drains.
func (w *world) draining(p *simProxy) bool {
	for _, d := range w.written[Key{p.Member, p.Revision}].Drain {
		if d.Name == p.Name {
			return true
		}
	}
	return false
}

// observe is what the hub knows: proxies as reported, leases as they are, since the hub itself keeps them.
func (w *world) observe() Input {
	in := w.in
	in.Now = w.now
	for _, key := range slices.SortedFunc(maps.Keys(w.written), compareKeys) {
		in.Placements = append(in.Placements, w.written[key])
	}
	in.Unconfirmed = maps.Clone(w.unconfirmed)
	in.Proxies = nil
	live := map[ProxyUID]int{}
	for _, p := range w.all() {
		live[p.UID] = p.Leased
	}
	for _, m := range in.Members {
		for _, p := range w.reported[m.ID] {
			if p.of != w.uid[Key{p.Member, p.Revision}] {
				continue
			}
			p.Leased = live[p.UID]
			in.Proxies = append(in.Proxies, p.Proxy)
		}
	}
	return in
}

// step runs Step on what the hub knows, checks the plan and writes it down.
func (w *world) step() Plan {
	in := w.observe()
	plan := Step(in)
	checkPlan(w.t, in, plan)
	if again := Step(in); fmt.Sprint(again) != fmt.Sprint(plan) {
		w.t.Fatalf("the same input gave another plan:\n%v\n%v", plan, again)
	}
	uids := map[Key]map[ProxyName]ProxyUID{}
	for _, p := range in.Proxies {
		key := Key{p.Member, p.Revision}
		if uids[key] == nil {
			uids[key] = map[ProxyName]ProxyUID{}
		}
		uids[key][p.Name] = p.UID
	}
	for _, p := range plan.Placements {
		before, exists := w.written[p.Key]
		if !exists {
			w.next++
			w.uid[p.Key] = w.next
		}
		if !exists || !gocmp.Equal(before, p) {
			w.written[p.Key] = p
			w.version[p.Key]++
			w.unconfirmed[p.Key] = true
		}
		for _, d := range p.Drain {
			uid := uids[p.Key][d.Name]
			if before, ok := w.drains[uid]; !ok || d.Deadline.Before(before) {
				w.drains[uid] = d.Deadline
			}
		}
	}
	for _, key := range plan.Finished {
		delete(w.written, key)
	}
	return plan
}

// calm lets everything happen in order until nothing is left to do, and fails if that does not come to pass.
func (w *world) calm() {
	for range 400 {
		w.now = w.now.Add(10 * time.Second)
		plan := w.step()
		if plan.Done && len(plan.Drained) == 0 {
			return
		}
		for _, m := range w.in.Members {
			w.sync(m.ID)
			w.act(m.ID, 2)
			for _, p := range w.all() {
				if p.Member == m.ID {
					p.Ready, p.Failed, p.Terminating = true, false, false
				}
			}
			w.report(m.ID)
			w.checkBounds()
		}
	}
	w.t.Fatalf("does not converge:\nwanted %v of %s within %+v\nwritten %v\nhas %v",
		w.in.Members, w.in.Current, w.in.Budget, w.written, w.reported)
}

// checkBounds holds, while members are quiet, what users of the fleet see: never fewer ready than the floor, never more
// alive than the ceiling.
func (w *world) checkBounds() {
	if !w.quiet {
		return
	}
	var desired, ready, alive int32
	for _, m := range w.in.Members {
		desired += m.Desired
	}
	for _, p := range w.all() {
		if w.draining(p) {
			continue
		}
		alive++
		if p.Ready {
			ready++
		}
	}
	if ready < desired-w.in.Budget.MaxUnavailable {
		w.t.Fatalf("%d ready of %d desired, maxUnavailable %d", ready, desired, w.in.Budget.MaxUnavailable)
	}
	if alive > desired+w.in.Budget.MaxSurge {
		w.t.Fatalf("%d alive of %d desired, maxSurge %d", alive, desired, w.in.Budget.MaxSurge)
	}
}
