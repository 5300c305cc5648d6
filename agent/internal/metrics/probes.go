package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shoal-dev/shoal/agent/internal/probe"
)

// Probes counts and times probes. It is safe for concurrent use.
type Probes struct {
	results *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

func newProbes() *Probes {
	return &Probes{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "probes_total",
			Help: "Probes through proxies, by what they found out.",
		}, []string{"member", "class"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "probe_stage_duration_seconds",
			Help: "How long each stage of a probe took that came to its end: dial, connect (the proxy opens the tunnel), tls, first_byte.",
			// From a proxy on the same node to one that is about to time out.
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"member", "stage"}),
	}
}

// Observe takes note of one probe of a member's proxy.
func (p *Probes) Observe(member string, done probe.Probe) {
	p.results.WithLabelValues(member, string(done.Class)).Inc()
	for _, s := range []struct {
		stage string
		took  time.Duration
	}{{"dial", done.Dial}, {"connect", done.Connect}, {"tls", done.TLS}, {"first_byte", done.FirstByte}} {
		if s.took > 0 { // a stage that was not reached took no time
			p.seconds.WithLabelValues(member, s.stage).Observe(s.took.Seconds())
		}
	}
}

// Forget drops what was counted of a member that is gone.
func (p *Probes) Forget(member string) {
	p.results.DeletePartialMatch(prometheus.Labels{"member": member})
	p.seconds.DeletePartialMatch(prometheus.Labels{"member": member})
}
