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
	paced     bits // others with an exit whose pace for the target is used up
	unmatched bits // proxies that do not fit the selector
	cursors   []cursor
	returned  []marks // by load: proxies behind the cursor that are free again
	ends      marks   // cooldown ends of usable proxies, not all still true

	matching int          // proxies that fit
	classes  [classes]int // the same by class
	cooling  int          // usable ones that cool
	pacing   int          // usable ones that wait for their exits' pace
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
	return v.cool.has(i) || v.paced.has(i) || v.unmatched.has(i) || i == v.fleet.reserved
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
		if p := v.fleet.proxies[m.proxy]; v.fleet.batch.affords(p) {
			into = append(into, p)
		}
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
		if p := v.fleet.proxies[en.proxy]; v.fleet.batch.affords(p) {
			into = append(into, p)
		}
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
	v.weigh(p)
}

// forget takes a proxy out of all counts.
func (v *view) forget(p *proxy) {
	if v.unmatched.has(p.index) {
		v.unmatched.put(p.index, false)
		return
	}
	v.matching--
	v.classes[p.class]--
	v.hold(p, false, false)
}

// reclass counts a proxy in another class.
func (v *view) reclass(p *proxy, to class) {
	if v.unmatched.has(p.index) {
		return
	}
	v.classes[p.class]--
	v.classes[to]++
	cool, paced := v.cool.has(p.index), v.paced.has(p.index)
	if !cool && !paced {
		return
	}
	if p.class == usable {
		v.countHeld(cool, paced, -1)
	}
	if to == usable {
		v.countHeld(cool, paced, 1)
		v.markEnd(p, v.opens(p))
	}
}

// opens returns when a proxy that fits can be leased for the target again, as
// far as its exits go: 0 for now, and never where only the end of a lease can
// tell.
func (v *view) opens(p *proxy) int64 {
	return max(v.target.coolUntil(p), v.target.paceOpens(p))
}

// weigh finds out anew whether a proxy that fits can be leased for the target.
func (v *view) weigh(p *proxy) {
	if v.unmatched.has(p.index) {
		return
	}
	cool, pace := v.target.coolUntil(p), v.target.paceOpens(p)
	v.hold(p, cool != 0, cool == 0 && pace != 0)
	switch {
	case cool == 0 && pace == 0:
		v.welcome(p)
	case p.class == usable:
		v.markEnd(p, max(cool, pace))
	}
}

// hold notes whether a proxy is passed over, and counts it if it is usable.
func (v *view) hold(p *proxy, cool, paced bool) {
	wasCool, wasPaced := v.cool.has(p.index), v.paced.has(p.index)
	if cool == wasCool && paced == wasPaced {
		return
	}
	v.cool.put(p.index, cool)
	v.paced.put(p.index, paced)
	if p.class == usable {
		v.countHeld(wasCool, wasPaced, -1)
		v.countHeld(cool, paced, 1)
	}
}

func (v *view) countHeld(cool, paced bool, by int) {
	switch {
	case cool:
		v.cooling += by
	case paced:
		v.pacing += by
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

// markEnd notes when a usable proxy can be leased again.
func (v *view) markEnd(p *proxy, until int64) {
	if until == never {
		return
	}
	if len(v.ends) > 4*(v.cooling+v.pacing)+64 {
		v.ends = v.ends[:0]
		for _, other := range v.fleet.proxies {
			if other == nil || other == p || other.class != usable || !v.held(other.index) {
				continue
			}
			if at := v.opens(other); at != never {
				v.ends.push(mark{key: at, proxy: other.index})
			}
		}
	}
	v.ends.push(mark{key: until, proxy: p.index})
}

// held tells whether the proxy's exits keep it from being leased.
func (v *view) held(i int32) bool { return v.cool.has(i) || v.paced.has(i) }

// firstEnd returns when the first usable proxy can be leased again, as far as
// time alone decides, or 0.
func (v *view) firstEnd() int64 {
	for len(v.ends) > 0 {
		m := v.ends[0]
		p := v.fleet.proxies[m.proxy]
		if p != nil && p.class == usable && v.held(m.proxy) && v.opens(p) == m.key {
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
