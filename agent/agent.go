package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/clusters"
	"github.com/shoal-dev/shoal/agent/internal/controller/proxy"
	"github.com/shoal-dev/shoal/agent/internal/controller/proxyset"
	"github.com/shoal-dev/shoal/agent/internal/engage"
	"github.com/shoal-dev/shoal/agent/internal/enroll"
	"github.com/shoal-dev/shoal/agent/internal/regions"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const (
	// callTimeout bounds calls to the API server that no watch is behind.
	callTimeout = 30 * time.Second
	// leaderElectionID names the Lease of the one agent that acts.
	leaderElectionID = "shoal-agent"
)

// Run runs the agent until ctx ends, and returns nil then. It returns an error where it cannot start, or can no longer
// go on.
func Run(ctx context.Context, c Config) error { return ignoreEnd(ctx, c.run(ctx)) }

func (c Config) run(ctx context.Context) error {
	if c.Settings == nil || c.Namespace == "" || c.RestConfig == nil || c.Logger == nil {
		return errors.New("agent: Settings, Namespace, RestConfig and Logger are required")
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.machines == nil {
		c.machines = newMachines
	}
	c.warnOfBodies(ctx)
	// Health: answered from here on, also while what follows waits.
	checks, err := serveHealth(c.HealthAddress)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	defer checks.close()
	ctrl.SetLogger(logr.FromSlogHandler(c.Logger.Handler()))
	kinds, err := newScheme()
	if err != nil {
		return err
	}

	// Home: a client without a cache, and what makes this cluster the one it is.
	// A burst of proxies is many calls; the API server's own fairness bounds them, and the client's limit would only delay
	// what the hub waits for.
	c.RestConfig = rest.CopyConfig(c.RestConfig)
	c.RestConfig.QPS = -1
	w := &crew{c: c, verdicts: proxy.NewVerdicts()}
	if w.watch, err = newWatch(c, w); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	if w.direct, err = newDirect(c.RestConfig, kinds); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	kubeSystem := &corev1.Namespace{}
	if err := w.direct.Get(ctx, client.ObjectKey{Name: "kube-system"}, kubeSystem); err != nil {
		return fmt.Errorf("agent: read the cluster's identity: %w", err)
	}
	w.homeUID = string(kubeSystem.UID)

	// Members: the agent's own cluster, regions and other clusters in, each engaged in its own time.
	controllers := map[string]*engage.Started{proxyset.Name: engage.NewStarted(), proxy.Name: engage.NewStarted()}
	members, err := engage.New(engage.Options{
		Clock: c.Clock, Logger: c.Logger.With("logger", "members"),
		Started: []*engage.Started{controllers[proxyset.Name], controllers[proxy.Name]},
	})
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	w.members = members
	first, watchers, err := w.announce(members)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}

	// Enrolment: a token in, a certificate out. An agent whose first member is known now waits for it here, if it has none.
	w.office = newOffice(c, enroll.NewSecretStore(w.direct, c.Namespace))
	if first != nil {
		if err := w.office.enrolled(ctx, *first); err != nil {
			return err
		}
	}

	// Probes: endpoints in, verdicts out. Their credentials are signed by a key of the agent's own.
	if w.signer, err = probeSigner(ctx, w.direct, c.Namespace); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	if w.prober, err = newProber(c, w.office.roots, w.verdicts, w.watch.probes, w.homeUID); err != nil {
		return fmt.Errorf("agent: %w", err)
	}

	// Manager: every loop asks for its member by name.
	if w.local, err = c.newManager(kinds); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	if err := w.followClusters(members); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	mgr, err := mcmanager.WithMultiCluster(w.local, members)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}

	// Controllers: ProxySets in, Proxies out; Proxies in, instances out.
	sets, err := proxyset.New(proxyset.Options{
		Clock: c.Clock, Recorder: w.local.GetEventRecorder("proxyset"), Started: controllers[proxyset.Name],
		Client: func(ctx context.Context, name string) (client.Client, error) {
			m, err := memberOf(ctx, members, name)
			if err != nil {
				return nil, err
			}
			return m.GetClient(), nil
		},
		Policy: func(ctx context.Context, name string) (ceiling.Policy, error) {
			m, err := memberOf(ctx, members, name)
			if err != nil {
				return ceiling.Policy{}, err
			}
			return m.policy(), nil
		},
	})
	if err != nil {
		return err
	}
	w.proxies, err = proxy.New(proxy.Options{
		Clock: c.Clock, HomeClusterUID: w.homeUID, Echoes: c.Settings.Probe.Echoes(), Verdicts: w.verdicts,
		Recorder: w.local.GetEventRecorder("proxy"), Started: controllers[proxy.Name],
		Site: func(ctx context.Context, name string) (proxy.Site, error) {
			m, err := memberOf(ctx, members, name)
			if err != nil {
				return proxy.Site{}, err
			}
			return m.site(), nil
		},
	})
	if err != nil {
		return err
	}
	if err := errors.Join(sets.SetupWithManager(mgr), w.proxies.SetupWithManager(mgr), mgr.Add(w)); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	checks.setReady(w.ready(members))

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.office.run(ctx) })
	for _, watch := range watchers {
		group.Go(func() error { return watch(ctx) })
	}
	group.Go(func() error { return mgr.Start(ctx) })
	return group.Wait()
}

