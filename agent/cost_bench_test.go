package agent

import (
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/mirror"
	"github.com/shoal-dev/shoal/agent/internal/probe/probetest"
	"github.com/shoal-dev/shoal/agent/internal/uplink"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Bars of the design for an agent with 500 proxies that are probed every 10 s.
const (
	costProxies  = 500
	costBar      = 10.0  // % of a core
	costRSSBar   = 100.0 // MiB
	costMeasured = 30 * time.Second
)

// BenchmarkAgent runs a whole agent against a real API server, each in a process of its own as are the 500 proxies, and
// prints what of a core and how much memory the agent takes when all is as it should be. There is no hub: what a session
// costs is not in it.
func BenchmarkAgent(b *testing.B) {
	a := newAuthority(b)
	ns := a.enrolled("east")
	_, chain, key := a.issue(echoAddress)
	world := probetest.Start(b, probetest.Setup{Proxies: costProxies, Certificate: chain, Key: key, Target: echoAddress + ":443"})
	pid := startAlone(b, alone{
		Settings: settingsText(a, "east", freeAddress(b)), Namespace: ns,
		Host: server.Config.Host, CA: server.Config.CAData, Certificate: server.Config.CertData, Key: server.Config.KeyData,
	})
	copies, err := mirror.New(mirror.Options{Member: "east", Client: server.Client, Reader: server.Client, Namespace: ns})
	if err != nil {
		b.Fatal(err)
	}
	spec := fmt.Appendf(nil, `{"placementUID":"p-1","fleetUID":"f-1","revision":"r1","replicas":%d,"template":{"spec":{"provider":"default","port":%d}}}`, costProxies, world.Port)
	if err := copies.Apply(b.Context(), uplink.Item{UID: "p-1", Generation: 1, Hash: "h", Spec: spec}); err != nil {
		b.Fatal(err)
	}
	pods := 0
	follow(b, ns, &corev1.PodList{}, "a pod for each proxy", func(o any) bool {
		pod, ok := o.(*corev1.Pod)
		if !ok || pod.Status.PodIP != "" {
			return false
		}
		// What scheduler and kubelet do.
		pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, world.Hosts[pods]
		if err := server.Client.Status().Update(b.Context(), pod); err != nil {
			b.Fatal(err)
		}
		pods++
		return pods == costProxies
	})
	ready := map[string]bool{}
	follow(b, ns, &v1alpha1.ProxyList{}, "all ready", func(o any) bool {
		if p, ok := o.(*v1alpha1.Proxy); ok {
			ready[p.Name] = meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady)
		}
		for _, is := range ready {
			if !is {
				return false
			}
		}
		return len(ready) == costProxies
	})
	// A round in which everybody finds a place.
	<-time.After(15 * time.Second)

	for b.Loop() {
		began, cpu := time.Now(), probetest.CPU(b, pid)
		<-time.After(costMeasured)
		percent := 100 * (probetest.CPU(b, pid) - cpu).Seconds() / time.Since(began).Seconds()
		rss, most := probetest.RSS(b, pid)
		mib := float64(rss) / (1 << 20)
		b.Logf("at most %.0f MiB, while 500 proxies were made", float64(most)/(1<<20))
		fmt.Fprintf(os.Stdout, "\nBENCH agent_cpu %.2f %% %.2f\nBENCH agent_rss %.1f MiB %.2f\n", percent, percent/costBar, mib, mib/costRSSBar)
	}
	until(b, ns, &v1alpha1.ProxyList{}, "all ready still", allReady(costProxies))
}

// follow hears of every object of a kind, those that are there first, until one of them says that it is enough.
func follow(b *testing.B, ns string, list client.ObjectList, what string, enough func(any) bool) {
	b.Helper()
	w, err := server.Client.Watch(b.Context(), list, client.InNamespace(ns))
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	for deadline := time.After(10 * time.Minute); ; {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				b.Fatalf("%s: the watch has ended", what)
			}
			if enough(e.Object) {
				return
			}
		case <-deadline:
			b.Fatalf("%s: not reached", what)
		}
	}
}
