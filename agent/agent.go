package agent

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/multicluster-runtime/providers/single"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/controller/proxy"
	"github.com/shoal-dev/shoal/agent/internal/controller/proxyset"
	"github.com/shoal-dev/shoal/agent/internal/enroll"
	"github.com/shoal-dev/shoal/agent/internal/mirror"
	"github.com/shoal-dev/shoal/agent/internal/provider/kubernetes"
	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/proto/credential"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

const (
	// homeCluster is the name under which the agent's own cluster is engaged.
	homeCluster = multicluster.ClusterName("home")
	// callTimeout bounds calls to the API server that no watch is behind.
	callTimeout = 30 * time.Second
	// leaderElectionID names the Lease of the one agent that acts.
	leaderElectionID = "shoal-agent"
)

// Config is what a process of the agent is given beside its configuration file.
type Config struct {
	// Settings is the cluster owner's configuration file.
	Settings *Settings
	// JoinTokenFile holds the token that lets an agent without a certificate register. It is not needed later, and may be
	// gone then.
	JoinTokenFile string
	// Namespace is where the agent keeps its objects.
	Namespace string
	// RestConfig is how the cluster's API server is reached.
	RestConfig *rest.Config
	// Version is told to the hub.
	Version string
	// HealthAddress and MetricsAddress are listened on; "0" is none.
	HealthAddress, MetricsAddress string
	// LeaderElection lets several replicas stand by for one. It is off in tests.
	LeaderElection bool
	// Clock is the real one where it is nil.
	Clock clock.WithTicker
	// Logger takes the agent's log; it must not be nil.
	Logger *slog.Logger
}

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
	direct := rest.CopyConfig(c.RestConfig)
	direct.Timeout = callTimeout
	home, err := client.New(direct, client.Options{Scheme: kinds})
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	kubeSystem := &corev1.Namespace{}
	if err := home.Get(ctx, client.ObjectKey{Name: "kube-system"}, kubeSystem); err != nil {
		return fmt.Errorf("agent: read the cluster's identity: %w", err)
	}
	homeUID := string(kubeSystem.UID)
	identity := &agentv1.MemberIdentity{ClusterUid: homeUID, Namespace: c.Namespace}

	// Mirror: desired state from the hub in, ProxySets and keys out. What it learnt of hub and member outlives both.
	copies, err := mirror.New(mirror.Options{
		Client: home, Reader: home, Namespace: c.Namespace,
		Policy: func() ceiling.Policy { return policyOf(c.Settings) },
	})
	if err != nil {
		return err
	}
	if err := copies.Load(ctx); err != nil {
		return fmt.Errorf("agent: %w", err)
	}

	// Enrolment: a token in, a certificate out. Only the first start of an agent waits for the hub here,
	// and one whose saved certificates are damaged.
	store := enroll.NewSecretStore(home, c.Namespace)
	state, err := store.Load(ctx)
	if err != nil && !errors.Is(err, enroll.ErrNoState) {
		return fmt.Errorf("agent: %w", err)
	}
	// What was saved may be damaged. Without certificates to know the hub's targets by, nothing could be probed.
	roots, damage := enroll.Pool(state.Bundle)
	if damage != nil && err == nil {
		c.Logger.Warn("what was saved of the hub is damaged, so this agent registers again", "secret", enroll.SecretName, "err", damage)
	}
	token, err := readJoinToken(c.JoinTokenFile)
	if err != nil && damage != nil {
		return fmt.Errorf("agent: %w", err)
	}
	enroller, err := enroll.New(enroll.Options{
		HubURL: c.Settings.Hub.URL, CAPin: c.Settings.Hub.CAPin, Token: token,
		Member: c.Settings.Member.Name, Identity: identity, Region: c.Settings.Member.Region, Country: c.Settings.Member.Country,
		Version: c.Version, Store: store, Clock: c.Clock, Logger: c.Logger.With("logger", "enroll"),
	})
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	if damage != nil {
		if err := enroller.Enroll(ctx); err != nil {
			return fmt.Errorf("agent: %w", err)
		}
		if state, err = store.Load(ctx); err != nil {
			return fmt.Errorf("agent: %w", err)
		}
		if roots, err = enroll.Pool(state.Bundle); err != nil {
			return fmt.Errorf("agent: %w", err)
		}
	}

	// Probes: endpoints in, verdicts out. Their credentials are signed by a key of the agent's own.
	signer, err := probeSigner(ctx, home, c.Namespace)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	keys, err := credential.Marshal([]credential.Key{signer.PublicKey()}, nil)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	if err := copies.SetProbeKeys(ctx, keys); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	verdicts := proxy.NewVerdicts()
	// The hub's authorities are replaced while the agent runs; before the agent is enrolled, those that were saved stand.
	authorities := func() *x509.CertPool {
		if current := enroller.Roots(); current != nil {
			return current
		}
		return roots
	}
	runner, err := newRunner(c, authorities, verdicts, homeUID)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}

	// Manager: the home cluster, engaged like any other, so that every loop asks for its cluster by name.
	local, err := manager.New(c.RestConfig, manager.Options{
		Scheme: kinds,
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{c.Namespace: {}},
		},
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
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	mgr, err := mcmanager.WithMultiCluster(local, single.New(homeCluster, local))
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	clientOf := func(ctx context.Context, name string) (client.Client, error) {
		cl, err := mgr.GetCluster(ctx, multicluster.ClusterName(name))
		if err != nil {
			return nil, err
		}
		return cl.GetClient(), nil
	}

	// Controllers: ProxySets in, Proxies out; Proxies in, instances out.
	entries, err := newEntries(c, local)
	if err != nil {
		return err
	}
	sets, err := proxyset.New(proxyset.Options{
		Clock: c.Clock, Client: clientOf, Recorder: local.GetEventRecorder("proxyset"),
		Policy: func(context.Context, string) (ceiling.Policy, error) { return policyOf(c.Settings), nil },
	})
	if err != nil {
		return err
	}
	proxies, err := proxy.New(proxy.Options{
		Clock: c.Clock, HomeClusterUID: homeUID,
		Site: func(ctx context.Context, name string) (proxy.Site, error) {
			cl, err := clientOf(ctx, name)
			return proxy.Site{
				Client: cl, Entries: entries, Member: copies, Policy: func() ceiling.Policy { return policyOf(c.Settings) }, Prober: runner,
				Credential: func(now time.Time, proxyUID string) (user, pass string, err error) {
					token, err := signer.Sign(now, credential.ProxyUID(proxyUID), credential.Principal(credential.ProbePrefix+c.Settings.Member.Name), probeLifetime)
					return probeUser, token.Password, err
				},
			}, err
		},
		Echoes: c.Settings.Probe.Echoes(), Verdicts: verdicts,
		Recorder: local.GetEventRecorder("proxy"),
	})
	if err != nil {
		return err
	}
	if err := errors.Join(sets.SetupWithManager(mgr), proxies.SetupWithManager(mgr)); err != nil {
		return fmt.Errorf("agent: %w", err)
	}

	// Members: one session each, from when its cluster is engaged. Reports in, frames out, and back.
	s := &sessions{c: c, enroller: enroller, mirror: copies, runner: runner, identity: identity}
	if err := mgr.Add(s); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	if err := local.Add(leading(runner.Run)); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	checks.setReady(func(ctx context.Context) error {
		if !local.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the agent has not read all of its objects yet")
		}
		return nil
	})

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		c.stayEnrolled(ctx, enroller)
		return nil
	})
	group.Go(func() error { return mgr.Start(ctx) })
	return group.Wait()
}

