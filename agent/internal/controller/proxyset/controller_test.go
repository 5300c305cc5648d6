package proxyset

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/agent/internal/apitest"
	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

var server apitest.Server

func TestMain(m *testing.M) { apitest.Main(m, &server) }

type world struct {
	t         *testing.T
	namespace string
	clock     *clocktesting.FakePassiveClock
	client    client.Client
	r         *Reconciler
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, namespace: server.Namespace(t), clock: clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second)), client: server.Client}
	var err error
	if w.r, err = New(Options{Clock: w.clock, Client: func(context.Context, string) (client.Client, error) { return w.client, nil }}); err != nil {
		t.Fatal(err)
	}
	set := &v1alpha1.ProxySet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "s", Labels: map[string]string{v1alpha1.LabelMember: "east"}}}
	set.Spec = v1alpha1.ProxySetSpec{
		PlacementUID: "placement", PlacementGeneration: 1, FleetUID: "fleet", Revision: "r1",
		Template: v1alpha1.ProxyTemplate{
			Metadata: v1alpha1.TemplateMetadata{Labels: map[string]string{"tier": "datacenter"}},
			Spec:     v1alpha1.ProxyTemplateSpec{Provider: "default"},
		},
	}
	if err := server.Client.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) tryPass() (ctrl.Result, error) {
	return w.r.Reconcile(w.t.Context(), mcreconcile.Request{
		Request: reconcile.Request{NamespacedName: types.NamespacedName{Namespace: w.namespace, Name: "s"}}, ClusterName: "home",
	})
}

func (w *world) pass() ctrl.Result {
	w.t.Helper()
	result, err := w.tryPass()
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

func (w *world) set(change func(*v1alpha1.ProxySet)) *v1alpha1.ProxySet {
	w.t.Helper()
	set := &v1alpha1.ProxySet{}
	if err := server.Client.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "s"}, set); err != nil {
		w.t.Fatal(err)
	}
	if change != nil {
		change(set)
		if err := server.Client.Update(w.t.Context(), set); err != nil {
			w.t.Fatal(err)
		}
	}
	return set
}

func (w *world) proxies() map[string]*v1alpha1.Proxy {
	w.t.Helper()
	list := &v1alpha1.ProxyList{}
	if err := server.Client.List(w.t.Context(), list, client.InNamespace(w.namespace)); err != nil {
		w.t.Fatal(err)
	}
	found := map[string]*v1alpha1.Proxy{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	return found
}

func (w *world) want(condition string, status metav1.ConditionStatus, reason, text string) {
	w.t.Helper()
	c := meta.FindStatusCondition(w.set(nil).Status.Conditions, condition)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, text) {
		w.t.Errorf("condition %s = %+v, want %s %s with %q", condition, c, status, reason, text)
	}
}

func TestFromNothingToDrained(t *testing.T) {
	w := newWorld(t)
	w.set(func(s *v1alpha1.ProxySet) { s.Spec.Replicas = 3 })
	w.pass()
	made := w.proxies()
	if len(made) != 3 {
		t.Fatalf("%d proxies, want 3", len(made))
	}
	p := made["s-0"]
	wantLabels := map[string]string{
		"tier": "datacenter", v1alpha1.LabelProxySet: "s", v1alpha1.LabelFleetUID: "fleet",
		v1alpha1.LabelPlacementUID: "placement", v1alpha1.LabelRevision: "r1", v1alpha1.LabelMember: "east",
	}
	if diff := cmp.Diff(wantLabels, p.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if owner := metav1.GetControllerOf(p); owner == nil || owner.Name != "s" || p.Spec.Provider != "default" || p.Spec.Port != 3128 {
		t.Errorf("owner %v, spec %+v", owner, p.Spec)
	}

	// Two are ready.
	for _, name := range []string{"s-0", "s-1"} {
		p := made[name]
		meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "x"})
		if err := server.Client.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	w.pass()
	if s := w.set(nil).Status; s.Replicas != 3 || s.Ready != 2 || s.Draining != 0 || s.PlacementGeneration != 1 {
		t.Errorf("status = %+v", s)
	}
	w.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonComplete, "")
	w.want(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")

	// The hub lets s-1 go in a minute.
	deadline := metav1.NewTime(w.clock.Now().Add(time.Minute))
	w.set(func(s *v1alpha1.ProxySet) {
		s.Spec.Replicas, s.Spec.Drain = 2, []v1alpha1.Drain{{Name: "s-1", Deadline: deadline}}
		s.Spec.PlacementGeneration = 2
	})
	if after := w.pass().RequeueAfter; after != time.Minute {
		t.Errorf("requeue after %v, want the deadline in 1m", after)
	}
	w.pass()
	if d := w.proxies()["s-1"].Spec.Drain; d == nil || !d.Deadline.Equal(&deadline) {
		t.Fatalf("drain = %v, want %v", d, deadline)
	}
	if s := w.set(nil).Status; s.Replicas != 2 || s.Ready != 1 || s.Draining != 1 || s.PlacementGeneration != 2 {
		t.Errorf("status = %+v", s)
	}
	w.clock.SetTime(deadline.Time)
	w.pass()
	if left := w.proxies(); len(left) != 2 || left["s-1"] != nil {
		t.Errorf("left = %v, want s-0 and s-2", left)
	}
}

func TestSurplusChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.set(func(s *v1alpha1.ProxySet) { s.Spec.Replicas = 4 })
	w.pass()
	w.set(func(s *v1alpha1.ProxySet) { s.Spec.Replicas = 1 })
	w.pass()
	if n := len(w.proxies()); n != 4 {
		t.Errorf("%d proxies, want 4: the hub has not said which are to go", n)
	}
	w.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonScaling, "3 proxies more")
}

