package lease

import "fmt"

// Apply rebuilds state from one record of the journal. Records are applied in
// the order in which they were appended, before the first Step. An engine
// that was given all of them answers as the one that wrote them, but for what
// is volatile: which members were silent, and the counts of the guards. An
// error means that the journal is not one that this engine wrote.
func (e *Engine) Apply(rec Record) error {
	e.replayUntil(nanos(rec.When()))
	switch rec := rec.(type) {
	case *LeasesGranted:
		for _, l := range rec.Leases {
			if e.proxies[l.Proxy] == nil {
				return fmt.Errorf("lease: the journal grants %s on proxy %s, which it does not know", l.ID, l.Proxy)
			}
		}
	case *Extended:
		if e.leases[rec.ID] == nil {
			return fmt.Errorf("lease: the journal renews %s, which it never granted", rec.ID)
		}
	case *Finished:
		if e.leases[rec.ID] == nil {
			return fmt.Errorf("lease: the journal ends %s, which it never granted", rec.ID)
		}
	case *Kept:
		if rec.GoneProxy == nil && e.proxies[rec.Proxy] == nil {
			return fmt.Errorf("lease: the snapshot keeps %s on proxy %s, which it does not know", rec.ID, rec.Proxy)
		}
	case *ProxyPlaced:
		p := e.proxies[rec.UID]
		if p == nil {
			return fmt.Errorf("lease: the snapshot places proxy %s, which it does not know", rec.UID)
		}
		if rec.OnSite < 0 || rec.OnSite >= len(p.member.proxies) {
			return fmt.Errorf("lease: the snapshot places proxy %s at %d of %d proxies of its member", rec.UID, rec.OnSite, len(p.member.proxies))
		}
	}
	var notices Output
	e.apply(rec, &notices)
	return nil
}

// Replay applies records in order and stops at the first that cannot be.
func (e *Engine) Replay(records []Record) error {
	for _, rec := range records {
		if err := e.Apply(rec); err != nil {
			return err
		}
	}
	return nil
}

// apply makes a record true. It is the only place where durable state changes.
func (e *Engine) apply(rec Record, out *Output) {
	switch rec := rec.(type) {
	case *LeasesGranted:
		chosen := make([]*proxy, len(rec.Leases))
		for i := range rec.Leases {
			chosen[i] = e.proxies[rec.Leases[i].Proxy]
		}
		e.applyGranted(rec, chosen)
	case *Extended:
		l := e.leases[rec.ID]
		l.expires = nanos(rec.Expires)
		l.fleet.ends.set(&l.timer, l.expires)
		e.rearm(l.fleet)
	case *Finished:
		l := e.leases[rec.ID]
		e.finish(l, rec.State, nanos(rec.At), nanos(rec.HeldUntil))
		if rec.State == StateAbandoned {
			e.disown(l)
		}
	case *ExitCooled:
		e.applyCooled(rec)
	case *TargetPaused:
		f := e.fleetFor(rec.Fleet)
		f.paused[rec.Target] = nanos(rec.Until)
		e.armGate(f)
		if nanos(rec.Until) <= e.now { // lifted
			e.reviveAll(f)
		}
	case *TargetHalted:
		e.pauses[rec.Target] = Pause{Target: rec.Target, Since: rec.At, Until: rec.Until, Why: rec.Why}
	case *TargetResumed:
		delete(e.pauses, rec.Target)
	case *RevocationSet:
		e.applyRevocation(rec)
	case *RevocationLifted:
		delete(e.revocations, revocationKey{principal: rec.Principal, proxy: rec.Proxy})
	case *CooldownCleared:
		e.applyCleared(rec)
	case *ProxySet:
		e.applyProxy(rec, out)
	case *ProxyRemoved:
		e.applyProxyRemoved(rec, out)
	case *MemberSeen:
		m := e.memberFor(rec.ID)
		m.suspect = rec.Suspect
		m.journaled = max(m.journaled, nanos(rec.Seen))
		e.hear(m, nanos(rec.Seen))
		e.presence(m)
	case *FleetSet:
		e.applyFleet(rec)
	case *FleetRemoved:
		f := e.fleetFor(rec.ID)
		f.exists = false
		f.resize()
		e.dropFleet(f)
	case *PaceLearned:
		e.applyLearned(rec)
	case *SnapshotBegun:
		e.sequence = max(e.sequence, rec.Sequence)
	case *Kept:
		e.applyKept(rec)
	case *SessionKept:
		e.bindSession(sessionKey{principal: rec.Principal, fleet: rec.Fleet, key: rec.Key}, rec.Proxy, nanos(rec.Until))
	case *ProxyPlaced:
		e.applyPlaced(rec)
	}
}

