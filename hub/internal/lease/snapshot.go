package lease

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// SnapshotBegun is the first record of a snapshot: see [Engine.Snapshot].
type SnapshotBegun struct {
	At time.Time
	// Sequence is that of the last token granted.
	Sequence uint64
}

// Kept is one lease of a snapshot, as it is and not as it came about.
type Kept struct {
	At          time.Time
	ID          ID
	Token       FencingToken
	Principal   Principal
	Fleet       FleetID
	Proxy       ProxyUID
	Target      Target
	Network     Network
	Exclusive   bool
	Slots       int
	TTL         time.Duration
	Granted     time.Time
	Expires     time.Time // when it ended, if it has
	LifetimeEnd time.Time
	State       State
	// HeldUntil is set while an ended lease holds its slots back.
	HeldUntil time.Time
	// ExitsChanged says that the proxy's exits are not those of the grant.
	ExitsChanged bool
	SessionKey   string
	// RequestID and Fingerprint are of the Acquire, if it had an id.
	RequestID   RequestID
	Fingerprint [32]byte
	// Forgotten leases are known to a repeated Acquire only.
	Forgotten bool
	// GoneProxy describes the proxy if it has been removed, and GoneFleet the
	// fleet's policy likewise. Nil otherwise.
	GoneProxy *Proxy
	GoneFleet *Policy
}

// SessionKept is one session of a snapshot.
type SessionKept struct {
	At        time.Time
	Principal Principal
	Fleet     FleetID
	Key       string
	Proxy     ProxyUID
	Until     time.Time
}

// ProxyPlaced gives a proxy of a snapshot its place: behind those placed
// before it at the same load.
type ProxyPlaced struct {
	At       time.Time
	UID      ProxyUID
	LastUsed time.Time
	// OnSite is its place among its member's proxies: in that order they join
	// the queues when the member comes back.
	OnSite int
}

// When implements [Record].
func (r *SnapshotBegun) When() time.Time { return r.At }

// When implements [Record].
func (r *Kept) When() time.Time { return r.At }

// When implements [Record].
func (r *SessionKept) When() time.Time { return r.At }

// When implements [Record].
func (r *ProxyPlaced) When() time.Time { return r.At }

// Snapshot writes down the engine's durable state as records. An engine that
// was given them, and then all records that this one makes from now on,
// answers as this one does; what is volatile is the same as at
// [Engine.Apply]. So a journal may drop everything older. Time must have
// passed in the engine (Step or Tick), and what is due by now must be done.
//
// It looks at everything that the engine knows, once. The records are the
// caller's.
func (e *Engine) Snapshot() []Record {
	records := make([]Record, 0, 1+len(e.fleets)+len(e.members)+2*len(e.proxies)+len(e.leases)+len(e.sessions))
	_ = e.SnapshotTo(func(rec Record) error { // which fails if emit does
		records = append(records, rec)
		return nil
	})
	return records
}

// Blank makes an engine of the same options that knows nothing.
func (e *Engine) Blank() *Engine { return New(e.opts) }

// Expect makes room for so many leases in an engine that knows none yet: a
// replay that knows what comes need not make room again and again.
func (e *Engine) Expect(leases int) {
	if len(e.leases) == 0 && len(e.requests) == 0 {
		e.leases = make(map[ID]*lease, leases)
		e.requests = make(map[requestKey]*request, leases)
	}
}

