package lease

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// setFleet creates a fleet or changes its policy.
func (e *Engine) setFleet(cmd *SetFleet, out *Output) (Result, *Refusal) {
	namespace, name, ok := strings.Cut(string(cmd.Fleet.ID), "/")
	if !ok || namespace == "" || name == "" {
		return nil, invalid("fleet", quote("fleet", string(cmd.Fleet.ID))+" is not namespace/name; write one such as crawl/news")
	}
	known := cmd.Fleet
	policy, refusal := known.Policy.withDefaults()
	if refusal != nil {
		return nil, refusal
	}
	known.Policy = policy
	if f := e.fleets[known.ID]; f != nil && f.exists && f.policy.Same(&policy) && f.created == nanos(known.Created) {
		return Done{}, nil
	}
	e.commit(&FleetSet{At: moment(e.now), Fleet: known}, out)
	return Done{}, nil
}

// removeFleet forgets a fleet's policy.
func (e *Engine) removeFleet(cmd *RemoveFleet, out *Output) (Result, *Refusal) {
	if f := e.fleets[cmd.ID]; f != nil && f.exists {
		e.commit(&FleetRemoved{At: moment(e.now), ID: cmd.ID}, out)
		e.turnAway(f, func(*Acquire) bool { return true }, out)
	}
	return Done{}, nil
}

// upsertProxy adds a proxy or replaces what is known of it.
func (e *Engine) upsertProxy(cmd *UpsertProxy, out *Output) (Result, *Refusal) {
	known := cmd.Proxy
	switch {
	case known.UID == "":
		return nil, invalid("uid", "the proxy has no uid; write the uid of the Proxy object on its member")
	case known.Fleet == "":
		return nil, invalid("fleet", fmt.Sprintf("proxy %s has no fleet; write namespace/name", known.UID))
	case known.Member == "":
		return nil, invalid("member", fmt.Sprintf("proxy %s has no member; write the name of its MemberCluster", known.UID))
	}
	if known.LastSeen.IsZero() || nanos(known.LastSeen) > e.now {
		known.LastSeen = moment(e.now)
	}
	if known.Ready && known.LastReady.IsZero() {
		known.LastReady = known.LastSeen
	}
	if p := e.proxies[known.UID]; p != nil {
		if p.known.Fleet != known.Fleet || p.known.Member != known.Member {
			return nil, invalid("uid", fmt.Sprintf("proxy %s belongs to fleet %s on member %s and cannot become one of %s on %s; remove it first",
				known.UID, p.known.Fleet, p.known.Member, known.Fleet, known.Member))
		}
		if p.known.Draining { // one-way
			known.Draining = true
			if known.DrainDeadline.IsZero() {
				known.DrainDeadline = p.known.DrainDeadline
			}
		}
		if known.LastReady.IsZero() {
			known.LastReady = p.known.LastReady
		}
		if known.Same(&p.known) {
			p.known.LastSeen, p.known.LastReady = known.LastSeen, known.LastReady
			e.heard(p.member, nanos(known.LastSeen), out)
			return Done{}, nil
		}
	}
	e.commit(&ProxySet{At: moment(e.now), Proxy: known}, out)
	return Done{}, nil
}

// removeProxy ends a proxy's leases and forgets it.
func (e *Engine) removeProxy(cmd *RemoveProxy, out *Output) (Result, *Refusal) {
	if e.proxies[cmd.UID] != nil {
		e.commit(&ProxyRemoved{At: moment(e.now), UID: cmd.UID}, out)
	}
	return Done{}, nil
}

// drain stops granting a proxy's slots.
func (e *Engine) drain(cmd *Drain, out *Output) (Result, *Refusal) {
	p := e.proxies[cmd.UID]
	if p == nil {
		return Drained{}, nil
	}
	if !cmd.OnlyIdle || len(p.leases) == 0 || p.known.Draining {
		known := p.known
		known.Draining = true
		if !cmd.Deadline.IsZero() {
			known.DrainDeadline = cmd.Deadline
		}
		if !known.Same(&p.known) {
			e.commit(&ProxySet{At: moment(e.now), Proxy: known}, out)
		}
	}
	return Drained{Draining: p.known.Draining, Leases: len(p.leases), LastExpiry: moment(p.lastExpiry())}, nil
}

// setMember says whether a member is suspect.
func (e *Engine) setMember(cmd *SetMember, out *Output) (Result, *Refusal) {
	if cmd.ID == "" {
		return nil, invalid("member", "the member has no name; write the name of its MemberCluster")
	}
	m := e.members[cmd.ID]
	if m == nil && !cmd.Suspect || m != nil && m.suspect == cmd.Suspect {
		return Done{}, nil
	}
	seen := int64(0)
	if m != nil {
		seen = m.seen
	}
	e.commit(&MemberSeen{At: moment(e.now), ID: cmd.ID, Suspect: cmd.Suspect, Seen: moment(seen)}, out)
	return Done{}, nil
}

// touch notes that the hub has heard from a member.
func (e *Engine) touch(cmd *Touch, out *Output) (Result, *Refusal) {
	if cmd.ID == "" {
		return nil, invalid("member", "the member has no name; write the name of its MemberCluster")
	}
	m := e.members[cmd.ID]
	if m == nil {
		return Done{}, nil // none of its proxies is known
	}
	at := nanos(cmd.At)
	if at == 0 || at > e.now {
		at = e.now
	}
	e.heard(m, at, out)
	return Done{}, nil
}

// heard notes a word from a member, and makes it durable often enough that a
// restarted hub knows which members were fresh.
func (e *Engine) heard(m *member, at int64, out *Output) {
	if at-m.journaled >= int64(e.opts.Freshness)/2 {
		e.commit(&MemberSeen{At: moment(e.now), ID: m.id, Suspect: m.suspect, Seen: moment(at)}, out)
		return
	}
	e.hear(m, at)
}

// setReadOnly stops or resumes grants.
func (e *Engine) setReadOnly(cmd *SetReadOnly) (Result, *Refusal) {
	switch {
	case !cmd.On:
		e.readOnly = ""
		for _, id := range slices.Sorted(maps.Keys(e.fleets)) {
			e.reviveAll(e.fleets[id])
		}
	case cmd.Why == "":
		return nil, invalid("why", "why is empty; write what keeps the journal from taking grants")
	default:
		e.readOnly = cmd.Why
	}
	return Done{}, nil
}
