package metrics_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/shoal-dev/shoal/agent/internal/metrics"
	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/internal/sweep"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

var at = time.Unix(1_700_000_000, 0)

// full is an agent with something to tell of everything.
func full(t *testing.T) (*prometheus.Registry, *metrics.Collector, *metrics.Probes) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	c, p, err := metrics.Register(r, metrics.Sources{
		Build:    metrics.Build{Version: "1.2.3", Commit: "abc", Go: "go1.26"},
		NotAfter: func() time.Time { return at },
		Blocks: func() []metrics.Block {
			b := metrics.Block{Member: "gce-eu", Provider: "small", Scope: "zone europe-west1-b", Reason: "CapacityExhausted", Until: at}
			sooner := b
			sooner.Until = at.Add(-time.Minute)
			return []metrics.Block{sooner, b}
		},
		Engagements: func() []metrics.Engagement {
			return []metrics.Engagement{{Member: "east", Source: "home", Engaged: true}, {Member: "lab", Source: "secret", Reason: "RightsMissing"}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Add(metrics.Member{
		Name: "east",
		Proxies: func() (map[metrics.Count]int, error) {
			return map[metrics.Count]int{
				{Provider: "default", Phase: string(v1alpha1.PhaseReady)}:                  11,
				{Provider: "default", Phase: string(v1alpha1.PhaseReady), Saturated: true}: 1,
			}, nil
		},
		Connected: func() bool { return true },
		Frozen:    func() bool { return false },
		Sweep: func() sweep.Status {
			return sweep.Status{Orphans: 3, Held: 2, Deleted: 7, Failed: 1, LastComplete: at}
		},
	})
	p.Observe("east", probe.Probe{Result: probe.Result{Class: probe.ClassOK}, Dial: time.Millisecond, Connect: 20 * time.Millisecond, TLS: 30 * time.Millisecond, FirstByte: 40 * time.Millisecond})
	p.Observe("east", probe.Probe{Result: probe.Result{Class: probe.ClassProxyDown}, Dial: 2 * time.Millisecond})
	return r, c, p
}

func TestScrape(t *testing.T) {
	r, _, _ := full(t)
	want := `
# HELP shoal_agent_backoff_until_timestamp_seconds Until when requests for instances wait, as seconds since 1970, where a provider has refused one.
# TYPE shoal_agent_backoff_until_timestamp_seconds gauge
shoal_agent_backoff_until_timestamp_seconds{member="gce-eu",provider="small",reason="CapacityExhausted",scope="zone europe-west1-b"} 1.7e+09
# HELP shoal_agent_certificate_not_after_timestamp_seconds When the agent's certificate ends, as seconds since 1970. It is renewed with a fifth to a quarter of its life left.
# TYPE shoal_agent_certificate_not_after_timestamp_seconds gauge
shoal_agent_certificate_not_after_timestamp_seconds 1.7e+09
# HELP shoal_agent_member_engaged Whether the agent works for a member that it was told of; the reason is what is wrong with it, if anything is.
# TYPE shoal_agent_member_engaged gauge
shoal_agent_member_engaged{member="east",reason="",source="home"} 1
shoal_agent_member_engaged{member="lab",reason="RightsMissing",source="secret"} 0
# HELP shoal_agent_probes_total Probes through proxies, by what they found out.
# TYPE shoal_agent_probes_total counter
shoal_agent_probes_total{class="OK",member="east"} 1
shoal_agent_probes_total{class="ProxyDown",member="east"} 1
# HELP shoal_agent_proxies Proxies, by phase of their life.
# TYPE shoal_agent_proxies gauge
shoal_agent_proxies{member="east",phase="Deleting",provider="default"} 0
shoal_agent_proxies{member="east",phase="Draining",provider="default"} 0
shoal_agent_proxies{member="east",phase="Failed",provider="default"} 0
shoal_agent_proxies{member="east",phase="Pending",provider="default"} 0
shoal_agent_proxies{member="east",phase="Provisioning",provider="default"} 0
shoal_agent_proxies{member="east",phase="Ready",provider="default"} 12
shoal_agent_proxies{member="east",phase="Unhealthy",provider="default"} 0
# HELP shoal_agent_proxies_saturated Ready proxies that are too busy to be leased.
# TYPE shoal_agent_proxies_saturated gauge
shoal_agent_proxies_saturated{member="east",provider="default"} 1
# HELP shoal_agent_session_up Whether the member's session with the hub is up.
# TYPE shoal_agent_session_up gauge
shoal_agent_session_up{member="east"} 1
# HELP shoal_agent_verdicts_frozen Whether so many probes fail together that no proxy of the member is judged unhealthy by them.
# TYPE shoal_agent_verdicts_frozen gauge
shoal_agent_verdicts_frozen{member="east"} 0
# HELP shoal_agent_sweep_deleted_total Orphans whose deletion the provider has taken.
# TYPE shoal_agent_sweep_deleted_total counter
shoal_agent_sweep_deleted_total{member="east"} 7
# HELP shoal_agent_sweep_orphans Instances that no Proxy owns, as the last pass of the orphan sweep saw them.
# TYPE shoal_agent_sweep_orphans gauge
shoal_agent_sweep_orphans{member="east"} 3
# HELP shoal_agent_sweep_last_complete_timestamp_seconds When the orphan sweep last had complete lists of instances and of their owners, as seconds since 1970; 0 for never.
# TYPE shoal_agent_sweep_last_complete_timestamp_seconds gauge
shoal_agent_sweep_last_complete_timestamp_seconds{member="east"} 1.7e+09
`
	var names []string
	for line := range strings.Lines(want) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			names = append(names, strings.Fields(rest)[0])
		}
	}
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(r, "shoal_agent_probe_stage_duration_seconds"); err != nil || n != 4 {
		t.Errorf("%d stages are timed, %v, want 4: those that were not reached took no time", n, err)
	}
}

// What is told keeps the rules that whoever reads it relies on: names, units, help, and labels of what there is little of.
func TestLint(t *testing.T) {
	r, _, _ := full(t)
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	bounded := []string{"member", "provider", "phase", "class", "stage", "scope", "reason", "source", "version", "commit", "go_version"}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "shoal_agent_") {
			t.Errorf("%s does not begin with shoal_agent_", f.GetName())
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(bounded, l.GetName()) {
					t.Errorf("%s has label %s, of which there may be any number", f.GetName(), l.GetName())
				}
			}
		}
	}
	if len(families) < 14 {
		t.Errorf("only %d metrics are told", len(families))
	}
}

