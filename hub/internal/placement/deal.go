package placement

// candidate is a member that takes part in a dealing.
type candidate struct {
	claim
	domain *domain
	// minimum is what the user asked for at least, limit the most the candidate may get; floor, the lesser of both, is
	// dealt before weights count.
	minimum, limit, floor int64
	// growth is how far it may grow, which is less than the limit when it has more than that already.
	growth int64
}

func (c *candidate) full() bool { return c.seats >= c.limit }

func (c *candidate) growing() bool { return c.seats < c.growth }

// beyond is how much the candidate already has above its minimum.
func (c *candidate) beyond() int64 { return max(c.have-c.floor, 0) }

// domain is a set of candidates that maxSkew, and Spread, count together. Its claim's seats and have are the sums of
// its members'.
type domain struct {
	claim
	// inside is the sum of its candidates' weights.
	inside int64
	open   queue[*candidate]
	// last is the candidate that got the domain's latest seat by weight.
	last   *candidate
	parked bool
	// growing counts its open candidates that could grow. At zero the domain may keep what it has and holds the others
	// back no longer.
	growing int
}

// dealing deals seats to candidates, one at a time, in an order that does not depend on how many there are to deal.
type dealing struct {
	strategy   Strategy
	maxSkew    int64
	candidates []*candidate
	domains    []*domain

	open queue[*domain]
	last *domain
	// level is the fewest seats any growing domain has; perLevel counts growing domains by seats; parked holds, by
	// seats, the domains that wait for the level to rise. All are unused without a maxSkew.
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
	// A claim of its own for each, because here the weight is the minimum: all of it, since the floor of a lost member
	// falls with what it has.
	type floor struct {
		claim
		of *candidate
	}
	q := queue[*floor]{before: func(a, b *floor) bool { return webster(&a.claim, &b.claim) }}
	for _, c := range d.candidates {
		if c.floor > 0 {
			f := &floor{claim: c.claim, of: c}
			f.weight = c.minimum
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
	claims, inDomain := d.orders()
	d.open.before = func(a, b *domain) bool {
		if d.strategy == Spread {
			return claims(&a.claim, &b.claim)
		}
		return inDomain(a.open.top(), b.open.top())
	}
	for _, dom := range d.domains {
		dom.open.before = inDomain
	}
	for _, c := range d.candidates {
		if c.weight > 0 && !c.full() {
			c.domain.open.push(c)
			if c.growing() {
				c.domain.growing++
			}
		}
	}
	d.perLevel, d.parked = map[int64]int{}, map[int64][]*domain{}
	for _, dom := range d.domains {
		if dom.growing > 0 {
			d.perLevel[dom.seats]++
		}
	}
	for seats := range d.perLevel {
		if d.perLevel[d.level] == 0 || seats < d.level {
			d.level = seats
		}
	}
	for _, dom := range d.domains {
		if !dom.open.empty() {
			d.enqueue(dom)
		}
	}
}

// orders returns how claims and how candidates are ordered.
//
// While domains wait for each other, who goes first among equals decides when somebody further on may go again. Were
// that to depend on who has what, a plan would not keep itself; so under a maxSkew it does not.
func (d *dealing) orders() (func(a, b *claim) bool, func(a, b *candidate) bool) {
	claims, fill := webster, packed
	if d.maxSkew > 0 {
		claims, fill = websterFixed, packedFixed
	}
	if d.strategy == Pack {
		return claims, fill
	}
	return claims, func(a, b *candidate) bool { return claims(&a.claim, &b.claim) }
}

// equalDomains reports whether all domains have the same weight under Spread. Then the next seat always goes to an
// emptiest one, which is all that any maxSkew can ask for.
func (d *dealing) equalDomains() bool {
	var weight int64
	for _, dom := range d.domains {
		if dom.weight > 0 && weight > 0 && dom.weight != weight {
			return false
		}
		weight = max(weight, dom.weight)
	}
	return d.strategy == Spread
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
	return d.maxSkew > 0 && len(d.perLevel) > 0 && dom.seats+1-d.level > d.maxSkew
}

// dealOne gives the next seat to the best candidate of the best domain.
func (d *dealing) dealOne() {
	dom := d.open.top()
	c := dom.open.top()
	grew, wasGrowing := c.growing(), dom.growing > 0
	c.seats++
	dom.seats++
	dom.last, d.last = c, dom
	if grew && !c.growing() {
		dom.growing--
	}
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
	// The domain is taken out first: raising the level may put others in, and the queue must be in order for that.
	d.open.pop()
	if dom.growing > 0 {
		d.perLevel[dom.seats]++
	}
	if wasGrowing {
		d.leaveLevel(dom.seats - 1)
	}
	if !dom.open.empty() {
		d.enqueue(dom)
	}
}

// leaveLevel notes that a growing domain no longer has that many seats, raises the level when it was the last one
// there, and calls back who waited for that.
func (d *dealing) leaveLevel(seats int64) {
	if d.perLevel[seats]--; d.perLevel[seats] == 0 {
		delete(d.perLevel, seats)
	}
	if len(d.perLevel) == 0 {
		// Nobody is left to wait for.
		for _, waiting := range d.parked {
			d.callBack(waiting)
		}
		clear(d.parked)
		return
	}
	for d.perLevel[d.level] == 0 {
		d.level++
		back := d.level + d.maxSkew - 1
		d.callBack(d.parked[back])
		delete(d.parked, back)
	}
}

func (d *dealing) callBack(waiting []*domain) {
	for _, dom := range waiting {
		dom.parked = false
		d.open.push(dom)
	}
}
