package proxy_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/agent/provider/fake"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// TestLatch has a request that can never succeed, refused at once or after it was taken, and lets it go again in each of
// the four ways.
func TestLatch(t *testing.T) {
	const zoned, plain = "zoned", "fake"
	for name, release := range map[string]func(w *world){
		"AnotherSpec": func(w *world) { w.change("p", func(s *v1alpha1.ProxySpec) { s.Port = 8080 }) },
		"AnotherEntry": func(w *world) {
			for entry, e := range w.site.Entries {
				e.Salt = "another machine type"
				w.site.Entries[entry] = e
			}
		},
		"SlowRetry": func(w *world) { w.advance(time.Hour) },
		"Asked": func(w *world) {
			p := w.get("p")
			p.Annotations = map[string]string{v1alpha1.AnnotationRetry: "now"}
			if err := server.Client.Update(w.t.Context(), p); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		for _, entry := range []string{plain, zoned} {
			t.Run(name+"/"+entry, func(t *testing.T) {
				w := newWorld(t)
				calls := func() int { return len(w.fake.Calls(fake.Create)) + len(w.zoned.Calls(fake.Create)) }
				for range 2 {
					w.fake.Refuse(provider.Errorf(provider.KindInvalidSpec, "create", "no such machine type"))
					w.zoned.Refuse(provider.Errorf(provider.KindInvalidSpec, "create", "no such machine type"))
				}
				w.make("p", entry)
				latched := func(creates int, wait time.Duration) {
					t.Helper()
					p := w.settle("p")
					w.want(p, v1alpha1.PhaseFailed, v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec)
					if text := message(p, v1alpha1.ConditionProvisioned); !strings.Contains(text, "no such machine type") || !strings.Contains(text, "shoalctl proxy retry") {
						t.Errorf("the message tells neither why nor what to do: %q", text)
					}
					if got := w.pass("p").RequeueAfter; calls() != creates || got != wait {
						t.Fatalf("%d creates, and the next pass in %v; want %d and %v", calls(), got, creates, wait)
					}
				}
				latched(1, time.Hour)
				w.restart()
				latched(1, time.Hour)
				// It is released, and latched again by the same refusal.
				w.advance(2 * time.Minute)
				wait := time.Hour
				if name == "SlowRetry" {
					wait = 2 * time.Hour
				}
				release(w)
				latched(2, wait)
				w.restart()
				latched(2, wait)
				// A third request is not refused.
				w.advance(wait)
				if p := w.settle("p"); calls() != 3 || len(w.fake.Instances())+len(w.zoned.Instances()) != 1 || p.Status.Phase != v1alpha1.PhaseProvisioning {
					t.Errorf("%d creates, phase %s: it was not made in the end", calls(), p.Status.Phase)
				}
			})
		}
	}
}

func TestPassingErrors(t *testing.T) {
	for name, c := range map[string]struct {
		why    string
		err    error
		reason string
		after  time.Duration
	}{
		"Quota":      {"people free it", provider.Errorf(provider.KindQuotaExceeded, "create", "IN_USE_ADDRESSES"), v1alpha1.ReasonQuotaExceeded, 5 * time.Minute},
		"Capacity":   {"others free it", provider.Errorf(provider.KindCapacityExhausted, "create", "no room"), v1alpha1.ReasonCapacityExhausted, 5 * time.Minute},
		"Throttled":  {"comes back when it was told to", &provider.Error{Kind: provider.KindThrottled, Op: "create", RetryAfter: 42 * time.Second}, v1alpha1.ReasonThrottled, 42 * time.Second},
		"Forbidden":  {"rights can be given", provider.Errorf(provider.KindUnauthorized, "create", "pods is forbidden"), v1alpha1.ReasonProviderError, 15 * time.Second},
		"Unassigned": {"what nobody classified may pass", errors.New("connection reset"), v1alpha1.ReasonProviderError, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.make("p", "fake")
			w.pass("p")
			w.pass("p")
			w.fake.Fail(fake.Create, c.err)
			result, err := w.r.Reconcile(t.Context(), w.request("p"))
			if (err == nil) != (c.after > 0) || result.RequeueAfter != c.after {
				t.Errorf("%s: requeue after %v, error %v", c.why, result.RequeueAfter, err)
			}
			p := w.get("p")
			w.want(p, v1alpha1.PhaseProvisioning, v1alpha1.ConditionProvisioned, metav1.ConditionFalse, c.reason)
			if !strings.Contains(message(p, v1alpha1.ConditionProvisioned), c.err.Error()) {
				t.Errorf("message %q does not tell the cause", message(p, v1alpha1.ConditionProvisioned))
			}
			request := p.Status.Attempt.RequestID
			w.advance(c.after)
			if p = w.settle("p"); len(w.fake.Instances()) != 1 {
				t.Fatal("it was not made afterwards")
			}
			creates := w.fake.Calls(fake.Create)
			if len(creates) != 2 || creates[0].RequestID != creates[1].RequestID || creates[0].RequestID != request || p.Status.Attempt.Number != 1 {
				t.Errorf("creates = %+v, want the same attempt twice", creates)
			}
		})
	}
}

