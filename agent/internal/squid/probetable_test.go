package squid_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// row is a row of the table: what is broken once every proxy is Ready, and what comes of it.
type row struct {
	name string
	// proxies are the endpoints of as many Proxies. All meet the same.
	proxies []string
	echoes  []probe.Echo
	// breaks what the row is about, and mends it again; every proxy is Ready before and after. A row without breaks is
	// broken from the beginning.
	breaks, mends func(t *testing.T)
	// stranger signs credentials with a key that the proxies do not know.
	stranger bool

	class  probe.Class
	blame  probe.Blame
	state  conditions
	freeze probe.FreezeReason
}

// conditions are what is written down of a Proxy.
type conditions struct {
	phase                     v1alpha1.ProxyPhase
	healthy, ready, saturated metav1.ConditionStatus
}

const (
	yes     = metav1.ConditionTrue
	no      = metav1.ConditionFalse
	unknown = metav1.ConditionUnknown
)

// What may come of a probe.
var (
	ready     = conditions{phase: v1alpha1.PhaseReady, healthy: yes, ready: yes, saturated: no}
	busy      = conditions{phase: v1alpha1.PhaseReady, healthy: yes, ready: yes, saturated: yes}
	unhealthy = conditions{phase: v1alpha1.PhaseUnhealthy, healthy: no, ready: no, saturated: no}
	neverUp   = conditions{phase: v1alpha1.PhaseProvisioning, healthy: unknown, ready: no, saturated: no}
)

// rows are the table. Each has targets of its own, since they run side by side.
func rows(l *lab) []row {
	one := func(endpoint string) []string { return []string{endpoint} }
	three := func(endpoint string) []string { return []string{endpoint, endpoint, endpoint} }
	both := func(name string) []probe.Echo { a, b := l.targets(name); return []probe.Echo{a.echo("a"), b.echo("b")} }
	only := func(name string) []probe.Echo { return both(name)[:1] }
	with := func(name string, other probe.Echo) []probe.Echo { return append(only(name), other) }
	first := func(name string, f func(*target)) func(*testing.T) {
		return func(*testing.T) { a, _ := l.targets(name); f(a) }
	}
	all := func(name string, f func(*target)) func(*testing.T) {
		return func(*testing.T) { a, b := l.targets(name); f(a); f(b) }
	}
	// A private address that no rule lets through, and a name for Squid to look up.
	denied := probe.Echo{ID: "denied", Addr: netip.MustParseAddrPort("10.1.2.3:443"), ServerName: echoName}
	named := probe.Echo{ID: "named", Host: echoName + ":443", ServerName: echoName}

	return []row{
		{name: "Works", proxies: one(l.good), echoes: both("Works"), class: probe.ClassOK, blame: probe.BlameNobody, state: ready},
		{
			name: "ProxyDown", proxies: one(l.dying.addr), echoes: both("ProxyDown"),
			breaks: func(*testing.T) { l.dying.stop() },
			class:  probe.ClassProxyDown, blame: probe.BlameProxy, state: unhealthy,
		},
		{
			name: "ProxySaturated", proxies: one(l.small), echoes: both("ProxySaturated"),
			breaks: func(t *testing.T) { l.hold(t, l.small) }, mends: func(*testing.T) { l.release() },
			class: probe.ClassProxyStuck, blame: probe.BlameProxy, state: busy,
		},
		{
			name: "AuthFailed", proxies: one(l.good), echoes: both("AuthFailed"),
			breaks: func(*testing.T) { l.expired.Store(true) }, mends: func(*testing.T) { l.expired.Store(false) },
			class: probe.ClassAuthFailed, blame: probe.BlameConfig, state: ready,
		},
		{
			name: "AuthNeverWorks", proxies: one(l.good), echoes: both("AuthNeverWorks"), stranger: true,
			class: probe.ClassAuthFailed, blame: probe.BlameConfig, state: neverUp,
		},
		{
			name: "PolicyDenied", proxies: one(l.good), echoes: with("PolicyDenied", denied),
			class: probe.ClassPolicyDenied, blame: probe.BlameConfig, state: ready,
		},
		{
			name: "PolicyDeniesAll", proxies: one(l.good), echoes: []probe.Echo{denied},
			class: probe.ClassPolicyDenied, blame: probe.BlameConfig, state: neverUp,
		},
		{
			name: "DNSFails", proxies: one(l.deaf), echoes: with("DNSFails", named),
			class: probe.ClassDNSFail, blame: probe.BlameEither, state: ready,
		},
		{
			name: "DNSFailsForAll", proxies: one(l.deaf), echoes: []probe.Echo{named},
			class: probe.ClassDNSFail, blame: probe.BlameEither, state: neverUp,
		},
		{
			name: "TargetDown", proxies: one(l.good), echoes: both("TargetDown"),
			breaks: first("TargetDown", (*target).down), mends: first("TargetDown", (*target).up),
			class: probe.ClassConnectFail, blame: probe.BlameEither, state: ready,
		},
		{
			name: "OnlyTargetDown", proxies: one(l.good), echoes: only("OnlyTargetDown"),
			breaks: first("OnlyTargetDown", (*target).down), mends: first("OnlyTargetDown", (*target).up),
			class: probe.ClassConnectFail, blame: probe.BlameEither, state: ready,
		},
		{
			name: "OnlyTargetOfMany", proxies: three(l.good), echoes: only("OnlyTargetOfMany"),
			breaks: first("OnlyTargetOfMany", (*target).down), mends: first("OnlyTargetOfMany", (*target).up),
			class: probe.ClassConnectFail, blame: probe.BlameEither, state: ready, freeze: probe.FreezeTargets,
		},
		{
			name: "AllTargetsDown", proxies: three(l.good), echoes: both("AllTargetsDown"),
			breaks: all("AllTargetsDown", (*target).down), mends: all("AllTargetsDown", (*target).up),
			class: probe.ClassConnectFail, blame: probe.BlameEither, state: ready, freeze: probe.FreezeTargets,
		},
		{
			// Of one proxy that reaches none of two targets it is believed that the fault is its own: others would reach them.
			name: "EgressBroken", proxies: one(l.good), echoes: both("EgressBroken"),
			breaks: all("EgressBroken", (*target).down), mends: all("EgressBroken", (*target).up),
			class: probe.ClassConnectFail, blame: probe.BlameEither, state: unhealthy,
		},
		{
			name: "TargetSlow", proxies: one(l.good), echoes: both("TargetSlow"),
			breaks: first("TargetSlow", (*target).slow), mends: first("TargetSlow", (*target).up),
			class: probe.ClassTargetSlow, blame: probe.BlameTarget, state: ready,
		},
		{
			name: "TargetTLSBroken", proxies: one(l.good), echoes: both("TargetTLSBroken"),
			breaks: first("TargetTLSBroken", (*target).noTLS), mends: first("TargetTLSBroken", (*target).up),
			class: probe.ClassTargetTLS, blame: probe.BlameTarget, state: ready,
		},
		{
			name: "TargetBlocks", proxies: one(l.good), echoes: both("TargetBlocks"),
			breaks: first("TargetBlocks", (*target).blocks), mends: first("TargetBlocks", (*target).up),
			class: probe.ClassTargetBlocked, blame: probe.BlameExit, state: ready,
		},
		{
			name: "Flapping", proxies: one(l.flapping.addr), echoes: both("Flapping"),
			breaks: func(*testing.T) { l.flapping.on.Store(true) }, mends: func(*testing.T) { l.flapping.on.Store(false) },
			class: probe.ClassProxyDown, blame: probe.BlameProxy, state: ready,
		},
	}
}

