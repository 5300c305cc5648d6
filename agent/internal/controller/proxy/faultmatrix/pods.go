package faultmatrix

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/provider/kubernetes"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Pods makes a subject of the kubernetes provider over an API server. Scheduler and kubelet are played: a pod is bound and
// runs soon after it was made, and is gone soon after it was told to go.
func Pods(c client.WithWatch, namespace string, clock *clocktesting.FakePassiveClock) Subject {
	w := podWorld{client: c, namespace: namespace, clock: clock}
	return Subject{
		Provider: func(t *testing.T, c client.WithWatch) provider.Provider {
			p, err := kubernetes.New(kubernetes.Options{
				Client: c, Reader: c, Namespace: namespace, Image: "shoal-proxy:test", KeysConfigMap: "shoal-keys", Clock: clock,
			})
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		Client:    c,
		Namespace: namespace,
		Settings:  v1alpha1.ProxySettings{Port: 3128, Egress: v1alpha1.Egress{Ports: []int32{80}, ConnectPorts: []int32{443}}},
		Clock:     clock,
		Advance:   w.advance,
		Instances: func(t *testing.T) []string {
			var names []string
			for _, p := range w.list(t) {
				names = append(names, p.Name)
			}
			return names
		},
		Lose: func(t *testing.T, name string) { w.end(t, name) },
		Fail: func(t *testing.T, name string) {
			w.status(t, name, func(s *corev1.PodStatus) { s.Phase, s.Reason = corev1.PodFailed, "Evicted" })
		},
	}
}

type podWorld struct {
	client    client.WithWatch
	namespace string
	clock     *clocktesting.FakePassiveClock
}

func (w podWorld) list(t *testing.T) []corev1.Pod {
	t.Helper()
	list := &corev1.PodList{}
	if err := w.client.List(t.Context(), list, client.InNamespace(w.namespace)); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func (w podWorld) advance(t *testing.T, d time.Duration) {
	t.Helper()
	w.clock.SetTime(w.clock.Now().Add(d))
	for _, p := range w.list(t) {
		switch {
		case p.DeletionTimestamp != nil:
			w.end(t, p.Name)
		case p.Spec.NodeName == "":
			binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
			if err := w.client.SubResource("binding").Create(t.Context(), &p, binding); err != nil {
				t.Fatal(err)
			}
		case p.Status.Phase == corev1.PodPending || p.Status.Phase == "":
			w.status(t, p.Name, func(s *corev1.PodStatus) { s.Phase, s.PodIP = corev1.PodRunning, "10.244.0.7" })
		}
	}
}

func (w podWorld) end(t *testing.T, name string) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	if err := w.client.Delete(t.Context(), p, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

func (w podWorld) status(t *testing.T, name string, f func(*corev1.PodStatus)) {
	t.Helper()
	p := &corev1.Pod{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, p); err != nil {
		t.Fatal(err)
	}
	f(&p.Status)
	if err := w.client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}
