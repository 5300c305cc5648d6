package lease

// A grant must cost the same in a fleet of a thousand proxies and of a
// hundred thousand, however many of them cool down for the target. Proxies
// that cool for a target are not leased for it, so they gather at the front
// of the queues, and a search from the front would pass them each time.
//
// So each combination of target and selector in use has a view of the fleet's
// queues: which proxies it passes over (cool, unmatched), and how far it has
// come in each queue. Proxies enter queues at the end, so what a view has
// passed over stays behind it, and it passes each entry once. What it passed
// and can be leased again (its cooldown has ended) is kept in returned, by
// its place in the queue, and goes first. Every change of a proxy's load thus
// costs each view at most one step, and a grant a constant on average.

// viewKey names a view within a fleet.
type viewKey struct {
	target   string
	selector string
}

// view is a reader of a fleet's queues for one target and selector.
type view struct {
	key      viewKey
	fleet    *fleet
	target   *target // nil for none
	selector Selector
	network  Network

	cool      bits // proxies with an exit that cools for the target
	unmatched bits // proxies that do not fit the selector
	cursors   []cursor
	returned  []marks // by load: proxies behind the cursor that are free again
	ends      marks   // cooldown ends of usable proxies, not all still true

	matching int          // proxies that fit
	classes  [classes]int // the same by class
	cooling  int          // usable ones that cool
	exits    int          // exits of the fleet that cool for the target
	lastUsed uint64       // for the choice of a view to drop
}

// cursor is how far a view has come in a queue: it has passed all entries
// with a lower sequence. Position is where that is in the present layout.
type cursor struct {
	seq      uint64
	position int
	layout   uint32
}

// blocked tells whether the view passes the proxy over.
func (v *view) blocked(i int32) bool {
	return v.cool.has(i) || v.unmatched.has(i) || i == v.fleet.reserved
}

// first returns the proxy at a load that has waited longest.
func (v *view) first(load int) *proxy {
	if p := v.firstReturned(load); p != nil {
		return p
	}
	if v.fleet.queues[load].live == 0 || !v.seek(load) {
		return nil
	}
	return v.fleet.proxies[v.fleet.queues[load].entries[v.cursors[load].position].proxy]
}

// firstReturned returns the first of the returned proxies at a load, and
// drops those that have moved on since.
func (v *view) firstReturned(load int) *proxy {
	h := &v.returned[load]
	for len(*h) > 0 {
		if p := v.waiting((*h)[0], load); p != nil {
			return p
		}
		h.pop()
	}
	return nil
}

// waiting returns the proxy of a mark if it is still where the mark says and
// can be leased.
func (v *view) waiting(m mark, load int) *proxy {
	p := v.fleet.proxies[m.proxy]
	if p == nil || p.queued != load || p.seq != uint64(m.key) || v.blocked(m.proxy) {
		return nil
	}
	return p
}

// take appends up to n distinct proxies at a load, in order. It looks beyond
// the first, so unlike first it may pass over the same entries again.
func (v *view) take(into []*proxy, load, n int) []*proxy {
	want := len(into) + n
	h := &v.returned[load]
	kept := len(v.fleet.scratch)
	for len(into) < want && v.firstReturned(load) != nil {
		m := h.pop()
		v.fleet.scratch = append(v.fleet.scratch, m)
		into = append(into, v.fleet.proxies[m.proxy])
		for len(*h) > 0 && (*h)[0] == m { // a proxy can be marked twice
			h.pop()
		}
	}
	for _, m := range v.fleet.scratch[kept:] {
		h.push(m)
	}
	v.fleet.scratch = v.fleet.scratch[:kept]
	if len(into) == want || !v.seek(load) {
		return into
	}
	q := &v.fleet.queues[load]
	for _, en := range q.entries[v.cursors[load].position:] {
		if en.proxy == gap || v.blocked(en.proxy) {
			continue
		}
		into = append(into, v.fleet.proxies[en.proxy])
		if len(into) == want {
			break
		}
	}
	return into
}

