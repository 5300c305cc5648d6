package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

func (w *world) memberCluster(m *sim) *v1alpha1.MemberCluster {
	w.t.Helper()
	mc := &v1alpha1.MemberCluster{}
	if err := server.Client.Get(w.t.Context(), types.NamespacedName{Name: m.name}, mc); err != nil {
		w.t.Fatal(err)
	}
	return mc
}

func (w *world) memberReady(m *sim) metav1.Condition {
	w.t.Helper()
	c := meta.FindStatusCondition(w.memberCluster(m).Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		w.t.Fatalf("%s has no condition Ready", m.name)
	}
	return *c
}

// TestMemberStatus follows a member through loss, a restart of the hub and recovery.
func TestMemberStatus(t *testing.T) {
	w := newWorld(t, "east")
	w.fleet("news", 2)
	w.turns()
	east := w.sims[0]
	w.turn()
	mc := w.memberCluster(east)
	if st := mc.Status; st.AgentVersion != "v0.0.0-test" || len(st.Providers) != 2 || st.Proxies != 2 || st.Ready != 2 ||
		st.LastHeartbeat == nil || st.LostSince != nil || st.ObservedGeneration != mc.Generation {
		t.Errorf("status: %+v", st)
	}
	if c := w.memberReady(east); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonHeard {
		t.Errorf("ready: %+v", c)
	}
	if c := meta.FindStatusCondition(mc.Status.Conditions, v1alpha1.ConditionJoined); c == nil || c.Reason != v1alpha1.ReasonNotRegistered {
		t.Errorf("joined: %+v", c)
	}

	// A heartbeat is written every 30 s, not more often.
	version := mc.ResourceVersion
	w.pass(20 * time.Second)
	w.turn()
	if mc = w.memberCluster(east); mc.ResourceVersion != version {
		t.Errorf("status was written within 30 s though nothing changed: %+v", mc.Status)
	}
	w.pass(15 * time.Second)
	w.turn()
	if mc = w.memberCluster(east); mc.ResourceVersion == version {
		t.Error("no heartbeat was written for 35 s")
	}

	lost := w.clock.Now()
	east.silent = true
	w.pass(20 * time.Second)
	w.turn()
	if c := w.memberReady(east); c.Reason != v1alpha1.ReasonSuspect {
		t.Errorf("ready: %+v", c)
	}
	w.pass(30 * time.Second)
	w.turn()
	if c := w.memberReady(east); c.Reason != v1alpha1.ReasonUnreachable {
		t.Errorf("ready: %+v", c)
	}
	since := w.memberCluster(east).Status.LostSince
	if since == nil || since.Sub(lost).Abs() > time.Second {
		t.Errorf("lost since %v, want %v", since, lost)
	}

	w.restart()
	w.turn()
	if c := w.memberReady(east); c.Reason != v1alpha1.ReasonNeverHeard || c.Status != metav1.ConditionUnknown {
		t.Errorf("ready after the restart: %+v", c)
	}
	w.pass(50 * time.Second)
	w.turn()
	if c := w.memberReady(east); c.Reason != v1alpha1.ReasonUnreachable {
		t.Errorf("ready after the restart: %+v", c)
	}
	if now := w.memberCluster(east).Status.LostSince; !now.Equal(since) {
		t.Errorf("the restart moved lostSince from %v to %v", since, now)
	}
	east.connect(w.hub)
	w.turn()
	if st := w.memberCluster(east).Status; st.LostSince != nil || w.memberReady(east).Reason != v1alpha1.ReasonHeard {
		t.Errorf("after its return: %+v", st)
	}
}

// TestFrozenVerdicts lets a member say that its probes say nothing about its proxies, and take it back.
func TestFrozenVerdicts(t *testing.T) {
	w := newWorld(t, "east")
	w.fleet("news", 1)
	w.turns()
	east := w.sims[0]
	for _, frozen := range []bool{true, false} {
		east.frozen = frozen
		east.report()
		w.turn()
		c := meta.FindStatusCondition(w.memberCluster(east).Status.Conditions, v1alpha1.ConditionDegraded)
		if c == nil || (c.Reason == v1alpha1.ReasonVerdictsFrozen) != frozen || (c.Status == metav1.ConditionTrue) != frozen ||
			frozen && c.Message != "no target is reached" {
			t.Errorf("frozen %v: %+v", frozen, c)
		}
	}
}

func TestDuplicateAgentAndForeignProxy(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("news", 2)
	w.turns()
	east, west := w.sims[0], w.sims[1]
	for _, instance := range []string{"other", east.name, "other"} {
		east.epoch++
		w.inventory.Connected(east.name, inventory.Session{Epoch: east.epoch, Instance: instance, Providers: east.provider}, w.clock.Now())
		east.report()
		w.inventory.Resynced(east.name, w.clock.Now())
	}
	for uid, p := range east.proxies {
		w.inventory.ObserveProxy(west.name, uid, &agentv1.ProxyReport{PlacementUid: p.placement, Name: p.name, Ready: true}, w.clock.Now())
	}
	w.turn()
	if c := w.memberReady(east); c.Reason != v1alpha1.ReasonDuplicateAgent || c.Status != metav1.ConditionFalse {
		t.Errorf("ready: %+v", c)
	}
	if c := meta.FindStatusCondition(w.memberCluster(west).Status.Conditions, v1alpha1.ConditionDegraded); c == nil || c.Reason != v1alpha1.ReasonForeignProxy {
		t.Errorf("degraded: %+v", c)
	}
	if p, ok := w.inventory.Proxy("east-" + w.ns + "-uid-001"); !ok || p.Member != east.name {
		t.Errorf("the proxy changed hands: %+v", p)
	}
}
