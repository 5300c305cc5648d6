package lease

import "slices"

// maxViews bounds the views of a fleet. Where more targets cool at the same
// time, the least recently used view is dropped and made anew when needed.
const maxViews = 1024

// viewFor returns the view of a fleet for a target and a selector. Without a
// selector and without a cooldown for the target that is the plain view.
func (e *Engine) viewFor(f *fleet, wanted Target, selector *Selector, network Network) *view {
	return e.viewWith(f, wanted, selector.key(network), selector, network)
}

// viewWith is viewFor with the selector's key at hand.
func (e *Engine) viewWith(f *fleet, wanted Target, fits string, selector *Selector, network Network) *view {
	t := e.targets[wanted.key]
	key := viewKey{selector: fits}
	if t != nil {
		key.target = t.key
		if t.active == 0 && t.armed == 0 && f.byKey[key] == nil {
			t, key.target = nil, "" // nothing is passed over for it
		}
	}
	if t == nil && key.selector == "" {
		return f.plain()
	}
	v := f.byKey[key]
	if v == nil {
		v = e.newView(f, key, t, selector, network)
	}
	f.used++
	v.lastUsed = f.used
	return v
}

// newView makes a view that has passed nothing yet. With a selector it looks
// at each proxy once, else only at those that cool.
func (e *Engine) newView(f *fleet, key viewKey, t *target, selector *Selector, network Network) *view {
	if len(f.views) > maxViews {
		oldest := f.views[1]
		for _, v := range f.views[2:] {
			if v.lastUsed < oldest.lastUsed {
				oldest = v
			}
		}
		if oldest.target != nil {
			oldest.target.views = slices.DeleteFunc(oldest.target.views, func(v *view) bool { return v == oldest })
		}
		f.dropView(oldest)
	}
	v := &view{key: key, fleet: f, target: t, selector: *selector, network: network}
	v.resize(len(f.queues))
	if t != nil {
		t.views = append(t.views, v)
		for x, c := range t.cooldowns {
			if c.active && x.fleets[f] > 0 {
				v.exits++
			}
		}
	}
	f.views = append(f.views, v)
	f.byKey[key] = v
	if key.selector != "" {
		for _, p := range f.proxies {
			if p != nil {
				v.learn(p)
			}
		}
		return v
	}
	plain := f.plain()
	v.unmatched, v.matching, v.classes = slices.Clone(plain.unmatched), plain.matching, plain.classes
	for x, c := range t.cooldowns {
		if !c.active || x.fleets[f] == 0 {
			continue
		}
		for p := range x.proxies {
			if p.fleet == f && !v.cool.has(p.index) {
				v.weigh(p)
			}
		}
	}
	for x, c := range t.paces {
		if !c.armed || x.fleets[f] == 0 {
			continue
		}
		for p := range x.proxies {
			if p.fleet == f && !v.held(p.index) {
				v.weigh(p)
			}
		}
	}
	return v
}

// dropView forgets a view other than the plain one. Its target forgets it too.
func (f *fleet) dropView(dropped *view) {
	delete(f.byKey, dropped.key)
	f.views = slices.DeleteFunc(f.views, func(v *view) bool { return v == dropped })
}

// choose returns up to n leases' worth of proxies, least loaded first, then
// the one that has waited longest at its load. A proxy comes more than once
// only when all others have as many, or their exits bear no more leases for the
// target key at once. The slice is the fleet's own.
func (v *view) choose(n int, exclusive bool, t *target, key string) []*proxy {
	f := v.fleet
	chosen := f.candidate[:0]
	defer func() { f.candidate = chosen }()
	slots := f.slots()
	if exclusive {
		slots = min(1, slots)
	}
	if n == 1 {
		for load := range slots {
			if p := v.first(load); p != nil {
				chosen = append(chosen, p)
				break
			}
		}
		return chosen
	}
	f.batch.begin(f, t, key)
	// What is chosen at one load would wait at the end of the next one.
	for load, carried := 0, 0; load < slots && len(chosen) < n; load++ {
		before := len(chosen)
		chosen = v.take(chosen, load, n-before)
		for _, p := range chosen[before-carried : before] {
			if len(chosen) == n {
				break
			}
			if f.batch.affords(p) {
				chosen = append(chosen, p)
			}
		}
		carried = len(chosen) - before
	}
	return chosen
}

// maxProbes bounds the search for the first lease that matters to a refusal.
const maxProbes = 32

// firstFree returns the earliest moment at which a lease or a held-back slot
// that the filter accepts ends, or 0 if there is none. It looks at the
// earliest ones of the fleet only; where none of those is accepted, it returns
// the moment of the last one looked at, as a lower bound.
func (f *fleet) firstFree(accept func(*lease) bool) int64 {
	items := f.ends.items
	if len(items) == 0 {
		return 0
	}
	// Walk the heap from its top: a small heap of positions, earliest first.
	open := f.scratch[:0]
	defer func() { f.scratch = open[:0] }()
	(*marks)(&open).push(mark{key: items[0].at})
	last := int64(0)
	for probes := 0; len(open) > 0 && probes < maxProbes; probes++ {
		m := (*marks)(&open).pop()
		last = m.key
		if accept(items[m.proxy].t.owner.(*lease)) {
			return m.key
		}
		for child := 2*m.proxy + 1; child <= 2*m.proxy+2 && int(child) < len(items); child++ {
			(*marks)(&open).push(mark{key: items[child].at, proxy: child})
		}
	}
	if len(open) == 0 {
		return 0
	}
	return last
}
