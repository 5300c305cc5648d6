package proxy_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func TestLifeOfAPod(t *testing.T) {
	w := newWorld(t)
	uid := w.make("p", "pods").UID

	w.pass("p")
	if p := w.get("p"); !slices.Contains(p.Finalizers, v1alpha1.FinalizerProxy) || p.Status.InstanceName != "" || len(w.podList()) != 0 {
		t.Fatalf("after the first pass: finalizers %v, instance %q, %d pods; want the finalizer and nothing else", p.Finalizers, p.Status.InstanceName, len(w.podList()))
	}
	w.pass("p")
	if p := w.get("p"); p.Status.InstanceName == "" || len(w.podList()) != 0 {
		t.Fatalf("after the second pass: instance %q, %d pods; want the name written and no pod", p.Status.InstanceName, len(w.podList()))
	}
	p := w.settle("p")
	pods := w.podList()
	if len(pods) != 1 || pods[0].Name != p.Status.InstanceName {
		t.Fatalf("%d pods, want one of the name %s", len(pods), p.Status.InstanceName)
	}
	w.want(p, v1alpha1.PhaseProvisioning, v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonProvisioning)

	w.start(&pods[0], "10.244.0.7")
	p = w.settle("p")
	w.want(p, v1alpha1.PhaseProvisioning, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonProbing)
	if got := w.prober.target(uid); got != "10.244.0.7:3128" {
		t.Fatalf("probed at %q, want 10.244.0.7:3128", got)
	}
	w.prober.judge(t, uid, probe.Verdict{
		State: probe.StateReady, Class: probe.ClassOK, Since: w.clock.Now(), Exits: []netip.Addr{netip.MustParseAddr("203.0.113.9")},
	})
	p = w.settle("p")
	w.want(p, v1alpha1.PhaseReady, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonProbesPass)
	if p.Status.Address != "10.244.0.7:3128" || !slices.Equal(p.Status.Exits, []string{"203.0.113.9"}) || p.Status.ObservedGeneration != p.Generation {
		t.Errorf("status = %+v", p.Status)
	}

	// Somebody deletes the pod: the proxy keeps its UID, gets another pod, and has to prove itself again.
	first := pods[0].UID
	if err := server.Client.Delete(t.Context(), &pods[0]); err != nil {
		t.Fatal(err)
	}
	p = w.settle("p")
	w.want(p, v1alpha1.PhaseProvisioning, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonProvisioning)
	if w.prober.target(uid) != "" {
		t.Error("a pod on its way out is probed")
	}
	server.End(t, &pods[0])
	w.advance(time.Minute)
	p = w.settle("p")
	if pods = w.podList(); len(pods) != 1 || pods[0].UID == first || p.UID != uid {
		t.Fatalf("%d pods, want one that is another; proxy %s, want %s", len(pods), p.UID, uid)
	}
	w.start(&pods[0], "10.244.0.7")
	w.want(w.settle("p"), v1alpha1.PhaseProvisioning, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonProbing)

	// Deleted, it leaves nothing.
	if err := server.Client.Delete(t.Context(), w.get("p")); err != nil {
		t.Fatal(err)
	}
	p = w.settle("p")
	w.want(p, v1alpha1.PhaseDeleting, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDeleting)
	if got := *w.podList()[0].DeletionGracePeriodSeconds; got != 35 {
		t.Errorf("grace = %d s, want 35: nobody drained it", got)
	}
	server.End(t, &pods[0])
	if p = w.settle("p"); p != nil {
		t.Fatalf("still there: %v", p.Finalizers)
	}
	w.wantNothingLeft()
}

func (w *world) wantNothingLeft() {
	w.t.Helper()
	configs := &corev1.ConfigMapList{}
	w.list(configs)
	for _, c := range configs.Items {
		if c.Labels[v1alpha1.LabelManagedBy] != "" {
			w.t.Errorf("config map %s is left", c.Name)
		}
	}
	if n := len(w.podList()); n != 0 {
		w.t.Errorf("%d pods are left", n)
	}
}

