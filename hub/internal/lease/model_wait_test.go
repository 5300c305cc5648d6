package lease

import (
	"slices"
	"time"

	"pgregory.net/rapid"
)

// The model's queue is a list in the order of arrival. Each time something
// happens it is walked from its head: the first whose wish can be granted is
// who must be granted next.

type modelWaiter struct {
	ticket   Ticket
	cmd      Acquire
	came     time.Time
	deadline time.Time
}

// hear notes records and answers as they came about, one after the other.
func (m *model) hear(out Output) {
	answers := out.Answers
	for _, rec := range out.Records {
		if granted, ok := rec.(*LeasesGranted); ok {
			for len(answers) > 0 && answers[0].Refusal != nil { // what it left went to the next one
				m.over(answers[0])
				answers = answers[1:]
			}
			if len(answers) == 0 { // it answers the command itself
				m.follow([]Record{rec})
				continue
			}
			if result, ok := answers[0].Result.(Granted); ok && result.Leases[0].ID == granted.Leases[0].ID {
				m.served(answers[0])
				answers = answers[1:]
			}
		}
		m.follow([]Record{rec})
		if len(out.Answers) > 0 { // a proxy may come to a load, and leave it again
			m.settle()
		}
	}
	for _, a := range answers {
		m.over(a)
	}
	if w := m.next(); w != nil {
		m.t.Fatalf("at %s, %+v could be served", m.now, w)
	}
	for _, w := range m.waiters {
		if !w.deadline.After(m.now) {
			m.t.Fatalf("at %s, %+v still waits", m.now, w)
		}
	}
	m.judgeReservation()
	m.holder, m.held = m.reservation()
}

// over checks that a wait that ended without a grant ended in time.
func (m *model) over(a Answer) {
	w := m.waiter(a.Ticket)
	if a.Refusal == nil || m.now.Before(w.deadline) {
		m.t.Fatalf("at %s, answer %+v to %+v", m.now, a, w)
	}
	m.waiters = slices.DeleteFunc(m.waiters, func(other *modelWaiter) bool { return other == w })
}

// served checks that a grant went to the first who could be served.
func (m *model) served(a Answer) {
	// The reservation may have changed since, or on the way.
	now, none := m.next(), m.first(0, "")
	want := m.first(m.holder, m.held)
	for _, other := range []*modelWaiter{now, none} {
		if other != nil && other.ticket == a.Ticket {
			want = other
		}
	}
	if want == nil || want.ticket != a.Ticket {
		m.t.Fatalf("at %s, ticket %d is served, want %+v of %+v", m.now, a.Ticket, want, m.waiters)
	}
	count, least := want.cmd.counts()
	if got := len(a.Result.(Granted).Leases); got < least || got > count {
		m.t.Fatalf("ticket %d got %d leases, want %d to %d", a.Ticket, got, least, count)
	}
	m.waiters = slices.DeleteFunc(m.waiters, func(w *modelWaiter) bool { return w == want })
}

func (m *model) waiter(ticket Ticket) *modelWaiter {
	for _, w := range m.waiters {
		if w.ticket == ticket {
			return w
		}
	}
	m.t.Fatalf("nobody waits with ticket %d", ticket)
	return nil
}

// reservation returns who has the fleet's reservation, and of which proxy.
func (m *model) reservation() (Ticket, ProxyUID) {
	r := m.engine.fleets[modelFleet].room
	if r == nil || r.held == nil {
		return 0, ""
	}
	return r.holder.ticket, r.held.known.UID
}

// judgeReservation checks that the reservation is of the oldest exclusive
// waiter that may have one.
func (m *model) judgeReservation() {
	ticket, uid := m.reservation()
	if uid == "" {
		return
	}
	for _, w := range m.waiters {
		_, least := w.cmd.counts()
		if !w.cmd.Exclusive || least > 1 || m.now.Before(w.came.Add(DefaultReserveAfter)) {
			continue
		}
		if w.ticket != ticket {
			m.t.Fatalf("%s is reserved for %d, want %d", uid, ticket, w.ticket)
		}
		return
	}
	m.t.Fatalf("%s is reserved for %d, which does not wait for long", uid, ticket)
}

// next returns the first waiter whose wish can be granted now, or nil.
func (m *model) next() *modelWaiter {
	return m.first(m.reservation())
}

// first is next with a proxy reserved for a waiter.
func (m *model) first(ticket Ticket, uid ProxyUID) *modelWaiter {
	for _, w := range m.waiters {
		room := 0
		for _, p := range m.proxies {
			load, exclusive := m.load(p)
			switch {
			case w.cmd.Selector.Region != "" && w.cmd.Selector.Region != p.Region, !m.usable(p), exclusive, load >= modelSlots,
				!m.coolUntil(p, w.cmd.Target).IsZero(), w.cmd.Exclusive && load > 0, p.UID == uid && ticket != w.ticket:
			case w.cmd.Exclusive:
				room++
			default:
				room += modelSlots - load
			}
		}
		if _, least := w.cmd.counts(); room >= least {
			return w
		}
	}
	return nil
}

// leave has somebody who waits hang up.
func (m *model) leave(t *rapid.T) {
	if len(m.waiters) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.waiters)-1).Draw(t, "waiter")
	ticket := m.waiters[i].ticket
	m.waiters = slices.Delete(m.waiters, i, i+1)
	m.must(Cancel{Ticket: ticket})
	m.settle()
}
