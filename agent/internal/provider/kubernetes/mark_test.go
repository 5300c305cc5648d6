package kubernetes_test

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// guard makes the budget that the chart makes, and sets its status as the disruption controller would: with a minimum
// that no number of pods reaches, no disruption is allowed.
func (w *world) guard() {
	w.t.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "shoal-busy-proxies"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(math.MaxInt32)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelBusy: v1alpha1.BusyTrue,
			}},
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
	if err := server.Client.Create(w.t.Context(), budget); err != nil {
		w.t.Fatal(err)
	}
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, DesiredHealthy: math.MaxInt32, ExpectedPods: 1, CurrentHealthy: 1}
	if err := server.Client.Status().Update(w.t.Context(), budget); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ready(name string, ready corev1.ConditionStatus) {
	w.t.Helper()
	w.update(name, func(s *corev1.PodStatus) {
		s.Phase, s.PodIP = corev1.PodRunning, "10.244.0.7"
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	})
}

func TestLeasedPodsAreNotEvicted(t *testing.T) {
	w := newWorld(t, false)
	w.guard()
	r := w.request("one")
	if _, err := w.provider.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	w.start(t, r.Name)
	w.ready(r.Name, corev1.ConditionTrue)
	mark := func(busy bool, safe string) {
		t.Helper()
		if err := w.provider.Mark(t.Context(), provider.Ref{Name: r.Name}, r.Identity, busy); err != nil {
			t.Fatal(err)
		}
		if got := w.pod(r.Name).Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"]; got != safe {
			t.Errorf("safe-to-evict is %q, want %q", got, safe)
		}
	}
	if got := w.pod(r.Name).Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"]; got != "true" {
		t.Errorf("safe-to-evict of a new pod is %q: it would hold its node for ever", got)
	}
	mark(true, "false")
	if err := w.tryEvict(r.Name); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("eviction of a leased proxy: %v, want it refused for now", err)
	}
	mark(false, "true")
	if err := w.tryEvict(r.Name); err != nil {
		t.Fatalf("eviction of an idle proxy: %v", err)
	}
	got, err := w.provider.Get(t.Context(), provider.Ref{Name: r.Name})
	if err != nil || got.State != provider.StateStopping || !got.Preempted {
		t.Errorf("state %q, preempted %v, %v; want it to be taken away", got.State, got.Preempted, err)
	}
}

func TestLeasedPodsThatDoNotServeAreEvicted(t *testing.T) {
	w := newWorld(t, false)
	w.guard()
	r := w.request("one")
	if _, err := w.provider.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	w.start(t, r.Name)
	w.ready(r.Name, corev1.ConditionFalse)
	if err := w.provider.Mark(t.Context(), provider.Ref{Name: r.Name}, r.Identity, true); err != nil {
		t.Fatal(err)
	}
	if err := w.tryEvict(r.Name); err != nil {
		t.Errorf("eviction of a proxy that does not serve: %v; nobody loses anything by it", err)
	}
}

func TestMarkWritesChangesOnly(t *testing.T) {
	w := newWorld(t, false)
	r := w.request("one")
	if _, err := w.provider.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	version := w.pod(r.Name).ResourceVersion
	for _, c := range []struct{ busy, writes bool }{{false, false}, {true, true}, {true, false}, {false, true}, {false, false}} {
		if err := w.provider.Mark(t.Context(), provider.Ref{Name: r.Name}, r.Identity, c.busy); err != nil {
			t.Fatal(err)
		}
		now := w.pod(r.Name).ResourceVersion
		if wrote := now != version; wrote != c.writes {
			t.Errorf("marked %v: wrote %v, want %v", c.busy, wrote, c.writes)
		}
		version = now
	}
}