// A machine that dies at once is asked for more and more slowly; one that has lasted is replaced at once when somebody
// removes it.
func TestReplacedWithBackoff(t *testing.T) {
	for name, die := range map[string]struct {
		reason string
		do     func(w *world, name string)
	}{
		"RemovedByHand": {v1alpha1.ReasonInstanceLost, func(w *world, name string) { w.fake.Vanish(name) }},
		"Failed":        {v1alpha1.ReasonInstanceFailed, func(w *world, name string) { w.fake.Become(name, provider.StateFailed, "Evicted: disk pressure") }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.make("p", "fake")
			p := w.ready("p", "192.0.2.1", 3128)
			w.advance(20 * time.Minute)
			w.settle("p")
			die.do(w, p.Status.InstanceName)
			w.settle("p")
			if n := len(w.fake.Calls(fake.Create)); n != 2 || len(w.fake.Instances()) != 1 {
				t.Fatalf("%d creates and %d instances, want one in its place", n, len(w.fake.Instances()))
			}
			for i, wait := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute} {
				die.do(w, p.Status.InstanceName)
				p = w.settle("p")
				w.want(p, v1alpha1.PhaseProvisioning, v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonBackingOff)
				if p.Status.Setback.Reason != die.reason || p.Status.Setback.Count != int32(i+2) {
					t.Fatalf("setback = %+v", p.Status.Setback)
				}
				if name == "Failed" && !strings.Contains(message(p, v1alpha1.ConditionProvisioned), "disk pressure") {
					t.Errorf("message %q does not say why", message(p, v1alpha1.ConditionProvisioned))
				}
				// A restart does not shorten it.
				w.restart()
				w.advance(wait - time.Second)
				w.settle("p")
				if n := len(w.fake.Calls(fake.Create)); n != 2+i {
					t.Fatalf("%d creates before %v have passed, want %d", n, wait, 2+i)
				}
				w.advance(time.Second)
				w.settle("p")
				if n := len(w.fake.Calls(fake.Create)); n != 3+i || len(w.fake.Instances()) != 1 {
					t.Fatalf("%d creates after %v and %d instances, want %d and one", n, wait, len(w.fake.Instances()), 3+i)
				}
			}
			// What has lasted owes nothing to what went before.
			w.fake.Run(p.Status.InstanceName, "192.0.2.1", 3128)
			w.advance(10 * time.Minute)
			if p = w.settle("p"); p.Status.Setback != nil {
				t.Errorf("setback = %+v, want none any more", p.Status.Setback)
			}
		})
	}
}

func TestPreemptedDrains(t *testing.T) {
	w := newWorld(t)
	w.make("p", "zoned")
	p := w.settle("p")
	w.zoned.Run(p.Status.InstanceName, "192.0.2.1", 3128)
	p = w.settle("p")
	w.prober.judge(t, p.UID, probe.Verdict{State: probe.StateReady, Class: probe.ClassOK, Since: w.clock.Now()})
	w.settle("p")
	w.advance(time.Hour)
	w.zoned.Preempt(p.Status.InstanceName)
	w.want(w.settle("p"), v1alpha1.PhaseDraining, v1alpha1.ConditionDraining, metav1.ConditionTrue, v1alpha1.ReasonPreempted)
	w.zoned.Vanish(p.Status.InstanceName)
	w.restart()
	p = w.settle("p")
	w.want(p, v1alpha1.PhaseDraining, v1alpha1.ConditionDraining, metav1.ConditionTrue, v1alpha1.ReasonPreempted)
	if p.Status.Attempt.State != v1alpha1.AttemptEnded || len(w.zoned.Calls(fake.Create)) != 1 {
		t.Errorf("attempt %+v after %d creates: it drains, and gets no other instance", p.Status.Attempt, len(w.zoned.Calls(fake.Create)))
	}
}

