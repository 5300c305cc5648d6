package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/agent/internal/apitest"
	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/controller/proxy"
	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/internal/provider/kubernetes"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/agent/provider/fake"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

var server apitest.Server

func TestMain(m *testing.M) { apitest.Main(m, &server) }

// prober is a probe engine without probes: tests say the verdicts.
type prober struct {
	mu       sync.Mutex
	targets  map[probe.UID]string
	checks   map[probe.UID]probe.HealthCheck
	last     map[probe.UID]probe.Proxy // as it was last told
	known    map[probe.UID]probe.Known // of the first call
	verdicts map[probe.UID]probe.Verdict
	removed  int
}

func newProber() *prober {
	return &prober{targets: map[probe.UID]string{}, checks: map[probe.UID]probe.HealthCheck{}, last: map[probe.UID]probe.Proxy{}, known: map[probe.UID]probe.Known{}, verdicts: map[probe.UID]probe.Verdict{}}
}

func (p *prober) Upsert(t probe.Proxy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if have, ok := p.targets[t.UID]; ok && have != t.Endpoint {
		delete(p.verdicts, t.UID)
	}
	if have, ok := p.targets[t.UID]; !ok || have != t.Endpoint {
		p.known[t.UID] = t.Known
	}
	p.last[t.UID] = t
	p.targets[t.UID], p.checks[t.UID] = t.Endpoint, t.HealthCheck
}

func (p *prober) Remove(uid probe.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.targets[uid]; ok {
		p.removed++
	}
	delete(p.targets, uid)
	delete(p.verdicts, uid)
}

func (p *prober) Verdict(uid probe.UID) (probe.Verdict, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.verdicts[uid]
	return v, ok
}

func (p *prober) target(uid types.UID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.targets[probe.UID(uid)]
}

func (p *prober) check(uid types.UID) probe.HealthCheck {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.checks[probe.UID(uid)]
}

func (p *prober) judge(t *testing.T, uid types.UID, v probe.Verdict) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.targets[probe.UID(uid)] == "" {
		t.Fatal("a verdict on a proxy that is not probed")
	}
	v.UID = probe.UID(uid)
	p.verdicts[v.UID] = v
}

type member struct{ unknown bool }

func (m member) Identity() (hubUID, memberUID string, ok bool) { return "hub", "member", !m.unknown }

// world is a namespace with a reconciler that tests crank by hand.
type world struct {
	t         *testing.T
	namespace string
	client    client.WithWatch
	clock     *clocktesting.FakePassiveClock
	prober    *prober
	fake      *fake.Provider
	zoned     *fake.ZonedProvider
	policy    ceiling.Policy
	options   proxy.Options
	site      proxy.Site
	r         *proxy.Reconciler
}

// newWorld has entries "fake", "zoned" (by operations, in zones a to c), "pods" (pod addresses) and "ports" (host ports from
// 21000 on).
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, namespace: server.Namespace(t), client: server.Client, prober: newProber()}
	w.clock = clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second))
	w.fake = fake.New(fake.Options{Clock: w.clock})
	w.zoned = fake.NewZoned(fake.Options{Clock: w.clock, Operations: true, Slow: true}, "a", "b", "c")
	w.policy = ceiling.Policy{
		Providers:    []string{"fake", "zoned", "pods", "ports"},
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("172.30.0.0/16")},
	}
	w.options = proxy.Options{
		Clock:          w.clock,
		HomeClusterUID: "home",
		Site: func(context.Context, string) (proxy.Site, error) {
			site := w.site
			site.Client, site.Prober = w.client, w.prober
			return site, nil
		},
		Echoes:   []netip.AddrPort{netip.MustParseAddrPort("172.30.0.2:443")},
		Verdicts: proxy.NewVerdicts(),
	}
	w.site = proxy.Site{
		Reader:     server.Client,
		Member:     member{},
		Policy:     func() ceiling.Policy { return w.policy },
		Credential: func(time.Time, string) (user, pass string, err error) { return "probe", "secret", nil },
		Entries: map[string]proxy.Entry{
			"fake":  {Provider: w.fake},
			"zoned": {Provider: w.zoned},
			"pods":  {Provider: w.pods(false)},
			"ports": {Provider: w.fake, FirstPort: 21000, LastPort: 21019},
		},
	}
	w.restart()
	return w
}

