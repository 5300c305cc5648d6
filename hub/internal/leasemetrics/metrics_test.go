package leasemetrics_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leasemetrics"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// engine answers as a keeper would.
type engine struct{ *lease.Engine }

func (e engine) Do(_ context.Context, cmd lease.Command) (lease.Result, error) {
	out, err := e.Step(now, cmd)
	return out.Result, err
}

func TestMetrics(t *testing.T) {
	e := engine{lease.New(lease.Options{IDs: &lease.CountingIDs{}, HistoryComplete: true, StartedAt: now})}
	m := leasemetrics.New(clocktesting.NewFakePassiveClock(now))
	state := leasemetrics.NewState(e, func() int { return 3 })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m, state)
	k := m.Wrap(e)
	do := func(cmd lease.Command) lease.Result {
		t.Helper()
		result, err := k.Do(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	do(lease.SetFleet{Fleet: lease.Fleet{ID: "crawl/news", Policy: lease.Policy{MaxLeasesPerProxy: 5}}})
	do(lease.UpsertProxy{Proxy: lease.Proxy{
		UID: "px-1", Fleet: "crawl/news", Member: "east", Ready: true, Exits: []netip.Addr{netip.MustParseAddr("203.0.113.9")},
		Endpoints: []lease.Endpoint{{Network: "PodIP", Host: "h", Port: 1}},
	}})
	l := do(lease.Acquire{Principal: "anna", Fleet: "crawl/news", Target: lease.MustParseTarget("www.example.com")}).(lease.Granted).Leases[0]
	do(lease.Report{Principal: "anna", ID: l.ID, Observations: []lease.Observation{{Outcome: lease.OK}, {Outcome: lease.Blocked}}})
	if _, err := k.Do(t.Context(), lease.Acquire{Principal: "anna", Fleet: "crawl/news", Target: lease.MustParseTarget("example.com")}); err == nil {
		t.Fatal("granted while it cools")
	}
	want := `
# HELP shoal_fleet_exits_cooling Exits that rest for a target at least, by fleet.
# TYPE shoal_fleet_exits_cooling gauge
shoal_fleet_exits_cooling{fleet="crawl/news"} 1
# HELP shoal_fleet_leases Live leases, by fleet.
# TYPE shoal_fleet_leases gauge
shoal_fleet_leases{fleet="crawl/news"} 1
# HELP shoal_lease_bans_total Reports of bans and rate limits, by fleet and outcome.
# TYPE shoal_lease_bans_total counter
shoal_lease_bans_total{fleet="crawl/news",outcome="blocked"} 1
# HELP shoal_lease_commands_queued Commands that wait for the lease engine.
# TYPE shoal_lease_commands_queued gauge
shoal_lease_commands_queued 3
# HELP shoal_lease_cooldowns_active Pairs of exit and target that rest.
# TYPE shoal_lease_cooldowns_active gauge
shoal_lease_cooldowns_active 1
# HELP shoal_lease_exit_bans_total Reports of bans and rate limits, by exit: those with the latest.
# TYPE shoal_lease_exit_bans_total counter
shoal_lease_exit_bans_total{exit="203.0.113.9"} 1
# HELP shoal_lease_refusals_total Refused commands, by command and by the reason that callers are told.
# TYPE shoal_lease_refusals_total counter
shoal_lease_refusals_total{command="acquire",reason="COOLING_DOWN"} 1
# HELP shoal_lease_target_bans_total Reports of bans and rate limits, by target: those with the latest.
# TYPE shoal_lease_target_bans_total counter
shoal_lease_target_bans_total{target="example.com"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "shoal_fleet_exits_cooling", "shoal_fleet_leases", "shoal_lease_bans_total",
		"shoal_lease_commands_queued", "shoal_lease_cooldowns_active", "shoal_lease_exit_bans_total", "shoal_lease_refusals_total",
		"shoal_lease_target_bans_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(m, "shoal_lease_command_duration_seconds"); n != 3 {
		t.Errorf("%d commands are timed, want acquire, report and other", n)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// TestTargetsAreBounded reports bans of more targets than there are series.
func TestTargetsAreBounded(t *testing.T) {
	e := engine{lease.New(lease.Options{IDs: &lease.CountingIDs{}, HistoryComplete: true, StartedAt: now})}
	m := leasemetrics.New(clocktesting.NewFakePassiveClock(now))
	k := m.Wrap(e)
	for _, cmd := range []lease.Command{
		lease.SetFleet{Fleet: lease.Fleet{ID: "crawl/news", Policy: lease.Policy{MaxLeasesPerProxy: 5}}},
		lease.UpsertProxy{Proxy: lease.Proxy{UID: "px-1", Fleet: "crawl/news", Member: "east", Ready: true, Endpoints: []lease.Endpoint{{Network: "PodIP", Host: "h", Port: 1}}}},
		lease.Acquire{Principal: "anna", Fleet: "crawl/news"},
	} {
		if _, err := k.Do(t.Context(), cmd); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 * leasemetrics.MostTargets {
		report := lease.Report{Principal: "anna", ID: "lse_1", Observations: []lease.Observation{{Outcome: lease.Blocked, Target: lease.MustParseTarget(fmt.Sprintf("t%d.example", i))}}}
		if _, err := k.Do(t.Context(), report); err != nil {
			t.Fatal(err)
		}
	}
	if n := testutil.CollectAndCount(m, "shoal_lease_target_bans_total"); n != leasemetrics.MostTargets {
		t.Errorf("%d series", n)
	}
}