// SnapshotTo is [Engine.Snapshot], one record at a time. It stops at the first
// error of emit and returns it.
func (e *Engine) SnapshotTo(emit func(Record) error) error {
	at := moment(e.now)
	w := snapshot{emit: emit}
	w.add(&SnapshotBegun{At: at, Sequence: e.sequence})
	for _, r := range e.standing() {
		w.add(&RevocationSet{At: r.Since, Principal: r.Principal, Proxy: r.Proxy, Until: r.Until, Why: r.Why})
	}
	for _, p := range e.pausesNow() {
		w.add(&TargetHalted{At: p.Since, Target: p.Target, Until: p.Until, Why: p.Why})
	}
	fleets := slices.Sorted(maps.Keys(e.fleets))
	for _, id := range fleets {
		w.add(e.fleets[id].keep(at))
	}
	for _, id := range slices.Sorted(maps.Keys(e.members)) {
		m := e.members[id]
		w.add(&MemberSeen{At: at, ID: id, Suspect: m.suspect, Seen: moment(m.seen)})
	}
	proxies := slices.SortedFunc(maps.Values(e.proxies), func(a, b *proxy) int {
		return cmp.Or(cmp.Compare(a.fleet.id, b.fleet.id), cmp.Compare(a.index, b.index))
	})
	for _, p := range proxies {
		w.add(&ProxySet{At: at, Proxy: p.known})
	}
	e.keepCooldowns(&w, at)
	for _, l := range e.remembered() {
		w.add(e.keepLease(l, at))
	}
	e.keepPaces(&w, at)
	e.keepSessions(&w, at)
	slices.SortStableFunc(proxies, func(a, b *proxy) int { return cmp.Compare(a.seq, b.seq) })
	for _, p := range proxies {
		w.add(&ProxyPlaced{At: at, UID: p.known.UID, LastUsed: moment(p.lastUsed), OnSite: p.onSite})
	}
	for _, id := range fleets {
		if !e.fleets[id].exists {
			w.add(&FleetRemoved{At: at, ID: id})
		}
	}
	for _, id := range fleets { // after the removals: a pause alone keeps a fleet
		f := e.fleets[id]
		for _, key := range slices.Sorted(maps.Keys(f.paused)) {
			if f.paused[key] > e.now {
				w.add(&TargetPaused{At: at, Fleet: id, Target: key, Until: moment(f.paused[key])})
			}
		}
	}
	return w.err
}

// snapshot hands on records until that fails.
type snapshot struct {
	emit func(Record) error
	err  error
}

func (w *snapshot) add(rec Record) {
	if w.err == nil {
		w.err = w.emit(rec)
	}
}

// keep describes the fleet.
func (f *fleet) keep(at time.Time) *FleetSet {
	return &FleetSet{At: at, Fleet: Fleet{ID: f.id, Created: moment(f.created), Policy: f.policy}}
}

func (e *Engine) keepCooldowns(w *snapshot, at time.Time) {
	for _, key := range slices.Sorted(maps.Keys(e.targets)) {
		t := e.targets[key]
		exits := slices.SortedFunc(maps.Keys(t.cooldowns), func(a, b *exit) int {
			return a.exit.prefix.Compare(b.exit.prefix)
		})
		for _, x := range exits {
			c := t.cooldowns[x]
			w.add(&ExitCooled{
				At: at, Exit: x.exit, Target: key, Until: moment(c.until), Banned: c.banned, Strikes: c.strikes, Rest: c.rest,
			})
		}
	}
}

func (e *Engine) keepPaces(w *snapshot, at time.Time) {
	for _, t := range sortedTargets(slices.Collect(maps.Values(e.targets))) {
		for _, c := range t.sortedPaces() {
			if c.learnt {
				rec := c.record(e.now)
				rec.At = at
				w.add(rec)
			}
		}
	}
}

func (e *Engine) keepSessions(w *snapshot, at time.Time) {
	sessions := slices.SortedFunc(maps.Values(e.sessions), func(a, b *session) int {
		return cmp.Or(cmp.Compare(a.key.fleet, b.key.fleet), cmp.Compare(a.key.principal, b.key.principal), cmp.Compare(a.key.key, b.key.key))
	})
	for _, s := range sessions {
		w.add(&SessionKept{
			At: at, Principal: s.key.principal, Fleet: s.key.fleet, Key: s.key.key, Proxy: s.proxy, Until: moment(s.until),
		})
	}
}

// remembered returns all leases that anything still asks for, in the order of
// their grants.
func (e *Engine) remembered() []*lease {
	all := slices.Collect(maps.Values(e.leases))
	for _, req := range e.requests {
		for _, l := range req.leases {
			if e.leases[l.id] != l {
				all = append(all, l)
			}
		}
	}
	slices.SortFunc(all, func(a, b *lease) int { return cmp.Compare(a.token.Sequence, b.token.Sequence) })
	return all
}