// TestCrashAtEveryWrite kills the agent before and after each of its writes, starts it anew, and wants the same in the end.
func TestCrashAtEveryWrite(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 0; ; n++ {
			w := newWorld(t)
			uid := w.make("p", "pods").UID
			writes := 0
			w.with(crashing(n, after, &writes))
			w.crank("p")
			w.with(server.Client)
			p := w.settle("p")
			if pods := w.podList(); len(pods) != 1 || pods[0].Name != p.Status.InstanceName || pods[0].Labels[v1alpha1.LabelProxyUID] != string(uid) {
				t.Fatalf("creation killed at write %d (after it: %v): %d pods for instance %q, want one", n, after, len(pods), p.Status.InstanceName)
			}
			done := writes <= n

			if err := server.Client.Delete(t.Context(), w.get("p")); err != nil {
				t.Fatal(err)
			}
			writes = 0
			w.with(crashing(n, after, &writes))
			w.crank("p")
			w.with(server.Client)
			if w.get("p") != nil {
				w.settle("p")
			}
			if w.get("p") != nil {
				t.Fatalf("deletion killed at write %d (after it: %v): the proxy is still there", n, after)
			}
			w.wantNothingLeft()
			if done && writes <= n {
				break
			}
		}
	}
}

// crank makes passes until the agent is killed or has nothing more to do.
func (w *world) crank(name string) {
	for range 12 {
		if _, err := w.r.Reconcile(w.t.Context(), w.request(name)); err != nil {
			return
		}
	}
}

func TestSteadyStateWritesNothing(t *testing.T) {
	w := newWorld(t)
	w.make("p", "fake")
	w.ready("p", "192.0.2.1", 3128)
	writes := 0
	w.with(crashing(0, false, &writes))
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	for range 3 {
		w.pass("p")
	}
	if writes != 0 {
		t.Errorf("%d writes without a transition", writes)
	}
}

func TestRestartKeepsTheLastVerdict(t *testing.T) {
	w := newWorld(t)
	w.make("p", "fake")
	p := w.ready("p", "192.0.2.1", 3128)
	w.prober = newProber()
	w.restart()
	w.want(w.settle("p"), v1alpha1.PhaseReady, v1alpha1.ConditionHealthy, metav1.ConditionTrue, v1alpha1.ReasonProbesPass)

	// Another endpoint is another instance: there the old verdict says nothing.
	w.prober = newProber()
	w.restart()
	w.fake.Run(p.Status.InstanceName, "192.0.2.9", 3128)
	w.want(w.settle("p"), v1alpha1.PhaseProvisioning, v1alpha1.ConditionHealthy, metav1.ConditionUnknown, v1alpha1.ReasonProbing)
}

// Another exit is another identity: the pass that the verdict asks for writes it down, and nothing that it did not see.
func TestExitsAreWrittenInOnePass(t *testing.T) {
	w := newWorld(t)
	w.make("p", "fake")
	p := w.ready("p", "192.0.2.1", 3128)
	for _, exits := range [][]string{{"203.0.113.9"}, {"198.51.100.7", "203.0.113.9"}, {"198.51.100.7"}} {
		verdict := probe.Verdict{State: probe.StateReady, Class: probe.ClassOK, Since: w.clock.Now()}
		for _, exit := range exits {
			verdict.Exits = append(verdict.Exits, netip.MustParseAddr(exit))
		}
		w.prober.judge(t, p.UID, verdict)
		w.pass("p")
		if got := w.get("p").Status.Exits; !slices.Equal(got, exits) {
			t.Errorf("after one pass the exits are %v, want %v", got, exits)
		}
	}
}

