package rollout

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// cell is one placement on its way from what is written to what should be.
type cell struct {
	key     Key
	written bool
	frozen  bool
	before  Placement
	// draining are the entries of the new drain list.
	draining map[ProxyName]time.Time
	// observed are the reported proxies that count: neither on the drain list nor on their way out for other reasons.
	observed []Proxy
	// reported is how many proxies the member reported in all.
	reported int
	// alive is how many proxies are to exist without those that drain. It begins as what was ordered or, if more are
	// there, as what was reported.
	alive int
	// fresh is how many of observed are available.
	fresh int
	// reserve is how many of what has to go must be others than the leased ones.
	reserve int
}

// pending is how many proxies were ordered and not reported yet.
func (c *cell) pending() int { return max(c.alive-len(c.observed), 0) }

// share is one member's account over all its revisions.
type share struct {
	id      MemberID
	desired int
	alive   int
	cells   []*cell
	current *cell
}

// state is one run of Step.
type state struct {
	in      Input
	cells   map[Key]*cell
	members []*share
	// The sums are over members that are not frozen, over all revisions.
	desired, alive, available int
	// waiting is how many of the current revision's alive are not available.
	waiting int
	// missing is how many proxies of the current revision are yet to be ordered.
	missing int
	surge   int
	floor   int
	counts  Counts
	victims []Victim
	held    int
	ordered int
}

func newState(in Input) *state {
	s := &state{in: in, cells: map[Key]*cell{}}
	for _, p := range in.Placements {
		c := s.cell(p.Key)
		c.before, c.written = p, true
	}
	for _, p := range in.Proxies {
		// Without a placement the member is about to remove it.
		if c := s.cells[Key{p.Member, p.Revision}]; c != nil {
			c.reported++
			c.observed = append(c.observed, p)
		}
	}
	byID := map[MemberID]*share{}
	frozen := map[MemberID]bool{}
	for _, m := range in.Members {
		frozen[m.ID] = m.Frozen
		if !m.Frozen {
			byID[m.ID] = &share{id: m.ID, desired: int(max(m.Desired, 0))}
			s.cell(Key{m.ID, in.Current})
		}
	}
	for key, c := range s.cells {
		if c.frozen = frozen[key.Member]; c.frozen {
			continue
		}
		if byID[key.Member] == nil {
			byID[key.Member] = &share{id: key.Member}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.cells), compareKeys) {
		if c := s.cells[key]; !c.frozen {
			m := byID[key.Member]
			m.cells = append(m.cells, c)
			if key.Revision == in.Current {
				m.current = c
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		s.members = append(s.members, byID[id])
	}
	return s
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Member, b.Member), cmp.Compare(a.Revision, b.Revision))
}

func (s *state) cell(key Key) *cell {
	c := s.cells[key]
	if c == nil {
		c = &cell{key: key, before: Placement{Key: key}, draining: map[ProxyName]time.Time{}}
		s.cells[key] = c
	}
	return c
}

// keepDraining carries the drain lists over, brings the deadlines of proxies forward whose leases ended, and sums up
// what is left.
func (s *state) keepDraining() {
	for _, m := range s.members {
		for _, c := range m.cells {
			s.settle(c)
			m.alive += c.alive
			s.alive += c.alive
			s.available += c.fresh
			if c == m.current {
				s.waiting += c.alive - c.fresh
				s.counts.Updated += int32(c.alive)
				s.counts.UpdatedAvailable += int32(c.fresh)
			}
		}
		s.desired += m.desired
		if m.current != nil {
			s.missing += max(m.desired-m.current.alive, 0)
		}
	}
	s.floor = max(s.desired-int(max(s.in.Budget.MaxUnavailable, 0)), 0)
	s.surge = s.desired + int(max(s.in.Budget.MaxSurge, 0))
	s.counts.Desired = int32(s.desired)
	s.counts.Alive, s.counts.Available = int32(s.alive), int32(s.available)
}

func (s *state) settle(c *cell) {
	deadlines := map[ProxyName]time.Time{}
	for _, d := range c.before.Drain {
		deadlines[d.Name] = d.Deadline
	}
	stay := make([]Proxy, 0, len(c.observed))
	for _, p := range c.observed {
		deadline, drains := deadlines[p.Name]
		switch {
		case drains:
			if p.Leased <= 0 && deadline.After(s.in.Now) {
				deadline = s.in.Now
			}
			c.draining[p.Name] = deadline
		case !p.Terminating:
			stay = append(stay, p)
			if available(p) {
				c.fresh++
			}
		}
	}
	c.observed = stay
	c.alive = max(int(c.before.Replicas), len(stay), 0)
}

func available(p Proxy) bool { return p.Ready && !p.Failed && !p.Terminating }

// order asks for the current revision's missing proxies, as far as the surge allows, first where most are missing.
func (s *state) order() {
	for ; s.missing > 0 && s.alive < s.surge; s.missing-- {
		var to *share
		for _, m := range s.members {
			if m.current == nil || m.current.alive >= m.desired {
				continue
			}
			if to == nil || m.alive-m.desired < to.alive-to.desired {
				to = m
			}
		}
		to.current.alive++
		to.alive++
		s.alive++
		s.ordered++
	}
}

// plan writes the outcome down.
func (s *state) plan() Plan {
	p := Plan{
		Drained: s.victims, Held: int32(s.held), Ordered: int32(s.ordered), Short: int32(s.missing),
		Counts: s.counts,
	}
	done := s.held == 0 && s.missing == 0 && s.ordered == 0
	for _, key := range slices.SortedFunc(maps.Keys(s.cells), compareKeys) {
		c := s.cells[key]
		if c.frozen {
			if c.written {
				p.Placements = append(p.Placements, c.before)
			}
			continue
		}
		after := c.after()
		if after.Replicas == 0 && len(after.Drain) == 0 && c.reported == 0 && !s.in.Unconfirmed[key] {
			if c.written {
				p.Finished = append(p.Finished, key)
			}
			continue
		}
		p.Placements = append(p.Placements, after)
		done = done && key.Revision == s.in.Current
		p.Counts.Draining += int32(len(after.Drain))
		for _, d := range after.Drain {
			if d.Deadline.After(s.in.Now) && (p.NextDeadline.IsZero() || d.Deadline.Before(p.NextDeadline)) {
				p.NextDeadline = d.Deadline
			}
		}
	}
	// Stable, so that the rest stays sorted by key.
	slices.SortStableFunc(p.Placements, func(a, b Placement) int {
		return cmp.Compare(s.rank(a), s.rank(b))
	})
	p.Done = done && p.Counts.Draining == 0 && s.counts.Alive == s.counts.Desired &&
		s.counts.UpdatedAvailable == s.counts.Desired
	return p
}

// rank puts placements that shrink before the others.
func (s *state) rank(p Placement) int {
	if p.Replicas < s.cells[p.Key].before.Replicas {
		return 0
	}
	return 1
}

func (c *cell) after() Placement {
	p := Placement{Key: c.key, Replicas: int32(c.alive)}
	for _, name := range slices.Sorted(maps.Keys(c.draining)) {
		p.Drain = append(p.Drain, Drain{Name: name, Deadline: c.draining[name]})
	}
	return p
}
