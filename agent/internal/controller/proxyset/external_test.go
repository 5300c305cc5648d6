package proxyset

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func outside(endpoints ...v1alpha1.SetEndpoint) func(*v1alpha1.ProxySet) {
	return func(s *v1alpha1.ProxySet) {
		s.Spec.Template, s.Spec.Drain = v1alpha1.ProxyTemplate{}, nil
		s.Spec.External = &v1alpha1.SetExternal{Endpoints: endpoints}
		s.Spec.Replicas = int32(len(endpoints))
		s.Spec.PlacementGeneration++
	}
}

// TestExternal makes a Proxy for each endpoint, under a name that never changes, and removes none that the hub does not
// list.
func TestExternal(t *testing.T) {
	w := newWorld(t)
	a := v1alpha1.SetEndpoint{Name: "xa", Host: "proxy.example", Port: 8000, Credentials: "k1"}
	b := v1alpha1.SetEndpoint{Name: "xb", Host: "2001:db8::7", Port: 8000}
	w.set(outside(a, b))
	w.pass()
	made := w.proxies()
	if diff := cmp.Diff([]string{"s-xa", "s-xb"}, slices.Sorted(maps.Keys(made))); diff != "" {
		t.Fatal(diff)
	}
	p := made["s-xa"]
	want := &v1alpha1.ProxyEndpoint{
		Host: "proxy.example", Port: 8000, CredentialsSecretRef: &v1alpha1.SecretKeyRef{Name: "shoal-credentials-s", Key: "k1"},
	}
	if diff := cmp.Diff(want, p.Spec.Endpoint); diff != "" || p.Spec.Mode != v1alpha1.ModeExternal || p.Spec.Provider != "" {
		t.Errorf("%s: mode %s, provider %q", diff, p.Spec.Mode, p.Spec.Provider)
	}
	if made["s-xb"].Spec.Endpoint.CredentialsSecretRef != nil {
		t.Error("credentials for a proxy that asks for none")
	}
	w.pass()
	w.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonComplete, "as many")

	// New credentials and another health check change a Proxy where it is.
	a.Credentials = "k2"
	w.set(func(s *v1alpha1.ProxySet) {
		outside(a, b)(s)
		s.Spec.External.HealthCheck.Interval.Duration = time.Minute
	})
	w.pass()
	got := w.proxies()
	if got["s-xa"].UID != p.UID || got["s-xa"].Spec.Endpoint.CredentialsSecretRef.Key != "k2" || got["s-xb"].Spec.HealthCheck.Interval.Duration != time.Minute {
		t.Errorf("changed: %+v", got["s-xa"].Spec)
	}
	a.Credentials = ""
	w.set(outside(a, b))
	w.pass()
	if ref := w.proxies()["s-xa"].Spec.Endpoint.CredentialsSecretRef; ref != nil {
		t.Errorf("credentials that were taken away are still named: %+v", ref)
	}

	// One that is off the list and not in drain is the hub's to name first.
	w.set(outside(b))
	w.pass()
	if len(w.proxies()) != 2 {
		t.Fatal("a victim was picked")
	}
	w.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonScaling, "1 proxies more than the hub wants")

	// In drain it is marked, and goes at its deadline; meanwhile its name makes no other.
	deadline := metav1.NewTime(w.clock.Now().Add(time.Minute))
	w.set(func(s *v1alpha1.ProxySet) {
		outside(a, b)(s)
		s.Spec.Replicas, s.Spec.Drain = 1, []v1alpha1.Drain{{Name: "s-xa", Deadline: deadline}}
	})
	w.pass()
	if d := w.proxies()["s-xa"].Spec.Drain; d == nil || !d.Deadline.Equal(&deadline) {
		t.Fatalf("drain %+v", d)
	}
	w.clock.SetTime(w.clock.Now().Add(2 * time.Minute))
	w.pass()
	w.pass()
	if diff := cmp.Diff([]string{"s-xb"}, slices.Sorted(maps.Keys(w.proxies()))); diff != "" {
		t.Fatal(diff)
	}
	// Wanted again, it is another Proxy of the same name.
	w.set(outside(a, b))
	w.pass()
	if again := w.proxies()["s-xa"]; again == nil || again.UID == p.UID || again.Spec.Drain != nil {
		t.Errorf("again: %+v", again)
	}
}