// TestProbeTable breaks a real Squid, or what is around it, in every way that a probe tells from another, and looks at
// what is written down of the Proxies: by the real controller, over the real probe engine. What is the targets' fault
// leaves every proxy Ready, and only what changes is written.
func TestProbeTable(t *testing.T) {
	l := newLab(t)
	all := rows(l)
	lines := make([]string, len(all))
	t.Run("Rows", func(t *testing.T) {
		for i, r := range all {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				lines[i] = r.play(t, l)
			})
		}
	})
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CASE\tCLASS\tBLAME\tPHASE\tHEALTHY\tREADY\tSATURATED\tWRITES\tVERDICTS")
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	w.Flush()
	t.Log("\n" + table.String())
}

// play breaks and mends what the row is about, and returns its line of the table.
func (r row) play(t *testing.T, l *lab) string {
	m := newMember(t, r, l)
	if r.breaks != nil {
		m.await("every proxy is Ready at first", func() bool { return m.all(ready) })
		m.settle()
		r.breaks(t)
	}
	m.restart()
	// As many probes as would be judged, and some more.
	m.await("probes end as they should", func() bool { return m.ended(r.class) && m.all(r.state) && m.freeze() == r.freeze })
	writes := m.writes()
	got := m.conditions(0)
	line := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s", r.name, r.class, r.class.Blame(), got.phase, got.healthy, got.ready, got.saturated, writes, m.freezes())
	if r.class.Blame() != r.blame {
		t.Errorf("%s is blamed on %s, want %s", r.class, r.class.Blame(), r.blame)
	}
	if r.breaks != nil && r.state == ready && writes != 0 {
		t.Errorf("%d writes although no Proxy has changed", writes)
	}
	if r.mends != nil {
		r.mends(t)
		m.await("every proxy is Ready again", func() bool { return m.all(ready) && m.freeze() == "" })
	}
	if r.freeze == "" && m.freezes() != "" {
		t.Errorf("verdicts froze: %s", m.freezes())
	}
	return line
}