// What is made and does not become ready is told, and not churned.
func TestNeverReady(t *testing.T) {
	w := newWorld(t)
	w.make("p", "fake")
	p := w.settle("p")
	w.fake.Run(p.Status.InstanceName, "192.0.2.1", 3128)
	w.want(w.settle("p"), v1alpha1.PhaseProvisioning, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonProbing)
	created := w.clock.Now().UTC().Format(time.RFC3339)
	w.advance(10 * time.Minute)
	p = w.settle("p")
	w.want(p, v1alpha1.PhaseProvisioning, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNeverReady)
	if text := message(p, v1alpha1.ConditionReady); !strings.Contains(text, created) {
		t.Errorf("message %q does not say since when", text)
	}
	w.advance(24 * time.Hour)
	w.settle("p")
	if len(w.fake.Calls(fake.Delete)) != 0 || len(w.fake.Calls(fake.Create)) != 1 {
		t.Error("it was replaced")
	}
	w.prober.judge(t, p.UID, probe.Verdict{State: probe.StateReady, Class: probe.ClassOK, Since: w.clock.Now()})
	w.want(w.settle("p"), v1alpha1.PhaseReady, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonProbesPass)
	// Once it was ready it is not told again.
	w.prober.judge(t, p.UID, probe.Verdict{State: probe.StateUnhealthy, Class: probe.ClassProxyDown, Since: w.clock.Now()})
	w.want(w.settle("p"), v1alpha1.PhaseUnhealthy, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonProbesFail)
}

// A zone that does not answer keeps its proxies, and holds up the end of none elsewhere longer than until it is seen again.
func TestUnreachableZone(t *testing.T) {
	w := newWorld(t)
	w.make("p", "zoned")
	p := w.settle("p")
	w.zoned.Run(p.Status.InstanceName, "192.0.2.1", 3128)
	p = w.settle("p")
	w.prober.judge(t, p.UID, probe.Verdict{State: probe.StateReady, Class: probe.ClassOK, Since: w.clock.Now()})
	p = w.settle("p")
	zone := p.Status.Attempt.Zone
	w.advance(time.Hour)
	w.zoned.Dark(zone)
	for range 3 {
		if _, err := w.r.Reconcile(t.Context(), w.request("p")); err == nil {
			t.Fatal("the error is lost")
		}
	}
	w.want(w.get("p"), v1alpha1.PhaseReady, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonProbesPass)
	if w.prober.target(p.UID) == "" || len(w.zoned.Instances()) != 1 {
		t.Error("what is in the zone was given up")
	}

	// Deleted, it stays until its zone is seen again, although its name is already free.
	w.zoned.Dark()
	if err := server.Client.Delete(t.Context(), w.get("p")); err != nil {
		t.Fatal(err)
	}
	w.settle("p")
	w.zoned.Vanish(p.Status.InstanceName)
	w.zoned.Incomplete(true)
	p = w.settle("p")
	if p == nil || !strings.Contains(message(p, v1alpha1.ConditionProvisioned), "cannot be told") {
		t.Fatalf("want it to stay and to say why, got %+v", p)
	}
	w.zoned.Incomplete(false)
	if w.settle("p") != nil {
		t.Error("it is still there")
	}
}

func scoped(kind provider.Kind, scope, text string) error {
	return &provider.Error{Kind: kind, Op: "insert", Scope: scope, Err: errors.New(text)}
}

