package kubernetes_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/sweep"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// A Proxy whose finalizer somebody took off leaves its pod behind where no garbage collector runs, as none does here. The
// sweep finds it, and leaves the pods of another hub and of another agent in the namespace alone.
func TestSweepOfPods(t *testing.T) {
	w := newWorld(t, false)
	now := clocktesting.NewFakeClock(time.Now())
	s, err := sweep.New(sweep.Options{
		Entries: func() map[string]provider.Provider {
			return map[string]provider.Provider{"default": w.provider, "same": w.provider}
		},
		Owners: func(ctx context.Context) (map[string]struct{}, error) {
			return sweep.Owners(ctx, server.Client, w.namespace)
		},
		Identity:       func() (string, string, bool) { return "hub", "member", true },
		HomeClusterUID: "home", Clock: now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	created := func(name string, change func(*provider.Identity)) provider.Request {
		t.Helper()
		r := w.request(name)
		change(&r.Identity)
		if _, err := w.provider.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	owned := created("owned", func(*provider.Identity) {})
	leaked := created("leaked", func(*provider.Identity) {})
	foreign := []provider.Request{
		created("hubs", func(i *provider.Identity) { i.HubUID = "hub2" }),
		created("members", func(i *provider.Identity) { i.MemberUID = "member2" }),
		created("homes", func(i *provider.Identity) { i.HomeClusterUID = "home2" }),
	}
	for _, r := range append(foreign, leaked) {
		p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: r.Owner.Name}}
		if err := server.Client.Delete(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	for range int(sweep.Grace/sweep.Interval) + 2 { // the pods are a little younger than the clock
		s.Pass(t.Context())
		now.Step(sweep.Interval)
	}
	pods := &corev1.PodList{}
	if err := server.Client.List(t.Context(), pods, client.InNamespace(w.namespace)); err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for i := range pods.Items {
		left[pods.Items[i].Name] = pods.Items[i].DeletionTimestamp == nil
	}
	for _, r := range append(foreign, owned) {
		if !left[r.Name] {
			t.Errorf("%s is gone, and it is somebody's", r.Owner.Name)
		}
	}
	if left[leaked.Name] || s.Status().Deleted != 1 {
		t.Errorf("the leaked pod is there still: %+v", s.Status())
	}
}
