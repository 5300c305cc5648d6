package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
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
	id        LeaseID
	principal Principal
	proxy     ProxyUID
	slots     int
	exclusive bool
	expires   time.Time
	heldUntil time.Time // zero while live
	life      time.Time
	lifespan  time.Time
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
	requests  map[RequestID][]LeaseID
	bodies    map[RequestID]Acquire
}

func newModel(t *rapid.T, freshness time.Duration) *model {
	m := &model{
		t: t, freshness: freshness, now: modelStart,
		engine:  newModelEngine(freshness),
		cooling: map[Exit]map[string]time.Time{}, seen: map[MemberID]time.Time{}, suspect: map[MemberID]bool{},
		requests: map[RequestID][]LeaseID{}, bodies: map[RequestID]Acquire{},
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
	m.follow(out.Records)
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
		case *LeaseRenewed:
			l := m.lease(rec.ID)
			if rec.Expires.After(l.life) {
				m.t.Fatalf("%s is renewed to %s, beyond its lifetime %s", l.id, rec.Expires, l.life)
			}
			l.expires = rec.Expires
		case *LeaseFinished:
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

func (m *model) lease(id LeaseID) *modelLease {
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
		m.now = next
		if deadline, ok := m.engine.NextDeadline(); ok && deadline.Before(m.now) {
			// Cooldowns and memories end in between; that changes no load.
			m.follow(m.engine.Tick(deadline).Records)
		}
		m.follow(m.engine.Tick(m.now).Records)
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
		if p.level != notQueued && (!cmd.Exclusive || p.level == 0) {
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

func (m *model) acquire(t *rapid.T) {
	cmd := Acquire{
		Principal: Principal(rapid.SampledFrom([]string{"anna", "boris"}).Draw(t, "principal")),
		Fleet:     modelFleet, Target: rapid.SampledFrom(modelTargets).Draw(t, "target"),
	}
	if rapid.Bool().Draw(t, "byRegion") {
		cmd.Selector.Region = rapid.SampledFrom(modelRegions).Draw(t, "region")
	}
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		cmd.Exclusive = true
	case 1, 2:
		cmd.Count = new(int)
		*cmd.Count = rapid.IntRange(1, 5).Draw(t, "count")
		if rapid.Bool().Draw(t, "partly") {
			cmd.MinCount = new(int)
			*cmd.MinCount = rapid.IntRange(1, *cmd.Count).Draw(t, "least")
		}
		cmd.Exclusive = rapid.Bool().Draw(t, "exclusive")
	}
	if rapid.IntRange(0, 5).Draw(t, "withID") == 0 {
		cmd.RequestID = RequestID(fmt.Sprintf("r-%d", len(m.records)))
	}
	result, refusal := m.step(cmd)
	m.judge(cmd, result, refusal)
	m.settle()
	if cmd.RequestID == "" || refusal != nil {
		return
	}
	first := result.(Granted)
	again := m.must(cmd).(Granted)
	if !again.Repeated || first.Repeated {
		t.Fatalf("repeated is %v, then %v", first.Repeated, again.Repeated)
	}
	again.Repeated = false
	if diff := cmp.Diff(first, again, cmp.Comparer(func(a, b Exit) bool { return a == b }), cmp.Comparer(func(a, b Target) bool { return a == b })); diff != "" {
		t.Fatalf("the same request got another answer (-first +again):\n%s", diff)
	}
	cmd.Exclusive = !cmd.Exclusive
	if _, refusal := m.step(cmd); refusal == nil || refusal.Reason != Invalid || refusal.Field != "request_id" {
		t.Fatalf("another body with the same request id: %v", refusal)
	}
}

// some returns a lease that lives, or nil.
func (m *model) some(t *rapid.T) *modelLease {
	live := slices.DeleteFunc(slices.Clone(m.leases), func(l *modelLease) bool { return !l.live() })
	if len(live) == 0 {
		return nil
	}
	return rapid.SampledFrom(live).Draw(t, "lease")
}

func (m *model) release(t *rapid.T) {
	l := m.some(t)
	if l == nil {
		return
	}
	if released := m.must(Release{Principal: l.principal, ID: l.id}).(Released); released.Already {
		t.Fatalf("%s had ended before", l.id)
	}
	m.settle()
	if released := m.must(Release{Principal: l.principal, ID: l.id}).(Released); !released.Already {
		t.Fatalf("%s ended twice", l.id)
	}
}

func (m *model) renew(t *rapid.T) {
	l := m.some(t)
	if l == nil {
		return
	}
	if _, refusal := m.step(Renew{Principal: "mallory", ID: l.id}); refusal == nil || refusal.Reason != NotHolder {
		t.Fatalf("renewed by another: %v", refusal)
	}
	before := l.expires
	renewed := m.must(Renew{Principal: l.principal, ID: l.id}).(Renewed)
	p := m.find(l.proxy)
	want := m.now.Add(modelPolicy.DefaultTTL)
	if want.After(l.life) {
		want = l.life
	}
	if want.Before(before) {
		want = before
	}
	if p.Draining && !p.DrainDeadline.IsZero() && want.After(p.DrainDeadline) {
		want = p.DrainDeadline
		if !want.After(m.now) {
			want = before
		}
	}
	if !renewed.Lease.Expires.Equal(want) {
		t.Fatalf("%s is renewed to %s, want %s (was %s)", l.id, renewed.Lease.Expires, want, before)
	}
	m.settle()
}

func (m *model) report(t *rapid.T) {
	if len(m.leases) == 0 {
		return
	}
	l := rapid.SampledFrom(m.leases[max(0, len(m.leases)-10):]).Draw(t, "lease")
	o := Observation{
		Target:  rapid.SampledFrom(modelTargets[1:]).Draw(t, "target"),
		Outcome: rapid.SampledFrom([]Outcome{OK, Blocked, Captcha, RateLimited, TargetError, ProxyError, Timeout}).Draw(t, "outcome"),
	}
	_, refusal := m.step(Report{Principal: l.principal, ID: l.id, Observations: []Observation{o}})
	ended := l.expires
	if !l.live() && l.heldUntil.Add(-modelPolicy.ReuseDelay).Before(ended) {
		ended = l.heldUntil.Add(-modelPolicy.ReuseDelay)
	}
	if refusal != nil && (refusal.Reason != LeaseExpired || m.now.Before(ended.Add(Remembered))) {
		t.Fatalf("the report is refused: %v", refusal)
	}
}

func (m *model) upsert(t *rapid.T) {
	n := rapid.IntRange(0, 6).Draw(t, "proxy")
	exits := []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(rapid.IntRange(1, 5).Draw(t, "exit"))})}
	if rapid.Bool().Draw(t, "dual") {
		exits = append(exits, netip.MustParseAddr(fmt.Sprintf("2001:db8:0:%d::1", rapid.IntRange(1, 3).Draw(t, "prefix"))))
	}
	proxy := Proxy{
		UID: ProxyUID(fmt.Sprintf("uid-%d", n)), Fleet: modelFleet, Member: MemberID(fmt.Sprintf("m-%d", n%2)),
		Region: modelRegions[n%2], Exits: exits, Endpoints: []Endpoint{{Network: "PodIP", Host: "10.0.0.1", Port: 3128}},
		Ready: rapid.IntRange(0, 4).Draw(t, "ready") > 0, Saturated: rapid.IntRange(0, 6).Draw(t, "saturated") == 0,
	}
	m.must(UpsertProxy{Proxy: proxy})
	m.seen[proxy.Member] = m.now
	if p := m.find(proxy.UID); p != nil {
		proxy.Draining, proxy.DrainDeadline = p.Draining, p.DrainDeadline
		p.Proxy = proxy
	} else {
		m.proxies = append(m.proxies, &modelProxy{Proxy: proxy, level: notQueued})
	}
	m.settle()
}

