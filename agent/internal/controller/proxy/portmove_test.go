package proxy_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func TestPortsThatAreTakenAreLeft(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		refuse func(w *world, instance string)
		at     time.Duration
	}{
		"ByTheNode":      {"a node says that it has given the port away", func(w *world, instance string) { w.fake.TakePort(instance) }, 0},
		"ByTheScheduler": {"no node takes the instance, and nobody says why", func(w *world, instance string) { w.fake.Unplace(instance, w.clock.Now()) }, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.make("p", "ports")
			first := w.settle("p")
			if first.Status.HostPort == 0 {
				t.Fatal("no host port")
			}
			c.refuse(w, first.Status.InstanceName)
			if c.at > 0 {
				w.clock.SetTime(w.clock.Now().Add(c.at - time.Second))
				if p := w.settle("p"); p.Status.HostPort != first.Status.HostPort {
					t.Errorf("port %d is left before the time: there may be a node in a moment", first.Status.HostPort)
				}
				w.clock.SetTime(w.clock.Now().Add(time.Second))
			}
			w.pass("p")
			if got := message(w.get("p"), v1alpha1.ConditionProvisioned); !strings.Contains(got, "21000") {
				t.Errorf("%s: the condition says %q, want it to name the port", c.reason, got)
			}
			p := w.settle("p")
			if p.Status.HostPort == first.Status.HostPort || p.Status.InstanceName == first.Status.InstanceName {
				t.Fatalf("%s: it stays with port %d and instance %s", c.reason, p.Status.HostPort, p.Status.InstanceName)
			}
			if left := w.fake.Instances(); len(left) != 1 || left[0].Name != p.Status.InstanceName {
				t.Errorf("instances are %v, want the new one alone", left)
			}
			w.fake.Run(p.Status.InstanceName, "192.0.2.1", p.Status.HostPort)
			w.want(w.settle("p"), v1alpha1.PhaseProvisioning, v1alpha1.ConditionProvisioned, metav1.ConditionTrue, v1alpha1.ReasonProvisioned)
			w.make("q", "ports")
			if q := w.settle("q"); q.Status.HostPort == first.Status.HostPort {
				t.Errorf("another proxy is given port %d, which was just found taken", q.Status.HostPort)
			}
		})
	}
}

func TestPortsAreNotTheReasonForEver(t *testing.T) {
	w := newWorld(t)
	w.make("p", "ports")
	seen := map[int32]bool{}
	for range 10 {
		p := w.settle("p")
		seen[p.Status.HostPort] = true
		w.fake.Unplace(p.Status.InstanceName, w.clock.Now())
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
	}
	if len(seen) != 4 {
		t.Errorf("%d ports were tried while the cluster has no room, want the first and 3 others, and then patience", len(seen))
	}
	if len(w.fake.Instances()) != 1 {
		t.Errorf("%d instances, want the one that waits", len(w.fake.Instances()))
	}
}
