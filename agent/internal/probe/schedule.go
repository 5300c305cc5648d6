package probe

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"time"
)

// ScheduleOptions configures a [Schedule].
type ScheduleOptions struct {
	// Interval is the time between two probes of a proxy whose state is settled.
	Interval time.Duration
	// Hurried is the same for one whose state may be about to change; at most Interval.
	Hurried time.Duration
	// Seed makes the jitter differ between agents; the same seed gives the same schedule.
	Seed uint64
}

// Schedule says which proxy is probed when. Settled proxies are spread evenly over the interval and keep their places,
// with a jitter of 5 % so that they never fall into step with something else. It is not safe for concurrent use.
type Schedule struct {
	options ScheduleOptions
	entries map[UID]*entry
	due     dueHeap
	origin  time.Time // of the intervals; set by the first Add
	added   uint64
	// nextFirst is when the next new proxy may have its first probe.
	nextFirst time.Time
}

type entry struct {
	uid    UID
	due    time.Time
	place  time.Duration // within the interval
	rounds uint64
	index  int // in the heap; -1 while it is being probed
}

// NewSchedule returns an empty schedule, or an error if the times make no sense.
func NewSchedule(o ScheduleOptions) (*Schedule, error) {
	if o.Hurried <= 0 || o.Interval < o.Hurried {
		return nil, fmt.Errorf("probe schedule: the interval is %v and the hurried one %v; use positive times, the hurried one not longer", o.Interval, o.Hurried)
	}
	return &Schedule{options: o, entries: make(map[UID]*entry)}, nil
}

// firstSpacing keeps first probes apart: a single new proxy is probed at once, thousands after a restart are not
// probed all in one moment.
const firstSpacing = 2 * time.Millisecond

// golden is the fractional part of the golden ratio. Multiples of it, modulo one, fill the unit interval evenly at
// every count, which random places do not.
const golden = 0.6180339887498949

// Add puts a proxy into the schedule. It does nothing if it is there.
func (s *Schedule) Add(now time.Time, uid UID) {
	if _, ok := s.entries[uid]; ok {
		return
	}
	if s.origin.IsZero() {
		s.origin = now
	}
	s.added++
	_, place := math.Modf(float64(s.added) * golden)
	e := &entry{uid: uid, place: time.Duration(place * float64(s.options.Interval))}
	s.entries[uid] = e
	e.due = now
	if s.nextFirst.After(now) {
		e.due = s.nextFirst
	}
	s.nextFirst = e.due.Add(firstSpacing)
	heap.Push(&s.due, e)
}

// Remove takes a proxy out, also while it is being probed.
func (s *Schedule) Remove(uid UID) {
	e, ok := s.entries[uid]
	if !ok {
		return
	}
	delete(s.entries, uid)
	if e.index >= 0 {
		heap.Remove(&s.due, e.index)
	}
}

// Take returns the proxy that has been due longest and marks it as being probed; ok is false if none is due.
func (s *Schedule) Take(now time.Time) (uid UID, ok bool) {
	if len(s.due) == 0 || s.due[0].due.After(now) {
		return "", false
	}
	e := heap.Pop(&s.due).(*entry)
	return e.uid, true
}

// Next returns when the next proxy is due; ok is false if none is waiting.
func (s *Schedule) Next() (at time.Time, ok bool) {
	if len(s.due) == 0 {
		return time.Time{}, false
	}
	return s.due[0].due, true
}

// Done puts a proxy that was taken back, to be probed soon or in its place of the next interval. It does nothing if
// the proxy was removed meanwhile.
func (s *Schedule) Done(now time.Time, uid UID, hurry bool) {
	e, ok := s.entries[uid]
	if !ok || e.index >= 0 {
		return
	}
	e.rounds++
	jitter := s.jitter(e)
	if hurry {
		e.due = now.Add(s.options.Hurried + time.Duration(jitter*float64(s.options.Hurried)))
	} else {
		e.due = s.nextPlace(now, e).Add(time.Duration(jitter * float64(s.options.Interval)))
	}
	heap.Push(&s.due, e)
}

// nextPlace returns the time of the proxy's place at least half an interval ahead: after a hurried or late probe, its
// next place may be too close to be worth a probe.
func (s *Schedule) nextPlace(now time.Time, e *entry) time.Time {
	interval := s.options.Interval
	since := now.Add(interval / 2).Sub(s.origin.Add(e.place))
	rounds := since / interval
	if since > 0 && since%interval != 0 {
		rounds++
	}
	return s.origin.Add(e.place + rounds*interval)
}

// jitter returns a number in [-0.05, 0.05) that depends on seed, proxy and round only.
func (s *Schedule) jitter(e *entry) float64 {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], s.options.Seed)
	binary.BigEndian.PutUint64(b[8:], e.rounds)
	h := fnv.New64a()
	// Writing to a hash never fails.
	h.Write([]byte(e.uid))
	h.Write(b[:])
	// FNV mixes its low bits best.
	return (float64(h.Sum64()%(1<<20))/(1<<20) - 0.5) / 10
}

// dueHeap orders entries by due time, ties by UID, so that a schedule repeats exactly.
type dueHeap []*entry

func (h dueHeap) Len() int { return len(h) }

func (h dueHeap) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].uid < h[j].uid
	}
	return h[i].due.Before(h[j].due)
}

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *dueHeap) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *dueHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}
