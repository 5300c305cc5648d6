package proxy_test

import (
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/agent/internal/controller/proxy"
	"github.com/shoal-dev/shoal/agent/provider/fake"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func TestLeasedInstancesAreMarked(t *testing.T) {
	w := newWorld(t)
	w.site.Busy = proxy.NewBusy(w.clock, w.options.Verdicts)
	w.make("p", "fake")
	p := w.ready("p", "192.0.2.1", 3128)
	instance, uid := p.Status.InstanceName, string(p.UID)
	marked := func(want bool, why string) {
		t.Helper()
		w.settle("p")
		if got := w.fake.Busy(instance); got != want {
			t.Errorf("marked %v, want %v: %s", got, want, why)
		}
	}
	if calls := len(w.fake.Calls(fake.Mark)); calls != 0 {
		t.Errorf("%d marks before the hub has said anything: an agent that has just started would take marks off", calls)
	}
	w.site.Busy.Set([]string{"another", uid}, false)
	marked(true, "it is leased")
	w.site.Busy.Set([]string{"another"}, false)
	marked(false, "its lease has ended")
	w.site.Busy.Set(nil, true)
	marked(true, "there are too many to name")
	w.clock.SetTime(w.clock.Now().Add(59 * time.Minute))
	marked(true, "leases outlive a hub that is away")
	w.clock.SetTime(w.clock.Now().Add(2 * time.Minute))
	marked(false, "no lease lives on without a hub, and nodes must not be held for ever")
}

func TestMarksHoldNothingUp(t *testing.T) {
	w := newWorld(t)
	w.site.Busy = proxy.NewBusy(w.clock, w.options.Verdicts)
	w.make("p", "fake")
	p := w.ready("p", "192.0.2.1", 3128)
	w.site.Busy.Set([]string{string(p.UID)}, false)
	w.fake.Fail(fake.Mark, errors.New("the API server is away"))
	if after := w.pass("p").RequeueAfter; after > 5*time.Second || after == 0 {
		t.Errorf("the mark is tried again after %v, want some seconds", after)
	}
	if got := w.get("p"); got.Status.Phase != v1alpha1.PhaseReady {
		t.Errorf("phase %s, want %s: the proxy is what it was", got.Status.Phase, v1alpha1.PhaseReady)
	}
	w.pass("p")
	if !w.fake.Busy(p.Status.InstanceName) {
		t.Error("the mark was not tried again")
	}
}

func TestWhoBeginsAndEndsToBeLeasedGetsAPass(t *testing.T) {
	w := newWorld(t)
	w.site.Busy = proxy.NewBusy(w.clock, w.options.Verdicts)
	uids := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		w.make(name, "fake")
		uids[name] = string(w.ready(name, "192.0.2.1", 3128).UID)
	}
	queue := newQueue(t, w.options.Verdicts)
	passes := func(want ...string) {
		t.Helper()
		got := map[string]bool{}
		for queue.Len() > 0 {
			request, _ := queue.Get()
			got[request.Name] = true
			queue.Done(request)
		}
		if len(got) != len(want) {
			t.Errorf("passes over %v, want %v", got, want)
		}
		for _, name := range want {
			if !got[name] {
				t.Errorf("no pass over %s", name)
			}
		}
	}
	passes()
	w.site.Busy.Set([]string{uids["a"], uids["b"]}, false)
	passes("a", "b")
	w.site.Busy.Set([]string{uids["b"], uids["c"]}, false)
	passes("a", "c")
	w.site.Busy.Set([]string{uids["b"], uids["c"]}, false)
	passes()
}

// newQueue starts a source and gives the queue that it fills.
func newQueue(t *testing.T, v *proxy.Verdicts) workqueue.TypedRateLimitingInterface[mcreconcile.Request] {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	t.Cleanup(queue.ShutDown)
	if err := v.Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	return queue
}
