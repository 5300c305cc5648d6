package lease

import (
	"errors"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The model judges the engine from outside: it keeps lists where the engine
// keeps indexes, looks at every proxy for every command, and follows time in
// small steps. It does not say which lease id or which cooldown must come,
// but whether what came is right.

const modelSlots = 3

var (
	modelPolicy = Policy{
		MaxLeasesPerProxy: modelSlots, DefaultTTL: 20 * time.Second, MaxTTL: 40 * time.Second, MaxLifetime: 90 * time.Second,
		ReuseDelay: 5 * time.Second, Cooldown: Cooldown{Base: 10 * time.Second, Factor: 2, Max: time.Minute},
	}
	modelTargets = []Target{{}, MustParseTarget("a.example.com"), MustParseTarget("b.example.org")}
	modelRegions = []string{"east", "west"}
	modelStart   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

const modelFleet FleetID = "crawl/news"

type modelProxy struct {
	Proxy
	level int // the load at which it waits, or notQueued
	since int // the stamp of when it came to it
}

type modelLease struct {
	id        ID
	principal Principal
	proxy     ProxyUID
	slots     int
	exclusive bool
	expires   time.Time
	heldUntil time.Time // zero while live
	life      time.Time
}

func (l *modelLease) live() bool { return l.heldUntil.IsZero() }

type model struct {
	t         *rapid.T
	engine    *Engine
	freshness time.Duration
	records   []Record
	now       time.Time
	stamp     int
	proxies   []*modelProxy
	leases    []*modelLease
	cooling   map[Exit]map[string]time.Time
	seen      map[MemberID]time.Time
	suspect   map[MemberID]bool
	last      FencingToken
	requests  map[RequestID][]ID
	bodies    map[RequestID]Acquire
	waiters   []*modelWaiter
	ids       int // request ids used
	holder    Ticket
	held      ProxyUID // reserved after the last step
}

func newModel(t *rapid.T, freshness time.Duration) *model {
	m := &model{
		t: t, freshness: freshness, now: modelStart,
		engine:  newModelEngine(freshness),
		cooling: map[Exit]map[string]time.Time{}, seen: map[MemberID]time.Time{}, suspect: map[MemberID]bool{},
		requests: map[RequestID][]ID{}, bodies: map[RequestID]Acquire{},
	}
	m.must(SetFleet{Fleet: Fleet{ID: modelFleet, Policy: modelPolicy}})
	return m
}

func newModelEngine(freshness time.Duration) *Engine {
	guard := Guard{ReporterFloor: 1 << 20, TargetFloor: 1 << 20} // guards have tests of their own
	return New(Options{IDs: &CountingIDs{}, Epoch: 3, HistoryComplete: true, Freshness: freshness, Guard: guard})
}

// step runs a command and follows its records.
func (m *model) step(cmd Command) (Result, *Refusal) {
	out, err := m.engine.Step(m.now, cmd)
	m.hear(out)
	var refusal *Refusal
	if err != nil && !errors.As(err, &refusal) {
		m.t.Fatalf("%T: %v is not a refusal", cmd, err)
	}
	if err := verify(m.engine); err != nil {
		m.t.Fatalf("after %T: %v", cmd, err)
	}
	return out.Result, refusal
}

func (m *model) must(cmd Command) Result {
	result, refusal := m.step(cmd)
	if refusal != nil {
		m.t.Fatalf("%T is refused: %v", cmd, refusal)
	}
	return result
}

// follow notes what records say and checks what may never be.
func (m *model) follow(records []Record) {
	m.records = append(m.records, records...)
	for _, rec := range records {
		if rec.When().After(m.now) {
			m.t.Fatalf("%T is of %s, and it is %s", rec, rec.When(), m.now)
		}
		switch rec := rec.(type) {
		case *LeasesGranted:
			for _, granted := range rec.Leases {
				if granted.Token.Compare(m.last) <= 0 {
					m.t.Fatalf("token %s is not after %s", granted.Token, m.last)
				}
				m.last = granted.Token
				m.leases = append(m.leases, &modelLease{
					id: granted.ID, principal: rec.Principal, proxy: granted.Proxy, slots: granted.Slots,
					exclusive: rec.Exclusive, expires: rec.Expires, life: rec.LifetimeEnd,
				})
			}
		case *Extended:
			l := m.lease(rec.ID)
			if rec.Expires.After(l.life) {
				m.t.Fatalf("%s is renewed to %s, beyond its lifetime %s", l.id, rec.Expires, l.life)
			}
			l.expires = rec.Expires
		case *Finished:
			l := m.lease(rec.ID)
			if rec.State == StateExpired && !rec.At.Equal(l.expires) {
				m.t.Fatalf("%s expired at %s, due at %s", l.id, rec.At, l.expires)
			}
			l.heldUntil = rec.HeldUntil
		case *ProxyRemoved:
			for _, l := range m.leases {
				if l.proxy == rec.UID && l.live() {
					l.heldUntil = rec.At
				}
			}
		case *ExitCooled:
			if m.cooling[rec.Exit] == nil {
				m.cooling[rec.Exit] = map[string]time.Time{}
			}
			if rec.Until.Before(m.cooling[rec.Exit][rec.Target]) {
				m.t.Fatalf("the rest of %s for %s became shorter", rec.Exit, rec.Target)
			}
			m.cooling[rec.Exit][rec.Target] = rec.Until
		}
	}
}

func (m *model) lease(id ID) *modelLease {
	for _, l := range m.leases {
		if l.id == id {
			return l
		}
	}
	m.t.Fatalf("no lease %s", id)
	return nil
}

func (m *model) find(uid ProxyUID) *modelProxy {
	for _, p := range m.proxies {
		if p.UID == uid {
			return p
		}
	}
	return nil
}

// load counts the slots that are taken or held back.
func (m *model) load(p *modelProxy) (slots int, exclusive bool) {
	for _, l := range m.leases {
		if l.proxy == p.UID && (l.live() || l.heldUntil.After(m.now)) {
			slots += l.slots
			exclusive = exclusive || l.exclusive
		}
	}
	return slots, exclusive
}

func (m *model) usable(p *modelProxy) bool {
	return p.Ready && !p.Saturated && !p.Draining && !m.suspect[p.Member] && m.seen[p.Member].Add(m.freshness).After(m.now)
}

func (m *model) coolUntil(p *modelProxy, target Target) time.Time {
	var until time.Time
	for _, addr := range p.Exits {
		if at := m.cooling[ExitOf(addr)][target.Key()]; at.After(m.now) && at.After(until) {
			until = at
		}
	}
	return until
}

// settle notes which proxies have come to another load.
func (m *model) settle() {
	m.stamp++
	for _, p := range m.proxies {
		level := notQueued
		if load, exclusive := m.load(p); m.usable(p) && !exclusive && load < modelSlots {
			level = load
		}
		if level != p.level {
			p.level, p.since = level, m.stamp
		}
	}
}

// pass lets time go by, and stops at each moment at which something ends.
func (m *model) pass(d time.Duration) {
	end := m.now.Add(d)
	for {
		next := end
		consider := func(at time.Time) {
			if at.After(m.now) && at.Before(next) {
				next = at
			}
		}
		for _, l := range m.leases {
			consider(l.expires)
			consider(l.heldUntil)
		}
		for _, at := range m.seen {
			consider(at.Add(m.freshness))
		}
		for _, w := range m.waiters {
			consider(w.deadline)
			consider(w.came.Add(DefaultReserveAfter))
		}
		for _, targets := range m.cooling {
			for _, until := range targets {
				consider(until)
			}
		}
		m.now = next
		if deadline, ok := m.engine.NextDeadline(); ok && deadline.Before(m.now) {
			// Memories end in between; that changes no load.
			m.follow(m.engine.Tick(deadline).Records)
		}
		m.hear(m.engine.Tick(m.now))
		if err := verify(m.engine); err != nil {
			m.t.Fatalf("after time: %v", err)
		}
		m.settle()
		if m.now.Equal(end) {
			return
		}
	}
}

// judge checks the answer to an Acquire against all proxies.
func (m *model) judge(cmd Acquire, result Result, refusal *Refusal) {
	var fitting, usable, cooling, free []*modelProxy
	for _, p := range m.proxies {
		if cmd.Selector.Region != "" && cmd.Selector.Region != p.Region {
			continue
		}
		fitting = append(fitting, p)
		if !m.usable(p) {
			continue
		}
		usable = append(usable, p)
		if !m.coolUntil(p, cmd.Target).IsZero() {
			cooling = append(cooling, p)
			continue
		}
		if _, reserved := m.reservation(); p.level != notQueued && (!cmd.Exclusive || p.level == 0) && p.UID != reserved {
			free = append(free, p)
		}
	}
	count, least := cmd.counts()
	room := 0
	for _, p := range free {
		if cmd.Exclusive {
			room++
		} else {
			room += modelSlots - p.level
		}
	}
	if refusal == nil {
		granted := result.(Granted).Leases
		if want := min(count, room); len(granted) != want || want < least {
			m.t.Fatalf("%d leases granted, want %d of %d, at least %d", len(granted), want, count, least)
		}
		m.judgeOrder(free, granted)
		return
	}
	if room >= least {
		m.t.Fatalf("refused with room for %d of %d: %v", room, least, refusal)
	}
	got := []int{refusal.Matching, refusal.Cooling, refusal.Busy}
	want := []int{len(fitting), len(cooling), len(usable) - len(cooling) - len(free)}
	if diff := cmp.Diff(want, got); diff != "" {
		m.t.Fatalf("counts of matching, cooling, busy (-want +got):\n%s%v", diff, refusal)
	}
	var reason Reason
	retry := idleRetry
	switch {
	case len(fitting) == 0:
		reason = NoMatch
	case len(usable) == 0:
		reason = NoCapacity
		for _, p := range fitting {
			if p.Ready && !p.Saturated && !p.Draining {
				reason = StaleInventory
			}
		}
	case len(cooling) == len(usable):
		reason, retry = CoolingDown, m.firstChange(cmd, usable)
	default:
		reason, retry = NoCapacity, m.firstChange(cmd, usable)
	}
	if refusal.Reason != reason || refusal.RetryAfter != retry {
		m.t.Fatalf("refused with %s in %s, want %s in %s: %v", refusal.Reason, refusal.RetryAfter, reason, retry, refusal)
	}
}

// judgeOrder checks that no proxy was passed over: each lease is on one of
// those with the least load that have waited longest.
func (m *model) judgeOrder(free []*modelProxy, granted []Lease) {
	type place struct{ level, since int }
	at := map[ProxyUID]place{}
	for _, p := range free {
		at[p.UID] = place{p.level, p.since}
	}
	for i, l := range granted {
		mine, ok := at[l.Proxy]
		if !ok {
			m.t.Fatalf("lease %d is on %s, which is not free", i, l.Proxy)
		}
		for uid, other := range at {
			if other.level < mine.level || other.level == mine.level && other.since < mine.since {
				m.t.Fatalf("lease %d is on %s %v, and %s waits at %v", i, l.Proxy, mine, uid, other)
			}
		}
		if mine.level+1 == modelSlots || l.Exclusive {
			delete(at, l.Proxy)
			continue
		}
		at[l.Proxy] = place{mine.level + 1, m.stamp + 1 + i}
	}
}

// firstChange returns when the earliest lease, hold or cooldown ends that can
// matter to an Acquire.
func (m *model) firstChange(cmd Acquire, usable []*modelProxy) time.Duration {
	var first time.Time
	earlier := func(at time.Time) {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	for _, p := range usable {
		if until := m.coolUntil(p, cmd.Target); !until.IsZero() {
			earlier(until)
			continue
		}
		live := 0
		for _, l := range m.leases {
			if l.proxy == p.UID && l.live() {
				live++
			}
		}
		if cmd.Exclusive && live > 1 {
			continue
		}
		for _, l := range m.leases {
			switch {
			case l.proxy != p.UID:
			case l.live():
				earlier(l.expires)
			case l.heldUntil.After(m.now):
				earlier(l.heldUntil)
			}
		}
	}
	if first.IsZero() {
		return idleRetry
	}
	return retryIn(nanos(m.now), nanos(first))
}
