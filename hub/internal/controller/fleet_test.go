package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func TestSixOverTwoMembers(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("news", 6)
	w.turns()
	if diff := cmp.Diff([]int{3, 3}, w.counts()); diff != "" {
		t.Fatalf("proxies per member: %s", diff)
	}
	f := w.get("news")
	st := f.Status
	if st.Replicas != 6 || st.Updated != 6 || st.Ready != 6 || st.Draining != 0 || st.MemberCount != 2 || st.Leases != "0/30" {
		t.Errorf("status: %+v", st)
	}
	if st.ObservedGeneration != f.Generation || st.Selector != "shoal.dev/fleet=news" {
		t.Errorf("observedGeneration %d of %d, selector %q", st.ObservedGeneration, f.Generation, st.Selector)
	}
	for kind, want := range map[string]string{
		v1alpha1.ConditionAccepted:    "True Accepted the fleet can be served as written",
		v1alpha1.ConditionAvailable:   "True AllReady 6 of 6 proxies are ready on 2 members",
		v1alpha1.ConditionProgressing: "False Complete 6 proxies are as the spec asks",
		v1alpha1.ConditionDegraded:    "False AsExpected nothing needs attention",
		// Both members of the simulation leave by one address.
		v1alpha1.ConditionExitsShared: "True NodeSNAT 6 proxies leave by 1 address; 5 share a node with another (spread over more nodes, or use VMs)",
	} {
		c := w.condition("news", kind)
		if have := strings.Join([]string{string(c.Status), c.Reason, c.Message}, " "); have != want {
			t.Errorf("%s: %s; want %s", kind, have, want)
		}
	}
	for _, row := range st.Members {
		if row.Want != 3 || row.Have != 3 || row.Ready != 3 || row.Why == "" || row.Region == "" {
			t.Errorf("row: %+v", row)
		}
	}
	for _, pp := range w.placementList() {
		c := pp.Status.Conditions
		if pp.Spec.Replicas != 3 || pp.Status.Ready != 3 || pp.Status.ObservedGeneration != pp.Generation ||
			len(c) != 1 || c[0].Status != metav1.ConditionTrue {
			t.Errorf("placement %s: %+v", pp.Name, pp)
		}
		if owner := metav1.GetControllerOf(&pp); owner == nil || owner.UID != f.UID {
			t.Errorf("placement %s belongs to %v", pp.Name, owner)
		}
	}
	scale := &autoscalingv1.Scale{}
	if err := server.Client.SubResource("scale").Get(t.Context(), f, scale); err != nil {
		t.Fatal(err)
	}
	if scale.Spec.Replicas != 6 || scale.Status.Replicas != 6 || scale.Status.Selector != st.Selector {
		t.Errorf("scale: %+v", scale)
	}
	l := w.acquire("news")
	w.turns()
	if st := w.get("news").Status; st.Leases != "1/30" || st.Leased != 1 || st.Slots != 30 {
		t.Errorf("leases: %+v", st)
	}
	w.release(l)
}

// TestScaleSparesTheLeased scales 6 → 2 → 8 with a lease held: the leased proxy stays, and no wave picks more than it
// must.
func TestScaleSparesTheLeased(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("news", 6)
	w.turns()
	held := w.acquire("news")
	w.check = func() {
		if !w.uids()[string(held.Proxy)] {
			t.Fatalf("the leased proxy %s was removed", held.Proxy)
		}
	}
	w.turns()
	w.scale("news", 2)
	w.turns()
	if diff := cmp.Diff([]int{1, 1}, w.counts()); diff != "" {
		t.Fatalf("after 6 → 2: %s", diff)
	}
	kept := w.uids()
	w.scale("news", 8)
	w.turns()
	if diff := cmp.Diff([]int{4, 4}, w.counts()); diff != "" {
		t.Fatalf("after 2 → 8: %s", diff)
	}
	for uid := range kept {
		if !w.uids()[uid] {
			t.Errorf("%s was replaced while the fleet grew", uid)
		}
	}
	w.release(held)
}

