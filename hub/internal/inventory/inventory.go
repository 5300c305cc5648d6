package inventory

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// The figures of liveness.
const (
	// HeartbeatInterval is how often an agent is told to send a heartbeat.
	HeartbeatInterval = 5 * time.Second
	// SuspectAfter is the silence that makes a member Suspect: three heartbeats.
	SuspectAfter = 3 * HeartbeatInterval
	// UnreachableAfter is the silence that makes it Unreachable.
	UnreachableAfter = SuspectAfter + 30*time.Second
	// RecoverAfter is how long a Suspect member must be heard without a gap to be Ready again.
	RecoverAfter = 2 * HeartbeatInterval
	// DuplicateWindow is how long two instances of a member's agent that took turns are held against it.
	DuplicateWindow = 2 * time.Minute
)

// State is the hub's verdict on a member.
type State string

// The states.
const (
	// NeverHeard members have not connected since the hub started.
	NeverHeard State = "NeverHeard"
	// Syncing members have connected for the first time and not reported everything yet.
	Syncing State = "Syncing"
	// Ready members are heard.
	Ready State = "Ready"
	// Suspect members missed heartbeats, or were lost and have not proved themselves again.
	Suspect State = "Suspect"
	// Unreachable members have been silent for long.
	Unreachable State = "Unreachable"
)

// Session is what an agent says of itself when it connects.
type Session struct {
	// Epoch orders the sessions of one member; a greater one is newer.
	Epoch uint64
	// Instance changes with every start of the agent.
	Instance string
	// Version is the agent's.
	Version string
	// Providers and Networks are what the member offers.
	Providers, Networks []string
	// ClusterUID and Namespace are the member's identity.
	ClusterUID, Namespace string
}

// Options are what an Inventory is made with.
type Options struct {
	// Clock is the hub's. Required.
	Clock clock.WithTicker
}

// Inventory is what members reported. All methods are safe for concurrent use and return at once, but for Run.
type Inventory struct {
	clock   clock.WithTicker
	started time.Time

	mu       sync.Mutex
	members  map[string]*member
	owners   map[string]string // member by uid of a proxy
	sets     map[string]*proxySet
	byPlace  map[string]map[string]*proxy // by placement UID, then proxy UID
	watchers map[*Watcher]struct{}
}

// New returns an inventory in which nobody was heard yet. It panics without a clock: that is a mistake in the wiring.
func New(opts Options) *Inventory {
	if opts.Clock == nil {
		panic("inventory: Options.Clock is required")
	}
	return &Inventory{
		clock:    opts.Clock,
		started:  opts.Clock.Now(),
		members:  map[string]*member{},
		owners:   map[string]string{},
		sets:     map[string]*proxySet{},
		byPlace:  map[string]map[string]*proxy{},
		watchers: map[*Watcher]struct{}{},
	}
}

type proxySet struct {
	member string
	// mark is the member's round in which the set was last observed.
	mark   uint64
	report *agentv1.ProxySetReport
}

type proxy struct {
	uid    string
	member string
	mark   uint64
	report *agentv1.ProxyReport
	// receivedAt and lastReady are by the hub's clock.
	receivedAt, lastReady time.Time
	// doubted says that the last snapshot lacked the proxy, and that this awaits confirmation.
	doubted bool
}

// Connected begins a session of the member. A session with a lower epoch than one that was seen is ignored. From here to
// Resynced the session must observe everything the member has, also what did not change.
func (inv *Inventory) Connected(memberName string, s Session, now time.Time) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	m := inv.member(memberName)
	if m.connects > 0 && s.Epoch < m.session.Epoch {
		return
	}
	m.noteInstance(s.Instance, now)
	m.connects++
	m.session = s
	m.connected = true
	m.resynced = false
	m.round++
	m.hear(now)
	inv.changeMember(memberName)
}

// Heard records a frame of the member, of whatever kind.
func (inv *Inventory) Heard(memberName string, now time.Time) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	m := inv.member(memberName)
	before := m.state(now)
	m.hear(now)
	if m.state(now) != before {
		inv.changeMember(memberName)
	}
	inv.touch(memberName)
}

// Disconnected ends a session. It is no loss yet: that is counted from the last frame. An epoch that is not the
// present one is ignored.
func (inv *Inventory) Disconnected(memberName string, epoch uint64, _ time.Time) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	m := inv.members[memberName]
	if m == nil || m.session.Epoch != epoch {
		return
	}
	m.connected = false
	inv.changeMember(memberName)
}

// ObserveProxy records a report of one proxy. A report under a UID that belongs to another member is rejected, and
// MemberView.Foreign remembers it. The report must not be changed afterwards.
func (inv *Inventory) ObserveProxy(memberName, uid string, r *agentv1.ProxyReport, now time.Time) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	m := inv.member(memberName)
	if owner, known := inv.owners[uid]; known && owner != memberName {
		inv.reject(memberName, uid)
		return
	}
	if set := inv.sets[r.GetPlacementUid()]; set != nil && set.member != memberName {
		inv.reject(memberName, uid)
		return
	}
	p := m.proxies[uid]
	if p == nil {
		p = &proxy{uid: uid, member: memberName}
		m.proxies[uid] = p
		inv.owners[uid] = memberName
	} else if p.report.GetPlacementUid() != r.GetPlacementUid() {
		inv.unplace(p)
	}
	counts := p.doubted || p.report == nil || p.report.GetReady() != r.GetReady()
	news := p.doubted || material(p.report, r)
	p.report, p.receivedAt, p.mark, p.doubted = r, now, m.round, false
	if r.GetReadyAge() != nil {
		p.lastReady = now.Add(-max(r.GetReadyAge().AsDuration(), 0))
	}
	of := inv.byPlace[r.GetPlacementUid()]
	if of == nil {
		of = map[string]*proxy{}
		inv.byPlace[r.GetPlacementUid()] = of
	}
	of[uid] = p
	inv.tell(func(w *Watcher) { w.proxies[uid] = struct{}{} })
	if news {
		inv.changePlacement(r.GetPlacementUid())
	}
	if counts {
		inv.changeCounts(memberName)
	}
}

