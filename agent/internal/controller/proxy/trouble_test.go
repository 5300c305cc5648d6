package proxy_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/controller/proxy"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/agent/provider/fake"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func TestLostAnswersDoubleNothing(t *testing.T) {
	w := newWorld(t)
	w.make("p", "fake")
	w.pass("p")
	w.pass("p")
	w.fake.FailAfter(fake.Create, errors.New("timeout"))
	w.crank("p")
	w.crank("p")
	if n := len(w.fake.Instances()); n != 1 {
		t.Fatalf("%d instances, want 1", n)
	}
	if err := server.Client.Delete(t.Context(), w.get("p")); err != nil {
		t.Fatal(err)
	}
	w.fake.FailAfter(fake.Delete, errors.New("timeout"))
	w.fake.Fail(fake.Get, errors.New("timeout"))
	w.crank("p")
	if w.get("p") == nil {
		t.Fatal("the finalizer went although nobody had said that the instance is gone")
	}
	w.crank("p")
	w.crank("p")
	if w.get("p") != nil || len(w.fake.Instances()) != 0 {
		t.Fatal("it is still there")
	}
}

func TestSilentProviderCostsNoReadiness(t *testing.T) {
	w := newWorld(t)
	w.make("p", "fake")
	before := w.ready("p", "192.0.2.1", 3128)
	w.fake.Fail(fake.Get, errors.New("no answer"))
	if _, err := w.r.Reconcile(t.Context(), w.request("p")); err == nil {
		t.Fatal("the error is lost")
	}
	p := w.get("p")
	w.want(p, v1alpha1.PhaseReady, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonProbesPass)
	if w.prober.target(p.UID) == "" || p.Status.Address != before.Status.Address {
		t.Error("what is known of the proxy was thrown away")
	}

	// That the instance is gone is an answer, even where another cannot be made.
	w.fake.Vanish(p.Status.InstanceName)
	w.advance(time.Minute)
	w.fake.Refuse(provider.Errorf(provider.KindQuotaExceeded, "create", "none left"))
	p = w.settle("p")
	w.want(p, v1alpha1.PhaseProvisioning, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonQuotaExceeded)
	if p.Status.Address != "" || w.prober.target(p.UID) != "" {
		t.Errorf("it is still told at %q and probed at %q", p.Status.Address, w.prober.target(p.UID))
	}
}

func TestForeignInstanceIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.make("p", "fake")
	w.pass("p")
	w.pass("p")
	name := w.get("p").Status.InstanceName
	w.fake.Put(provider.Instance{Name: name, ProviderID: "fake/" + name, State: provider.StateRunning, Identity: provider.Identity{ProxyUID: "somebody"}})
	if _, err := w.r.Reconcile(t.Context(), w.request("p")); !provider.IsForeign(err) {
		t.Fatalf("error = %v, want that it is foreign", err)
	}
	w.want(w.get("p"), v1alpha1.PhaseProvisioning, v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonProviderError)
	if err := server.Client.Delete(t.Context(), w.get("p")); err != nil {
		t.Fatal(err)
	}
	if w.settle("p") != nil {
		t.Error("what is somebody else's holds the proxy up")
	}
	if len(w.fake.Instances()) != 1 {
		t.Error("somebody else's instance was removed")
	}
}

