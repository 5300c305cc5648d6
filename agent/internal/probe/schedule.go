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
	// Interval is the time between two probes of a proxy whose state is settled, where the proxy has none of its own.
	Interval time.Duration
	// Hurried is the same for one whose state may be about to change; at most Interval. A proxy with an interval of its
	// own is hurried in the same proportion.
	Hurried time.Duration
	// Seed makes the jitter differ between agents; the same seed gives the same schedule.
	Seed uint64
}

// Schedule says which proxy is probed when. Settled proxies are spread evenly over their interval and keep their places,
// with a jitter of 5 % so that they never fall into step with something else. Those of another interval are spread over
// theirs, so that the whole is even too. It is not safe for concurrent use.
type Schedule struct {
	options ScheduleOptions
	entries map[UID]*entry
	groups  map[time.Duration]*group
	due     [lanes]dueHeap
	origin  time.Time // of the intervals; set by the first Put
	// nextFirst is when the next new proxy may have its first probe.
	nextFirst time.Time
}

// Lane is how probes queue up where there is not room for all: those of slow proxies by themselves.
type Lane int

// The lanes.
const (
	// LaneQuick is for proxies that answer in little time, or of which nothing is known.
	LaneQuick Lane = iota
	// LaneSlow is for proxies whose probes take long, most of them until a deadline.
	LaneSlow
	lanes
)

// group is the proxies of one interval.
type group struct {
	size  int
	added uint64 // all that ever were, since there last was none
}

type entry struct {
	uid      UID
	due      time.Time
	interval time.Duration
	place    time.Duration // within the interval
	rounds   uint64
	lane     Lane
	index    int // in the lane's heap; -1 while it is being probed
}

// NewSchedule returns an empty schedule, or an error if the times make no sense.
func NewSchedule(o ScheduleOptions) (*Schedule, error) {
	if o.Hurried <= 0 || o.Interval < o.Hurried {
		return nil, fmt.Errorf("probe schedule: the interval is %v and the hurried one %v; use positive times, the hurried one not longer", o.Interval, o.Hurried)
	}
	return &Schedule{options: o, entries: make(map[UID]*entry), groups: make(map[time.Duration]*group)}, nil
}

// firstSpacing keeps first probes apart: a single new proxy is probed at once, thousands after a restart are not
// probed all in one moment.
const firstSpacing = 2 * time.Millisecond

// hurriedMost bounds what is called a hurry: a new proxy that is probed every hour must not wait for minutes until
// somebody sees that it is up. The schedule's own Hurried may be longer.
const hurriedMost = 30 * time.Second

// golden is the fractional part of the golden ratio. Multiples of it, modulo one, fill the unit interval evenly at
// every count, which random places do not.
const golden = 0.6180339887498949

// Put adds a proxy, to be probed soon, or gives one that is there another interval, which counts from now on: a shorter
// one brings its next probe forward. An interval of zero or less is the schedule's own.
func (s *Schedule) Put(now time.Time, uid UID, interval time.Duration) {
	if interval <= 0 {
		interval = s.options.Interval
	}
	if s.origin.IsZero() {
		s.origin = now
	}
	if e, ok := s.entries[uid]; ok {
		s.move(now, e, interval)
		return
	}
	e := &entry{uid: uid, due: now}
	s.entries[uid] = e
	s.join(e, interval)
	if s.nextFirst.After(now) {
		e.due = s.nextFirst
	}
	s.nextFirst = e.due.Add(firstSpacing)
	heap.Push(&s.due[e.lane], e)
}

// join gives the proxy a place among those of an interval.
func (s *Schedule) join(e *entry, interval time.Duration) {
	g := s.groups[interval]
	if g == nil {
		g = &group{}
		s.groups[interval] = g
	}
	g.size++
	g.added++
	_, place := math.Modf(float64(g.added) * golden)
	e.interval, e.place = interval, time.Duration(place*float64(interval))
}

// leave takes the proxy's place away.
func (s *Schedule) leave(e *entry) {
	g := s.groups[e.interval]
	if g.size--; g.size == 0 {
		delete(s.groups, e.interval)
	}
}

// move gives the proxy another interval. One that is being probed finds its place when that is done.
func (s *Schedule) move(now time.Time, e *entry, interval time.Duration) {
	if e.interval == interval {
		return
	}
	s.leave(e)
	s.join(e, interval)
	if e.index < 0 {
		return
	}
	if next := s.nextPlace(now, e); next.Before(e.due) {
		e.due = next
		heap.Fix(&s.due[e.lane], e.index)
	}
}

// Remove takes a proxy out, also while it is being probed.
func (s *Schedule) Remove(uid UID) {
	e, ok := s.entries[uid]
	if !ok {
		return
	}
	delete(s.entries, uid)
	s.leave(e)
	if e.index >= 0 {
		heap.Remove(&s.due[e.lane], e.index)
	}
}

// Take returns the proxy of a lane that has been due longest and marks it as being probed; ok is false if none is due.
func (s *Schedule) Take(now time.Time, lane Lane) (uid UID, ok bool) {
	if at, waiting := s.Next(lane); !waiting || at.After(now) {
		return "", false
	}
	e := heap.Pop(&s.due[lane]).(*entry)
	return e.uid, true
}

// Next returns when the next proxy of a lane is due; ok is false if none is waiting.
func (s *Schedule) Next(lane Lane) (at time.Time, ok bool) {
	if len(s.due[lane]) == 0 {
		return time.Time{}, false
	}
	return s.due[lane][0].due, true
}

// Done puts a proxy that was taken back into a lane, to be probed soon or in its place of the next interval. It does
// nothing if the proxy was removed meanwhile.
func (s *Schedule) Done(now time.Time, uid UID, hurry bool, lane Lane) {
	e, ok := s.entries[uid]
	if !ok || e.index >= 0 {
		return
	}
	e.rounds++
	e.lane = lane
	jitter := s.jitter(e)
	if hurry {
		hurried := float64(s.hurried(e.interval))
		e.due = now.Add(time.Duration(hurried + jitter*hurried))
	} else {
		e.due = s.nextPlace(now, e).Add(time.Duration(jitter * float64(e.interval)))
	}
	heap.Push(&s.due[e.lane], e)
}

// hurried is the time between two probes of a proxy of this interval whose state may be about to change.
func (s *Schedule) hurried(interval time.Duration) time.Duration {
	share := float64(s.options.Hurried) / float64(s.options.Interval)
	return min(time.Duration(share*float64(interval)), max(s.options.Hurried, hurriedMost))
}

// nextPlace returns the time of the proxy's place at least half an interval ahead: after a hurried or late probe, its
// next place may be too close to be worth a probe.
func (s *Schedule) nextPlace(now time.Time, e *entry) time.Time {
	since := now.Add(e.interval / 2).Sub(s.origin.Add(e.place))
	rounds := int64(since / e.interval)
	if since > 0 && since%e.interval != 0 {
		rounds++
	}
	return s.origin.Add(e.place + e.interval*time.Duration(rounds))
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