// announce tells the provider of all members that are known now, and gives the first of them, with which an agent without
// a certificate registers, and what brings the others as they become known.
func (w *crew) announce(members *engage.Provider) (first *enroll.Member, watchers []func(context.Context) error, err error) {
	if own := w.c.Settings.Member; own != nil {
		first = ptr.To(w.memberOfHome())
		if err := members.Set(own.Name, w.home()); err != nil {
			return nil, nil, err
		}
	}
	if w.c.RegionsFile != "" {
		file, err := regions.New(regions.Options{
			File: w.c.RegionsFile, Settings: w.c.Settings, Members: members, Candidate: w.region,
			Clock: w.c.Clock, Logger: w.c.Logger.With("logger", "regions"),
		})
		if err != nil {
			return nil, nil, err
		}
		listed, err := file.Load()
		if err != nil {
			return nil, nil, err
		}
		if first == nil && len(listed) > 0 {
			first = ptr.To(w.memberOfRegion(listed[0]))
		}
		watchers = append(watchers, file.Run)
	}
	if first == nil && len(watchers) == 0 && !w.c.Settings.KubeconfigSecrets {
		return nil, nil, errNoMembers
	}
	return first, watchers, nil
}

// followClusters has the leading agent tell the provider of the clusters of kubeconfig Secrets.
func (w *crew) followClusters(members *engage.Provider) error {
	if !w.c.Settings.KubeconfigSecrets {
		return nil
	}
	secrets, err := clusters.New(clusters.Options{
		Config: w.c.RestConfig, Scheme: w.local.GetScheme(), Namespace: w.c.Namespace, Settings: w.c.Settings,
		Members: members, Candidate: w.cluster, Recorder: w.local.GetEventRecorder("clusters"), Logger: w.c.Logger.With("logger", "clusters"),
	})
	if err != nil {
		return err
	}
	return w.local.Add(manager.RunnableFunc(secrets.Run))
}

// ready tells that the agent works: it leads members, or stands by for one that does.
func (w *crew) ready(members *engage.Provider) func(context.Context) error {
	return func(ctx context.Context) error {
		if !w.local.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the agent has not read all of its objects yet")
		}
		select {
		case <-w.local.Elected():
		default:
			return nil
		}
		// The agent's own cluster is the one whose trouble is the agent's; of others' its status tells.
		for _, s := range members.States() {
			if own := w.c.Settings.Member; own != nil && s.Member == own.Name && s.Phase != engage.PhaseEngaged {
				return errors.New("the agent has not read all of its objects yet")
			}
		}
		return nil
	}
}

func (c Config) newManager(kinds *runtime.Scheme) (manager.Manager, error) {
	objects := map[client.Object]cache.ByObject{}
	if own := c.Settings.Member; own != nil {
		objects = regions.OnlyObjects(own.Name)
	}
	return manager.New(c.RestConfig, manager.Options{
		Scheme:                        kinds,
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{c.Namespace: {}}, ByObject: objects},
		Logger:                        logr.FromSlogHandler(c.Logger.Handler()),
		HealthProbeBindAddress:        noAddress,
		Metrics:                       metricsserver.Options{BindAddress: c.MetricsAddress},
		LeaderElection:                c.LeaderElection,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       c.Namespace,
		LeaderElectionReleaseOnCancel: true,
		// An agent that was killed is missed for this long; an API server may be slow for as long without ending the agent.
		LeaseDuration: ptr.To(12 * time.Second),
		RenewDeadline: ptr.To(9 * time.Second),
		RetryPeriod:   ptr.To(time.Second),
	})
}

// newDirect makes a client without a cache, whose calls end in time.
func newDirect(config *rest.Config, kinds *runtime.Scheme) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.Timeout = callTimeout
	return client.New(config, client.Options{Scheme: kinds})
}

// ignoreEnd makes nothing of an error that only says that the agent was told to stop.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), v1alpha1.AddMemberToScheme(s)); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return s, nil
}
