package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/shoal-dev/shoal/agent/internal/controller/proxy"
	"github.com/shoal-dev/shoal/agent/internal/mirror"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp"
	"github.com/shoal-dev/shoal/agent/internal/settings"
	"github.com/shoal-dev/shoal/agent/internal/uplink"
	"github.com/shoal-dev/shoal/agent/provider/fake"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// clouds is a cloud with a fake in each region.
type clouds struct {
	mu    sync.Mutex
	fakes map[string]*fake.Provider
}

func (c *clouds) in(region string) *fake.Provider {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fakes[region] == nil {
		c.fakes[region] = fake.New(fake.Options{Clock: clock.RealClock{}})
	}
	return c.fakes[region]
}

// make is a machineMaker. An engagement that is renewed finds what was there before.
func (c *clouds) make(_ context.Context, _ Config, _ client.Reader, r settings.Region, entry gcp.Settings, _ func() mirror.Keys) (proxy.Entry, error) {
	return proxy.Entry{Provider: c.in(r.Region), Salt: entry.Salt()}, nil
}

// desire has a member want proxies, as if its hub had said so.
func desire(t *testing.T, ns, member, placement string, replicas int, providerName string, port int32) {
	t.Helper()
	m, err := mirror.New(mirror.Options{Member: member, Client: server.Client, Reader: server.Client, Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	spec := fmt.Appendf(nil, `{"placementUID":%q,"fleetUID":"f-1","revision":"r1","replicas":%d,"template":{"spec":{"provider":%q,"port":%d}}}`,
		placement, replicas, providerName, port)
	if err := m.Apply(t.Context(), uplink.Item{UID: placement, Generation: 1, Hash: "h", Spec: spec}); err != nil {
		t.Fatal(err)
	}
}

// ofMember counts the proxies of a member that have a state.
func ofMember(l *v1alpha1.ProxyList, member string, has func(*v1alpha1.Proxy) bool) int {
	n := 0
	for i := range l.Items {
		if l.Items[i].Labels[v1alpha1.LabelMember] == member && has(&l.Items[i]) {
			n++
		}
	}
	return n
}

func hasInstance(p *v1alpha1.Proxy) bool { return p.Status.InstanceName != "" }

func regionFile(members ...string) string {
	var b strings.Builder
	for _, m := range members {
		// The member gce-a is region area-a1, and so on.
		fmt.Fprintf(&b, "- {member: gce-%s, region: area-%s1, zones: [area-%s1-a], clusterCIDRs: [10.128.0.0/9]}\n", m, m, m)
	}
	return b.String()
}

// TestRegionsComeAndGo runs an agent whose only members are regions. Two are added and one is removed while proxies are
// being made everywhere; a version of the file that is wrong changes nothing.
func TestRegionsComeAndGo(t *testing.T) {
	const each = 12
	a := newAuthority(t)
	ns := a.enrolled("gce-a")
	for _, member := range []string{"gce-b", "gce-c"} {
		a.known(ns, member)
	}
	port := startProxy(t, ns, startEcho(t, a))
	file := filepath.Join(t.TempDir(), "regions.yaml")
	write := func(text string) {
		t.Helper()
		// As a kubelet does it: what is read is all of one version.
		next := file + ".next"
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
	}
	write(regionFile("a"))
	s, err := ReadSettings(fmt.Appendf(nil, `
hub: {url: "https://%s", caPin: "%s"}
providers: [{name: machines, type: gcp, gcp: {project: my-project-1, proxyImage: "shoal-proxy:test"}}]
probe: {targets: ["%s:443"]}
`, freeAddress(t), a.pin(), echoAddress))
	if err != nil {
		t.Fatal(err)
	}
	cloud := &clouds{fakes: map[string]*fake.Provider{}}
	log := &lines{}
	start(t, Config{
		Settings: s, RegionsFile: file, Namespace: ns, RestConfig: server.Config, Version: "test",
		HealthAddress: freeAddress(t), MetricsAddress: "0", LeaderElection: true,
		Logger: slog.New(slog.NewTextHandler(log, nil)), machines: cloud.make,
	})

	for _, m := range []string{"a", "b", "c"} {
		desire(t, ns, "gce-"+m, "p-"+m, each, "machines", port)
	}
	made := func(member string, n int) func(*v1alpha1.ProxyList) bool {
		return func(l *v1alpha1.ProxyList) bool { return ofMember(l, member, hasInstance) >= n }
	}
	// While the first is still at it, two more come and it goes.
	until(t, ns, &v1alpha1.ProxyList{}, "the first proxies of a", made("gce-a", 1))
	write(regionFile("b", "c"))
	until(t, ns, &v1alpha1.ProxyList{}, "all of b", made("gce-b", each))
	list := until(t, ns, &v1alpha1.ProxyList{}, "all of c", made("gce-c", each))

	for _, m := range []string{"b", "c"} {
		instances := cloud.in("area-" + m + "1").Instances()
		if len(instances) != each {
			t.Errorf("region %s has %d machines, want %d", m, len(instances), each)
		}
		var want []string
		for _, p := range list.Items {
			if p.Labels[v1alpha1.LabelMember] == "gce-"+m {
				want = append(want, p.Status.InstanceName)
			}
		}
		for _, i := range instances {
			if !slices.Contains(want, i.Name) {
				t.Errorf("region %s has machine %s, which is none of its proxies'", m, i.Name)
			}
		}
	}

	// Nothing of a region that is gone is touched: not even what is deleted.
	gone := &v1alpha1.ProxyList{}
	if err := server.Client.List(t.Context(), gone, client.InNamespace(ns), client.MatchingLabels{v1alpha1.LabelMember: "gce-a"}); err != nil {
		t.Fatal(err)
	}
	machines := len(cloud.in("area-a1").Instances())
	victim := gone.Items[slices.IndexFunc(gone.Items, func(p v1alpha1.Proxy) bool { return p.Status.InstanceName != "" })]
	if err := server.Client.Delete(t.Context(), &victim); err != nil {
		t.Fatal(err)
	}

	// A version that is wrong keeps the last good one.
	write(regionFile("b") + "- {member: gce-b}\n")
	log.await(t, "the regions stay as they were")
	desire(t, ns, "gce-c", "p-c2", 1, "machines", port)
	until(t, ns, &v1alpha1.ProxyList{}, "one more of c", made("gce-c", each+1))
	if now := len(cloud.in("area-a1").Instances()); now != machines {
		t.Errorf("the region that is gone has %d machines, and had %d", now, machines)
	}

	// It comes back, and goes on where it was.
	write(regionFile("a", "b", "c"))
	until(t, ns, &v1alpha1.ProxyList{}, "all of a, but for the one that is deleted and made again", func(l *v1alpha1.ProxyList) bool {
		return made("gce-a", each)(l) && !slices.ContainsFunc(l.Items, func(p v1alpha1.Proxy) bool { return p.UID == victim.UID })
	})

	// A region's machine proves itself by a probe through it, as a pod does.
	region := cloud.in("area-b1")
	for _, i := range region.Instances() {
		region.Run(i.Name, "127.0.0.1", port)
	}
	until(t, ns, &v1alpha1.ProxyList{}, "b ready", func(l *v1alpha1.ProxyList) bool {
		return ofMember(l, "gce-b", func(p *v1alpha1.Proxy) bool { return p.Status.Phase == v1alpha1.PhaseReady }) == each
	})
}

// TestControllersHaveTheirOptions says that the controllers' concurrency is what is written beside them: multicluster-
// runtime v0.24.1 ignores what is given to the manager.
func TestControllersHaveTheirOptions(t *testing.T) {
	a := newAuthority(t)
	ns := a.enrolled("east")
	start(t, Config{
		Settings: settingsOf(t, a, "east", freeAddress(t)), Namespace: ns, RestConfig: server.Config, Version: "test",
		HealthAddress: freeAddress(t), MetricsAddress: "0", Logger: slog.New(slog.DiscardHandler),
	})
	desire(t, ns, "east", "p-1", 1, "default", 3128)
	until(t, ns, &v1alpha1.ProxyList{}, "a proxy with a pod", func(l *v1alpha1.ProxyList) bool { return ofMember(l, "east", hasInstance) == 1 })
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "controller_runtime_max_concurrent_reconciles" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				found[l.GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	if found["proxy"] != 8 || found["proxyset"] != 4 {
		t.Errorf("concurrency is %v, want 8 of proxy and 4 of proxyset", found)
	}
}