// What was held of a proxy goes into the probe engine of the agent that comes next: only so does its first bad probe, in an
// outage of the probe targets, turn out no proxy, and its first good one change no exits. Of another instance nothing is
// held.
func TestRestartRecalls(t *testing.T) {
	exits := []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("203.0.113.9")}
	cases := map[string]struct {
		verdict probe.Verdict
		want    probe.Known
	}{
		"Ready":     {probe.Verdict{State: probe.StateReady, Class: probe.ClassConnectFail, Exits: exits}, probe.Known{State: probe.StateReady, Exits: exits}},
		"Unhealthy": {probe.Verdict{State: probe.StateUnhealthy, Class: probe.ClassProxyStuck, Cause: probe.ClassProxyDown, Exits: exits}, probe.Known{State: probe.StateUnhealthy, Cause: probe.ClassProxyDown, Exits: exits}},
		"Unknown":   {probe.Verdict{State: probe.StateUnknown, Class: probe.ClassAuthFailed}, probe.Known{State: probe.StateUnknown}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.make("p", "fake")
			p := w.ready("p", "192.0.2.1", 3128)
			c.verdict.Since, c.want.Since = w.clock.Now(), w.clock.Now()
			w.prober.judge(t, p.UID, c.verdict)
			w.settle("p")
			w.prober = newProber()
			w.restart()
			p = w.settle("p")
			if got := w.prober.known[probe.UID(p.UID)]; got.State != c.want.State || got.Cause != c.want.Cause || !got.Since.Equal(c.want.Since) || !slices.Equal(got.Exits, c.want.Exits) {
				t.Errorf("after a restart the probes begin with %+v, want %+v", got, c.want)
			}
			// The first probe says something else, and the judge that nothing has changed.
			c.verdict.Class = probe.ClassTargetSlow
			w.prober.judge(t, p.UID, c.verdict)
			if again := w.settle("p"); again.ResourceVersion != p.ResourceVersion {
				t.Errorf("a probe that changed nothing was written down: %+v, before %+v", again.Status, p.Status)
			}

			w.fake.Run(p.Status.InstanceName, "192.0.2.9", 3128)
			if p = w.settle("p"); len(p.Status.Exits) != 0 {
				t.Errorf("another instance has the exits %v of the one before", p.Status.Exits)
			}
			if got := w.prober.known[probe.UID(p.UID)]; got.State != "" || got.Exits != nil {
				t.Errorf("the probes of another instance begin with %+v", got)
			}
		})
	}
}

func TestSameEndpointAnotherInstance(t *testing.T) {
	w := newWorld(t)
	w.make("p", "fake")
	p := w.ready("p", "192.0.2.1", 21000)
	// Gone between two passes, as a pod is that was deleted by force.
	w.fake.Vanish(p.Status.InstanceName)
	w.advance(time.Minute)
	w.settle("p")
	w.fake.Run(p.Status.InstanceName, "192.0.2.1", 21000)
	w.want(w.settle("p"), v1alpha1.PhaseProvisioning, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonProbing)
}

func TestUnhealthyAndSaturated(t *testing.T) {
	w := newWorld(t)
	w.make("p", "fake")
	p := w.ready("p", "192.0.2.1", 3128)
	w.prober.judge(t, p.UID, probe.Verdict{State: probe.StateReady, Saturated: true, Since: w.clock.Now()})
	w.want(w.settle("p"), v1alpha1.PhaseReady, v1alpha1.ConditionSaturated, metav1.ConditionTrue, v1alpha1.ConditionSaturated)
	w.prober.judge(t, p.UID, probe.Verdict{State: probe.StateUnhealthy, Class: probe.ClassProxyStuck, Cause: probe.ClassProxyDown, Since: w.clock.Now()})
	p = w.settle("p")
	w.want(p, v1alpha1.PhaseUnhealthy, v1alpha1.ConditionHealthy, metav1.ConditionFalse, v1alpha1.ReasonProbesFail)
	if meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) || p.Status.Probe.Class != string(probe.ClassProxyDown) {
		t.Errorf("status = %+v", p.Status)
	}
}

