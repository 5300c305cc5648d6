package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/internal/squid"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// scope is what one pass has read, and what its phases have found. Only phases write to it, each to its own part.
type scope struct {
	request mcreconcile.Request
	// site is the member that the proxy is in.
	site  Site
	proxy *v1alpha1.Proxy
	// entry is the provider entry that the spec names; nil with mode External, and where there is none of that name.
	entry *Entry
	// policy is the cluster owner's ceiling.
	policy ceiling.Policy
	// identity says whose the instance is; known is false until hub and member are known.
	identity provider.Identity
	known    bool
	// verdict is what the probes say; judged is false before the first result.
	verdict probe.Verdict
	judged  bool

	// violations are what checkCeiling found.
	violations []ceiling.Violation
	// seen says that the provider has told of the instance in this pass, or that it is being removed.
	seen bool
	// instance is what the provider said in this pass; nil where there is none.
	instance *provider.Instance
	// preempted says that the provider takes the instance back.
	preempted bool
	// overdue says that the proxy should have been ready on its instance long ago.
	overdue bool
	// retry is the value of the annotation by which somebody asks to try again, and forced that it is to be acted on.
	retry  string
	forced bool
	// problem is what keeps the instance from being provisioned, for people; permanent means that only another spec helps.
	problem   string
	reason    string
	permanent bool
	// next is what the pass writes down of the instance.
	next record
}

// record is what the status keeps of a proxy's instance: all that the next pass, by whoever makes it, must know.
type record struct {
	instanceName string
	specHash     string
	hostPort     int32
	attempt      *v1alpha1.Attempt
	setback      *v1alpha1.Setback
	handledRetry string
}

func recordOf(s *v1alpha1.ProxyStatus) record {
	return record{
		instanceName: s.InstanceName, specHash: s.SpecHash, hostPort: s.HostPort,
		attempt: s.Attempt.DeepCopy(), setback: s.Setback.DeepCopy(), handledRetry: s.HandledRetry,
	}
}

func (n *record) into(s *v1alpha1.ProxyStatus) {
	s.InstanceName, s.SpecHash, s.HostPort = n.instanceName, n.specHash, n.hostPort
	s.Attempt, s.Setback, s.HandledRetry = n.attempt, n.setback, n.handledRetry
}

// wait says what keeps the proxy from being provisioned.
func (s *scope) wait(reason, problem string) { s.reason, s.problem = reason, problem }

// draining says whether the proxy is on its way out, from which there is no way back.
func (s *scope) draining() bool {
	return s.preempted || s.proxy.Spec.Drain != nil || meta.IsStatusConditionTrue(s.proxy.Status.Conditions, v1alpha1.ConditionDraining)
}

// place is where the proxy's requests count.
func (s *scope) place() place {
	return place{cluster: string(s.request.ClusterName), entry: s.proxy.Spec.Provider}
}

// roll is where the proxy itself counts.
func (s *scope) roll() roll {
	return roll{cluster: string(s.request.ClusterName), namespace: s.proxy.Namespace}
}

// scope begins a pass.
func (r *Reconciler) scope(site Site, proxy *v1alpha1.Proxy, request mcreconcile.Request) *scope {
	s := &scope{request: request, site: site, proxy: proxy, next: recordOf(&proxy.Status)}
	s.identity, s.known = r.identity(site, proxy)
	if entry, ok := site.Entries[proxy.Spec.Provider]; ok && proxy.Spec.Mode != v1alpha1.ModeExternal {
		s.entry = &entry
	}
	return s
}

// gather reads all that the phases look at.
func (r *Reconciler) gather(ctx context.Context, s *scope) error {
	s.policy = s.site.Policy()
	s.verdict, s.judged = s.site.Prober.Verdict(probe.UID(s.proxy.UID))
	return r.census.visit(ctx, r.o.Clock.Now(), s.site.Client, s.roll(), s.proxy)
}

func (r *Reconciler) identity(site Site, proxy *v1alpha1.Proxy) (provider.Identity, bool) {
	hubUID, memberUID, ok := site.Member.Identity()
	return provider.Identity{
		ProxyUID:       string(proxy.UID),
		HubUID:         hubUID,
		MemberUID:      memberUID,
		HomeClusterUID: r.o.HomeClusterUID,
	}, ok
}

// request makes the request for the proxy's instance, and refuses what cannot be rendered. The name is filled in from
// the hash of all the rest, so that anything that matters makes another instance.
func (r *Reconciler) request(s *scope, hostPort int32) (provider.Request, error) {
	settings := *s.proxy.Spec.ProxySettings.DeepCopy()
	config, err := squid.Render(squid.Config{
		Port:         uint16(settings.Port), //nolint:gosec // 1024 to 65535, by the schema
		ProxyUID:     string(s.proxy.UID),
		PlainPorts:   ports(settings.Egress.Ports),
		ConnectPorts: ports(settings.Egress.ConnectPorts),
		ClusterCIDRs: s.policy.ClusterCIDRs,
		AllowedCIDRs: prefixes(settings.Egress.AllowedCIDRs),
		EchoTargets:  r.o.Echoes,
	})
	if err != nil {
		return provider.Request{}, &provider.Error{Kind: provider.KindInvalidSpec, Op: "render squid.conf", Err: err}
	}
	// How a proxy is probed changes nothing about its instance.
	hashed := settings
	hashed.HealthCheck = v1alpha1.HealthCheck{}
	text, err := json.Marshal(hashed)
	if err != nil {
		return provider.Request{}, &provider.Error{Kind: provider.KindInvalidSpec, Op: "hash spec", Err: err}
	}
	h := sha256.New()
	for _, part := range [][]byte{[]byte(s.proxy.Spec.Provider), []byte(s.entry.Salt), text, config, fmt.Append(nil, hostPort)} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	hash := hex.EncodeToString(h.Sum(nil))[:16]
	return provider.Request{
		Name:     provider.InstanceName(string(s.proxy.UID), hash),
		Identity: s.identity,
		Owner:    provider.Owner{Namespace: s.proxy.Namespace, Name: s.proxy.Name, UID: string(s.proxy.UID)},
		SpecHash: hash,
		Settings: settings,
		HostPort: hostPort,
		Config:   string(config),
	}, nil
}

func ports(from []int32) []uint16 {
	to := make([]uint16, len(from))
	for i, p := range from {
		to[i] = uint16(p) //nolint:gosec // 1 to 65535, by the schema
	}
	return to
}

// prefixes parses ranges that the ceiling has already passed.
func prefixes(from []string) []netip.Prefix {
	var to []netip.Prefix
	for _, text := range from {
		if p, err := netip.ParsePrefix(text); err == nil {
			to = append(to, p.Masked())
		}
	}
	return to
}