func (e *Engine) keepLease(l *lease, at time.Time) *Kept {
	rec := &Kept{
		At: at, ID: l.id, Token: l.token, Principal: l.principal, Fleet: l.fleet.id, Proxy: l.proxy.known.UID, Target: l.target,
		Network: l.network, Exclusive: l.exclusive, Slots: l.slots, TTL: l.ttl, Granted: moment(l.granted), Expires: moment(l.expires),
		LifetimeEnd: moment(l.lifetimeEnd), State: l.state, ExitsChanged: l.change != l.proxy.change, SessionKey: l.session,
		Forgotten: e.leases[l.id] != l,
	}
	if l.state != Live && l.timer.kind == timerHold {
		rec.HeldUntil = moment(l.fleet.ends.items[l.timer.place-1].at)
	}
	if l.request != nil {
		rec.RequestID, rec.Fingerprint = l.request.key.id, l.request.fingerprint
	}
	if e.proxies[l.proxy.known.UID] != l.proxy {
		known := l.proxy.known
		rec.GoneProxy = &known
	}
	if e.fleets[l.fleet.id] != l.fleet {
		policy := l.fleet.policy
		rec.GoneFleet = &policy
	}
	return rec
}

// applyKept takes a lease from a snapshot.
func (e *Engine) applyKept(r *Kept) {
	f := e.keptFleet(r)
	p := e.proxies[r.Proxy]
	if r.GoneProxy != nil {
		p = &proxy{
			known: *r.GoneProxy, list: exitsOf(r.GoneProxy.Exits), fleet: f, member: &member{id: r.GoneProxy.Member}, queued: notQueued, class: down,
		}
	}
	l := &lease{
		id: r.ID, token: r.Token, principal: r.Principal, fleet: f, proxy: p, target: r.Target, session: r.SessionKey, network: r.Network,
		state: r.State, exclusive: r.Exclusive, slots: r.Slots, ttl: r.TTL, granted: nanos(r.Granted), expires: nanos(r.Expires),
		lifetimeEnd: nanos(r.LifetimeEnd), change: p.change,
	}
	if r.ExitsChanged {
		l.change--
	}
	l.timer = timer{owner: l, rank: l.token.Sequence}
	e.sequence = max(e.sequence, l.token.Sequence)
	if r.RequestID != "" {
		key := requestKey{principal: r.Principal, fleet: r.Fleet, id: r.RequestID}
		req := e.requests[key]
		if req == nil {
			req = &request{key: key, fingerprint: r.Fingerprint}
			e.requests[key] = req
		}
		l.request = req
		req.leases = append(req.leases, l)
		if !r.Forgotten {
			req.remembered++
		}
	}
	if r.Forgotten {
		l.timer.kind = timerForget
		return
	}
	e.leases[l.id] = l
	switch {
	case l.state == Live:
		p.leases = append(p.leases, l)
		f.leased++
		f.taken += l.slots
		f.holders[l.principal]++
		e.paceGranted(l, l.granted)
		l.timer.kind = timerExpiry
		f.ends.set(&l.timer, l.expires)
	case !r.HeldUntil.IsZero():
		f.held += l.slots
		l.timer.kind = timerHold
		f.ends.set(&l.timer, nanos(r.HeldUntil))
	default:
		e.rememberUntil(l)
		return
	}
	e.rearm(f)
	f.occupy(p, l.slots, l.exclusive)
}

// keptFleet returns the fleet of a lease of a snapshot, which may be gone.
func (e *Engine) keptFleet(r *Kept) *fleet {
	if r.GoneFleet == nil {
		return e.fleetFor(r.Fleet)
	}
	f := newFleet(r.Fleet, &e.now)
	f.policy = *r.GoneFleet
	f.setRules()
	return f
}

// bindSession binds a session to a proxy until then.
func (e *Engine) bindSession(key sessionKey, uid ProxyUID, until int64) {
	s := e.sessions[key]
	if s == nil {
		s = &session{key: key}
		s.timer = timer{owner: s, kind: timerSession}
		e.sessions[key] = s
	}
	s.proxy, s.until = uid, until
	e.timers.set(&s.timer, until)
	e.regroup(e.seekers[key])
}

// applyPlaced puts a proxy behind those that were placed before it.
func (e *Engine) applyPlaced(r *ProxyPlaced) {
	p := e.proxies[r.UID]
	p.lastUsed = nanos(r.LastUsed)
	p.onSite = r.OnSite
	p.member.proxies[p.onSite] = p
	if p.queued == notQueued {
		return
	}
	p.fleet.queues[p.queued].leave(p)
	p.queued = notQueued
	p.fleet.requeue(p)
}
