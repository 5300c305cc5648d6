package lease

import "iter"

// ranked is what ranks keep in order.
type ranked interface {
	comparable
	// rank is the thing's own. It changes only while the thing is in no ranks.
	rank() Ticket
	// at is where it notes its position.
	at() *int
}

// ranks is a heap of things by rank, the lowest first.
type ranks[T ranked] []T

func (h *ranks[T]) add(x T) {
	*h = append(*h, x)
	h.up(len(*h) - 1)
}

// remove takes out what is in the heap.
func (h *ranks[T]) remove(x T) {
	s := *h
	i, last := *x.at(), len(s)-1
	moved := s[last]
	var none T
	s[last] = none
	*h = s[:last]
	if i == last {
		return
	}
	(*h)[i] = moved
	*moved.at() = i
	h.down(i)
	h.up(*moved.at())
}

func (h *ranks[T]) up(i int) {
	s := *h
	x := s[i]
	for i > 0 {
		parent := (i - 1) / 2
		if s[parent].rank() <= x.rank() {
			break
		}
		s[i] = s[parent]
		*s[i].at() = i
		i = parent
	}
	s[i] = x
	*x.at() = i
}

func (h *ranks[T]) down(i int) {
	s := *h
	x := s[i]
	for {
		child := 2*i + 1
		if child >= len(s) {
			break
		}
		if right := child + 1; right < len(s) && s[right].rank() < s[child].rank() {
			child = right
		}
		if s[child].rank() >= x.rank() {
			break
		}
		s[i] = s[child]
		*s[i].at() = i
		i = child
	}
	s[i] = x
	*x.at() = i
}

// inOrder yields the things by rank. Each step costs as much as there were
// before it, by logarithm, whatever the size of the heap; the first is free.
func (h ranks[T]) inOrder() iter.Seq[T] {
	return func(yield func(T) bool) {
		if len(h) == 0 || !yield(h[0]) {
			return
		}
		var open marks
		children := func(i int) {
			for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
				open.push(mark{key: int64(h[child].rank()), proxy: int32(child)}) //nolint:gosec // bounded by DefaultMaxWaiters and 2^63 tickets
			}
		}
		children(0)
		for len(open) > 0 {
			m := open.pop()
			if !yield(h[m.proxy]) {
				return
			}
			children(int(m.proxy))
		}
	}
}