// seek moves the cursor to the first proxy ahead of it and tells whether
// there is one.
func (v *view) seek(load int) bool {
	q, c := &v.fleet.queues[load], &v.cursors[load]
	if c.layout != q.layout {
		c.position, c.layout = q.find(c.seq), q.layout
	}
	for c.position < len(q.entries) {
		en := q.entries[c.position]
		if en.proxy != gap && !v.blocked(en.proxy) {
			return true
		}
		c.position++
		c.seq = en.seq + 1
	}
	return false
}

// learn counts a proxy and finds out whether the view passes it over. It is
// called for each new proxy, and after forget for each changed one.
func (v *view) learn(p *proxy) {
	fits := v.selector.matches(&p.known, v.network)
	v.unmatched.put(p.index, !fits)
	if !fits {
		return
	}
	v.matching++
	v.classes[p.class]++
	v.setCool(p)
}

// forget takes a proxy out of all counts.
func (v *view) forget(p *proxy) {
	if v.unmatched.has(p.index) {
		v.unmatched.put(p.index, false)
		return
	}
	v.matching--
	v.classes[p.class]--
	if v.cool.has(p.index) {
		v.cool.put(p.index, false)
		if p.class == usable {
			v.cooling--
		}
	}
}

// reclass counts a proxy in another class.
func (v *view) reclass(p *proxy, to class) {
	if v.unmatched.has(p.index) {
		return
	}
	v.classes[p.class]--
	v.classes[to]++
	if !v.cool.has(p.index) {
		return
	}
	if p.class == usable {
		v.cooling--
	}
	if to == usable {
		v.cooling++
		v.markEnd(p, v.target.coolUntil(p))
	}
}

// setCool finds out anew whether a proxy that fits cools for the target.
func (v *view) setCool(p *proxy) {
	if v.unmatched.has(p.index) {
		return
	}
	until := v.target.coolUntil(p)
	was := v.cool.has(p.index)
	v.cool.put(p.index, until != 0)
	if p.class == usable && was != (until != 0) {
		if was {
			v.cooling--
		} else {
			v.cooling++
		}
	}
	if until == 0 {
		v.welcome(p)
		return
	}
	if p.class == usable {
		v.markEnd(p, until)
	}
}

// welcome makes sure that a proxy which is not passed over will be found,
// though the cursor may have passed it.
func (v *view) welcome(p *proxy) {
	if p.queued == notQueued || p.seq >= v.cursors[p.queued].seq {
		return
	}
	h := &v.returned[p.queued]
	if len(*h) > 2*len(v.fleet.queues[p.queued].entries)+64 {
		// Marks that are no longer true outnumber the proxies: start again.
		*h = (*h)[:0]
		v.cursors[p.queued] = cursor{layout: v.fleet.queues[p.queued].layout}
		return
	}
	h.push(mark{key: int64(p.seq), proxy: p.index})
}

// markEnd notes when a usable proxy's cooldown ends.
func (v *view) markEnd(p *proxy, until int64) {
	if len(v.ends) > 4*v.cooling+64 {
		v.ends = v.ends[:0]
		for _, other := range v.fleet.proxies {
			if other != nil && other.class == usable && v.cool.has(other.index) {
				v.ends.push(mark{key: v.target.coolUntil(other), proxy: other.index})
			}
		}
	}
	v.ends.push(mark{key: until, proxy: p.index})
}

// firstEnd returns when the first usable proxy stops cooling, or 0.
func (v *view) firstEnd() int64 {
	for len(v.ends) > 0 {
		m := v.ends[0]
		p := v.fleet.proxies[m.proxy]
		if p != nil && p.class == usable && v.cool.has(m.proxy) && v.target.coolUntil(p) == m.key {
			return m.key
		}
		v.ends.pop()
	}
	return 0
}

// resize follows the fleet's number of slots.
func (v *view) resize(slots int) {
	for len(v.cursors) < slots {
		v.cursors = append(v.cursors, cursor{})
		v.returned = append(v.returned, nil)
	}
}
