package kubernetes_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/provider"
)

func TestForbiddenIsTakenApart(t *testing.T) {
	list := func(name corev1.ResourceName, q string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(q)}
	}
	// Quotas are counted by a controller that does not run here.
	quota := func(hard corev1.ResourceList, used corev1.ResourceList) client.Object {
		return &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used}}
	}
	limits := func(item corev1.LimitRangeItem) client.Object {
		return &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
	}
	for name, c := range map[string]struct {
		reason string
		bound  client.Object
		want   provider.Kind
		scope  string
	}{
		"NoPodLeft":    {"the quota counts pods", quota(list("pods", "3"), list("pods", "3")), provider.KindQuotaExceeded, "quota bound pods"},
		"NoMemoryLeft": {"the quota adds up limits", quota(list("limits.memory", "1Gi"), list("limits.memory", "900Mi")), provider.KindQuotaExceeded, "quota bound limits.memory"},
		"NoConfigMap":  {"the configuration counts, too", quota(list("configmaps", "1"), list("configmaps", "1")), provider.KindQuotaExceeded, "quota bound configmaps"},
		"Uncounted":    {"a quota that is not counted yet lets nothing pass", &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: list("pods", "3")}, Status: corev1.ResourceQuotaStatus{Hard: list("pods", "3")}}, provider.KindQuotaExceeded, "quota bound pods"},
		"RoomLeft":     {"a quota with room refuses nothing", quota(list("pods", "3"), list("pods", "2")), "", ""},
		"AboveMaximum": {"the limit range is narrower than our limit", limits(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: list("memory", "128Mi")}), provider.KindQuotaExceeded, "limit range bound memory"},
		"BelowMinimum": {"the limit range wants larger requests", limits(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: list("cpu", "1"), Max: list("cpu", "2")}), provider.KindQuotaExceeded, "limit range bound cpu"},
		"AboveRatio":   {"our limit is six times our request", limits(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, MaxLimitRequestRatio: list("memory", "2")}), provider.KindQuotaExceeded, "limit range bound memory"},
		"WithinLimits": {"a limit range with room refuses nothing", limits(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: list("memory", "1Gi")}), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, false)
			c.bound.SetNamespace(w.namespace)
			c.bound.SetName("bound")
			w.bound(c.bound)
			_, err := w.provider.Create(t.Context(), w.request("one"))
			if got := provider.KindOf(err); got != c.want || provider.ScopeOf(err) != c.scope {
				t.Errorf("%s: kind %q in scope %q (%v), want %q in %q", c.reason, got, provider.ScopeOf(err), err, c.want, c.scope)
			}
		})
	}
}

// bound makes a quota or a limit range, and waits until the API server heeds it: its admission reads from a cache.
func (w *world) bound(o client.Object) {
	w.t.Helper()
	status, counted := o.DeepCopyObject().(*corev1.ResourceQuota)
	if err := server.Client.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
	if counted {
		quota := o.(*corev1.ResourceQuota) //nolint:forcetypeassert // it is one
		quota.Status = status.Status
		if err := server.Client.Status().Update(w.t.Context(), quota); err != nil {
			w.t.Fatal(err)
		}
	}
}
