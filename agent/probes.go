package agent

import (
	"crypto/x509"
	"fmt"
	"hash/fnv"
	"strings"
	"sync/atomic"

	"github.com/shoal-dev/shoal/agent/internal/controller/proxy"
	"github.com/shoal-dev/shoal/agent/internal/metrics"
	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/internal/settings"
)

// prober makes the probe engines of the members. Each has its own, because verdicts freeze member by member; what bounds
// their work they share.
type prober struct {
	c        Config
	homeUID  string
	prober   *probe.Prober
	limiter  *probe.Limiter
	verdicts *proxy.Verdicts
	counts   *metrics.Probes
}

func newProber(c Config, roots func() *x509.CertPool, verdicts *proxy.Verdicts, counts *metrics.Probes, homeUID string) (*prober, error) {
	p, err := probe.NewProber(probe.ProberOptions{Roots: withAuthorities(roots, c.Settings.Probe.Authorities()), Clock: c.Clock})
	if err != nil {
		return nil, err
	}
	limiter, err := probe.NewLimiter(probe.DefaultProbes)
	if err != nil {
		return nil, err
	}
	return &prober{c: c, homeUID: homeUID, prober: p, limiter: limiter, verdicts: verdicts, counts: counts}, nil
}

// runner makes the probe engine of one member.
func (p *prober) runner(member string) (*probe.Runner, error) {
	// Agents start together when a hub's chart is upgraded; their probes must not meet at one target.
	seed := fnv.New64a()
	fmt.Fprint(seed, p.homeUID, p.c.Namespace, member)
	log := p.c.Logger.With("member", member)
	return probe.NewRunner(probe.RunnerOptions{
		Probe:   p.prober.Probe,
		Echoes:  echoes(&p.c.Settings.Probe),
		Limiter: p.limiter,
		Seed:    seed.Sum64(),
		Clock:   p.c.Clock,
		OnVerdict: func(v probe.Verdict, d probe.Probe, changed bool) {
			p.counts.Observe(member, d)
			log.Debug("probed", "uid", v.UID, "target", d.Echo, "class", d.Class, "detail", d.Detail, "state", v.State,
				"dial", d.Dial, "connect", d.Connect, "tls", d.TLS, "firstByte", d.FirstByte, "whole", d.Latency)
			if changed {
				log.Info("verdict", "uid", v.UID, "state", v.State, "saturated", v.Saturated, "class", v.Class, "detail", v.Detail, "exits", v.Exits)
				p.verdicts.Changed(v.UID)
			}
		},
		OnFreeze: func(f probe.Freeze) { log.Warn("verdicts freeze or thaw", "freeze", f) },
	})
}

// withAuthorities adds the authorities of targets that are not the hub's. The hub's are replaced while the agent runs;
// the sum is made anew then.
func withAuthorities(roots func() *x509.CertPool, others []*x509.Certificate) func() *x509.CertPool {
	if len(others) == 0 {
		return roots
	}
	type sum struct{ of, all *x509.CertPool }
	var last atomic.Pointer[sum]
	return func() *x509.CertPool {
		now := roots()
		if now == nil {
			return nil
		}
		if known := last.Load(); known != nil && known.of == now {
			return known.all
		}
		all := now.Clone()
		for _, certificate := range others {
			all.AddCert(certificate)
		}
		last.Store(&sum{of: now, all: all})
		return all
	}
}

func echoes(p *settings.Probe) []probe.Echo {
	var list []probe.Echo
	for _, t := range p.Echoes() {
		name := p.ServerName
		if name == "" {
			name = t.Addr().String()
		}
		list = append(list, probe.Echo{ID: probe.EchoID(t.String()), Addr: t, ServerName: name})
	}
	for _, t := range p.Names() {
		host, _, _ := strings.Cut(t, ":")
		list = append(list, probe.Echo{ID: probe.EchoID(t), Host: t, ServerName: host})
	}
	return list
}
