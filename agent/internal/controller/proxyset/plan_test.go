package proxyset

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func TestDecide(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	soon, past := now.Add(time.Minute), now.Add(-time.Second)
	set := func(replicas int32, drain ...v1alpha1.Drain) *v1alpha1.ProxySet {
		s := &v1alpha1.ProxySet{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
		s.Spec.Replicas, s.Spec.Drain = replicas, drain
		return s
	}
	drain := func(name string, at time.Time) v1alpha1.Drain {
		return v1alpha1.Drain{Name: name, Deadline: metav1.NewTime(at)}
	}
	proxy := func(ordinal int, change ...func(*v1alpha1.Proxy)) *v1alpha1.Proxy {
		p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", ordinal)}}
		for _, f := range change {
			f(p)
		}
		return p
	}
	draining := func(at time.Time) func(*v1alpha1.Proxy) {
		return func(p *v1alpha1.Proxy) { p.Spec.Drain = &v1alpha1.DrainSpec{Deadline: metav1.NewTime(at)} }
	}
	deleted := func(p *v1alpha1.Proxy) { p.DeletionTimestamp = &metav1.Time{Time: now} }

	preempted := func(state v1alpha1.AttemptState) func(*v1alpha1.Proxy) {
		return func(p *v1alpha1.Proxy) {
			p.Status.Attempt = &v1alpha1.Attempt{State: state}
			p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDraining, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPreempted}}
		}
	}

	type done struct {
		Create, Drain, Remove []string
		Next                  time.Time
		Surplus               int
	}
	for name, c := range map[string]struct {
		reason  string
		set     *v1alpha1.ProxySet
		proxies []*v1alpha1.Proxy
		want    done
	}{
		"Empty":   {"all are made, from 0 on", set(3), nil, done{Create: []string{"s-0", "s-1", "s-2"}}},
		"Steady":  {"nothing to do", set(1), []*v1alpha1.Proxy{proxy(0)}, done{}},
		"Gap":     {"the lowest free ordinal comes first", set(3), []*v1alpha1.Proxy{proxy(0), proxy(2)}, done{Create: []string{"s-1"}}},
		"Surplus": {"the agent never picks a victim", set(1), []*v1alpha1.Proxy{proxy(0), proxy(1), proxy(2)}, done{Surplus: 2}},
		"Listed": {
			"replicas do not count the listed, whose name stays taken",
			set(1, drain("s-0", soon)),
			[]*v1alpha1.Proxy{proxy(0)},
			done{Create: []string{"s-1"}, Drain: []string{"s-0"}, Next: soon},
		},
		"ListedAndGone": {
			"the name in the list still means the proxy it meant", set(1, drain("s-0", past)), nil, done{Create: []string{"s-1"}},
		},
		"Due": {
			"it goes at its deadline", set(0, drain("s-0", past)), []*v1alpha1.Proxy{proxy(0, draining(past))}, done{Remove: []string{"s-0"}},
		},
		"DueAndUnmarked": {
			"it is marked all the same, so that its pod is not waited for", set(0, drain("s-0", past)),
			[]*v1alpha1.Proxy{proxy(0)},
			done{Drain: []string{"s-0"}, Remove: []string{"s-0"}},
		},
		"Moved": {
			"a lease that ends early moves the deadline", set(0, drain("s-0", past)),
			[]*v1alpha1.Proxy{proxy(0, draining(soon))},
			done{Drain: []string{"s-0"}, Remove: []string{"s-0"}},
		},
		"NoLongerListed": {
			"draining is one-way", set(1), []*v1alpha1.Proxy{proxy(0, draining(soon))}, done{Create: []string{"s-1"}, Next: soon},
		},
		"NoLongerListedAndDue": {"by the deadline that it was told last", set(0), []*v1alpha1.Proxy{proxy(0, draining(past))}, done{Remove: []string{"s-0"}}},
		"BeingDeleted": {
			"somebody deleted it: another is made beside it, under another name", set(1), []*v1alpha1.Proxy{proxy(0, deleted)}, done{Create: []string{"s-1"}},
		},
		"DeletedAndListed": {"it goes already", set(0, drain("s-0", past)), []*v1alpha1.Proxy{proxy(0, deleted)}, done{}},
		"Preempted": {
			"another takes its place at once, while its instance still goes", set(1),
			[]*v1alpha1.Proxy{proxy(0, preempted(v1alpha1.AttemptAccepted))},
			done{Create: []string{"s-1"}},
		},
		"PreemptedAndGone": {
			"it goes once its instance is gone", set(1),
			[]*v1alpha1.Proxy{proxy(0, preempted(v1alpha1.AttemptEnded)), proxy(1)},
			done{Remove: []string{"s-0"}},
		},
		"PreemptedAndListed": {
			"the hub's deadline stands for what it lists", set(0, drain("s-0", soon)),
			[]*v1alpha1.Proxy{proxy(0, draining(soon), preempted(v1alpha1.AttemptEnded))},
			done{Next: soon},
		},
		"NextIsTheEarliest": {
			"of several deadlines", set(0), []*v1alpha1.Proxy{proxy(0, draining(soon.Add(time.Hour))), proxy(1, draining(soon))}, done{Next: soon},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := decide(c.set, c.proxies, now)
			got := done{Create: p.create, Next: p.next, Surplus: p.surplus}
			for _, m := range p.drain {
				got.Drain = append(got.Drain, m.proxy.Name)
			}
			for _, r := range p.remove {
				got.Remove = append(got.Remove, r.Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestOrdinalsSortAsNumbers(t *testing.T) {
	a, b := &v1alpha1.Proxy{}, &v1alpha1.Proxy{}
	a.Name, b.Name = "s-2", "s-10"
	if byOrdinal(a, b) >= 0 || byOrdinal(b, a) <= 0 {
		t.Error("s-10 comes before s-2")
	}
}

func TestAHubThatAsksForEverything(t *testing.T) {
	set := &v1alpha1.ProxySet{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	set.Spec.Replicas = math.MaxInt32
	p := decide(set, nil, time.Time{})
	if len(p.create) != createMost || p.missing != math.MaxInt32 {
		t.Fatalf("one pass makes %d of %d", len(p.create), p.missing)
	}
	p.limit(ceiling.Policy{MaxProxies: 1000}, 0)
	if len(p.create) != createMost || p.refused != math.MaxInt32-1000 || p.again(time.Time{}) != createPause {
		t.Errorf("beside none it makes %d, refuses %d and comes back in %v", len(p.create), p.refused, p.again(time.Time{}))
	}
	p.limit(ceiling.Policy{MaxProxies: 1000}, 997)
	if len(p.create) != 3 || p.again(time.Time{}) != recheck {
		t.Errorf("beside 997 of 1000 it makes %d and comes back in %v", len(p.create), p.again(time.Time{}))
	}
	p.limit(ceiling.Policy{MaxProxies: 1000}, 2000)
	if len(p.create) != 0 {
		t.Errorf("beside 2000 of 1000 it makes %d", len(p.create))
	}
}