func TestUnknownFieldsAreTold(t *testing.T) {
	w := newWorld(t)
	w.set(func(s *v1alpha1.ProxySet) {
		s.Spec.Replicas = 1
		s.Annotations = map[string]string{v1alpha1.AnnotationUnknownFields: `unknown field "template.spec.teleport"`}
	})
	w.pass()
	w.want(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonUnknownField, "teleport")
	if len(w.proxies()) != 1 {
		t.Error("what is known was not done")
	}
	w.set(func(s *v1alpha1.ProxySet) { s.Annotations = nil })
	w.pass()
	w.want(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
}

// stale is a client whose lists are those of an earlier time, as a cache's can be.
func stale(list *v1alpha1.ProxyList) client.Client {
	return interceptor.NewClient(server.Client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
			if l, ok := into.(*v1alpha1.ProxyList); ok {
				list.DeepCopyInto(l)
				return nil
			}
			return c.List(ctx, into, opts...)
		},
	})
}

func TestStaleCacheMakesNoneTwice(t *testing.T) {
	w := newWorld(t)
	w.set(func(s *v1alpha1.ProxySet) { s.Spec.Replicas = 3 })
	w.client = stale(&v1alpha1.ProxyList{})
	w.pass()
	w.pass()
	if n := len(w.proxies()); n != 3 {
		t.Errorf("%d proxies, want 3", n)
	}
	w.client = server.Client
	w.pass()
	if s := w.set(nil).Status; s.Replicas != 3 {
		t.Errorf("status = %+v, want 3", s)
	}
}

func TestRefusedCreationIsToldAndNotTakenForDone(t *testing.T) {
	w := newWorld(t)
	w.set(func(s *v1alpha1.ProxySet) { s.Spec.Replicas = 2 })
	refused := errors.New("quota of objects")
	w.client = interceptor.NewClient(server.Client, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refused },
	})
	if _, err := w.tryPass(); !errors.Is(err, refused) {
		t.Fatalf("error = %v", err)
	}
	w.want(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonScaling, "quota of objects")
	if s := w.set(nil).Status; s.PlacementGeneration != 0 || s.ObservedGeneration != 0 {
		t.Errorf("status = %+v: the hub would take it for done", s)
	}
}

func TestDeletedSetMakesNothing(t *testing.T) {
	w := newWorld(t)
	w.set(func(s *v1alpha1.ProxySet) { s.Spec.Replicas, s.Finalizers = 2, []string{"example.com/hold"} })
	if err := server.Client.Delete(t.Context(), w.set(nil)); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if n := len(w.proxies()); n != 0 {
		t.Errorf("%d proxies of a set that is being deleted", n)
	}
}

// The set was deleted and came back while a proxy of the former one is still on its way out.
func TestNameTakenByTheFormerSetsProxy(t *testing.T) {
	w := newWorld(t)
	former := &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "s-0", Labels: map[string]string{v1alpha1.LabelProxySet: "s"}},
		Spec:       v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: "default"},
	}
	if err := server.Client.Create(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	w.set(func(s *v1alpha1.ProxySet) { s.Spec.Replicas = 1 })
	w.pass()
	w.want(v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonScaling, "")
	if err := server.Client.Delete(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if p := w.proxies()["s-0"]; p == nil || p.UID == former.UID {
		t.Error("the set's own proxy was not made once the name was free")
	}
}

func TestFloodStopsAtTheCeiling(t *testing.T) {
	w := newWorld(t)
	policy := ceiling.Policy{MaxProxies: 4}
	w.r.o.Policy = func(context.Context, string) (ceiling.Policy, error) { return policy, nil }
	// Another set's proxies count as well: the bound is the member's.
	other := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "other-0"}}
	other.Spec = v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: "default"}
	if err := server.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	w.set(func(s *v1alpha1.ProxySet) { s.Spec.Replicas = math.MaxInt32 })
	for range 3 {
		if after := w.pass().RequeueAfter; after != recheck {
			t.Errorf("it is looked at again in %v, want %v", after, recheck)
		}
	}
	if n := len(w.proxies()); n != 4 {
		t.Fatalf("%d proxies, want 4", n)
	}
	w.want(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonAboveCeiling, "ceiling.maxProxies")
	w.want(v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonAboveCeiling, "ceiling.maxProxies")
	policy.MaxProxies = 6
	w.pass()
	w.set(func(s *v1alpha1.ProxySet) { s.Spec.Replicas = 5 })
	w.pass()
	w.pass()
	if n := len(w.proxies()); n != 6 {
		t.Errorf("%d proxies after the owner has made room, want 6", n)
	}
	w.want(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
}

func TestTemplatesSetNoLabelsOfShoal(t *testing.T) {
	set := &v1alpha1.ProxySet{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	set.Spec.Template.Metadata.Labels = map[string]string{
		v1alpha1.LabelMember: "another", v1alpha1.LabelProxySet: "another", v1alpha1.LabelHubUID: "another", "tier": "gold",
	}
	for key, value := range newProxy(set, "s-0").Labels {
		if value == "another" {
			t.Errorf("a template has set %s", key)
		}
	}
	// The API server refuses such a template to begin with.
	w := newWorld(t)
	got := w.set(nil)
	got.Spec.Template.Metadata.Labels = map[string]string{v1alpha1.LabelMember: "another"}
	if err := server.Client.Update(t.Context(), got); !apierrors.IsInvalid(err) {
		t.Errorf("the API server took it: %v", err)
	}
}
