package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/clusters"
	"github.com/shoal-dev/shoal/agent/internal/controller/proxy"
	"github.com/shoal-dev/shoal/agent/internal/engage"
	"github.com/shoal-dev/shoal/agent/internal/enroll"
	"github.com/shoal-dev/shoal/agent/internal/mirror"
	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/internal/regions"
	"github.com/shoal-dev/shoal/agent/internal/report"
	"github.com/shoal-dev/shoal/agent/internal/settings"
	"github.com/shoal-dev/shoal/agent/internal/uplink"
	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/proto/credential"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// place is what members differ in.
type place struct {
	enroll.Member
	// cluster is what the member is engaged as. Reads come from its cache, which shows the member's objects only.
	cluster cluster.Cluster
	// direct reads and writes without a cache. It sees the objects of every member of the namespace.
	direct    client.Client
	namespace string
	ceiling   *settings.Ceiling
	// offer makes the providers that fleets may name, given the member's keys.
	offer func(*mirror.Mirror) (offer, error)
}

// member is one member with all that it has of its own. It is the cluster that is engaged under its name, so that
// whoever has a request's cluster has the member.
type member struct {
	cluster.Cluster
	place
	offer
	mirror *mirror.Mirror
	runner *probe.Runner
	// credential signs a probe's user name and password.
	credential proxy.Credential
	// leased is what the hub says of the member's leases.
	leased *proxy.Busy
	parts  parts
	// keysChanged has a value when keys were changed since they were last brought to machines.
	keysChanged chan struct{}
}

// Start runs the member's cluster until ctx ends, and returns when nothing of the member runs any more: what takes its
// place must not meet it.
func (m *member) Start(ctx context.Context) error {
	err := m.Cluster.Start(ctx)
	m.parts.wait()
	return err
}

// parts are the goroutines of a member. Once they are waited for none is started.
type parts struct {
	mu      sync.Mutex
	ending  bool
	running sync.WaitGroup
}

func (p *parts) start(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ending {
		p.running.Go(f)
	}
}

func (p *parts) wait() {
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	p.running.Wait()
}

// policy is the owner's ceiling for the member.
func (m *member) policy() ceiling.Policy { return m.ceiling.Policy(m.names()) }

// site is what the controller of proxies must know of the member.
func (m *member) site() proxy.Site {
	return proxy.Site{
		Client: m.GetClient(), Reader: m.direct, Entries: m.entries, Member: m.mirror, Policy: m.policy, Prober: m.runner,
		Credential: m.credential, Busy: m.leased,
	}
}

// crew makes members, and starts what each has of its own when it is engaged. It implements mcmanager.Runnable.
type crew struct {
	c        Config
	homeUID  string
	direct   client.Client
	local    manager.Manager
	office   *office
	signer   *credential.Signer
	verdicts *proxy.Verdicts
	prober   *prober
	watch    *watch
	members  *engage.Provider
	proxies  *proxy.Reconciler
}

// home is the candidate for the agent's own cluster.
func (w *crew) home() engage.Candidate {
	return engage.Candidate{
		Source: "the agent's own cluster", Kinds: watched(),
		Open: func(ctx context.Context) (cluster.Cluster, error) {
			m, err := w.open(ctx, place{
				Member: w.memberOfHome(),
				// The manager starts it, and nobody else must.
				cluster: started{w.local}, direct: w.direct, namespace: w.c.Namespace, ceiling: &w.c.Settings.Ceiling,
				offer: func(*mirror.Mirror) (offer, error) { return podOffer(w.c, w.local, w.c.Namespace, w.watch.calls) },
			})
			if err != nil {
				return nil, err
			}
			return m, m.mirror.Adopt(ctx)
		},
	}
}

func (w *crew) memberOfHome() enroll.Member {
	own := w.c.Settings.Member
	return enroll.Member{Name: own.Name, Region: own.Region, Country: own.Country, Identity: w.homeIdentity()}
}

func (w *crew) homeIdentity() *agentv1.MemberIdentity {
	return &agentv1.MemberIdentity{ClusterUid: w.homeUID, Namespace: w.c.Namespace}
}

// region is the candidate for a region of a cloud.
func (w *crew) region(r settings.Region) engage.Candidate {
	return engage.Candidate{
		Kinds: watched(),
		Open: func(ctx context.Context) (cluster.Cluster, error) {
			view, err := regions.NewView(regions.ViewOptions{Config: w.c.RestConfig, Home: w.local, Namespace: w.c.Namespace, Member: r.Member})
			if err != nil {
				return nil, err
			}
			return w.open(ctx, place{
				Member: w.memberOfRegion(r), cluster: view, direct: w.direct, namespace: w.c.Namespace, ceiling: &r.Ceiling,
				offer: func(m *mirror.Mirror) (offer, error) { return machineOffer(ctx, w.c, w.direct, r, m, w.watch.calls) },
			})
		},
	}
}

// memberOfRegion is the member that a region is. Its objects are in the home cluster: another home would be another member.
func (w *crew) memberOfRegion(r settings.Region) enroll.Member {
	identity := w.homeIdentity()
	identity.Project, identity.Region = r.Project(), r.Region
	return enroll.Member{Name: r.Member, Region: r.Region, Country: r.Country, Identity: identity}
}