func (w *world) pods(hostPort bool) provider.Provider {
	p, err := kubernetes.New(kubernetes.Options{
		Client: w.client, Reader: w.client, Namespace: w.namespace, Image: "shoal-proxy:test",
		HostPort: hostPort, KeysConfigMap: "shoal-keys", Clock: w.clock,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// restart forgets all that is not in the API server or with the provider.
func (w *world) restart() {
	w.t.Helper()
	var err error
	if w.r, err = proxy.New(w.options); err != nil {
		w.t.Fatal(err)
	}
}

// make makes a Proxy of a provider entry.
func (w *world) make(name, entry string, change ...func(*v1alpha1.Proxy)) *v1alpha1.Proxy {
	w.t.Helper()
	p := &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: entry},
	}
	for _, f := range change {
		f(p)
	}
	if err := server.Client.Create(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) request(name string) mcreconcile.Request {
	return mcreconcile.Request{
		Request:     reconcile.Request{NamespacedName: types.NamespacedName{Namespace: w.namespace, Name: name}},
		ClusterName: "home",
	}
}

// pass makes one pass and wants no error of it.
func (w *world) pass(name string) ctrl.Result {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), w.request(name))
	if err != nil {
		w.t.Fatalf("pass over %s: %v", name, err)
	}
	return result
}

// settle makes passes until one writes nothing, and gives the Proxy then.
func (w *world) settle(name string) *v1alpha1.Proxy {
	w.t.Helper()
	last := ""
	for range 20 {
		w.pass(name)
		p := w.get(name)
		if p == nil || p.ResourceVersion == last {
			return p
		}
		last = p.ResourceVersion
	}
	w.t.Fatalf("%s does not settle: %+v", name, w.get(name).Status)
	return nil
}

// advance moves the time on.
func (w *world) advance(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// get gives the Proxy, nil if there is none.
func (w *world) get(name string) *v1alpha1.Proxy {
	w.t.Helper()
	p := &v1alpha1.Proxy{}
	err := server.Client.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, p)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// change changes a Proxy's spec.
func (w *world) change(name string, f func(*v1alpha1.ProxySpec)) {
	w.t.Helper()
	p := w.get(name)
	f(&p.Spec)
	if err := server.Client.Update(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
}

// ready brings a Proxy of entry "fake" to Ready at an address.
func (w *world) ready(name, host string, port int32) *v1alpha1.Proxy {
	w.t.Helper()
	p := w.settle(name)
	w.fake.Run(p.Status.InstanceName, host, port)
	p = w.settle(name)
	w.prober.judge(w.t, p.UID, probe.Verdict{State: probe.StateReady, Class: probe.ClassOK, Since: w.clock.Now()})
	p = w.settle(name)
	w.want(p, v1alpha1.PhaseReady, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonProbesPass)
	return p
}

func (w *world) list(list client.ObjectList) {
	w.t.Helper()
	if err := server.Client.List(w.t.Context(), list, client.InNamespace(w.namespace)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) podList() []corev1.Pod {
	w.t.Helper()
	list := &corev1.PodList{}
	w.list(list)
	return list.Items
}

// start binds a pod to a node and makes it run.
func (w *world) start(pod *corev1.Pod, ip string) {
	w.t.Helper()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
	if err := server.Client.SubResource("binding").Create(w.t.Context(), pod, binding); err != nil {
		w.t.Fatal(err)
	}
	if err := server.Client.Get(w.t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		w.t.Fatal(err)
	}
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, ip
	if err := server.Client.Status().Update(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) want(p *v1alpha1.Proxy, phase v1alpha1.ProxyPhase, condition string, status metav1.ConditionStatus, reason string) {
	w.t.Helper()
	c := meta.FindStatusCondition(p.Status.Conditions, condition)
	if c == nil {
		c = &metav1.Condition{}
	}
	if p.Status.Phase != phase || c.Status != status || c.Reason != reason {
		w.t.Fatalf("phase %s with %s=%s %s (%s), want phase %s with %s %s",
			p.Status.Phase, condition, c.Status, c.Reason, c.Message, phase, status, reason)
	}
}

func message(p *v1alpha1.Proxy, condition string) string {
	if c := meta.FindStatusCondition(p.Status.Conditions, condition); c != nil {
		return c.Message
	}
	return ""
}

// errCrash is what a write answers where a test crashes the agent.
var errCrash = errors.New("the agent was killed here")

// crashing lets n writes through and ends the agent at the next one: before it had its effect, or after.
func crashing(n int, after bool, writes *int) client.WithWatch {
	hit := func(do func() error) error {
		*writes++
		if *writes != n+1 {
			if *writes > n+1 {
				return errCrash
			}
			return do()
		}
		if after {
			if err := do(); err != nil {
				return err
			}
		}
		return errCrash
	}
	return interceptor.NewClient(server.Client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return hit(func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return hit(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return hit(func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return hit(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
}

// with makes the reconciler and its pods use a client.
func (w *world) with(c client.WithWatch) {
	w.client = c
	w.site.Entries["pods"] = proxy.Entry{Provider: w.pods(false)}
	w.restart()
}

func numbered(i int) string { return fmt.Sprintf("p-%d", i) }
