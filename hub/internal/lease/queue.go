package lease

import "slices"

// queue holds the proxies of one fleet that can be leased at one load, in the
// order in which they came to it: the one that has waited longest is first.
// Proxies come in at the end only and leave from anywhere. What leaves
// becomes a gap, so that the position of a reader in the queue stays true;
// gaps are closed when they are more than half, which costs each change a
// constant on average.
type queue struct {
	entries []entry
	live    int
	// layout changes when entries change their positions.
	layout uint32
}

// entry is one proxy's stay in a queue. Its sequence grows along the queue
// and is unique in the fleet.
type entry struct {
	seq   uint64
	proxy int32 // index in the fleet; gap if it left
}

const gap = -1

// push adds a proxy at the end.
func (q *queue) push(p *proxy, seq uint64, proxies []*proxy) {
	if len(q.entries) >= 64 && q.live < len(q.entries)/2 {
		q.close(proxies)
	}
	p.seq, p.position = seq, len(q.entries)
	q.entries = append(q.entries, entry{seq: seq, proxy: p.index})
	q.live++
}

// leave turns a proxy's entry into a gap.
func (q *queue) leave(p *proxy) {
	q.entries[p.position].proxy = gap
	q.live--
}

// close removes the gaps.
func (q *queue) close(proxies []*proxy) {
	kept := q.entries[:0]
	for _, en := range q.entries {
		if en.proxy == gap {
			continue
		}
		proxies[en.proxy].position = len(kept)
		kept = append(kept, en)
	}
	q.entries = kept
	q.layout++
}

// find returns the position of the first entry whose sequence is seq or more.
func (q *queue) find(seq uint64) int {
	position, _ := slices.BinarySearchFunc(q.entries, seq, func(en entry, seq uint64) int {
		switch {
		case en.seq < seq:
			return -1
		case en.seq > seq:
			return 1
		default:
			return 0
		}
	})
	return position
}

// bits is a set of small numbers that grows as needed.
type bits []uint64

func (b bits) has(i int32) bool {
	word := int(i >> 6)
	return word < len(b) && b[word]&(1<<(i&63)) != 0
}

func (b *bits) put(i int32, on bool) {
	word := int(i >> 6)
	for on && word >= len(*b) {
		*b = append(*b, 0)
	}
	switch {
	case on:
		(*b)[word] |= 1 << (i & 63)
	case word < len(*b):
		(*b)[word] &^= 1 << (i & 63)
	}
}

// mark is an ordered pair: of a queue's sequence or an instant, and a proxy.
type mark struct {
	key   int64
	proxy int32
}

// marks is a heap of marks, the least key first. Marks are not removed when
// they cease to be true: whoever reads the first one checks it.
type marks []mark

func (h *marks) push(m mark) {
	*h = append(*h, m)
	s := *h
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if s[parent].key <= m.key {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = m
}

func (h *marks) pop() mark {
	s := *h
	top, last := s[0], len(s)-1
	m := s[last]
	s = s[:last]
	*h = s
	if last == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= last {
			break
		}
		if right := child + 1; right < last && s[right].key < s[child].key {
			child = right
		}
		if s[child].key >= m.key {
			break
		}
		s[i] = s[child]
		i = child
	}
	s[i] = m
	return top
}
