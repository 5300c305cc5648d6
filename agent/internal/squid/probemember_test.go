package squid_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/controller/proxy"
	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/provider/fake"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const (
	// labInterval is short, so that the table takes seconds.
	labInterval = 100 * time.Millisecond
	// labPatience bounds the wait for anything.
	labPatience = time.Minute
	namespace   = "shoal"
)

// member is a member with the probe engine and the controller of the agent, and a Proxy for each endpoint of a row.
type member struct {
	t      *testing.T
	row    row
	client client.Client
	r      *proxy.Reconciler
	runner *probe.Runner
	events chan probe.Probe

	mu      sync.Mutex // guards what follows
	written int
	froze   []string

	seen  map[types.UID]map[probe.Class]int
	began time.Time
}

func newMember(t *testing.T, r row, l *lab) *member {
	t.Helper()
	m := &member{t: t, row: r, events: make(chan probe.Probe, 1<<14), seen: map[types.UID]map[probe.Class]int{}}
	kinds := runtime.NewScheme()
	if err := v1alpha1.AddMemberToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	m.client = fakeclient.NewClientBuilder().WithScheme(kinds).WithStatusSubresource(&v1alpha1.Proxy{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				m.mu.Lock()
				m.written++
				m.mu.Unlock()
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build()
	verdicts := proxy.NewVerdicts()
	prober, err := probe.NewProber(probe.ProberOptions{
		Roots: func() *x509.CertPool { return l.roots }, Clock: clock.RealClock{},
		DialTimeout: 2 * time.Second, ConnectTimeout: time.Second, TargetTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.runner, err = probe.NewRunner(probe.RunnerOptions{
		Probe: prober.Probe, Echoes: r.echoes, Interval: labInterval, Clock: clock.RealClock{},
		OnVerdict: func(_ probe.Verdict, p probe.Probe, _ bool) { m.events <- p },
		OnFreeze: func(f probe.Freeze) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if f.Frozen {
				m.froze = append(m.froze, string(f.Reason))
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	pods := fake.New(fake.Options{Clock: clock.RealClock{}})
	m.r, err = proxy.New(proxy.Options{
		Clock: clock.RealClock{}, HomeClusterUID: "home", Verdicts: verdicts,
		Site: func(context.Context, string) (proxy.Site, error) {
			return proxy.Site{
				Client: m.client, Entries: map[string]proxy.Entry{"fake": {Provider: pods}}, Member: known{}, Prober: m.runner,
				Policy:     func() ceiling.Policy { return ceiling.Policy{Providers: []string{"fake"}} },
				Credential: func(now time.Time, _ string) (user, pass string, err error) { return l.credential(t, r, now) },
			}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, endpoint := range r.proxies {
		m.run(i, endpoint, pods)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.runner.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m
}

type known struct{}

func (known) Identity() (hubUID, memberUID string, ok bool) { return "hub", "member", true }

// run makes a Proxy and has its instance run.
func (m *member) run(i int, endpoint string, pods *fake.Provider) {
	m.t.Helper()
	p := &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: m.name(i), UID: types.UID(m.name(i))},
		Spec: v1alpha1.ProxySpec{
			Mode: v1alpha1.ModeManaged, Provider: "fake",
			ProxySettings: v1alpha1.ProxySettings{Port: 3128, Egress: v1alpha1.Egress{ConnectPorts: []int32{443}}},
		},
	}
	if err := m.client.Create(m.t.Context(), p); err != nil {
		m.t.Fatal(err)
	}
	m.settle()
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		m.t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		m.t.Fatal(err)
	}
	name := m.get(i).Status.InstanceName
	if name == "" {
		m.t.Fatalf("%s has no instance: %+v", p.Name, m.get(i).Status)
	}
	pods.Run(name, host, int32(n))
	m.settle()
}

func (m *member) name(i int) string { return fmt.Sprintf("%s-%d", strings.ToLower(m.row.name), i) }

func (m *member) get(i int) *v1alpha1.Proxy {
	m.t.Helper()
	p := &v1alpha1.Proxy{}
	if err := m.client.Get(m.t.Context(), types.NamespacedName{Namespace: namespace, Name: m.name(i)}, p); err != nil {
		m.t.Fatal(err)
	}
	return p
}

// settle makes passes over all Proxies until none is written any more.
func (m *member) settle() {
	m.t.Helper()
	list := &v1alpha1.ProxyList{}
	for before := ""; ; {
		if err := m.client.List(m.t.Context(), list); err != nil {
			m.t.Fatal(err)
		}
		now := ""
		for _, p := range list.Items {
			now += p.ResourceVersion + " "
		}
		if now == before {
			return
		}
		before = now
		for _, p := range list.Items {
			request := mcreconcile.Request{Request: reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&p)}, ClusterName: "home"}
			if _, err := m.r.Reconcile(m.t.Context(), request); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

// restart counts probes and writes from now on.
func (m *member) restart() {
	m.seen, m.began = map[types.UID]map[probe.Class]int{}, time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written = 0
}

// await makes passes after every probe until the condition holds.
func (m *member) await(what string, holds func() bool) {
	m.t.Helper()
	for deadline := time.After(labPatience); ; {
		select {
		case p := <-m.events:
			of := m.seen[types.UID(p.UID)]
			if of == nil {
				of = map[probe.Class]int{}
				m.seen[types.UID(p.UID)] = of
			}
			of[p.Class]++
			m.settle()
			if holds() {
				return
			}
		case <-deadline:
			m.t.Fatalf("it did not come to this: %s; there is %+v, probes ended with %v, the freeze is %+v", what, m.conditions(0), m.seen, m.runner.Freeze())
		}
	}
}

// ended says whether so many probes of every proxy ended with a class, for so long, that it would have been judged for it.
func (m *member) ended(class probe.Class) bool {
	const enough = 6 // Twice as many as it takes.
	if len(m.seen) < len(m.row.proxies) || time.Since(m.began) < 8*labInterval {
		return false
	}
	for _, of := range m.seen {
		if of[class] < enough {
			return false
		}
	}
	return true
}

// all says whether every Proxy has these conditions.
func (m *member) all(want conditions) bool {
	for i := range m.row.proxies {
		if m.conditions(i) != want {
			return false
		}
	}
	return true
}

func (m *member) conditions(i int) conditions {
	st := m.get(i).Status
	is := func(name string) metav1.ConditionStatus {
		if c := meta.FindStatusCondition(st.Conditions, name); c != nil {
			return c.Status
		}
		return ""
	}
	return conditions{phase: st.Phase, healthy: is(v1alpha1.ConditionHealthy), ready: is(v1alpha1.ConditionReady), saturated: is(v1alpha1.ConditionSaturated)}
}

func (m *member) freeze() probe.FreezeReason { return m.runner.Freeze().Reason }

func (m *member) freezes() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.froze, ", ")
}

func (m *member) writes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.written
}
