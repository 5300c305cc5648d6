package agent

import (
	"context"
	"crypto/x509"
	"fmt"
	"hash/fnv"
	"net/netip"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/shoal-dev/shoal/agent/internal/controller/proxy"
	"github.com/shoal-dev/shoal/agent/internal/enroll"
	"github.com/shoal-dev/shoal/agent/internal/mirror"
	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/internal/report"
	"github.com/shoal-dev/shoal/agent/internal/uplink"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// sessions starts one session with the hub for each cluster that is engaged. It implements mcmanager.Runnable.
type sessions struct {
	c        Config
	enroller *enroll.Enroller
	mirror   *mirror.Mirror
	runner   *probe.Runner
	identity *agentv1.MemberIdentity
}

// Start has nothing to do: everything begins with Engage.
func (s *sessions) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Engage starts the session of one cluster, until ctx ends, and returns at once: nothing that is slow or broken about
// one cluster may hold up another.
func (s *sessions) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	outbox := uplink.NewOutbox()
	reporter, err := report.New(report.Options{Cache: cl.GetCache(), Namespace: s.c.Namespace, Outbox: outbox, Prober: s.runner, Clock: s.c.Clock})
	if err != nil {
		return err
	}
	dialer, err := uplink.NewDialer(s.c.Settings.Hub.URL, s.enroller.TLSConfig)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	var providers []string
	for i := range s.c.Settings.Providers {
		providers = append(providers, s.c.Settings.Providers[i].Name)
	}
	up, err := uplink.New(uplink.Options{
		Dial: dialer.Dial, Member: s.c.Settings.Member.Name, Identity: s.identity, Version: s.c.Version,
		Providers: providers, Networks: networks(s.c.Settings),
		Applier: s.mirror, Outbox: outbox, Clock: s.c.Clock, Logger: s.c.Logger.With("logger", "uplink", "cluster", string(name)),
	})
	if err != nil {
		return err
	}
	go s.run(ctx, "report", reporter.Run)
	go s.run(ctx, "uplink", up.Run)
	return nil
}

func (s *sessions) run(ctx context.Context, what string, f func(context.Context) error) {
	if err := f(ctx); err != nil && ctx.Err() == nil {
		s.c.Logger.Error("a part of the agent has ended", "part", what, "err", err)
	}
}

// newRunner makes the probe engine.
func newRunner(c Config, roots func() *x509.CertPool, verdicts *proxy.Verdicts, homeUID string) (*probe.Runner, error) {
	prober, err := probe.NewProber(probe.ProberOptions{Roots: roots, Clock: c.Clock})
	if err != nil {
		return nil, err
	}
	// Agents start together when a hub's chart is upgraded; their probes must not meet at one target.
	seed := fnv.New64a()
	fmt.Fprint(seed, homeUID, c.Namespace)
	return probe.NewRunner(probe.RunnerOptions{
		Probe:  prober.Probe,
		Echoes: echoes(c.Settings.Probe.Echoes(), c.Settings.Probe.ServerName),
		Seed:   seed.Sum64(),
		Clock:  c.Clock,
		OnVerdict: func(v probe.Verdict, p probe.Probe, changed bool) {
			c.Logger.Debug("probed", "uid", v.UID, "target", p.Echo, "class", p.Class, "detail", p.Detail, "state", v.State,
				"dial", p.Dial, "connect", p.Connect, "tls", p.TLS, "firstByte", p.FirstByte, "whole", p.Latency)
			if changed {
				c.Logger.Info("verdict", "uid", v.UID, "state", v.State, "saturated", v.Saturated, "class", v.Class, "detail", v.Detail, "exits", v.Exits)
				verdicts.Changed(v.UID)
			}
		},
		OnFreeze: func(f probe.Freeze) { c.Logger.Warn("verdicts freeze or thaw", "freeze", f) },
	})
}

func echoes(targets []netip.AddrPort, serverName string) []probe.Echo {
	var list []probe.Echo
	for _, t := range targets {
		name := serverName
		if name == "" {
			name = t.Addr().String()
		}
		list = append(list, probe.Echo{ID: probe.EchoID(t.String()), Addr: t, ServerName: name})
	}
	return list
}

// leading is a runnable that runs on the leader only.
type leading func(context.Context) error

// Start runs it.
func (l leading) Start(ctx context.Context) error { return l(ctx) }

// NeedLeaderElection says that it is the leader's.
func (l leading) NeedLeaderElection() bool { return true }