func TestDrainIsOneWayAndReplacesNothing(t *testing.T) {
	w := newWorld(t)
	w.make("p", "fake")
	p := w.ready("p", "192.0.2.1", 3128)
	deadline := w.clock.Now().Add(10 * time.Minute)
	w.change("p", func(s *v1alpha1.ProxySpec) { s.Drain = &v1alpha1.DrainSpec{Deadline: metav1.NewTime(deadline)} })
	w.want(w.settle("p"), v1alpha1.PhaseDraining, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDraining)
	w.prober.judge(t, p.UID, probe.Verdict{State: probe.StateReady, Class: probe.ClassOK, Since: w.clock.Now()})
	w.want(w.settle("p"), v1alpha1.PhaseDraining, v1alpha1.ConditionHealthy, metav1.ConditionTrue, v1alpha1.ReasonProbesPass)

	// Another spec replaces nothing any more, nor does the loss of the instance.
	w.change("p", func(s *v1alpha1.ProxySpec) { s.Port = 8080 })
	if got := w.settle("p").Status.InstanceName; got != p.Status.InstanceName {
		t.Errorf("instance = %s, want the same %s", got, p.Status.InstanceName)
	}
	w.fake.Vanish(p.Status.InstanceName)
	w.settle("p")
	if n := len(w.fake.Instances()); n != 0 {
		t.Errorf("%d instances, want none: a draining proxy gets no other", n)
	}
}

func TestDrainedEndsQuickly(t *testing.T) {
	for name, c := range map[string]struct {
		passed time.Duration
		want   bool
	}{
		"BeforeDeadline": {0, false}, "AfterDeadline": {time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.make("p", "fake", func(p *v1alpha1.Proxy) {
				p.Spec.Drain = nil
			})
			w.ready("p", "192.0.2.1", 3128)
			w.change("p", func(s *v1alpha1.ProxySpec) {
				s.Drain = &v1alpha1.DrainSpec{Deadline: metav1.NewTime(w.clock.Now().Add(30 * time.Second))}
			})
			w.settle("p")
			w.clock.SetTime(w.clock.Now().Add(c.passed))
			if err := server.Client.Delete(t.Context(), w.get("p")); err != nil {
				t.Fatal(err)
			}
			w.pass("p")
			calls := w.fake.Calls("Delete")
			if len(calls) != 1 || calls[0].Options.Drained != c.want {
				t.Errorf("deletes = %+v, want one with drained %v", calls, c.want)
			}
		})
	}
}

func TestAnotherSpecIsAnotherInstance(t *testing.T) {
	w := newWorld(t)
	w.make("p", "fake")
	p := w.ready("p", "192.0.2.1", 3128)
	want := probe.HealthCheck{Interval: 10 * time.Second, Timeout: 15 * time.Second, FailAfter: 3, PassAfter: 2}
	if got := w.prober.check(p.UID); got != want {
		t.Errorf("without a health check it is probed by %+v, want %+v", got, want)
	}
	w.change("p", func(s *v1alpha1.ProxySpec) {
		s.HealthCheck = v1alpha1.HealthCheck{FailureThreshold: 7, SuccessThreshold: 4}
		s.HealthCheck.Interval.Duration, s.HealthCheck.Timeout.Duration = time.Minute, 2*time.Second
	})
	if got := w.settle("p"); got.Status.InstanceName != p.Status.InstanceName || got.Status.Phase != v1alpha1.PhaseReady {
		t.Fatalf("how it is probed made another instance, or cost the verdict: %+v", got.Status)
	}
	want = probe.HealthCheck{Interval: time.Minute, Timeout: 2 * time.Second, FailAfter: 7, PassAfter: 4}
	if got := w.prober.check(p.UID); got != want {
		t.Errorf("it is probed by %+v, want %+v", got, want)
	}
	w.change("p", func(s *v1alpha1.ProxySpec) { s.Port = 8080 })
	got := w.settle("p")
	if got.Status.InstanceName == p.Status.InstanceName || len(w.fake.Instances()) != 1 || got.UID != p.UID {
		t.Fatalf("instance %s after %s with %d instances, want one other", got.Status.InstanceName, p.Status.InstanceName, len(w.fake.Instances()))
	}
	w.want(got, v1alpha1.PhaseProvisioning, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonProvisioning)
}

func TestFinalizerRemovedByHandLeavesNothingBehind(t *testing.T) {
	w := newWorld(t)
	w.make("p", "fake")
	p := w.ready("p", "192.0.2.1", 3128)
	p.Finalizers = nil
	if err := server.Client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := server.Client.Delete(t.Context(), p, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	w.pass("p")
	if w.prober.target(p.UID) != "" {
		t.Error("a proxy that is gone is still probed")
	}
}
