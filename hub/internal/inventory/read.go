package inventory

import (
	"cmp"
	"slices"
	"time"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// MemberView is what is known of a member at one moment.
type MemberView struct {
	// State is the hub's verdict.
	State State
	// Connected tells whether a session is open.
	Connected bool
	// LastHeard is the time of the last frame; zero if there was none.
	LastHeard time.Time
	// LostSince is when the member was first missed; zero while it is not. For a member that was never heard it is when
	// the hub started.
	LostSince time.Time
	// Complete says that the member has reported everything at least once since the hub started, Resynced that its
	// present session has. Doubted says that the last complete report awaits confirmation.
	Complete, Resynced, Doubted bool
	// Lost says that nobody should wait for the member: it is Unreachable, or was not heard for UnreachableAfter since
	// the hub started.
	Lost bool
	// Duplicate says that two live agents speak for the member.
	Duplicate bool
	// Foreign is a UID of another member that this one reported since its last resync; empty if it did not.
	Foreign string
	// Session is the present or last one.
	Session Session
	// Proxies counts what it reported.
	Proxies int
}

// Settled tells whether decisions that cannot be taken back may rest on what the member reported.
func (v MemberView) Settled() bool { return v.State == Ready && v.Resynced && !v.Doubted }

// ProxyView is one proxy at one moment. Report is shared and must not be changed.
type ProxyView struct {
	UID, Member string
	Report      *agentv1.ProxyReport
	// ReceivedAt is when the report came, LastReady when the last good probe was, both by the hub's clock; LastReady is
	// zero if there was none.
	ReceivedAt, LastReady time.Time
	// Ready is the report's word, but false while the proxy's existence is in doubt.
	Ready bool
	// Doubted says that the member's last complete report lacked the proxy.
	Doubted bool
}

// SetView is a ProxySet at one moment. Report is shared and must not be changed.
type SetView struct {
	Member string
	Report *agentv1.ProxySetReport
}

// Member returns what is known of a member; one that was never heard has the state NeverHeard.
func (inv *Inventory) Member(name string) MemberView {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	now := inv.clock.Now()
	m := inv.members[name]
	if m == nil || !m.heard {
		return MemberView{
			State: NeverHeard, LostSince: inv.started, Lost: now.Sub(inv.started) >= UnreachableAfter,
		}
	}
	v := MemberView{
		State: m.state(now), Connected: m.connected, LastHeard: m.lastHeard, LostSince: m.lostAt,
		Complete: m.complete, Resynced: m.resynced, Doubted: m.doubted, Duplicate: m.duplicated(now), Foreign: m.foreign,
		Session: m.session, Proxies: len(m.proxies),
	}
	v.Lost = v.State == Unreachable
	return v
}

// Conditions returns the conditions of a type in the reports of the member's ProxySets, in no order. They are shared and
// must not be changed.
func (inv *Inventory) Conditions(memberName, kind string) []*agentv1.Condition {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	m := inv.members[memberName]
	if m == nil {
		return nil
	}
	var found []*agentv1.Condition
	for _, set := range m.sets {
		for _, c := range set.report.GetConditions() {
			if c.GetType() == kind {
				found = append(found, c)
			}
		}
	}
	return found
}

// ReadyOn counts the member's ready proxies. It looks at each of them.
func (inv *Inventory) ReadyOn(name string) int {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	m := inv.members[name]
	if m == nil {
		return 0
	}
	n := 0
	for _, p := range m.proxies {
		if p.report.GetReady() && !p.doubted {
			n++
		}
	}
	return n
}

// Members returns the names of all members that were heard, sorted.
func (inv *Inventory) Members() []string {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	var names []string
	for name, m := range inv.members {
		if m.heard {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Proxies returns the proxies of a placement in order of UID.
func (inv *Inventory) Proxies(placementUID string) []ProxyView {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	views := make([]ProxyView, 0, len(inv.byPlace[placementUID]))
	for _, p := range inv.byPlace[placementUID] {
		views = append(views, p.view())
	}
	sortViews(views)
	return views
}

// Proxy returns one proxy.
func (inv *Inventory) Proxy(uid string) (ProxyView, bool) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	m := inv.members[inv.owners[uid]]
	if m == nil || m.proxies[uid] == nil {
		return ProxyView{}, false
	}
	return m.proxies[uid].view(), true
}

// All returns every proxy in order of UID.
func (inv *Inventory) All() []ProxyView {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	var views []ProxyView
	for _, m := range inv.members {
		for _, p := range m.proxies {
			views = append(views, p.view())
		}
	}
	sortViews(views)
	return views
}

// Set returns what a member reported of a placement's ProxySet.
func (inv *Inventory) Set(placementUID string) (SetView, bool) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	set := inv.sets[placementUID]
	if set == nil {
		return SetView{}, false
	}
	return SetView{Member: set.member, Report: set.report}, true
}

func (p *proxy) view() ProxyView {
	return ProxyView{
		UID: p.uid, Member: p.member, Report: p.report, ReceivedAt: p.receivedAt, LastReady: p.lastReady,
		Ready: p.report.GetReady() && !p.doubted, Doubted: p.doubted,
	}
}

func sortViews(views []ProxyView) {
	slices.SortFunc(views, func(a, b ProxyView) int { return cmp.Compare(a.UID, b.UID) })
}
