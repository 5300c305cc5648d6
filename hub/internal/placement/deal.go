package placement

// candidate is a member that takes part in a dealing.
type candidate struct {
	claim
	domain *domain
	// floor is dealt before weights count, limit is the most it may get.
	floor, limit int64
}

func (c *candidate) full() bool { return c.seats >= c.limit }

// domain is a set of candidates that maxSkew, and Spread, count together. Its
// claim's seats and have are the sums of its members'.
type domain struct {
	claim
	// inside is the sum of its candidates' weights.
	inside int64
	open   queue[*candidate]
	// last is the candidate that got the domain's latest seat by weight.
	last   *candidate
	parked bool
}

// dealing deals seats to candidates, one at a time, in an order that does not
// depend on how many there are to deal.
type dealing struct {
	strategy   Strategy
	maxSkew    int64
	candidates []*candidate
	domains    []*domain

	open queue[*domain]
	last *domain
	// level is the fewest seats any open domain has; perLevel counts open
	// domains by seats; parked holds, by seats, those that wait for the level to
	// rise. All are unused without a maxSkew.
	level    int64
	perLevel map[int64]int
	parked   map[int64][]*domain
}

// run deals up to n seats and returns how many nobody could take.
func (d *dealing) run(n int64) int64 {
	n = d.dealFloors(n)
	d.begin()
	for ; n > 0 && !d.open.empty(); n-- {
		d.dealOne()
	}
	return n
}

// dealFloors deals the minimums in proportion to each other.
func (d *dealing) dealFloors(n int64) int64 {
	// A claim of its own for each, because here the weight is the minimum.
	type floor struct {
		claim
		of *candidate
	}
	q := queue[*floor]{before: func(a, b *floor) bool { return webster(&a.claim, &b.claim) }}
	for _, c := range d.candidates {
		if c.floor > 0 {
			f := &floor{claim: c.claim, of: c}
			f.weight = c.floor
			q.push(f)
		}
	}
	for ; n > 0 && !q.empty(); n-- {
		f := q.top()
		f.seats++
		f.of.seats++
		f.of.domain.seats++
		if f.seats >= f.of.floor {
			q.pop()
		} else {
			q.sink()
		}
	}
	return n
}

// begin sorts candidates and domains into their queues.
func (d *dealing) begin() {
	inDomain := func(a, b *candidate) bool { return webster(&a.claim, &b.claim) }
	if d.strategy == Pack {
		inDomain = func(a, b *candidate) bool { return packed(&a.claim, &b.claim) }
	}
	d.open.before = func(a, b *domain) bool {
		if d.strategy == Spread {
			return webster(&a.claim, &b.claim)
		}
		return inDomain(a.open.top(), b.open.top())
	}
	for _, dom := range d.domains {
		dom.open.before = inDomain
	}
	for _, c := range d.candidates {
		if c.weight > 0 && !c.full() {
			c.domain.open.push(c)
		}
	}
	d.perLevel, d.parked = map[int64]int{}, map[int64][]*domain{}
	d.level = -1
	for _, dom := range d.domains {
		if dom.open.empty() {
			continue
		}
		d.perLevel[dom.seats]++
		if d.level < 0 || dom.seats < d.level {
			d.level = dom.seats
		}
	}
	for _, dom := range d.domains {
		if !dom.open.empty() {
			d.enqueue(dom)
		}
	}
}

// enqueue lets a domain wait for its turn, or for the level to rise.
func (d *dealing) enqueue(dom *domain) {
	if d.ahead(dom) {
		dom.parked = true
		d.parked[dom.seats] = append(d.parked[dom.seats], dom)
		return
	}
	d.open.push(dom)
}

// ahead reports whether one more seat would put the domain beyond maxSkew.
func (d *dealing) ahead(dom *domain) bool {
	return d.maxSkew > 0 && dom.seats+1-d.level > d.maxSkew
}

// dealOne gives the next seat to the best candidate of the best domain.
func (d *dealing) dealOne() {
	dom := d.open.top()
	c := dom.open.top()
	c.seats++
	dom.seats++
	dom.last, d.last = c, dom
	if c.full() {
		dom.open.pop()
	} else {
		dom.open.sink()
	}
	if d.maxSkew <= 0 {
		if dom.open.empty() {
			d.open.pop()
		} else {
			d.open.sink()
		}
		return
	}
	// The domain is taken out first: raising the level may put others in, and
	// the queue must be in order for that.
	d.open.pop()
	if !dom.open.empty() {
		d.perLevel[dom.seats]++
	}
	d.leaveLevel(dom.seats - 1)
	if !dom.open.empty() {
		d.enqueue(dom)
	}
}

// leaveLevel notes that a domain no longer has that many seats, raises the
// level when it was the last one there, and calls back who waited for that.
func (d *dealing) leaveLevel(seats int64) {
	if d.perLevel[seats]--; d.perLevel[seats] == 0 {
		delete(d.perLevel, seats)
	}
	for d.perLevel[d.level] == 0 && len(d.perLevel) > 0 {
		d.level++
		back := d.level + d.maxSkew - 1
		for _, dom := range d.parked[back] {
			dom.parked = false
			d.open.push(dom)
		}
		delete(d.parked, back)
	}
}
