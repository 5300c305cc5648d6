package faultmatrix

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/controller/proxy"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/agent/provider/fake"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// crowd is a member with many proxies, all of them ready.
type crowd struct {
	r      *proxy.Reconciler
	clock  *clocktesting.FakePassiveClock
	writes *injector
	calls  *injector
	n      int
}

func newCrowd(b *testing.B, n int) *crowd {
	c := &crowd{clock: clocktesting.NewFakePassiveClock(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)), writes: &injector{}, calls: &injector{}, n: n}
	api, pods := NewMemoryAt(c.clock), fake.New(fake.Options{Clock: c.clock})
	client := writes(api, c.writes)
	site := proxy.Site{
		Client: client, Member: known{}, Prober: healthy{},
		Entries: map[string]proxy.Entry{entry: {Provider: (&faulty{Provider: pods, injector: c.calls, clock: c.clock}).wrapped(), FirstPort: 20000, LastPort: 29999}},
		Policy: func() ceiling.Policy {
			return ceiling.Policy{Providers: []string{entry}, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
		},
		Credential: func(time.Time, string) (user, pass string, err error) { return "probe", "secret", nil },
	}
	var err error
	c.r, err = proxy.New(proxy.Options{
		Clock: c.clock, HomeClusterUID: "home", Verdicts: proxy.NewVerdicts(),
		Site: func(context.Context, string) (proxy.Site, error) { return site, nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		p := &v1alpha1.Proxy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "member", Name: fmt.Sprintf("p-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)), CreationTimestamp: metav1.NewTime(c.clock.Now())},
			Spec: v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: entry, ProxySettings: v1alpha1.ProxySettings{
				Port: 3128, Egress: v1alpha1.Egress{Ports: []int32{80}, ConnectPorts: []int32{443}},
			}},
		}
		if err := api.Create(b.Context(), p); err != nil {
			b.Fatal(err)
		}
	}
	for range 5 {
		c.round(b)
		for _, i := range pods.Instances() {
			if i.State == provider.StatePending {
				pods.Run(i.Name, "192.0.2.1", 3128)
			}
		}
	}
	return c
}

// round makes a pass over each proxy, a minute after the last one, and gives what one took.
func (c *crowd) round(b *testing.B) time.Duration {
	c.clock.SetTime(c.clock.Now().Add(time.Minute))
	c.writes.arm(0, nil)
	c.calls.arm(0, nil)
	begin := time.Now()
	for i := range c.n {
		_, err := c.r.Reconcile(b.Context(), mcreconcile.Request{
			Request: reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "member", Name: fmt.Sprintf("p-%d", i)}}, ClusterName: member,
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin) / time.Duration(c.n)
}

// still makes a round and wants it to have changed nothing: no write, and no call to the provider but one look at each.
func (c *crowd) still(b *testing.B) time.Duration {
	took := c.round(b)
	if len(c.writes.names) != 0 {
		b.Fatalf("%d writes in %d passes that change nothing, the first %s", len(c.writes.names), c.n, c.writes.names[0])
	}
	looks := 0
	for _, call := range c.calls.names {
		if call == "Get" {
			looks++
		}
	}
	if looks != c.n || len(c.calls.names) != c.n {
		b.Fatalf("%d calls to the provider in %d passes that change nothing, %d of them Get", len(c.calls.names), c.n, looks)
	}
	return took
}

// BenchmarkReconcileNoop makes passes that change nothing over 5,000 proxies (bar: no write to the API server) and prints
// what one takes, and its ratio to one among 50.
func BenchmarkReconcileNoop(b *testing.B) {
	large, small := newCrowd(b, 5000), newCrowd(b, 50)
	var larges, smalls []time.Duration
	for b.Loop() {
		larges = append(larges, large.still(b))
		for range 20 {
			smalls = append(smalls, small.still(b))
		}
	}
	at := float64(median(larges).Microseconds())
	b.ReportMetric(at, "µs/pass")
	// Reported from here and not from a wrapper, so that it is the last run's.
	fmt.Fprintf(os.Stdout, "\nBENCH reconcile_noop %.0f µs %.2f\n", at, float64(median(larges))/float64(median(smalls)))
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
