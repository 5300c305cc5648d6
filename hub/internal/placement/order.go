package placement

// queue is a binary heap with the best element first. It is written out rather than taken from container/heap because
// dealing spends its time here.
type queue[T any] struct {
	items  []T
	before func(a, b T) bool
}

func (q *queue[T]) push(x T) {
	q.items = append(q.items, x)
	i := len(q.items) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !q.before(q.items[i], q.items[parent]) {
			return
		}
		q.items[i], q.items[parent] = q.items[parent], q.items[i]
		i = parent
	}
}

// pop removes the best element.
func (q *queue[T]) pop() {
	last := len(q.items) - 1
	q.items[0] = q.items[last]
	var zero T
	q.items[last] = zero
	q.items = q.items[:last]
	q.sink()
}

// sink restores the order after the best element became worse.
func (q *queue[T]) sink() {
	i := 0
	for {
		child := 2*i + 1
		if child >= len(q.items) {
			return
		}
		if right := child + 1; right < len(q.items) && q.before(q.items[right], q.items[child]) {
			child = right
		}
		if !q.before(q.items[child], q.items[i]) {
			return
		}
		q.items[i], q.items[child] = q.items[child], q.items[i]
		i = child
	}
}

func (q *queue[T]) empty() bool { return len(q.items) == 0 }

// top returns the best element; the queue must not be empty.
func (q *queue[T]) top() T { return q.items[0] }

// claim is what a member or a domain brings to the dealing.
type claim struct {
	weight, seats, have int64
	// tie orders equals: a hash of the fleet and the claimant, then its name.
	tie  uint64
	name string
}

// compareNext compares the claims to the next seat by Webster's method: -1 if a comes before b, 0 if they are tied. The
// quotients are compared crosswise, so exactly; weights and seats are 32 bits wide, so nothing overflows.
func compareNext(a, b *claim) int {
	return compareQuotients(a.weight, a.seats, b.weight, b.seats)
}

func compareQuotients(wa, sa, wb, sb int64) int {
	l, r := uint64(wa)*uint64(2*sb+1), uint64(wb)*uint64(2*sa+1)
	switch {
	case l > r:
		return -1
	case l < r:
		return 1
	}
	return 0
}

// holdsNext reports whether the claimant already has the next seat.
func (c *claim) holdsNext() bool { return c.have > c.seats }

// heldLast reports whether the claimant already had the last seat it was dealt.
func (c *claim) heldLast() bool { return c.have >= c.seats }

// webster says whether a gets the next seat rather than b.
func webster(a, b *claim) bool {
	if c := compareNext(a, b); c != 0 {
		return c < 0
	}
	if a.holdsNext() != b.holdsNext() {
		return a.holdsNext()
	}
	return byTie(a, b)
}

// websterFixed is webster without regard to who has what.
func websterFixed(a, b *claim) bool {
	if c := compareNext(a, b); c != 0 {
		return c < 0
	}
	return byTie(a, b)
}

// packed says whether a is filled before b: the heavier, then who is full, then who has most beyond its minimum, then
// ties by UID. Full ones come before fuller ones because their limit may be low: were they to wait for a larger
// neighbour, the next plan would empty them into it. The order does not depend on seats, so it stays as it is while
// seats are dealt.
func packed(a, b *candidate) bool {
	if a.weight != b.weight {
		return a.weight > b.weight
	}
	if fa, fb := a.have >= a.limit, b.have >= b.limit; fa != fb {
		return fa
	} else if !fa && a.beyond() != b.beyond() {
		return a.beyond() > b.beyond()
	}
	return byTie(&a.claim, &b.claim)
}

// packedFixed is packed without regard to who has what.
func packedFixed(a, b *candidate) bool {
	if a.weight != b.weight {
		return a.weight > b.weight
	}
	return byTie(&a.claim, &b.claim)
}

func byTie(a, b *claim) bool {
	if a.tie != b.tie {
		return a.tie < b.tie
	}
	return a.name < b.name
}
