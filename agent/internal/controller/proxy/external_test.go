package proxy_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func external(host string, key string) func(*v1alpha1.Proxy) {
	return func(p *v1alpha1.Proxy) {
		p.Spec.Mode, p.Spec.Provider = v1alpha1.ModeExternal, ""
		p.Spec.Endpoint = &v1alpha1.ProxyEndpoint{Host: host, Port: 8000}
		if key != "" {
			p.Spec.Endpoint.CredentialsSecretRef = &v1alpha1.SecretKeyRef{Name: "shoal-credentials-s", Key: key}
		}
	}
}

// credentialOf is what a probe would send; "none" if nothing, "?" if it cannot be probed.
func (w *world) credentialOf(p *v1alpha1.Proxy) string {
	w.t.Helper()
	w.prober.mu.Lock()
	probed, ok := w.prober.last[probe.UID(p.UID)]
	w.prober.mu.Unlock()
	switch {
	case !ok:
		w.t.Fatal("it is not probed")
	case probed.Credential == nil:
		return "none"
	}
	user, pass, err := probed.Credential(w.clock.Now())
	if err != nil {
		return "?"
	}
	return user + ":" + pass
}

// TestExternal leads a proxy that someone else runs through its life: nothing is asked of any provider.
func TestExternal(t *testing.T) {
	w := newWorld(t)
	w.make("p", "", external("8.8.4.4", ""))
	p := w.settle("p")
	w.want(p, v1alpha1.PhaseProvisioning, v1alpha1.ConditionProvisioned, metav1.ConditionTrue, v1alpha1.ReasonExternal)
	if got := w.prober.target(p.UID); got != "8.8.4.4:8000" {
		t.Fatalf("probed at %q", got)
	}
	if got := w.credentialOf(p); got != "none" {
		t.Errorf("probed with %q: the agent's own credentials are for its own proxies", got)
	}
	w.prober.judge(t, p.UID, probe.Verdict{State: probe.StateReady, Class: probe.ClassOK})
	p = w.settle("p")
	w.want(p, v1alpha1.PhaseReady, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonProbesPass)
	if e := p.Status.Endpoints; len(e) != 1 || e[0].Network != v1alpha1.NetworkExternal || e[0].Host != "8.8.4.4" {
		t.Errorf("endpoints %+v", e)
	}
	if err := server.Client.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if w.settle("p") != nil || len(w.fake.Calls("Delete")) != 0 || len(w.fake.Calls("Create")) != 0 {
		t.Error("it is still there, or a provider was asked about it")
	}
}

// TestExternalCredentials probes with what its owner gave, and with nothing else.
func TestExternalCredentials(t *testing.T) {
	w := newWorld(t)
	w.make("p", "", external("8.8.4.4", "k1"))
	p := w.settle("p")
	if got := w.credentialOf(p); got != "?" {
		t.Errorf("probed with %q before any came", got)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: "shoal-credentials-s",
			Labels: map[string]string{v1alpha1.LabelComponent: v1alpha1.ComponentCredentials},
		},
		Data: map[string][]byte{"k1": []byte("fish:p@:ss"), "k2": []byte("fish:new")},
	}
	if err := server.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.pass("p")
	if got := w.credentialOf(p); got != "fish:p@:ss" {
		t.Errorf("probed with %q", got)
	}
	w.change("p", func(s *v1alpha1.ProxySpec) { s.Endpoint.CredentialsSecretRef.Key = "k2" })
	p = w.settle("p")
	if got := w.credentialOf(p); got != "fish:new" {
		t.Errorf("after the change probed with %q", got)
	}
}

// TestExternalNamesNoOtherSecret: a Proxy that names a Secret of another kind does not have it sent anywhere.
func TestExternalNamesNoOtherSecret(t *testing.T) {
	w := newWorld(t)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "shoal-credentials-s"},
		Data:       map[string][]byte{"k1": []byte("root:secret")},
	}
	if err := server.Client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.make("p", "", external("8.8.4.4", "k1"))
	w.pass("p") // the finalizer
	if _, err := w.r.Reconcile(t.Context(), w.request("p")); err == nil {
		t.Error("a Secret without our label was read")
	}
}

// TestExternalWithinTheCeiling: an address that the owner keeps closed is refused as it is written, and as what a name
// turns out to be.
func TestExternalWithinTheCeiling(t *testing.T) {
	w := newWorld(t)
	w.policy = ceiling.Policy{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
	w.make("p", "", external("10.244.0.1", ""))
	p := w.settle("p")
	w.want(p, v1alpha1.PhaseProvisioning, v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonAboveCeiling)
	if w.prober.target(p.UID) != "" || len(p.Status.Endpoints) != 0 {
		t.Error("it is probed, or has an endpoint")
	}
	w.make("q", "", external("proxy.example", ""))
	q := w.settle("q")
	w.prober.mu.Lock()
	allow := w.prober.last[probe.UID(q.UID)].Allow
	w.prober.mu.Unlock()
	if allow == nil || allow(netip.MustParseAddr("10.244.0.1")) == nil || allow(netip.MustParseAddr("169.254.169.254")) == nil {
		t.Error("a name leads around the ceiling")
	}
	if err := allow(netip.MustParseAddr("8.8.4.4")); err != nil {
		t.Errorf("a public address is refused: %v", err)
	}
}