func (m *model) remove(t *rapid.T) {
	if len(m.proxies) == 0 || rapid.IntRange(0, 2).Draw(t, "spare") > 0 {
		return
	}
	i := rapid.IntRange(0, len(m.proxies)-1).Draw(t, "index")
	gone := m.proxies[i]
	m.must(RemoveProxy{UID: gone.UID})
	m.proxies = slices.Delete(m.proxies, i, i+1)
	for _, l := range m.leases { // a proxy that comes back under the same uid starts empty
		if l.proxy == gone.UID {
			l.proxy = "gone"
		}
	}
	m.settle()
}

func (m *model) drain(t *rapid.T) {
	if len(m.proxies) == 0 || rapid.IntRange(0, 3).Draw(t, "spare") > 0 {
		return
	}
	p := rapid.SampledFrom(m.proxies).Draw(t, "proxy")
	cmd := Drain{UID: p.UID, OnlyIdle: rapid.Bool().Draw(t, "onlyIdle"), Deadline: m.now.Add(30 * time.Second)}
	drained := m.must(cmd).(Drained)
	held := 0
	for _, l := range m.leases {
		if l.proxy == p.UID && l.live() {
			held++
		}
	}
	if want := !cmd.OnlyIdle || held == 0 || p.Draining; drained.Draining != want || drained.Leases != held {
		t.Fatalf("drained %+v, want %v with %d leases", drained, want, held)
	}
	if drained.Draining {
		p.Draining, p.DrainDeadline = true, cmd.Deadline
	}
	m.settle()
}

