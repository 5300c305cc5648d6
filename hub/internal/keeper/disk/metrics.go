package disk

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector measures a journal when it is collected. It may go on being
// collected after the journal was closed, and is silent then.
type Collector struct {
	journal *Journal

	bytes, free, ballast, log, snapshot, took, failures *prometheus.Desc
}

// NewCollector makes a collector that nobody has registered.
func NewCollector(j *Journal) *Collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("shoal_journal_"+name, help, nil, nil)
	}
	return &Collector{
		journal:  j,
		bytes:    desc("disk_bytes", "Bytes of the journal's files, without the reserve."),
		free:     desc("disk_free_bytes", "Bytes that are free on the journal's disk."),
		ballast:  desc("reserve_bytes", "Bytes kept for renewals, releases and reports when the disk is full; 0 once they are in use."),
		log:      desc("log_records", "Records appended since the last snapshot."),
		snapshot: desc("snapshot_records", "Records of the last snapshot."),
		took:     desc("snapshot_seconds", "How long the last snapshot took, beside the appends."),
		failures: desc("snapshot_failures_total", "Snapshots that could not be made since the start; the log goes on growing."),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(into chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.bytes, c.free, c.ballast, c.log, c.snapshot, c.took, c.failures} {
		into <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(into chan<- prometheus.Metric) {
	s, ok := c.journal.stats()
	if !ok {
		return
	}
	gauge := func(d *prometheus.Desc, v float64) {
		into <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	gauge(c.bytes, float64(s.bytes))
	gauge(c.free, float64(s.free))
	gauge(c.ballast, float64(s.ballast))
	gauge(c.log, float64(s.log))
	gauge(c.snapshot, float64(s.snapshot))
	gauge(c.took, s.took.Seconds())
	into <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(s.failures))
}

// stats is what a journal knows of itself.
type stats struct {
	bytes, free   uint64
	ballast       int64
	log, snapshot uint64
	took          time.Duration
	failures      uint64
}

// stats returns false once the journal is closed.
func (j *Journal) stats() (stats, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return stats{}, false
	}
	s := stats{
		bytes: j.db.Metrics().DiskSpaceUsage(), ballast: j.reserve.ballast(),
		log: j.appended.Load() - j.head.LogFrom, snapshot: j.head.Snapshot, took: j.took, failures: j.failures,
	}
	if usage, err := j.reserve.usage(); err == nil {
		s.free = usage.AvailBytes
	}
	return s, true
}