// applyGranted makes leases live on the proxies that the record names. The
// list returned is overwritten by the next call.
func (e *Engine) applyGranted(r *LeasesGranted, proxies []*proxy) []*lease {
	f := e.fleetFor(r.Fleet)
	at := nanos(r.At)
	var req *request
	if r.RequestID != "" {
		key := requestKey{principal: r.Principal, fleet: r.Fleet, id: r.RequestID}
		req = &request{key: key, fingerprint: r.Fingerprint, remembered: len(r.Leases)}
		e.requests[key] = req
	}
	e.granted = e.granted[:0]
	for i := range r.Leases {
		granted, p := &r.Leases[i], proxies[i]
		l := &lease{
			id: granted.ID, token: granted.Token, principal: r.Principal, fleet: f, proxy: p, target: r.Target,
			session: r.SessionKey, network: r.Network, exclusive: r.Exclusive, slots: granted.Slots,
			ttl: r.TTL, granted: at, expires: nanos(r.Expires), lifetimeEnd: nanos(r.LifetimeEnd),
			change: p.change, request: req,
		}
		l.timer = timer{owner: l, kind: timerExpiry, rank: granted.Token.Sequence}
		e.sequence = max(e.sequence, granted.Token.Sequence)
		e.leases[l.id] = l
		e.granted = append(e.granted, l)
		p.leases = append(p.leases, l)
		p.lastUsed = at
		f.leased++
		f.taken += l.slots
		f.holders[l.principal]++
		f.ends.set(&l.timer, l.expires)
		f.occupy(p, l.slots, l.exclusive)
		e.paceGranted(l, at)
		if req != nil {
			req.leases = append(req.leases, l)
		}
	}
	e.rearm(f)
	if r.SessionKey != "" {
		key := sessionKey{principal: r.Principal, fleet: r.Fleet, key: r.SessionKey}
		e.bindSession(key, r.Leases[0].Proxy, nanos(r.SessionUntil))
	}
	return e.granted
}

func (e *Engine) applyFleet(r *FleetSet) {
	f := e.fleetFor(r.Fleet.ID)
	f.exists = true
	f.policy = r.Fleet.Policy
	f.setRules()
	f.created = nanos(r.Fleet.Created)
	started := nanos(e.opts.StartedAt)
	if !e.opts.HistoryComplete && started != 0 && f.created <= started {
		f.graceUntil = max(f.graceUntil, started+int64(f.policy.MaxTTL))
	}
	f.resize()
	e.repaceFleet(f)
	if f.room != nil { // bounds may have changed
		e.regroup(f.room.inOrder())
		e.armGate(f)
	}
}