// reject notes that a member reported what belongs to another.
func (inv *Inventory) reject(memberName, uid string) {
	if m := inv.member(memberName); m.foreign != uid {
		m.foreign = uid
		inv.changeMember(memberName)
	}
}

// material tells whether two reports differ in more than measurements and ages, which change all the time.
func material(a, b *agentv1.ProxyReport) bool {
	if a == nil || b == nil {
		return true
	}
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	for _, r := range []*agentv1.ProxyReport{a, b} {
		r.ReadyAge, r.Latency, r.ProbeClass = nil, nil, ""
	}
	return !proto.Equal(a, b)
}

// ObserveProxySet records a report of one ProxySet. One that belongs to another member is rejected.
func (inv *Inventory) ObserveProxySet(memberName, placementUID string, r *agentv1.ProxySetReport, _ time.Time) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	m := inv.member(memberName)
	set := inv.sets[placementUID]
	switch {
	case set != nil && set.member != memberName:
		inv.reject(memberName, placementUID)
		return
	case set == nil:
		set = &proxySet{member: memberName}
		inv.sets[placementUID] = set
		m.sets[placementUID] = set
	}
	news := !proto.Equal(set.report, r)
	if !slices.EqualFunc(set.report.GetConditions(), r.GetConditions(), sameCondition) {
		inv.changeCounts(memberName)
	}
	set.report, set.mark = r, m.round
	if news {
		inv.changePlacement(placementUID)
	}
}

func sameCondition(a, b *agentv1.Condition) bool { return proto.Equal(a, b) }

// Gone records that the member no longer has the proxy or ProxySet. For what is unknown, or another member's, it does
// nothing.
func (inv *Inventory) Gone(memberName, uid string, _ time.Time) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	m := inv.members[memberName]
	if m == nil {
		return
	}
	if p := m.proxies[uid]; p != nil {
		inv.drop(m, p)
	}
	if m.sets[uid] != nil {
		inv.dropSet(m, uid)
	}
}

// Resynced records that the session has reported everything the member has and that its digest matched. What was not
// observed since Connected is gone, unless that is too much to believe: then Doubted is true, and another Resynced, of
// this session or the next, decides. The caller should ask the agent for it.
func (inv *Inventory) Resynced(memberName string, now time.Time) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	m := inv.member(memberName)
	m.hear(now)
	var missing []*proxy
	unexpected := 0
	for _, p := range m.proxies {
		if p.mark == m.round {
			continue
		}
		missing = append(missing, p)
		if !p.report.GetDraining() {
			unexpected++
		}
	}
	doubt := !m.doubted && unexpected > 1 && 2*unexpected > len(m.proxies)
	if doubt {
		for _, p := range missing {
			p.doubted = true
			inv.changeProxy(p)
		}
	} else {
		for _, p := range missing {
			inv.drop(m, p)
		}
		for uid, set := range m.sets {
			if set.mark != m.round {
				inv.dropSet(m, uid)
			}
		}
	}
	m.doubted = doubt
	m.resynced, m.complete = true, true
	m.recovered(now)
	m.foreign = ""
	inv.changeMember(memberName)
}

// Doubted tells whether the member's last complete report is too much emptier than the one before to be believed. A
// second one settles it.
func (inv *Inventory) Doubted(memberName string) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	m := inv.members[memberName]
	return m != nil && m.doubted
}

// ForgetMember drops a member that is no more, and all that it reported.
func (inv *Inventory) ForgetMember(memberName string) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	m := inv.members[memberName]
	if m == nil {
		return
	}
	for _, p := range m.proxies {
		inv.drop(m, p)
	}
	for uid := range m.sets {
		inv.dropSet(m, uid)
	}
	delete(inv.members, memberName)
	inv.changeMember(memberName)
}

// Run tells watchers when time alone has changed a member's state, until ctx ends.
func (inv *Inventory) Run(ctx context.Context) error {
	ticker := inv.clock.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			inv.Tick()
		}
	}
}

// Tick tells watchers of the members whose state time has changed since the last Tick.
func (inv *Inventory) Tick() {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	now := inv.clock.Now()
	for name, m := range inv.members {
		if s := m.state(now); s != m.told {
			m.told = s
			inv.changeMember(name)
		}
	}
}

func (inv *Inventory) member(name string) *member {
	m := inv.members[name]
	if m == nil {
		m = &member{proxies: map[string]*proxy{}, sets: map[string]*proxySet{}, told: NeverHeard}
		inv.members[name] = m
	}
	return m
}

func (inv *Inventory) drop(m *member, p *proxy) {
	inv.changeProxy(p)
	inv.changeCounts(p.member)
	inv.unplace(p)
	delete(m.proxies, p.uid)
	delete(inv.owners, p.uid)
}

func (inv *Inventory) unplace(p *proxy) {
	placement := p.report.GetPlacementUid()
	delete(inv.byPlace[placement], p.uid)
	if len(inv.byPlace[placement]) == 0 {
		delete(inv.byPlace, placement)
	}
	inv.changePlacement(placement)
}

func (inv *Inventory) dropSet(m *member, uid string) {
	inv.changeCounts(inv.sets[uid].member)
	delete(m.sets, uid)
	delete(inv.sets, uid)
	inv.changePlacement(uid)
}
