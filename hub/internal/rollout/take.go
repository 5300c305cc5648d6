package rollout

import (
	"cmp"
	"slices"
	"time"
)

// rank is the order in which proxies go.
type rank int

const (
	rankFailed rank = iota
	rankPending
	rankNotReady
	rankIdle
	rankLeased
	ranks
)

func rankOf(p Proxy) rank {
	switch {
	case p.Failed:
		return rankFailed
	case p.Leased > 0:
		return rankLeased
	case !available(p):
		return rankNotReady
	}
	return rankIdle
}

// compareVictims orders the proxies of one rank: outdated ones first, then the cheapest to lose.
func (s *state) compareVictims(a, b Proxy) int {
	return cmp.Or(
		falseFirst(a.Revision == s.in.Current, b.Revision == s.in.Current),
		falseFirst(a.Leased > 0, b.Leased > 0),
		falseFirst(available(a), available(b)),
		cmp.Compare(a.Leased, b.Leased),
		cmp.Compare(b.Burned, a.Burned),
		a.CreatedAt.Compare(b.CreatedAt),
		cmp.Compare(a.UID, b.UID),
		cmp.Compare(a.Name, b.Name),
	)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// take puts on drain lists what has to go and may.
func (s *state) take() {
	for r := range ranks {
		if r == rankPending {
			s.callOff()
			continue
		}
		s.takeRank(r)
	}
	for _, m := range s.members {
		for _, c := range m.cells {
			s.held += s.surplus(m, c)
		}
	}
}

// surplus is how many proxies of the cell have to go.
func (s *state) surplus(m *share, c *cell) int {
	if c == m.current {
		return max(c.alive-m.desired, 0)
	}
	return c.alive
}

// callOff takes back orders that no member has reported anything for yet. Those of the current revision serve nobody;
// those of others are worth as much as a proxy that is not ready.
func (s *state) callOff() {
	for _, m := range s.members {
		for _, c := range m.cells {
			for n := min(c.pending(), s.surplus(m, c)); n > 0; n-- {
				if c != m.current && !s.mayTake(c, m, false) {
					break
				}
				s.remove(c, m, false)
			}
		}
	}
}

// takeRank takes proxies of one rank, each time from the member that is furthest above its share.
func (s *state) takeRank(r rank) {
	lists := make([][]Proxy, len(s.members))
	for i, m := range s.members {
		for _, c := range m.cells {
			if r == rankLeased && c == m.current {
				// Those without a lease go first, even those that must wait.
				c.reserve = c.unleased()
			}
			if s.spent(m, c) {
				continue
			}
			for _, p := range c.observed {
				if _, gone := c.draining[p.Name]; !gone && rankOf(p) == r {
					lists[i] = append(lists[i], p)
				}
			}
		}
		slices.SortFunc(lists[i], s.compareVictims)
	}
	for {
		best := -1
		for i, m := range s.members {
			if len(lists[i]) == 0 {
				continue
			}
			if best < 0 || m.alive-m.desired > s.members[best].alive-s.members[best].desired {
				best = i
			}
		}
		if best < 0 {
			return
		}
		m, p := s.members[best], lists[best][0]
		lists[best] = lists[best][1:]
		c := s.cells[Key{p.Member, p.Revision}]
		switch {
		case s.spent(m, c):
			// Enough of its placement has gone.
		case p.Failed || s.mayTake(c, m, available(p)):
			s.drain(c, m, p)
		case r == rankIdle:
			return // the floor is reached for all of them alike
		}
	}
}

// unleased counts the proxies that could go before a leased one.
func (c *cell) unleased() (n int) {
	for _, p := range c.observed {
		if _, gone := c.draining[p.Name]; !gone && p.Leased <= 0 {
			n++
		}
	}
	return n
}

// mayTake reports whether the floor allows one proxy of the cell to go.
//
// A proxy that is available goes while enough others are. One that is not matters only as what might yet become
// available. Of an old revision it goes while those that stay could make up the floor without counting on the new
// revision's untried ones; of the current revision, where what stays is as good as what goes, while there are enough of
// any kind.
func (s *state) mayTake(c *cell, m *share, isAvailable bool) bool {
	switch {
	case isAvailable:
		return s.available-1 >= s.floor
	case c == m.current:
		return s.alive-1 >= s.floor
	}
	return s.alive-s.waiting-1 >= s.floor
}

// spent reports whether no more of the cell has to go. What is reserved for others counts only while that keeps nobody
// waiting: a leased proxy that is not ready may not stop the whole fleet from moving.
func (s *state) spent(m *share, c *cell) bool {
	if s.missing > 0 && s.alive >= s.surge {
		return s.surplus(m, c) == 0
	}
	return s.surplus(m, c) <= c.reserve
}

func (s *state) drain(c *cell, m *share, p Proxy) {
	v := Victim{Proxy: p, Cause: Outdated, Deadline: s.in.Now}
	if c == m.current {
		v.Cause = ScaledDown
	}
	if p.Leased > 0 {
		v.Deadline = s.in.Now.Add(max(s.in.DrainTimeout, time.Duration(0)))
	}
	s.victims = append(s.victims, v)
	c.draining[p.Name] = v.Deadline
	s.remove(c, m, available(p))
}

// remove takes one proxy, or one order, out of all sums.
func (s *state) remove(c *cell, m *share, isAvailable bool) {
	c.alive--
	m.alive--
	s.alive--
	if isAvailable {
		c.fresh--
		s.available--
	} else if c == m.current {
		s.waiting--
	}
}