// stayEnrolled keeps the agent's certificate good until ctx ends. Where only a person can mend that, the proxies that are
// there are led on without the hub.
func (c Config) stayEnrolled(ctx context.Context, enroller *enroll.Enroller) {
	err := enroller.Enroll(ctx)
	if err == nil {
		err = enroller.Run(ctx)
	}
	if err != nil && ctx.Err() == nil {
		c.Logger.Error("the agent is not enrolled; its proxies go on without the hub", "err", err)
	}
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

func policyOf(s *Settings) ceiling.Policy {
	p := ceiling.Policy{
		ClusterCIDRs:       s.Ceiling.Cluster(),
		AllowedCIDRs:       s.Ceiling.Allowed(),
		Ports:              s.Ceiling.ports,
		MaxProxies:         s.Ceiling.MaxProxies,
		MaxProxySets:       s.Ceiling.MaxProxySets,
		MaxProbesPerSecond: s.Ceiling.MaxProbesPerSecond,
		CloudInit:          s.Ceiling.CloudInit,
		CloudInitSecrets:   s.Ceiling.CloudInitSecrets,
		NodeSelectorKeys:   s.Ceiling.NodeSelectorKeys,
	}
	for i := range s.Providers {
		p.Providers = append(p.Providers, s.Providers[i].Name)
	}
	return p
}

// newEntries makes the providers of the provider file.
func newEntries(c Config, local manager.Manager) (map[string]proxy.Entry, error) {
	entries := map[string]proxy.Entry{}
	for i := range c.Settings.Providers {
		e := &c.Settings.Providers[i]
		pods, err := kubernetes.New(kubernetes.Options{
			Client: local.GetClient(), Reader: local.GetAPIReader(), Namespace: c.Namespace,
			Image: e.Kubernetes.Image, ImagePullPolicy: corev1.PullPolicy(e.Kubernetes.ImagePullPolicy),
			HostPort: e.Kubernetes.Exposure == ExposureHostPort, NodeSelector: e.Kubernetes.NodeSelector,
			KeysConfigMap: mirror.KeysConfigMap, Clock: c.Clock,
		})
		if err != nil {
			return nil, err
		}
		first, last := e.Kubernetes.HostPorts()
		entries[e.Name] = proxy.Entry{
			Provider:  pods,
			Salt:      fmt.Sprintf("%s %s %v", e.Kubernetes.Image, e.Kubernetes.Exposure, e.Kubernetes.NodeSelector),
			FirstPort: first,
			LastPort:  last,
		}
	}
	return entries, nil
}

// networks are the networks that the member exposes proxies on.
func networks(s *Settings) []string {
	var found []string
	for i := range s.Providers {
		network := string(v1alpha1.NetworkPodIP)
		if s.Providers[i].Kubernetes.Exposure == ExposureHostPort {
			network = string(v1alpha1.NetworkHostPort)
		}
		if !slices.Contains(found, network) {
			found = append(found, network)
		}
	}
	return found
}
