package leasemetrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// State tells what the engine has, at each scrape. It is a [prometheus.Collector].
type State struct {
	keeper Doer
	queued func() int
	fleet  []gauge
	whole  []gauge
	queue  *prometheus.Desc
}

// gauge is one figure of a fleet or of the whole.
type gauge struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	fleet func(*lease.FleetTotals) int
	whole func(*lease.Totals) int
}

// NewState makes the collector. Queued tells how many commands wait for the engine; it may be nil.
func NewState(keeper Doer, queued func() int) *State {
	s := &State{keeper: keeper, queued: queued, queue: prometheus.NewDesc("shoal_lease_commands_queued", "Commands that wait for the lease engine.", nil, nil)}
	fleet := func(name, help string, of func(*lease.FleetTotals) int) {
		s.fleet = append(s.fleet, gauge{desc: prometheus.NewDesc("shoal_fleet_"+name, help, []string{"fleet"}, nil), kind: prometheus.GaugeValue, fleet: of})
	}
	whole := func(kind prometheus.ValueType, name, help string, of func(*lease.Totals) int) {
		s.whole = append(s.whole, gauge{desc: prometheus.NewDesc("shoal_lease_"+name, help, nil, nil), kind: kind, whole: of})
	}
	fleet("leases", "Live leases, by fleet.", func(f *lease.FleetTotals) int { return f.Leases })
	fleet("slots_taken", "Slots under lease, by fleet.", func(f *lease.FleetTotals) int { return f.SlotsTaken })
	fleet("slots", "Slots of ready proxies, by fleet.", func(f *lease.FleetTotals) int { return f.SlotsTotal })
	fleet("proxies_usable", "Proxies that can be leased, by fleet.", func(f *lease.FleetTotals) int { return f.Usable })
	fleet("acquires_waiting", "Acquires that wait for a proxy, by fleet.", func(f *lease.FleetTotals) int { return f.Waiting })
	fleet("exits", "Distinct exits, by fleet.", func(f *lease.FleetTotals) int { return f.Exits })
	fleet("exits_cooling", "Exits that rest for a target at least, by fleet.", func(f *lease.FleetTotals) int { return f.CoolingExits })
	fleet("targets_guarded", "Targets that the fleet's guard has paused, by fleet.", func(f *lease.FleetTotals) int { return f.Guarded })
	whole(prometheus.GaugeValue, "cooldowns_active", "Pairs of exit and target that rest.", func(t *lease.Totals) int { return t.Cooldowns })
	whole(prometheus.GaugeValue, "targets_banning", "Targets for which an exit rests or has strikes.", func(t *lease.Totals) int { return t.Targets })
	whole(prometheus.GaugeValue, "sessions", "Sessions that live.", func(t *lease.Totals) int { return t.Sessions })
	whole(prometheus.GaugeValue, "revocations", "Revocations of principals that stand.", func(t *lease.Totals) int { return t.Revocations })
	whole(prometheus.GaugeValue, "targets_paused", "Targets that operators have paused in all fleets.", func(t *lease.Totals) int { return t.Pauses })
	whole(prometheus.CounterValue, "guard_trips_total", "How often a guard has paused a fleet's target.", func(t *lease.Totals) int { return int(t.GuardTrips) })
	return s
}

// Describe implements [prometheus.Collector].
func (s *State) Describe(descs chan<- *prometheus.Desc) {
	for _, g := range append(s.fleet[:len(s.fleet):len(s.fleet)], s.whole...) {
		descs <- g.desc
	}
	descs <- s.queue
}

// Collect implements [prometheus.Collector]. Where the engine does not answer in time, a scrape lacks its figures.
func (s *State) Collect(metrics chan<- prometheus.Metric) {
	if s.queued != nil {
		metrics <- prometheus.MustNewConstMetric(s.queue, prometheus.GaugeValue, float64(s.queued()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	result, err := s.keeper.Do(ctx, lease.ReadTotals{})
	totals, ok := result.(lease.Totals)
	if err != nil || !ok {
		return
	}
	for _, g := range s.whole {
		metrics <- prometheus.MustNewConstMetric(g.desc, g.kind, float64(g.whole(&totals)))
	}
	for i := range totals.Fleets {
		for _, g := range s.fleet {
			metrics <- prometheus.MustNewConstMetric(g.desc, g.kind, float64(g.fleet(&totals.Fleets[i])), string(totals.Fleets[i].ID))
		}
	}
}
