package lease

import (
	"fmt"
	"maps"
	"slices"
)

// list pages through the proxies of a fleet.
func (e *Engine) list(cmd *List) (Result, *Refusal) {
	f := e.fleets[cmd.Fleet]
	if f == nil || !f.exists {
		return nil, unknownFleet(cmd.Fleet)
	}
	size := cmd.PageSize
	switch {
	case size < 0 || size > MaxPageSize:
		return nil, invalid("page_size", fmt.Sprintf("page_size is %d; leave it out for %d, or write 1 to %d", size, DefaultPageSize, MaxPageSize))
	case size == 0:
		size = DefaultPageSize
	case len(cmd.Selector.Labels) > MaxLabels:
		return nil, invalid("labels", fmt.Sprintf("the selector has %d labels; write at most %d", len(cmd.Selector.Labels), MaxLabels))
	}
	var page Page
	anything := cmd.Selector.IsZero() && cmd.Network == ""
	if len(cmd.Only) > 0 {
		for _, uid := range cmd.Only[:min(len(cmd.Only), MaxPageSize)] {
			if p := e.proxies[uid]; p != nil && p.fleet == f && (anything || cmd.Selector.matches(&p.known, cmd.Network)) {
				page.Proxies = append(page.Proxies, e.listed(p, cmd.Target))
			}
		}
		return page, nil
	}
	all := f.byUID()
	from, found := slices.BinarySearchFunc(all, cmd.After, func(p *proxy, after ProxyUID) int {
		switch {
		case p.known.UID < after:
			return -1
		case p.known.UID > after:
			return 1
		default:
			return 0
		}
	})
	if found {
		from++
	}
	for _, p := range all[from:] {
		if !anything && !cmd.Selector.matches(&p.known, cmd.Network) {
			continue
		}
		if len(page.Proxies) == size {
			page.Next = page.Proxies[size-1].Proxy.UID
			break
		}
		page.Proxies = append(page.Proxies, e.listed(p, f.keyed(cmd.Target)))
	}
	return page, nil
}

func (e *Engine) listed(p *proxy, wanted Target) Listed {
	listed := Listed{
		Proxy: p.known, Exits: p.list, Leases: len(p.leases), Slots: p.load,
		SlotsTotal: p.fleet.slots(), Usable: p.class == usable,
	}
	listed.Proxy.LastSeen = moment(max(nanos(p.known.LastSeen), p.member.seen))
	if until := e.targets[wanted.key].coolUntil(p); until != 0 {
		listed.CoolingFor = e.left(until)
	}
	return listed
}

// readStats counts what a fleet has.
func (e *Engine) readStats(cmd *ReadStats) (Result, *Refusal) {
	f := e.fleets[cmd.Fleet]
	if f == nil {
		return nil, unknownFleet(cmd.Fleet)
	}
	stats := Stats{
		Proxies: f.count, Ready: f.ready, Usable: f.plain().classes[usable], Draining: f.draining,
		Leases: f.leased, SlotsTaken: f.taken, SlotsHeld: f.held, SlotsTotal: f.ready * f.slots(),
		Exits: f.exits, CoolingExits: f.cooling,
	}
	if f.room != nil {
		stats.Waiting = f.room.waiters
	}
	if f.graceUntil > e.now {
		stats.GraceUntil = moment(f.graceUntil)
	}
	return stats, nil
}

// readUse tells how each proxy of a fleet is used.
func (e *Engine) readUse(cmd *ReadUse) (Result, *Refusal) {
	f := e.fleets[cmd.Fleet]
	if f == nil {
		return nil, unknownFleet(cmd.Fleet)
	}
	all := f.byUID()
	uses := make([]Use, 0, len(all))
	for _, p := range all {
		use := Use{
			UID: p.known.UID, Member: p.known.Member, Leases: len(p.leases), LastExpiry: moment(p.lastExpiry()),
			LastUsed: moment(p.lastUsed), Draining: p.known.Draining,
		}
		for _, x := range p.exits {
			use.CoolingTargets = max(use.CoolingTargets, x.active)
		}
		uses = append(uses, use)
	}
	return UseList{Proxies: uses}, nil
}

// readBusy tells which proxies are leased.
func (e *Engine) readBusy() (Result, *Refusal) {
	busy := Busy{Proxies: map[MemberID][]ProxyUID{}, Known: e.opts.HistoryComplete || len(e.fleets) > 0}
	for _, f := range e.fleets {
		if f.graceUntil > e.now {
			busy.Known = false
		}
	}
	for uid, p := range e.proxies {
		if p.load > 0 {
			busy.Proxies[p.known.Member] = append(busy.Proxies[p.known.Member], uid)
		}
	}
	for _, uids := range busy.Proxies {
		slices.Sort(uids)
	}
	return busy, nil
}

// readInventory tells what is known of fleets, members and proxies.
func (e *Engine) readInventory() (Result, *Refusal) {
	var known Inventory
	for _, id := range slices.Sorted(maps.Keys(e.fleets)) {
		if f := e.fleets[id]; f.exists {
			known.Fleets = append(known.Fleets, Fleet{ID: id, Created: moment(f.created), Policy: f.policy})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(e.members)) {
		m := e.members[id]
		known.Members = append(known.Members, Member{ID: id, Suspect: m.suspect, Seen: moment(m.seen)})
	}
	for _, uid := range slices.Sorted(maps.Keys(e.proxies)) {
		known.Proxies = append(known.Proxies, e.proxies[uid].known)
	}
	return known, nil
}
