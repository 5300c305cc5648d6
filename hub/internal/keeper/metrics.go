package keeper

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are what a keeper measures of its journal, whichever it is. It is a
// prometheus.Collector; the keeper writes and anybody may collect.
type Metrics struct {
	appends prometheus.Histogram
	batches prometheus.Histogram
	reads   prometheus.Gauge
	full    prometheus.Gauge
}

// NewMetrics makes metrics that nobody has registered.
func NewMetrics() *Metrics {
	return &Metrics{
		appends: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "shoal_journal_append_seconds", Help: "How long the lease journal took to make a batch of records durable. Every answer waits for one.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16), // to 1.6 s
		}),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "shoal_journal_batch_records", Help: "Records of a batch: how many share one sync.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12), // to 2048
		}),
		reads: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "shoal_journal_read_only", Help: "1 while nothing is leased (READ_ONLY), because the journal has no room for new leases.",
		}),
		full: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "shoal_journal_full", Help: "1 while the journal takes nothing at all: nothing is renewed, released or reported either.",
		}),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(into chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(into)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(into chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(into)
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.appends, m.batches, m.reads, m.full}
}

func (m *Metrics) appended(records int, took time.Duration) {
	m.appends.Observe(took.Seconds())
	m.batches.Observe(float64(records))
}

func (m *Metrics) found(room Room) {
	m.reads.Set(asGauge(room != RoomForAll))
	m.full.Set(asGauge(room == RoomForNothing))
}

func asGauge(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