func TestCeiling(t *testing.T) {
	t.Run("RefusedMakesNothing", func(t *testing.T) {
		w := newWorld(t)
		w.make("p", "fake", func(p *v1alpha1.Proxy) { p.Spec.Egress.AllowedCIDRs = []string{"10.244.1.0/24"} })
		p := w.settle("p")
		w.want(p, v1alpha1.PhasePending, v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonAboveCeiling)
		if text := message(p, v1alpha1.ConditionProvisioned); !strings.Contains(text, "ceiling.clusterCIDRs") {
			t.Errorf("the message names no rule: %q", text)
		}
		if len(w.fake.Calls(fake.Create)) != 0 || p.Status.InstanceName != "" {
			t.Error("something was made")
		}
	})
	t.Run("UnknownProvider", func(t *testing.T) {
		w := newWorld(t)
		w.make("p", "gone")
		p := w.settle("p")
		w.want(p, v1alpha1.PhasePending, v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonAboveCeiling)
		if text := message(p, v1alpha1.ConditionProvisioned); !strings.Contains(text, "fake, zoned, pods, ports") {
			t.Errorf("the message does not say what is offered: %q", text)
		}
	})
	t.Run("NarrowedRemoves", func(t *testing.T) {
		w := newWorld(t)
		w.make("p", "fake", func(p *v1alpha1.Proxy) { p.Spec.Egress.AllowedCIDRs = []string{"172.30.0.9/32"} })
		w.ready("p", "192.0.2.1", 3128)
		w.policy.AllowedCIDRs = nil
		p := w.settle("p")
		w.want(p, v1alpha1.PhasePending, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonAboveCeiling)
		if len(w.fake.Instances()) != 0 || p.Status.InstanceName != "" || p.Status.Address != "" {
			t.Errorf("%d instances, status %+v", len(w.fake.Instances()), p.Status)
		}
	})
	t.Run("MostProxies", func(t *testing.T) {
		w := newWorld(t)
		w.policy.MaxProxies = 2
		for i := range 4 {
			w.make(numbered(i), "fake")
		}
		for i := range 4 {
			w.settle(numbered(i))
		}
		if n := len(w.fake.Instances()); n != 2 {
			t.Fatalf("%d instances, want 2", n)
		}
		// Those that are refused do not push out those that run, whatever their order.
		for i := range 4 {
			p := w.settle(numbered(i))
			if refused := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProvisioned).Reason == v1alpha1.ReasonAboveCeiling; refused == (p.Status.InstanceName != "") {
				t.Errorf("%s: refused %v with instance %q", p.Name, refused, p.Status.InstanceName)
			}
		}
		if n := len(w.fake.Instances()); n != 2 {
			t.Errorf("%d instances, want 2 still", n)
		}
	})
}

// What a hostile hub asks comes to nothing, and the condition names the rule.
func TestHostileHub(t *testing.T) {
	for name, c := range map[string]struct {
		rule ceiling.Rule
		ask  func(*v1alpha1.ProxySpec)
	}{
		"Root": {ceiling.RuleCloudInit, func(s *v1alpha1.ProxySpec) { s.CloudInit = &v1alpha1.CloudInit{Inline: "#cloud-config"} }},
		"AgentsKey": {ceiling.RuleCloudInitSecrets, func(s *v1alpha1.ProxySpec) {
			s.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.SecretKeyRef{Name: "shoal-agent-probe-key", Key: "seed"}}
		}},
		"Metadata": {ceiling.RuleMetadata, func(s *v1alpha1.ProxySpec) { s.Egress.AllowedCIDRs = []string{"169.254.169.254/32"} }},
		"Private":  {ceiling.RuleAllowedCIDRs, func(s *v1alpha1.ProxySpec) { s.Egress.AllowedCIDRs = []string{"192.168.0.0/16"} }},
		"Mail":     {ceiling.RulePorts, func(s *v1alpha1.ProxySpec) { s.Egress.ConnectPorts = []int32{443, 25} }},
		"Node": {ceiling.RuleNodeSelectorKeys, func(s *v1alpha1.ProxySpec) {
			s.Placement = &v1alpha1.InstancePlacement{NodeSelector: map[string]string{"kubernetes.io/hostname": "db-1"}}
		}},
		"Entry": {ceiling.RuleProviders, func(s *v1alpha1.ProxySpec) { s.Provider = "somebody-elses" }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.make("p", "fake", func(p *v1alpha1.Proxy) { c.ask(&p.Spec) })
			p := w.settle("p")
			w.want(p, v1alpha1.PhasePending, v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonAboveCeiling)
			if text := message(p, v1alpha1.ConditionProvisioned); !strings.Contains(text, string(c.rule)) {
				t.Errorf("the message does not name %s: %q", c.rule, text)
			}
			if len(w.fake.Calls(fake.Create)) != 0 || p.Status.InstanceName != "" {
				t.Error("something was made")
			}
		})
	}
	t.Run("ProbeFlood", func(t *testing.T) {
		w := newWorld(t)
		w.policy.MaxProbesPerSecond = 2
		for i := range 4 {
			w.make(numbered(i), "fake", func(p *v1alpha1.Proxy) { p.Spec.HealthCheck.Interval.Duration = time.Second })
		}
		for range 2 {
			for i := range 4 {
				w.settle(numbered(i))
			}
			if n := len(w.fake.Instances()); n != 2 {
				t.Fatalf("%d instances, want 2", n)
			}
		}
		// Those that are refused take nothing of the bound from one that asks for less once there is room.
		admitted := ""
		for i := range 4 {
			if w.get(numbered(i)).Status.InstanceName != "" {
				admitted = numbered(i)
			}
		}
		w.change(admitted, func(s *v1alpha1.ProxySpec) { s.HealthCheck.Interval.Duration = time.Hour })
		w.make("modest", "fake", func(p *v1alpha1.Proxy) { p.Spec.HealthCheck.Interval.Duration = time.Minute })
		w.settle(admitted)
		if p := w.settle("modest"); p.Status.InstanceName == "" {
			t.Errorf("it is refused: %s", message(p, v1alpha1.ConditionProvisioned))
		}
	})
}