// One region's quota is used up: those who would ask there wait without asking, and a fleet elsewhere goes on. When the
// block ends one of them asks, and only when it runs do others follow.
func TestQuotaOfAScope(t *testing.T) {
	w := newWorld(t)
	const n = 6
	refusal := scoped(provider.KindQuotaExceeded, "region r IN_USE_ADDRESSES", "limit 8 in region r")
	w.zoned.Refuse(refusal)
	for i := range n {
		w.make(numbered(i), "zoned")
		w.settle(numbered(i))
	}
	w.make("other", "fake")
	w.ready("other", "192.0.2.9", 3128)
	creates := func() int { return len(w.zoned.Calls(fake.Create)) }
	if creates() != 1 {
		t.Fatalf("%d requests, want 1: the others wait with the first", creates())
	}
	until := w.clock.Now().Add(5 * time.Minute)
	for i := range n {
		p := w.settle(numbered(i))
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProvisioned)
		if c.Reason != v1alpha1.ReasonQuotaExceeded || !strings.Contains(c.Message, "limit 8") || !strings.Contains(c.Message, until.UTC().Format(time.RFC3339)) {
			t.Errorf("%s: %s %q does not say what it waits for and until when", p.Name, c.Reason, c.Message)
		}
	}
	if got := w.r.Blocks(); len(got) != 1 || got[0].Scope != "region r IN_USE_ADDRESSES" || !got[0].Until.Equal(until) {
		t.Errorf("blocks = %+v", got)
	}
	// A restart brings the block back from the status of the one that was refused.
	w.restart()
	for i := range n {
		w.settle(numbered(i))
	}
	if creates() != 1 {
		t.Fatalf("%d requests after a restart, want 1", creates())
	}

	// One asks when it ends, and is refused again: the next block is longer.
	w.zoned.Refuse(refusal)
	w.advance(5 * time.Minute)
	round := func() {
		for i := range n {
			w.settle(numbered(i))
		}
	}
	round()
	if creates() != 2 {
		t.Fatalf("%d requests when the block had ended, want one more", creates())
	}
	w.advance(9 * time.Minute)
	round()
	if creates() != 2 {
		t.Fatalf("%d requests within the second block, want none", creates())
	}
	// Now there is room: one is let through, then two more for each that runs.
	w.advance(time.Minute)
	for _, want := range []int{3, 5, 8} {
		round()
		if creates() != want {
			t.Fatalf("%d requests, want %d", creates(), want)
		}
		for _, i := range w.zoned.Instances() {
			w.zoned.Run(i.Name, "192.0.2.1", 3128)
		}
	}
	round()
	if got := w.r.Blocks(); len(got) != 0 || len(w.zoned.Instances()) != n {
		t.Errorf("%d instances and blocks %+v, want %d and none", len(w.zoned.Instances()), got, n)
	}
}

// A zone without room is left out, one attempt after the other has failed, and never two at once.
func TestZoneWithoutRoom(t *testing.T) {
	w := newWorld(t)
	for _, zone := range []string{"a", "b"} {
		w.zoned.Capacity(zone, 0)
	}
	w.make("p", "zoned")
	p := w.settle("p")
	if p.Status.Attempt.Zone != "c" || len(w.zoned.Instances()) != 1 {
		t.Fatalf("attempt %+v, want the one zone with room", p.Status.Attempt)
	}
	seen := map[string]bool{}
	for _, c := range w.zoned.Calls(fake.Create) {
		if seen[c.RequestID] {
			t.Errorf("request %s was used in two zones", c.RequestID)
		}
		seen[c.RequestID] = true
	}
	// What is known of a zone holds for the next proxy too: none that has no room is asked twice.
	w.zoned.Capacity("c", 0)
	for i := range 3 {
		w.make(numbered(i), "zoned")
		q := w.settle(numbered(i))
		w.want(q, q.Status.Phase, v1alpha1.ConditionProvisioned, metav1.ConditionFalse, v1alpha1.ReasonCapacityExhausted)
	}
	asked := map[string]int{}
	for _, c := range w.zoned.Calls(fake.Create) {
		asked[c.Zone]++
	}
	if asked["a"] != 1 || asked["b"] != 1 || asked["c"] != 2 {
		t.Errorf("requests by zone = %v, want one each, and in c the one that there was room for", asked)
	}
}

// The answer to a create is lost and the zone is blocked for others: the attempt stays in its zone until nothing can come
// of it any more.
func TestLostAnswerInABlockedZone(t *testing.T) {
	w := newWorld(t)
	w.zoned.Late(true)
	w.make("p", "zoned")
	w.pass("p")
	w.pass("p")
	zone := w.get("p").Status.Attempt.Zone
	w.zoned.LoseReplies(fake.Create, 1)
	w.zoned.Lag(time.Hour)
	if _, err := w.r.Reconcile(t.Context(), w.request("p")); err == nil {
		t.Fatal("the error is lost")
	}
	// Another proxy learns that the zone has no room.
	w.zoned.Refuse(scoped(provider.KindCapacityExhausted, "zone "+zone, "stockout"))
	for i := range 6 {
		w.make(numbered(i), "zoned")
		w.settle(numbered(i))
	}
	w.restart()
	for range 3 {
		p := w.settle("p")
		if got := p.Status.Attempt; got.Zone != zone && len(w.zoned.Instances()) > 7 {
			t.Fatalf("attempt %+v beside the one in zone %s", got, zone)
		}
	}
	name := w.get("p").Status.InstanceName
	w.zoned.Appear(name)
	w.advance(30 * time.Second)
	p := w.settle("p")
	var zones []string
	for _, i := range w.zoned.Instances() {
		if i.Name == name {
			zones = append(zones, i.Zone)
		}
	}
	if len(zones) != 1 || zones[0] != zone || p.Status.Attempt.State != v1alpha1.AttemptAccepted {
		t.Errorf("instances in %v with attempt %+v, want the one in %s", zones, p.Status.Attempt, zone)
	}
}
