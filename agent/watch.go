package agent

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/engage"
	"github.com/shoal-dev/shoal/agent/internal/metrics"
	"github.com/shoal-dev/shoal/agent/internal/sweep"
	"github.com/shoal-dev/shoal/agent/internal/uplink"
	"github.com/shoal-dev/shoal/agent/provider"
	providermetrics "github.com/shoal-dev/shoal/agent/provider/metrics"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// watch is what tells a scraper how the agent fares.
type watch struct {
	collector *metrics.Collector
	probes    *metrics.Probes
	calls     *providermetrics.Metrics
}

// newWatch registers the agent's metrics. What they are read from is made later, and told by then.
func newWatch(c Config, w *crew) (*watch, error) {
	registry := c.Registerer
	if registry == nil {
		registry = prometheus.NewRegistry() // nobody reads it
	}
	collector, probes, err := metrics.Register(registry, metrics.Sources{
		Build:       metrics.Build{Version: c.Version, Commit: c.Commit, Go: runtime.Version()},
		NotAfter:    w.notAfter,
		Blocks:      w.blocks,
		Engagements: w.engagements,
	})
	if err != nil {
		return nil, err
	}
	calls, err := providermetrics.New(providermetrics.Options{Registerer: registry, Clock: c.Clock})
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return &watch{collector: collector, probes: probes, calls: calls}, nil
}

// notAfter is when the agent's certificate ends; zero before it is enrolled.
func (w *crew) notAfter() time.Time {
	if w.office == nil {
		return time.Time{}
	}
	e := w.office.enroller.Load()
	if e == nil {
		return time.Time{}
	}
	return e.NotAfter()
}

// blocks are the scopes in which requests for instances wait.
func (w *crew) blocks() []metrics.Block {
	if w.proxies == nil {
		return nil
	}
	var told []metrics.Block
	for _, b := range w.proxies.Blocks() {
		told = append(told, metrics.Block{Member: b.Cluster, Provider: b.Entry, Scope: b.Scope, Reason: b.Reason, Until: b.Until})
	}
	return told
}

// engagements are the members that the agent was told of.
func (w *crew) engagements() []metrics.Engagement {
	if w.members == nil {
		return nil
	}
	var told []metrics.Engagement
	for _, s := range w.members.States() {
		told = append(told, metrics.Engagement{Member: s.Member, Source: s.Source, Engaged: s.Phase == engage.PhaseEngaged, Reason: string(s.Reason)})
	}
	return told
}

// newSweeper makes what removes the member's instances that no Proxy owns.
func (w *crew) newSweeper(m *member) (*sweep.Sweeper, error) {
	entries := make(map[string]provider.Provider, len(m.entries))
	for name, e := range m.entries {
		entries[name] = e.Provider
	}
	return sweep.New(sweep.Options{
		Entries: func() map[string]provider.Provider { return entries },
		// Of whichever member they are: a Proxy that has lost its label owns its instance all the same.
		Owners: func(ctx context.Context) (map[string]struct{}, error) {
			return sweep.Owners(ctx, m.direct, m.namespace)
		},
		Identity: m.mirror.Identity, HomeClusterUID: w.homeUID, Elected: w.local.Elected(), DryRun: w.c.SweepDryRun,
		Clock: w.c.Clock, Logger: w.c.Logger.With("logger", "sweep", "member", m.Name),
	})
}

// watchMember has the member told of until ctx ends.
func (w *crew) watchMember(ctx context.Context, m *member, up *uplink.Uplink, s *sweep.Sweeper) {
	remove := w.watch.collector.Add(metrics.Member{
		Name:      m.Name,
		Proxies:   func() (map[metrics.Count]int, error) { return countProxies(ctx, m) },
		Connected: up.Connected,
		Frozen:    func() bool { return m.runner.Freeze().Frozen },
		Sweep:     s.Status,
	})
	context.AfterFunc(ctx, func() {
		remove()
		w.watch.probes.Forget(m.Name)
	})
}

// countProxies reads the member's cache, without a copy of what it holds.
func countProxies(ctx context.Context, m *member) (map[metrics.Count]int, error) {
	list := &v1alpha1.ProxyList{}
	if err := m.GetCache().List(ctx, list, client.InNamespace(m.namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	counts := map[metrics.Count]int{}
	for i := range list.Items {
		p := &list.Items[i]
		phase := p.Status.Phase
		if phase == "" {
			phase = v1alpha1.PhasePending // nobody has looked at it yet
		}
		counts[metrics.Count{
			Provider: p.Spec.Provider, Phase: string(phase),
			Saturated: meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionSaturated),
		}]++
	}
	return counts, nil
}