func TestHostPortsNeverMeet(t *testing.T) {
	w := newWorld(t)
	for i := range 21 {
		w.make(numbered(i), "ports")
	}
	// Eight passes at a time, as the controller does.
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range 21 {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			w.crank(numbered(i))
		})
	}
	wg.Wait()
	list := &v1alpha1.ProxyList{}
	w.list(list)
	owner := map[int32]string{}
	without := 0
	for _, p := range list.Items {
		port := p.Status.HostPort
		switch {
		case port == 0:
			without++
			if text := message(&p, v1alpha1.ConditionProvisioned); !strings.Contains(text, "hostPortRange") {
				t.Errorf("%s has no port, and its condition says %q", p.Name, text)
			}
		case port < 21000 || port > 21019 || owner[port] != "":
			t.Errorf("%s has port %d, out of the range or that of %q", p.Name, port, owner[port])
		}
		owner[port] = p.Name
	}
	if without != 1 {
		t.Fatalf("%d proxies without a port, want 1: there are 20", without)
	}

	// A port is free again once its proxy is gone, and not before.
	gone := list.Items[0]
	if gone.Status.HostPort == 0 {
		gone = list.Items[1]
	}
	if err := server.Client.Delete(t.Context(), &gone); err != nil {
		t.Fatal(err)
	}
	w.settle(gone.Name)
	for _, p := range list.Items {
		if p.Status.HostPort == 0 {
			if got := w.settle(p.Name).Status.HostPort; got != gone.Status.HostPort {
				t.Errorf("port = %d, want %d that was freed", got, gone.Status.HostPort)
			}
		}
	}
}

// Two agents, one taking over from the other, have written down the same port.
func TestHostPortConflictHeals(t *testing.T) {
	w := newWorld(t)
	w.make("a", "ports")
	a := w.settle("a")
	w.make("b", "ports")
	b := w.settle("b")
	b.Status.HostPort = a.Status.HostPort
	if err := server.Client.Status().Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.restart()
	b = w.settle("b")
	a = w.settle("a")
	if a.Status.HostPort == b.Status.HostPort {
		t.Fatalf("both have port %d", a.Status.HostPort)
	}
	if n := len(w.fake.Instances()); n != 2 {
		t.Errorf("%d instances, want 2", n)
	}
}

func TestUnknownMemberMakesNothing(t *testing.T) {
	w := newWorld(t)
	w.site.Member = member{unknown: true}
	w.restart()
	w.make("p", "fake")
	p := w.settle("p")
	w.want(p, v1alpha1.PhasePending, v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonProvisioning)
	if len(w.fake.Calls(fake.Create)) != 0 {
		t.Error("an instance was made that is nobody's")
	}
}

func TestEntryRemovedFromTheFile(t *testing.T) {
	w := newWorld(t)
	w.make("p", "fake")
	w.ready("p", "192.0.2.1", 3128)
	entry := w.site.Entries["fake"]
	delete(w.site.Entries, "fake")
	w.restart()
	if err := server.Client.Delete(t.Context(), w.get("p")); err != nil {
		t.Fatal(err)
	}
	w.crank("p")
	p := w.get("p")
	if p == nil || !strings.Contains(message(p, v1alpha1.ConditionProvisioned), "put it back") {
		t.Fatalf("want it to stay and to say what to do, got %+v", p)
	}
	w.site.Entries["fake"] = proxy.Entry{Provider: entry.Provider}
	w.restart()
	if w.settle("p") != nil || len(w.fake.Instances()) != 0 {
		t.Error("it is still there")
	}
}