// TestLeasedProxyDrains scales a fleet whose every proxy is leased: the victim stays until its lease ends, or until the
// deadline, and is not leased again.
func TestLeasedProxyDrains(t *testing.T) {
	tests := map[string]func(w *world, end func()){
		// A lease that ends early moves the deadline to now.
		"LeaseEndsEarly": func(w *world, end func()) { end() },
		// At the deadline the proxy goes, whatever it carries. The deadline is shorter than any lease.
		"Deadline": func(w *world, _ func()) { w.pass(61 * time.Second) },
	}
	for name, finish := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "east")
			one := int32(1)
			w.fleet("news", 2, func(f *v1alpha1.ProxyFleet) {
				f.Spec.Leasing.MaxLeasesPerProxy = &one
				f.Spec.Update.DrainTimeout = &v1alpha1.Duration{Duration: time.Minute}
			})
			w.turns()
			a, b := w.acquire("news"), w.acquire("news")
			w.scale("news", 1)
			w.turns()
			pp := w.placementList()[0]
			if pp.Spec.Replicas != 1 || len(pp.Spec.Drain) != 1 || !pp.Spec.Drain[0].Deadline.After(w.clock.Now()) {
				t.Fatalf("want one name on the drain list, due later: %+v", pp.Spec)
			}
			if w.sims[0].count() != 2 {
				t.Fatal("a leased proxy was removed before its deadline")
			}
			victim, other := a, b
			if victim.ProxyName != pp.Spec.Drain[0].Name {
				victim, other = b, a
			}
			finish(w, func() { w.release(victim) })
			w.turns()
			if got := w.uids(); got[string(victim.Proxy)] || !got[string(other.Proxy)] {
				t.Errorf("left: %v; drained %s", got, victim.Proxy)
			}
			if pp := w.placementList()[0]; len(pp.Spec.Drain) != 0 {
				t.Errorf("the drain list still holds %v", pp.Spec.Drain)
			}
		})
	}
}

// TestRollKeepsTheBudget changes the template and looks at every step of the way.
func TestRollKeepsTheBudget(t *testing.T) {
	number := func(n int) *intstr.IntOrString { v := intstr.FromInt32(int32(n)); return &v }
	tests := map[string]struct{ surge, unavailable int }{
		"SurgeOnly":       {2, 0},
		"UnavailableOnly": {0, 2},
		"Both":            {1, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "east", "west")
			w.fleet("news", 6, func(f *v1alpha1.ProxyFleet) {
				f.Spec.Update.MaxSurge, f.Spec.Update.MaxUnavailable = number(test.surge), number(test.unavailable)
			})
			w.turns()
			old := w.uids()
			revision := w.get("news").Status.Revision
			w.check = func() {
				alive, ready := 0, 0
				for _, m := range w.sims {
					for _, p := range m.proxies {
						set := m.sets[p.placement]
						if slices.ContainsFunc(set.Drain, func(d v1alpha1.Drain) bool { return d.Name == p.name }) {
							continue
						}
						alive++
						if p.ready {
							ready++
						}
					}
				}
				if alive > 6+test.surge || ready < 6-test.unavailable {
					t.Fatalf("%d proxies, %d ready, with maxSurge %d and maxUnavailable %d",
						alive, ready, test.surge, test.unavailable)
				}
			}
			w.change("news", func(f *v1alpha1.ProxyFleet) { f.Spec.Template.Spec.Port = 3129 })
			w.turns()
			for uid := range w.uids() {
				if old[uid] {
					t.Errorf("%s was not replaced", uid)
				}
			}
			if diff := cmp.Diff([]int{3, 3}, w.counts()); diff != "" {
				t.Errorf("after the roll: %s", diff)
			}
			st := w.get("news").Status
			if st.Revision == revision || st.Updated != 6 || st.Ready != 6 {
				t.Errorf("status: %+v", st)
			}
			if n := len(w.placementList()); n != 2 {
				t.Errorf("%d placements are left, want those of the new revision only", n)
			}
		})
	}
}

// TestRollStopsWhereNewProxiesFail keeps the old ones while the new ones never get ready.
func TestRollStopsWhereNewProxiesFail(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("news", 6)
	w.turns()
	for _, m := range w.sims {
		m.unready = true
	}
	w.change("news", func(f *v1alpha1.ProxyFleet) { f.Spec.Template.Spec.Port = 3129 })
	w.turns()
	if st := w.get("news").Status; st.Ready != 6 || st.Updated != 2 || st.Replicas != 8 {
		t.Errorf("want the 6 old ones ready and a surge of 2: %+v", st)
	}
	if c := w.condition("news", v1alpha1.ConditionProgressing); c.Reason != v1alpha1.ReasonRollingOut {
		t.Errorf("progressing: %+v", c)
	}
}