func (m *model) member(t *rapid.T) {
	id := rapid.SampledFrom([]MemberID{"m-0", "m-1"}).Draw(t, "member")
	if rapid.Bool().Draw(t, "touch") {
		m.must(Touch{ID: id})
		if slices.ContainsFunc(m.proxies, func(p *modelProxy) bool { return p.Member == id }) {
			m.seen[id] = m.now
		}
	} else {
		m.suspect[id] = rapid.Bool().Draw(t, "suspect")
		m.must(SetMember{ID: id, Suspect: m.suspect[id]})
	}
	m.settle()
}

// actions are what rapid chooses among.
func (m *model) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"acquire": m.acquire, "acquire2": m.acquire, "release": m.release, "renew": m.renew, "report": m.report,
		"upsert": m.upsert, "remove": m.remove, "drain": m.drain, "member": m.member,
		"pass": func(t *rapid.T) { m.pass(time.Duration(rapid.IntRange(1, 30).Draw(t, "seconds")) * time.Second) },
	}
}

// TestModel compares the engine with the model over random histories.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, 45*time.Second)
		for range 4 {
			m.upsert(t)
		}
		t.Repeat(m.actions())
	})
}

// TestReplay checks that an engine built from the records is the one that
// wrote them, in the order of its queues too, and that it goes on as that one
// does. No member goes stale in it: that is not durable.
func TestReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, 1000*time.Hour)
		for range 4 {
			m.upsert(t)
		}
		actions := m.actions()
		actions[""] = func(t *rapid.T) {
			if rapid.IntRange(0, 9).Draw(t, "restart") > 0 {
				return
			}
			again := newModelEngine(1000 * time.Hour)
			if err := again.Replay(m.records); err != nil {
				t.Fatal(err)
			}
			if out := again.Tick(m.now); len(out.Records) > 0 {
				t.Fatalf("time after the replay gave %d records", len(out.Records))
			}
			if err := verify(again); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(dump(m.engine), dump(again)); diff != "" {
				t.Fatalf("replay differs (-wrote +replayed):\n%s", diff)
			}
			again.opts.IDs = m.engine.opts.IDs
			m.engine = again // and go on with it
		}
		t.Repeat(actions)
	})
}