func TestMembersComeAndGo(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	c, p, err := metrics.Register(r, metrics.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	count := func(want int, why string) {
		t.Helper()
		if n, err := testutil.GatherAndCount(r, "shoal_agent_session_up"); err != nil || n != want {
			t.Errorf("%d members, %v, want %d: %s", n, err, want, why)
		}
	}
	up := func() bool { return true }
	first := c.Add(metrics.Member{Name: "east", Connected: up})
	c.Add(metrics.Member{Name: "west", Connected: up})
	count(2, "two are engaged")
	second := c.Add(metrics.Member{Name: "east", Connected: up})
	count(2, "one is engaged anew")
	first()
	count(2, "the end of its former engagement is not the end of this one")
	second()
	count(1, "it is gone")
	p.Observe("east", probe.Probe{Result: probe.Result{Class: probe.ClassOK}, Dial: time.Second})
	p.Forget("east")
	if n, err := testutil.GatherAndCount(r, "shoal_agent_probes_total", "shoal_agent_probe_stage_duration_seconds"); err != nil || n != 0 {
		t.Errorf("%d probes are told of a member that is gone, %v", n, err)
	}
}

func TestAMemberThatCannotBeRead(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	c, _, err := metrics.Register(r, metrics.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	c.Add(metrics.Member{Name: "east", Proxies: func() (map[metrics.Count]int, error) { return nil, errors.New("not synced") }})
	want := "# HELP shoal_agent_member_unreadable Whether the member's proxies could not be counted at this scrape.\n# TYPE shoal_agent_member_unreadable gauge\nshoal_agent_member_unreadable{member=\"east\"} 1\n"
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "shoal_agent_member_unreadable", "shoal_agent_proxies"); err != nil {
		t.Error(err)
	}
}

func TestRegisterTwiceFails(t *testing.T) {
	r := prometheus.NewRegistry()
	if _, _, err := metrics.Register(r, metrics.Sources{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := metrics.Register(r, metrics.Sources{}); err == nil {
		t.Error("two agents tell the same registry of themselves")
	}
	if _, _, err := metrics.Register(nil, metrics.Sources{}); err == nil {
		t.Error("nobody is told, and nobody hears of it")
	}
}
