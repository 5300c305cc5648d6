// Package metrics counts and times the calls that are made of providers.
package metrics

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// outcomeOK is the outcome of a call without an error; every other outcome is a [provider.Kind].
const outcomeOK = "OK"

// Options configures Metrics.
type Options struct {
	// Registerer takes the collectors. Required.
	Registerer prometheus.Registerer
	// Clock times calls. Required.
	Clock clock.PassiveClock
}

// Metrics are the metrics of all providers of a process. It is safe for concurrent use.
type Metrics struct {
	clock   clock.PassiveClock
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// New makes the metrics and registers them.
func New(o Options) (*Metrics, error) {
	if o.Registerer == nil || o.Clock == nil {
		return nil, errors.New("provider metrics: Registerer and Clock are required")
	}
	m := &Metrics{
		clock: o.Clock,
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "shoal_agent_provider_calls_total",
			Help: "Calls of providers, by entry of the provider file, verb, and outcome: OK, or the kind of the error.",
		}, []string{"provider", "verb", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "shoal_agent_provider_call_duration_seconds",
			Help: "How long calls of providers take, by entry of the provider file and verb.",
			// From what an API server in the same cluster answers in to what a cloud needs on a bad day.
			Buckets: []float64{.005, .02, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"provider", "verb"}),
	}
	for _, c := range []prometheus.Collector{m.calls, m.seconds} {
		if err := o.Registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Wrap makes a provider that does what p does and tells m of each call. It is zoned, and marks, where p does.
func Wrap(entry string, p provider.Provider, m *Metrics) provider.Provider {
	base := &counted{entry: entry, next: p, m: m}
	zoned, isZoned := p.(provider.Zoned)
	marker, isMarker := p.(provider.Marker)
	switch {
	case isZoned && isMarker:
		return struct {
			*counted
			zones
			marks
		}{base, zones{zoned}, marks{base, marker}}
	case isZoned:
		return struct {
			*counted
			zones
		}{base, zones{zoned}}
	case isMarker:
		return struct {
			*counted
			marks
		}{base, marks{base, marker}}
	default:
		return base
	}
}

type counted struct {
	entry string
	next  provider.Provider
	m     *Metrics
}

// call times one call and sorts it by its outcome.
func (c *counted) call(verb string, f func() error) error {
	begun := c.m.clock.Now()
	err := f()
	outcome := outcomeOK
	if err != nil {
		outcome = string(provider.KindOf(err))
	}
	c.m.calls.WithLabelValues(c.entry, verb, outcome).Inc()
	c.m.seconds.WithLabelValues(c.entry, verb).Observe(max(0, c.m.clock.Since(begun)).Seconds())
	return err
}

// Create implements [provider.Provider].
func (c *counted) Create(ctx context.Context, r provider.Request) (receipt provider.Receipt, err error) {
	err = c.call("create", func() error {
		receipt, err = c.next.Create(ctx, r)
		return err
	})
	return receipt, err
}

// Get implements [provider.Provider].
func (c *counted) Get(ctx context.Context, ref provider.Ref) (instance provider.Instance, err error) {
	err = c.call("get", func() error {
		instance, err = c.next.Get(ctx, ref)
		return err
	})
	return instance, err
}

// Delete implements [provider.Provider].
func (c *counted) Delete(ctx context.Context, ref provider.Ref, id provider.Identity, o provider.DeleteOptions) error {
	return c.call("delete", func() error { return c.next.Delete(ctx, ref, id, o) })
}

// List implements [provider.Provider].
func (c *counted) List(ctx context.Context, id provider.Identity) (listing provider.Listing, err error) {
	err = c.call("list", func() error {
		listing, err = c.next.List(ctx, id)
		return err
	})
	return listing, err
}

// zones asks nobody outside the process, and is not counted.
type zones struct{ next provider.Zoned }

// Zones implements [provider.Zoned].
func (z zones) Zones(settings v1alpha1.ProxySettings, proxyUID string) ([]string, error) {
	return z.next.Zones(settings, proxyUID)
}

type marks struct {
	by   *counted
	next provider.Marker
}

// Mark implements [provider.Marker].
func (m marks) Mark(ctx context.Context, ref provider.Ref, id provider.Identity, busy bool) error {
	return m.by.call("mark", func() error { return m.next.Mark(ctx, ref, id, busy) })
}
