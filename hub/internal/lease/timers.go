package lease

import "time"

// nanos turns a time into the engine's own measure, nanoseconds since 1970;
// the zero time is 0.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// moment is the reverse of nanos.
func moment(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// timerKind says what happens when a timer is due. At the same instant lower
// kinds go first: a slot that was held back is free before a lease expires,
// in a live engine and in a replay alike.
type timerKind uint8

const (
	timerHold     timerKind = iota // a lease's held-back slots become free
	timerExpiry                    // a lease expires
	timerFleet                     // the first timer of a fleet is due
	timerCooldown                  // a cooldown ends, or is forgotten
	timerForget                    // an ended lease is forgotten
	timerSession                   // a session ends
	timerMember                    // a member may have gone stale
	timerPace                      // a pace lets the next lease begin, or is forgotten
	timerWait                      // a wait is over
	timerAge                       // an exclusive waiter may get a reservation
	timerGate                      // a guard or a grace ends for which somebody waits
)

// timer is the one pending moment of its owner.
type timer struct {
	owner any
	rank  uint64 // order among timers of one kind and instant
	place int    // position in its heap + 1; 0 is nowhere
	kind  timerKind
}

// timerHeap orders timers by instant, kind and rank.
type timerHeap struct {
	items []timerItem
}

type timerItem struct {
	at int64
	t  *timer
}

func (a timerItem) before(b timerItem) bool {
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.t.kind != b.t.kind:
		return a.t.kind < b.t.kind
	default:
		return a.t.rank < b.t.rank
	}
}

// first returns the earliest timer, or nil.
func (h *timerHeap) first() (*timer, int64) {
	if len(h.items) == 0 {
		return nil, 0
	}
	return h.items[0].t, h.items[0].at
}

// set adds the timer or moves it to another instant.
func (h *timerHeap) set(t *timer, at int64) {
	item := timerItem{at: at, t: t}
	if t.place == 0 {
		h.items = append(h.items, item)
		t.place = len(h.items)
		h.up(t.place - 1)
		return
	}
	i := t.place - 1
	h.items[i] = item
	h.down(i)
	h.up(t.place - 1)
}

// remove takes the timer out. It may be nowhere.
func (h *timerHeap) remove(t *timer) {
	if t.place == 0 {
		return
	}
	i, last := t.place-1, len(h.items)-1
	t.place = 0
	moved := h.items[last]
	h.items[last] = timerItem{}
	h.items = h.items[:last]
	if i == last {
		return
	}
	h.items[i] = moved
	moved.t.place = i + 1
	h.down(i)
	h.up(moved.t.place - 1)
}

func (h *timerHeap) up(i int) {
	item := h.items[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !item.before(h.items[parent]) {
			break
		}
		h.items[i] = h.items[parent]
		h.items[i].t.place = i + 1
		i = parent
	}
	h.items[i] = item
	item.t.place = i + 1
}

func (h *timerHeap) down(i int) {
	item := h.items[i]
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.items[right].before(h.items[child]) {
			child = right
		}
		if !h.items[child].before(item) {
			break
		}
		h.items[i] = h.items[child]
		h.items[i].t.place = i + 1
		i = child
	}
	h.items[i] = item
	item.t.place = i + 1
}