func (e *Engine) applyProxy(r *ProxySet, out *Output) {
	p := e.proxies[r.Proxy.UID]
	if p == nil {
		e.applyNewProxy(r)
		return
	}
	f, was := p.fleet, p.known
	for _, v := range f.views {
		v.forget(p)
	}
	p.known = r.Proxy
	exits := p.change
	moved := e.setExits(p)
	p.class = p.classify()
	f.requeue(p)
	for _, v := range f.views {
		v.learn(p)
	}
	e.recount(moved)
	e.hear(p.member, nanos(r.Proxy.LastSeen))
	p.member.journaled = max(p.member.journaled, nanos(r.Proxy.LastSeen))
	f.countReady(was, -1)
	f.countReady(p.known, 1)
	f.offer(p)
	for _, l := range p.leases {
		if p.known.Draining && (!was.Draining || !was.DrainDeadline.Equal(p.known.DrainDeadline)) {
			out.Notices = append(out.Notices, Draining{Of: l.subject(), Deadline: p.known.DrainDeadline})
		}
		if p.change != exits { // each change is told once
			out.Notices = append(out.Notices, ExitsChanged{Of: l.subject(), Exits: p.list})
		}
	}
}

func (e *Engine) applyNewProxy(r *ProxySet) {
	f, m := e.fleetFor(r.Proxy.Fleet), e.memberFor(r.Proxy.Member)
	p := &proxy{known: r.Proxy, fleet: f, member: m, queued: notQueued}
	e.proxies[p.known.UID] = p
	e.hear(m, nanos(r.Proxy.LastSeen))
	m.journaled = max(m.journaled, nanos(r.Proxy.LastSeen))
	f.add(p)
	m.add(p)
	moved := e.setExits(p)
	p.class = p.classify()
	f.requeue(p)
	for _, v := range f.views {
		v.learn(p)
	}
	e.recount(moved)
	f.countReady(p.known, 1)
}

// setExits follows changed exits, and returns those that the proxy has got or
// lost.
func (e *Engine) setExits(p *proxy) []*exit {
	list := exitsOf(p.known.Exits)
	if sameExits(list, p.list) {
		return nil
	}
	var moved []*exit
	was := p.exits
	p.exits = make([]*exit, 0, len(list))
	for _, known := range list {
		x := e.exitFor(known)
		p.exits = append(p.exits, x)
		if _, has := x.proxies[p]; !has {
			e.attach(p, x)
			moved = append(moved, x)
		}
	}
	if p.list != nil {
		p.change++
	}
	p.list = list
	for _, x := range was {
		if !hasExit(p.exits, x) {
			e.detach(p, x)
			moved = append(moved, x)
		}
	}
	return moved
}

func (e *Engine) applyProxyRemoved(r *ProxyRemoved, out *Output) {
	p := e.proxies[r.UID]
	if p == nil {
		return
	}
	f, at := p.fleet, nanos(r.At)
	for len(p.leases) > 0 {
		l := p.leases[0]
		e.finish(l, StateRemoved, at, at)
		out.Notices = append(out.Notices, Ended{Of: l.subject(), State: StateRemoved, At: r.At})
	}
	if p.queued != notQueued {
		f.queues[p.queued].leave(p)
		p.queued = notQueued
	}
	for _, v := range f.views {
		v.forget(p)
	}
	p.class = down // a hold that ends later must not queue it again
	if p.index == f.reserved {
		f.unreserve()
	}
	f.countReady(p.known, -1)
	f.remove(p)
	p.member.remove(p)
	for _, x := range p.exits {
		e.detach(p, x)
	}
	p.exits = nil // late reports find them by address
	delete(e.proxies, r.UID)
	if len(p.member.proxies) == 0 && !p.member.suspect {
		e.timers.remove(&p.member.timer)
		delete(e.members, p.member.id)
	}
	e.dropFleet(f)
}

// countReady counts a proxy's description among the fleet's ready and
// draining ones.
func (f *fleet) countReady(p Proxy, by int) {
	switch {
	case p.Draining:
		f.draining += by
	case p.Ready:
		f.ready += by
	}
}

func hasExit(exits []*exit, x *exit) bool {
	for _, other := range exits {
		if other == x {
			return true
		}
	}
	return false
}

// sameExits compares exits without regard to their order.
func sameExits(a, b []Exit) bool {
	if len(a) != len(b) {
		return false
	}
next:
	for _, x := range a {
		for _, y := range b {
			if x == y {
				continue next
			}
		}
		return false
	}
	return true
}