// cluster is the candidate for a cluster of a kubeconfig Secret.
func (w *crew) cluster(k *clusters.Cluster) engage.Candidate {
	var direct client.Client
	return engage.Candidate{
		Kinds: watched(),
		Open: func(ctx context.Context) (cluster.Cluster, error) {
			uid, err := engage.Preflight(ctx, k.Config, engage.Flight{Namespace: k.Namespace, External: !k.NoExternal})
			if err != nil {
				return nil, err
			}
			var cl cluster.Cluster
			if cl, direct, err = k.Open(w.local.GetScheme()); err != nil {
				return nil, err
			}
			return w.open(ctx, place{
				Member:  enroll.Member{Name: k.Member, Region: k.Region, Country: k.Country, Identity: &agentv1.MemberIdentity{ClusterUid: uid, Namespace: k.Namespace}},
				cluster: cl, direct: direct, namespace: k.Namespace, ceiling: &k.Ceiling,
				offer: func(*mirror.Mirror) (offer, error) { return podOffer(w.c, cl, k.Namespace, w.watch.calls) },
			})
		},
		Check: func(ctx context.Context) error { return clusters.Answers(ctx, direct) },
	}
}

// open makes a member, when the agent is enrolled and all that the member has kept is read.
func (w *crew) open(ctx context.Context, p place) (*member, error) {
	if err := w.office.enrolled(ctx, p.Member); err != nil {
		return nil, err
	}
	m := &member{
		Cluster: p.cluster, place: p, keysChanged: make(chan struct{}, 1),
		leased: proxy.NewBusy(w.c.Clock, w.verdicts),
	}
	m.credential = func(now time.Time, proxyUID string) (user, pass string, err error) {
		token, err := w.signer.Sign(now, credential.ProxyUID(proxyUID), credential.Principal(credential.ProbePrefix+p.Name), probeLifetime)
		return probeUser, token.Password, err
	}
	var err error
	m.mirror, err = mirror.New(mirror.Options{
		Member: p.Name, Client: p.direct, Reader: p.direct, Namespace: p.namespace, Policy: m.policy, OnKeys: m.changeKeys,
	})
	if err != nil {
		return nil, err
	}
	if err := m.mirror.Load(ctx); err != nil {
		return nil, fmt.Errorf("read what is known of member %s: %w", p.Name, err)
	}
	keys, err := credential.Marshal([]credential.Key{w.signer.PublicKey()}, nil)
	if err != nil {
		return nil, err
	}
	if err := m.mirror.SetProbeKeys(ctx, keys); err != nil {
		return nil, err
	}
	if m.offer, err = p.offer(m.mirror); err != nil {
		return nil, err
	}
	m.runner, err = w.prober.runner(p.Name)
	return m, err
}

// memberOf gives the engaged member of a name.
func memberOf(ctx context.Context, clusters multicluster.Provider, name string) (*member, error) {
	cl, err := clusters.Get(ctx, multicluster.ClusterName(name))
	if err != nil {
		return nil, err
	}
	m, ok := cl.(*member)
	if !ok {
		return nil, fmt.Errorf("cluster %q is no member of this agent", name)
	}
	return m, nil
}

// Start has nothing to do: everything begins with Engage.
func (w *crew) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Engage starts what the member has of its own, until ctx ends, and returns at once: nothing that is slow or broken about
// one member may hold up another. Reports in, frames out, and back; probes; keys; the sweep; metrics.
func (w *crew) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	m, ok := cl.(*member)
	if !ok {
		return fmt.Errorf("agent: cluster %q was not made here", name)
	}
	outbox := uplink.NewOutbox()
	reporter, err := report.New(report.Options{Cache: m.GetCache(), Namespace: m.namespace, Outbox: outbox, Prober: m.runner, Clock: w.c.Clock})
	if err != nil {
		return err
	}
	dialer, err := uplink.NewDialer(w.c.Settings.Hub.URL, w.office.tls)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	up, err := uplink.New(uplink.Options{
		Dial: dialer.Dial, Member: m.Name, Identity: m.Identity, Version: w.c.Version, Providers: m.names(), Networks: m.networks,
		Join:    func(ctx context.Context) error { return w.office.join(ctx, m.Member) },
		Applier: m.mirror, Outbox: outbox, Leased: m.leased.Set, Clock: w.c.Clock, Logger: w.c.Logger.With("logger", "uplink"),
	})
	if err != nil {
		return err
	}
	sweeper, err := w.newSweeper(m)
	if err != nil {
		return err
	}
	w.watchMember(ctx, m, up, sweeper)
	for what, run := range map[string]func(context.Context) error{
		"sweep": sweeper.Run, "probes": m.runner.Run, "report": reporter.Run, "uplink": up.Run,
		"keys": func(ctx context.Context) error { return m.bringKeys(ctx, w.c, w.homeUID) },
	} {
		m.parts.start(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				w.c.Logger.Error("a part of the agent has ended", "part", what, "member", m.Name, "err", err)
			}
		})
	}
	return nil
}

// watched are the kinds that the controllers watch in each member.
func watched() []client.Object {
	return []client.Object{&v1alpha1.ProxySet{}, &v1alpha1.Proxy{}, &corev1.Pod{}}
}

// started is a cluster that somebody else starts.
type started struct{ cluster.Cluster }

// Start waits for the end.
func (started) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

var errNoMembers = errors.New("agent: it has no member to speak for: write the member block, name a file of regions, or set kubeconfigSecrets")
