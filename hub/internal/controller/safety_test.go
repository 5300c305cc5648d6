package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func (w *world) exists(name string) bool {
	w.t.Helper()
	err := server.Client.Get(w.t.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, &v1alpha1.ProxyFleet{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return err == nil
}

func (w *world) delete(name string) {
	w.t.Helper()
	if err := server.Client.Delete(w.t.Context(), w.get(name)); err != nil {
		w.t.Fatal(err)
	}
	w.feed.ObjectsChanged()
}

func TestDeleteRemovesEverything(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("news", 4)
	w.turns()
	w.acquire("news") // a lease does not hold up a deletion
	w.delete("news")
	w.turns()
	if w.exists("news") || len(w.placementList()) != 0 || len(w.uids()) != 0 {
		t.Errorf("left: fleet %v, %d placements, proxies %v", w.exists("news"), len(w.placementList()), w.uids())
	}
	for _, m := range w.sims {
		if len(m.sets) != 0 {
			t.Errorf("%s still has %v", m.name, m.sets)
		}
		if items, tombstones, _ := w.dispatcher.Desired(m.name); len(items)+len(tombstones) != 0 {
			t.Errorf("dispatch still holds %v and %v for %s", items, tombstones, m.name)
		}
	}
}

// TestDeleteOutlivesALostMember deletes a fleet while a member is lost: it says what it waits for, gives the member up
// after the timeout, and the member removes what it has when it returns.
func TestDeleteOutlivesALostMember(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("news", 4)
	w.turns()
	west := w.sims[1]
	west.silent = true
	w.pass(time.Minute)
	w.delete("news")
	w.turns()
	c := w.condition("news", v1alpha1.ConditionProgressing)
	if c.Reason != v1alpha1.ReasonDeleting || !strings.Contains(c.Message, west.name+" (Unreachable)") || strings.Contains(c.Message, w.sims[0].name) {
		t.Errorf("progressing: %+v", c)
	}
	if w.sims[0].count() != 0 {
		t.Error("the member that is heard still has proxies")
	}
	w.pass(8 * time.Minute)
	w.turns()
	if !w.exists("news") {
		t.Fatal("the fleet did not wait")
	}
	w.pass(2 * time.Minute)
	w.turns()
	if w.exists("news") || len(w.placementList()) != 0 {
		t.Fatal("the fleet hangs on the lost member")
	}
	west.connect(w.hub)
	w.turns()
	if west.count() != 0 {
		t.Errorf("%s came back and keeps %d proxies", west.name, west.count())
	}
}

// TestRestartRemovesNothing restarts the hub in the middle of a scale-down: no other victims are picked, nothing is
// removed before the members have reported and one maxTTL has passed, and then it goes on where it was.
func TestRestartRemovesNothing(t *testing.T) {
	w := newWorld(t, "east", "west")
	one := int32(1)
	w.fleet("news", 4, func(f *v1alpha1.ProxyFleet) { f.Spec.Leasing.MaxLeasesPerProxy = &one })
	w.turns()
	for range 4 {
		w.acquire("news")
	}
	w.scale("news", 2)
	w.turns()
	victims := map[string]bool{}
	for _, pp := range w.placementList() {
		for _, d := range pp.Spec.Drain {
			victims[pp.Name+"/"+d.Name] = true
		}
	}
	if len(victims) != 2 {
		t.Fatalf("want 2 victims: %v", victims)
	}
	before := w.uids()

	w.restart()
	w.scale("news", 1) // also a wish from before must wait
	same := func() {
		t.Helper()
		if diff := cmp.Diff(before, w.uids()); diff != "" {
			t.Fatalf("proxies changed: %s", diff)
		}
		now := map[string]bool{}
		for _, pp := range w.placementList() {
			for _, d := range pp.Spec.Drain {
				now[pp.Name+"/"+d.Name] = true
			}
		}
		if diff := cmp.Diff(victims, now); diff != "" {
			t.Fatalf("victims changed: %s", diff)
		}
	}
	w.turns() // nobody has reported
	same()
	if st := w.get("news").Status; st.Ready != 2 || st.Replicas != 2 {
		t.Errorf("status fell on a restart: %+v", st)
	}
	if c := w.condition("news", v1alpha1.ConditionProgressing); c.Reason != v1alpha1.ReasonWaitingForInventory || !strings.Contains(c.Message, "not reported yet") {
		t.Errorf("progressing: %+v", c)
	}
	w.sims[0].connect(w.hub)
	w.turns() // one of two has reported
	same()
	w.sims[1].connect(w.hub)
	w.turns() // all have, but leases of the first hub may live
	same()
	if c := w.condition("news", v1alpha1.ConditionProgressing); c.Reason != v1alpha1.ReasonWaitingForInventory || !strings.Contains(c.Message, "maxTTL (30m0s)") {
		t.Errorf("progressing: %+v", c)
	}
	w.pass(31 * time.Minute) // also beyond the drain deadlines of the first hub
	w.turns()
	if diff := cmp.Diff(1, len(w.uids())); diff != "" {
		t.Errorf("after the grace: %s", diff)
	}
}

// TestRestartGrows scales up right after a restart, where it is safe.
func TestRestartGrows(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("news", 2)
	w.turns()
	before := w.uids()
	w.restart()
	w.scale("news", 6)
	w.turns()
	for _, m := range w.sims {
		m.connect(w.hub)
	}
	w.turns()
	if diff := cmp.Diff([]int{3, 3}, w.counts()); diff != "" {
		t.Errorf("proxies: %s", diff)
	}
	for uid := range before {
		if !w.uids()[uid] {
			t.Errorf("%s was replaced", uid)
		}
	}
}

// TestNewFleetNeedsNoGrace makes a fleet after the hub has started: nobody can hold leases of it from before.
func TestNewFleetNeedsNoGrace(t *testing.T) {
	w := newWorld(t, "east")
	w.fleet("news", 3)
	w.turns()
	w.release(w.acquire("news"))
	w.scale("news", 1)
	w.turns()
	if w.sims[0].count() != 1 {
		t.Errorf("%d proxies, want 1 at once", w.sims[0].count())
	}
}

// TestLostMemberKeepsItsShare loses a member: its proxies are not moved (failover is another matter), the fleet says
// so, and the rest of the fleet can still change.
func TestLostMemberKeepsItsShare(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("news", 4)
	w.turns()
	west := w.sims[1]
	west.silent = true
	w.pass(50 * time.Second)
	w.turns()
	if st := w.get("news").Status; st.Ready != 2 || st.Replicas != 4 {
		t.Errorf("status: %+v", st)
	}
	if c := w.condition("news", v1alpha1.ConditionDegraded); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonUnreachable {
		t.Errorf("degraded: %+v", c)
	}
	if diff := cmp.Diff([]int{2, 2}, w.counts()); diff != "" {
		t.Errorf("proxies moved: %s", diff)
	}
	before := w.specsOf(west)
	w.change("news", func(f *v1alpha1.ProxyFleet) { f.Spec.Template.Spec.Port = 3129 })
	w.turns()
	if st := w.get("news").Status; st.Updated != 2 {
		t.Errorf("the member that is heard was not updated: %+v", st)
	}
	if diff := cmp.Diff(before, w.specsOf(west)); diff != "" {
		t.Errorf("the lost member's placements changed: %s", diff)
	}
	west.connect(w.hub)
	w.turns()
	if st := w.get("news").Status; st.Updated != 4 || st.Ready != 4 || st.Replicas != 4 {
		t.Errorf("after its return: %+v", st)
	}
}

// TestEmptyReportRemovesNothing lets a member report nothing at all after it reconnects: nothing follows from one such
// report.
func TestEmptyReportRemovesNothing(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("news", 6)
	w.turns()
	specs := w.specs()
	west := w.sims[1]
	proxies, sets := west.proxies, west.sets
	west.proxies, west.sets = map[string]*simProxy{}, map[string]*v1alpha1.ProxySetSpec{}
	west.silent = true
	west.epoch++
	west.connect(w.hub)
	west.silent = true
	w.turns()
	if !w.inventory.Doubted(west.name) {
		t.Fatal("the empty report was believed")
	}
	if diff := cmp.Diff(specs, w.specs()); diff != "" {
		t.Errorf("placements changed: %s", diff)
	}
	west.proxies, west.sets = proxies, sets
	west.connect(w.hub)
	w.turns()
	if st := w.get("news").Status; st.Ready != 6 {
		t.Errorf("status: %+v", st)
	}
}

func (w *world) specs() map[string]v1alpha1.ProxyPlacementSpec {
	specs := map[string]v1alpha1.ProxyPlacementSpec{}
	for _, pp := range w.placementList() {
		specs[pp.Name] = pp.Spec
	}
	return specs
}

func (w *world) specsOf(m *sim) map[string]v1alpha1.ProxyPlacementSpec {
	specs := w.specs()
	for name, spec := range specs {
		if spec.Member != m.name {
			delete(specs, name)
		}
	}
	return specs
}

// TestDeletedMemberDrains deletes a MemberCluster: its proxies move, the leased one in its own time, and then it goes.
func TestDeletedMemberDrains(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("news", 4)
	w.turns()
	west := w.sims[1]
	mc := &v1alpha1.MemberCluster{}
	key := types.NamespacedName{Name: west.name}
	if err := server.Client.Get(t.Context(), key, mc); err != nil {
		t.Fatal(err)
	}
	if err := server.Client.Delete(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	w.turn()
	if err := server.Client.Get(t.Context(), key, mc); err != nil {
		t.Fatalf("the member went before its proxies: %v", err)
	}
	w.turns()
	if diff := cmp.Diff([]int{4, 0}, w.counts()); diff != "" {
		t.Errorf("proxies: %s", diff)
	}
	if err := server.Client.Get(t.Context(), key, mc); !apierrors.IsNotFound(err) {
		t.Errorf("the member is still there: %+v, %v", mc.Status.Conditions, err)
	}
}

// TestVanishedMember takes a MemberCluster away by force: its placements go and its share moves.
func TestVanishedMember(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("news", 4)
	w.turns()
	mc := &v1alpha1.MemberCluster{}
	if err := server.Client.Get(t.Context(), types.NamespacedName{Name: w.sims[1].name}, mc); err != nil {
		t.Fatal(err)
	}
	mc.Finalizers = nil
	if err := server.Client.Update(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	if err := server.Client.Delete(t.Context(), mc); err != nil {
		t.Fatal(err)
	}
	w.sims[1].silent = true
	w.turns()
	if w.sims[0].count() != 4 || len(w.placementList()) != 1 {
		t.Errorf("proxies %v, %d placements", w.counts(), len(w.placementList()))
	}
}
