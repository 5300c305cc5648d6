package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/shoal-dev/shoal/agent/internal/controller/proxy"
	"github.com/shoal-dev/shoal/agent/internal/mirror"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/internal/provider/kubernetes"
	"github.com/shoal-dev/shoal/agent/internal/settings"
	"github.com/shoal-dev/shoal/agent/provider"
	providermetrics "github.com/shoal-dev/shoal/agent/provider/metrics"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// keysEvery is how often a member's machines are looked at whose keys should be current already: one that was busy when
// they changed is reached later.
const keysEvery = 5 * time.Minute

// offer is what a member has fleets choose from.
type offer struct {
	// entries are providers by the names that fleets say.
	entries map[string]proxy.Entry
	// networks are those that proxies are exposed on.
	networks []string
	// bearers are those of the providers that bring keys to their instances.
	bearers []keyBearer
	// calls counts what is asked of providers.
	calls *providermetrics.Metrics
}

func (o *offer) names() []string { return slices.Sorted(maps.Keys(o.entries)) }

func (o *offer) add(name string, e proxy.Entry, network v1alpha1.Network) {
	if o.entries == nil {
		o.entries = map[string]proxy.Entry{}
	}
	// What counts the calls shows only what the contract has.
	if b, ok := e.Provider.(keyBearer); ok {
		o.bearers = append(o.bearers, b)
	}
	e.Provider = providermetrics.Wrap(name, e.Provider, o.calls)
	o.entries[name] = e
	if !slices.Contains(o.networks, string(network)) {
		o.networks = append(o.networks, string(network))
	}
}

// podOffer is what a cluster offers: pods, by each entry of that type.
func podOffer(c Config, cl cluster.Cluster, namespace string, calls *providermetrics.Metrics) (offer, error) {
	o := offer{calls: calls}
	for i := range c.Settings.Providers {
		e := &c.Settings.Providers[i]
		if e.Type != settings.TypeKubernetes {
			continue
		}
		pods, err := kubernetes.New(kubernetes.Options{
			Client: cl.GetClient(), Reader: cl.GetAPIReader(), Namespace: namespace,
			Image: e.Kubernetes.Image, ImagePullPolicy: corev1.PullPolicy(e.Kubernetes.ImagePullPolicy),
			HostPort: e.Kubernetes.Exposure == settings.ExposureHostPort, NodeSelector: e.Kubernetes.NodeSelector,
			Pods: e.Kubernetes.PodSettings, KeysConfigMap: mirror.KeysConfigMap, Clock: c.Clock,
		})
		if err != nil {
			return offer{}, err
		}
		network := v1alpha1.NetworkPodIP
		if e.Kubernetes.Exposure == settings.ExposureHostPort {
			network = v1alpha1.NetworkHostPort
		}
		first, last := e.Kubernetes.HostPorts()
		o.add(e.Name, proxy.Entry{
			Provider:  pods,
			Salt:      pods.Salt(),
			FirstPort: first, LastPort: last,
		}, network)
	}
	return o, nil
}

// machineMaker makes the provider of one entry in one region. Keys gives what its machines check credentials with, and
// secrets reads the agent's namespace.
type machineMaker func(ctx context.Context, c Config, secrets client.Reader, r settings.Region, entry gcp.Settings, keys func() mirror.Keys) (proxy.Entry, error)

// machineOffer is what a region offers: virtual machines, by each of its entries.
func machineOffer(ctx context.Context, c Config, secrets client.Reader, r settings.Region, m *mirror.Mirror, calls *providermetrics.Metrics) (offer, error) {
	o := offer{calls: calls}
	for name, entry := range r.Entries() {
		e, err := c.machines(ctx, c, secrets, r, entry, m.Keys)
		if err != nil {
			return offer{}, fmt.Errorf("provider %s in %s: %w", name, r.Region, err)
		}
		o.add(name, e, v1alpha1.NetworkVM)
	}
	return o, nil
}

// keyBearer is a provider whose instances have to be brought new keys; those of others mount them.
type keyBearer interface {
	// SyncKeys brings the keys to all of an identity's instances that have others. What failed is worth another try.
	SyncKeys(ctx context.Context, id provider.Identity) error
}

// changeKeys asks for keys to be brought to machines.
func (m *member) changeKeys() {
	select {
	case m.keysChanged <- struct{}{}:
	default: // It is asked for already.
	}
}

// bringKeys keeps the keys of the member's machines current until ctx ends.
func (m *member) bringKeys(ctx context.Context, c Config, homeUID string) error {
	if len(m.bearers) == 0 {
		return nil
	}
	ticker := c.Clock.NewTicker(keysEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.keysChanged:
		case <-ticker.C():
		}
		hubUID, memberUID, known := m.mirror.Identity()
		if !known {
			continue
		}
		id := provider.Identity{HubUID: hubUID, MemberUID: memberUID, HomeClusterUID: homeUID}
		for _, b := range m.bearers {
			if err := b.SyncKeys(ctx, id); err != nil && ctx.Err() == nil {
				c.Logger.Warn("not all machines have the newest keys; they are brought later", "member", m.Name, "err", err, "retryIn", keysEvery.String())
			}
		}
	}
}

// newMachines makes the provider of one entry in one region. Each has a client of its own, with the entry's credentials.
func newMachines(ctx context.Context, c Config, secrets client.Reader, r settings.Region, entry gcp.Settings, keys func() mirror.Keys) (proxy.Entry, error) {
	o := entry.ClientOptions()
	o.UserAgent = "shoal-agent/" + c.Version
	o.Logger = logr.FromSlogHandler(c.Logger.Handler()).WithName("gcp").WithValues("member", r.Member)
	o.Clock, o.WireLogFullPayloads = c.Clock, c.GCPWireLogFullPayloads
	compute, err := computeclient.New(ctx, o)
	if err != nil {
		return proxy.Entry{}, err
	}
	machines, err := gcp.New(gcp.Options{
		Compute: compute, Settings: entry, Region: r.Region, Zones: r.Zones, Secrets: secrets, Namespace: c.Namespace,
		Keys: func(context.Context) (gcp.Keys, error) {
			k := keys()
			return gcp.Keys{Hub: k.Hub, Agent: k.Agent}, nil
		},
	})
	return proxy.Entry{Provider: machines, Salt: entry.Salt()}, err
}

// warnOfBodies says so where the bodies of calls to Compute Engine are logged: a log is read by more people than a project.
func (c Config) warnOfBodies(ctx context.Context) {
	// A logger of verbosity writes V(n) at the level -n.
	if !c.Logger.Enabled(ctx, slog.Level(-computeclient.WireLevel)) {
		return
	}
	long := "strings over 1 KiB are replaced by their hash"
	if c.GCPWireLogFullPayloads {
		long = "long strings are logged in full"
	}
	c.Logger.Warn("bodies of calls to Compute Engine are logged, without credentials and without what machines are booted with; lower --log-level where that is not wanted", "long", long)
}