func TestNotAccepted(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.ProxyFleet)
		reason string
		says   []string
	}{
		"UnknownProvider": {
			func(f *v1alpha1.ProxyFleet) { f.Spec.Template.Spec.Provider = "moon" }, v1alpha1.ReasonUnknownProvider,
			[]string{`no member offers provider "moon"`, "offers default, spare", "spec.template.spec.provider"},
		},
		"CredentialsMissing": {
			outside("owner", "192.0.2.1"), v1alpha1.ReasonCredentialsMissing,
			[]string{"there is no Secret", "/owner", "username and password", "spec.external"},
		},
		"LabelOfOurs": {
			func(f *v1alpha1.ProxyFleet) {
				outside("", "192.0.2.1")(f)
				f.Spec.External.Endpoints[0].Labels = map[string]string{"shoal.dev/tier": "gold"}
			}, v1alpha1.ReasonInvalidSpec, []string{"192.0.2.1:3128", "shoal.dev/tier", "another prefix"},
		},
		"NoMembers": {
			func(f *v1alpha1.ProxyFleet) {
				f.Spec.Placement.MemberSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"planet": "mars"}}
			}, v1alpha1.ReasonNoMembers, []string{"planet=mars", "placement.memberSelector"},
		},
		"SelectorThatIsNone": {
			func(f *v1alpha1.ProxyFleet) {
				f.Spec.Placement.MemberSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}
			}, v1alpha1.ReasonInvalidSpec, []string{"placement.memberSelector", "Near"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "east")
			w.fleet("news", 2, test.change)
			w.turns()
			c := w.condition("news", v1alpha1.ConditionAccepted)
			if c.Status != metav1.ConditionFalse || c.Reason != test.reason {
				t.Errorf("accepted: %+v", c)
			}
			for _, words := range test.says {
				if !strings.Contains(c.Message, words) {
					t.Errorf("the message does not say %q: %s", words, c.Message)
				}
			}
			if len(w.placementList()) != 0 {
				t.Error("something was placed all the same")
			}
		})
	}
}

// TestNotAcceptedChangesNothing breaks a fleet that runs: what runs goes on, and the repaired fleet goes on too.
func TestNotAcceptedChangesNothing(t *testing.T) {
	w := newWorld(t, "east")
	w.fleet("news", 2)
	w.turns()
	before := w.uids()
	w.change("news", func(f *v1alpha1.ProxyFleet) { f.Spec.Template.Spec.Provider = "moon" })
	w.turns()
	if diff := cmp.Diff(before, w.uids()); diff != "" {
		t.Errorf("proxies changed: %s", diff)
	}
	if st := w.get("news").Status; st.Ready != 2 {
		t.Errorf("ready: %+v", st)
	}
	w.change("news", func(f *v1alpha1.ProxyFleet) { f.Spec.Template.Spec.Provider = "spare" })
	w.turns()
	if st := w.get("news").Status; st.Ready != 2 || st.Updated != 2 {
		t.Errorf("after the repair: %+v", st)
	}
}

func TestPausedChangesNothing(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("news", 4)
	w.turns()
	before := w.uids()
	w.change("news", func(f *v1alpha1.ProxyFleet) {
		f.Spec.Paused = true
		f.Spec.Template.Spec.Port = 3129
		*f.Spec.Replicas = 1
	})
	w.turns()
	if diff := cmp.Diff(before, w.uids()); diff != "" {
		t.Errorf("proxies changed: %s", diff)
	}
	if c := w.condition("news", v1alpha1.ConditionProgressing); c.Reason != v1alpha1.ReasonPaused {
		t.Errorf("progressing: %+v", c)
	}
	w.release(w.acquire("news"))
	w.change("news", func(f *v1alpha1.ProxyFleet) { f.Spec.Paused = false })
	w.turns()
	if st := w.get("news").Status; st.Ready != 1 || st.Updated != 1 || st.Replicas != 1 {
		t.Errorf("after the pause: %+v", st)
	}
}

func TestScaleToZeroAndBack(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("news", 2)
	w.turns()
	w.scale("news", 0)
	w.turns()
	if len(w.uids()) != 0 || len(w.placementList()) != 0 {
		t.Fatalf("left: %v, %d placements", w.uids(), len(w.placementList()))
	}
	if c := w.condition("news", v1alpha1.ConditionAvailable); c.Reason != v1alpha1.ReasonScaledToZero {
		t.Errorf("available: %+v", c)
	}
	w.scale("news", 2)
	w.turns()
	if st := w.get("news").Status; st.Ready != 2 {
		t.Errorf("status: %+v", st)
	}
}
