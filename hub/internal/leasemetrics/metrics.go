// Package leasemetrics counts and times what is done with leases.
//
// What callers do is counted by a [Keeper] that stands before the lease keeper, so that every protocol counts alike; what
// there is, such as leases and cooldowns, is asked of the engine at each scrape. Every label has few values, but for
// fleets, which are objects of the hub, and for targets and exits, of which those with the latest bans are kept: see
// [MostTargets] and [MostExits].
package leasemetrics

import (
	"container/list"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

const (
	// MostTargets is how many targets have a series of their own for bans. The one with no ban
	// for longest gives way to a new one; should it come back, its count begins at zero, as after a restart.
	MostTargets = 200
	// MostExits is the same for exits.
	MostExits = 500
)

// Metrics are the metrics of leases. It is a [prometheus.Collector] and safe for concurrent use.
type Metrics struct {
	clock    clock.PassiveClock
	seconds  *prometheus.HistogramVec
	refusals *prometheus.CounterVec
	calls    *prometheus.CounterVec
	bans     *prometheus.CounterVec
	guarded  *prometheus.CounterVec
	targets  *latest
	exits    *latest
}

// New makes the metrics.
func New(clock clock.PassiveClock) *Metrics {
	return &Metrics{
		clock: clock,
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "shoal_lease_command_duration_seconds",
			Help: "How long commands take, journal included, by command; an acquire that may wait is an acquire_wait.",
			// From an answer out of memory to a disk on a bad day, and then to those who wait.
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 15, 30, 60},
		}, []string{"command"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "shoal_lease_refusals_total", Help: "Refused commands, by command and by the reason that callers are told.",
		}, []string{"command", "reason"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "shoal_lease_calls_total", Help: "Calls of the lease service, by call and by their code; ok for those without an error.",
		}, []string{"call", "code"}),
		bans: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "shoal_lease_bans_total", Help: "Reports of bans and rate limits, by fleet and outcome.",
		}, []string{"fleet", "outcome"}),
		guarded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "shoal_lease_guarded_bans_total", Help: "Bans that were not acted upon, because their reporter reported too many, by fleet.",
		}, []string{"fleet"}),
		targets: newLatest(MostTargets, prometheus.CounterOpts{
			Name: "shoal_lease_target_bans_total", Help: "Reports of bans and rate limits, by target: those with the latest.",
		}, "target"),
		exits: newLatest(MostExits, prometheus.CounterOpts{
			Name: "shoal_lease_exit_bans_total", Help: "Reports of bans and rate limits, by exit: those with the latest.",
		}, "exit"),
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.seconds, m.refusals, m.calls, m.bans, m.guarded, m.targets.vec, m.exits.vec}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(descs)
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(metrics)
	}
}

// Interceptor counts the calls of a connect server.
func (m *Metrics) Interceptor() connect.ServerInterceptor {
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			err := next(ctx, spec, stream)
			code := "ok"
			if err != nil {
				code = connect.CodeOf(err).String()
			}
			m.calls.WithLabelValues(spec.Procedure[strings.LastIndexByte(spec.Procedure, '/')+1:], code).Inc()
			return err
		}
	}
}

// Doer carries out commands. *keeper.Keeper does.
type Doer interface {
	Do(ctx context.Context, cmd lease.Command) (lease.Result, error)
}

// Keeper is a [Doer] that counts.
type Keeper struct {
	next Doer
	m    *Metrics
}

// Wrap makes a keeper that counts.
func (m *Metrics) Wrap(next Doer) *Keeper { return &Keeper{next: next, m: m} }

// Do carries out the command and counts what came of it.
func (k *Keeper) Do(ctx context.Context, cmd lease.Command) (lease.Result, error) {
	name := nameOf(cmd)
	began := k.m.clock.Now()
	result, err := k.next.Do(ctx, cmd)
	k.m.seconds.WithLabelValues(name).Observe(k.m.clock.Since(began).Seconds())
	var refusal *lease.Refusal
	if errors.As(err, &refusal) {
		k.m.refusals.WithLabelValues(name, string(refusal.Reason)).Inc()
	}
	switch cmd := cmd.(type) {
	case lease.Report:
		if reported, ok := result.(lease.Reported); ok {
			for i := range cmd.Observations {
				k.m.observe(&reported.Lease, &cmd.Observations[i])
			}
			if reported.Guarded > 0 {
				k.m.guarded.WithLabelValues(string(reported.Lease.Fleet)).Add(float64(reported.Guarded))
			}
		}
	case lease.Release:
		if released, ok := result.(lease.Released); ok && cmd.Outcome != nil {
			k.m.observe(&released.Lease, cmd.Outcome)
		}
	}
	return result, err
}

// observe counts what a target has refused.
func (m *Metrics) observe(l *lease.Lease, o *lease.Observation) {
	switch o.Outcome { //nolint:exhaustive // the others are no bans
	case lease.Blocked, lease.Captcha, lease.RateLimited:
	default:
		return
	}
	m.bans.WithLabelValues(string(l.Fleet), o.Outcome.String()).Inc()
	target := o.Target
	if target.IsZero() {
		target = l.Target
	}
	m.targets.inc(target.Key())
	for _, exit := range l.Exits {
		m.exits.inc(exit.String())
	}
}

func nameOf(cmd lease.Command) string {
	switch cmd := cmd.(type) {
	case lease.Acquire:
		if cmd.Wait > 0 {
			return "acquire_wait"
		}
		return "acquire"
	case lease.Renew:
		return "renew"
	case lease.Release:
		return "release"
	case lease.Report:
		return "report"
	case lease.Get:
		return "get"
	case lease.List:
		return "list"
	default:
		return "other"
	}
}

// latest counts by a label of which only the latest values are kept.
type latest struct {
	vec  *prometheus.CounterVec
	most int

	mu    sync.Mutex
	by    map[string]*list.Element
	order *list.List
}

func newLatest(most int, opts prometheus.CounterOpts, label string) *latest {
	return &latest{vec: prometheus.NewCounterVec(opts, []string{label}), most: most, by: map[string]*list.Element{}, order: list.New()}
}

func (l *latest) inc(value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.by[value]; e != nil {
		l.order.MoveToFront(e)
	} else {
		l.by[value] = l.order.PushFront(value)
		if len(l.by) > l.most {
			oldest := l.order.Back()
			name, _ := l.order.Remove(oldest).(string)
			delete(l.by, name)
			l.vec.DeleteLabelValues(name)
		}
	}
	l.vec.WithLabelValues(value).Inc()
}

// scrapeTimeout bounds the question that a scrape puts to the engine.
const scrapeTimeout = 2 * time.Second
