package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// phases are told also where no proxy is in them, so that a query never finds nothing in place of 0.
var phases = []v1alpha1.ProxyPhase{
	v1alpha1.PhasePending, v1alpha1.PhaseProvisioning, v1alpha1.PhaseReady, v1alpha1.PhaseUnhealthy,
	v1alpha1.PhaseDraining, v1alpha1.PhaseDeleting, v1alpha1.PhaseFailed,
}

// Collector reads the state of an agent at each scrape. It is safe for concurrent use.
type Collector struct {
	s Sources

	build, notAfter, backoff, engaged                    *prometheus.Desc
	proxies, saturated, session, frozen                  *prometheus.Desc
	orphans, held, swept, unswept, lastComplete, unknown *prometheus.Desc

	mu      sync.Mutex // guards what follows
	members map[string]*Member
}

var _ prometheus.Collector = (*Collector)(nil)

func newCollector(s Sources) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	return &Collector{
		s: s, members: map[string]*Member{},
		build:        desc("build_info", "Always 1; what the agent was built from.", "version", "commit", "go_version"),
		notAfter:     desc("certificate_not_after_timestamp_seconds", "When the agent's certificate ends, as seconds since 1970. It is renewed with a fifth to a quarter of its life left."),
		backoff:      desc("backoff_until_timestamp_seconds", "Until when requests for instances wait, as seconds since 1970, where a provider has refused one.", "member", "provider", "scope", "reason"),
		engaged:      desc("member_engaged", "Whether the agent works for a member that it was told of; the reason is what is wrong with it, if anything is.", "member", "source", "reason"),
		proxies:      desc("proxies", "Proxies, by phase of their life.", "member", "provider", "phase"),
		saturated:    desc("proxies_saturated", "Ready proxies that are too busy to be leased.", "member", "provider"),
		session:      desc("session_up", "Whether the member's session with the hub is up.", "member"),
		frozen:       desc("verdicts_frozen", "Whether so many probes fail together that no proxy of the member is judged unhealthy by them.", "member"),
		orphans:      desc("sweep_orphans", "Instances that no Proxy owns, as the last pass of the orphan sweep saw them.", "member"),
		held:         desc("sweep_held", "Orphans that are kept for now because most of the member's instances seem to be some.", "member"),
		swept:        desc("sweep_deleted_total", "Orphans whose deletion the provider has taken.", "member"),
		unswept:      desc("sweep_failures_total", "Attempts to delete an orphan that have failed.", "member"),
		lastComplete: desc("sweep_last_complete_timestamp_seconds", "When the orphan sweep last had complete lists of instances and of their owners, as seconds since 1970; 0 for never.", "member"),
		unknown:      desc("member_unreadable", "Whether the member's proxies could not be counted at this scrape.", "member"),
	}
}

// Add makes a member be told of until remove is called. Another of the same name takes its place.
func (c *Collector) Add(m Member) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[m.Name] = &m
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.members[m.Name] == &m {
			delete(c.members, m.Name)
		}
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.build, c.notAfter, c.backoff, c.engaged, c.proxies, c.saturated, c.session, c.frozen,
		c.orphans, c.held, c.swept, c.unswept, c.lastComplete, c.unknown,
	} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.build, 1, c.s.Build.Version, c.s.Build.Commit, c.s.Build.Go)
	if c.s.NotAfter != nil {
		if at := c.s.NotAfter(); !at.IsZero() {
			gauge(c.notAfter, float64(at.Unix()))
		}
	}
	c.collectBlocks(gauge)
	if c.s.Engagements != nil {
		for _, e := range c.s.Engagements() {
			gauge(c.engaged, truth(e.Engaged), e.Member, e.Source, e.Reason)
		}
	}
	c.mu.Lock()
	members := slices.SortedFunc(maps.Values(c.members), func(a, b *Member) int { return strings.Compare(a.Name, b.Name) })
	c.mu.Unlock()
	for _, m := range members {
		c.collectProxies(m, gauge)
		if m.Connected != nil {
			gauge(c.session, truth(m.Connected()), m.Name)
		}
		if m.Frozen != nil {
			gauge(c.frozen, truth(m.Frozen()), m.Name)
		}
		if m.Sweep == nil {
			continue
		}
		s := m.Sweep()
		gauge(c.orphans, float64(s.Orphans), m.Name)
		gauge(c.held, float64(s.Held), m.Name)
		to <- prometheus.MustNewConstMetric(c.swept, prometheus.CounterValue, float64(s.Deleted), m.Name)
		to <- prometheus.MustNewConstMetric(c.unswept, prometheus.CounterValue, float64(s.Failed), m.Name)
		last := 0.0
		if !s.LastComplete.IsZero() {
			last = float64(s.LastComplete.Unix())
		}
		gauge(c.lastComplete, last, m.Name)
	}
}

// collectBlocks tells of the block that ends last, where there are several of the same name.
func (c *Collector) collectBlocks(gauge func(*prometheus.Desc, float64, ...string)) {
	if c.s.Blocks == nil {
		return
	}
	last := map[Block]float64{}
	for _, b := range c.s.Blocks() {
		until := float64(b.Until.Unix())
		b.Until = time.Time{} // told apart by the rest
		last[b] = max(last[b], until)
	}
	for b, until := range last {
		gauge(c.backoff, until, b.Member, b.Provider, b.Scope, b.Reason)
	}
}

func (c *Collector) collectProxies(m *Member, gauge func(*prometheus.Desc, float64, ...string)) {
	if m.Proxies == nil {
		return
	}
	counts, err := m.Proxies()
	gauge(c.unknown, truth(err != nil), m.Name)
	if err != nil {
		return
	}
	type key struct{ provider, phase string }
	by, saturated := map[key]int{}, map[string]int{}
	for k, n := range counts {
		if _, known := saturated[k.Provider]; !known {
			saturated[k.Provider] = 0
			for _, phase := range phases {
				by[key{k.Provider, string(phase)}] += 0
			}
		}
		by[key{k.Provider, k.Phase}] += n
		if k.Saturated {
			saturated[k.Provider] += n
		}
	}
	for k, n := range by {
		gauge(c.proxies, float64(n), m.Name, k.provider, k.phase)
	}
	for provider, n := range saturated {
		gauge(c.saturated, float64(n), m.Name, provider)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
