package probe

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Family is a family of addresses.
type Family uint8

// The families.
const (
	// FamilyAny is of targets that the proxy resolves, by whichever it likes.
	FamilyAny Family = iota
	// FamilyIPv4 is IPv4.
	FamilyIPv4
	// FamilyIPv6 is IPv6.
	FamilyIPv6
	families
)

func familyOf(addr netip.Addr) Family {
	if addr.Unmap().Is4() {
		return FamilyIPv4
	}
	return FamilyIPv6
}

const (
	// maxExits bounds what one proxy can report; a NAT shows a few. Beyond it the set stays as it is: throwing out one
	// for the next would make a change of every probe.
	maxExits = 16
	// exitAnswers is the least number of answers in its family that an address is missing from before it is forgotten. A
	// NAT that picks one of four by chance leaves one out for that long once in 300 times.
	exitAnswers = 20
)

// exits are the addresses that targets saw one proxy leave by.
type exits struct {
	seen map[netip.Addr]sighting
	// answers counts those of each family.
	answers [families]int
	sorted  []netip.Addr
}

// sighting is when an address was last seen, and what number of answer of its family that was.
type sighting struct {
	at     time.Time
	answer int
}

// recall takes over what was known before.
func (e *exits) recall(now time.Time, known []netip.Addr) {
	for _, addr := range known {
		if addr.IsValid() && len(e.seen) < maxExits {
			e.put(ExitOf(addr), sighting{at: now})
		}
	}
	e.sort()
}

// saw adds an address and forgets those of its family that have not been seen for a while. Of the other family nothing
// was learnt: a target that is down, which may be the only one of its family, changes no exit.
func (e *exits) saw(now time.Time, addr netip.Addr, memory time.Duration) {
	if !addr.IsValid() {
		return
	}
	addr = ExitOf(addr)
	family := familyOf(addr)
	e.answers[family]++
	count := e.answers[family]
	maps.DeleteFunc(e.seen, func(other netip.Addr, s sighting) bool {
		return other != addr && familyOf(other) == family && now.Sub(s.at) > memory && count-s.answer >= exitAnswers
	})
	if _, known := e.seen[addr]; known || len(e.seen) < maxExits {
		e.put(addr, sighting{at: now, answer: count})
	}
	e.sort()
}

func (e *exits) put(addr netip.Addr, s sighting) {
	if e.seen == nil {
		e.seen = make(map[netip.Addr]sighting)
	}
	e.seen[addr] = s
}

// sort makes the list anew where the set has changed. A list that was given away never changes.
func (e *exits) sort() {
	if len(e.sorted) == len(e.seen) && !slices.ContainsFunc(e.sorted, func(a netip.Addr) bool { _, ok := e.seen[a]; return !ok }) {
		return
	}
	e.sorted = slices.SortedFunc(maps.Keys(e.seen), netip.Addr.Compare)
}

// ExitOf returns the address by which an exit is known: an IPv4 address itself, of an IPv6 address the first of its
// /64, because a host there chooses freely within.
func ExitOf(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return addr
	}
	return netip.PrefixFrom(addr, 64).Masked().Addr()
}
