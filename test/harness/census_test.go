package harness

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const fleetUID = types.UID("fleet")

func at(seconds int) time.Time {
	return time.Unix(1764561600, 0).Add(time.Duration(seconds) * time.Second)
}

func placementAt(seconds int, drain ...string) Event[*v1alpha1.ProxyPlacement] {
	p := &v1alpha1.ProxyPlacement{ObjectMeta: metav1.ObjectMeta{UID: "placement"}}
	p.Spec.Fleet.UID = fleetUID
	for _, name := range drain {
		p.Spec.Drain = append(p.Spec.Drain, v1alpha1.Drain{Name: name})
	}
	return Event[*v1alpha1.ProxyPlacement]{At: at(seconds), Type: watch.Modified, Object: p}
}

func proxyAt(seconds int, kind watch.EventType, name string, ready bool) Event[*v1alpha1.Proxy] {
	p := &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{
		v1alpha1.LabelFleetUID: string(fleetUID), v1alpha1.LabelPlacementUID: "placement",
	}}}
	if ready {
		p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	}
	return Event[*v1alpha1.Proxy]{At: at(seconds), Type: kind, Object: p}
}

func TestCensusCounts(t *testing.T) {
	east := []Event[*v1alpha1.Proxy]{
		proxyAt(1, watch.Added, "a", false), proxyAt(3, watch.Modified, "a", true), proxyAt(9, watch.Deleted, "a", true),
	}
	west := []Event[*v1alpha1.Proxy]{
		proxyAt(2, watch.Added, "b", false), proxyAt(4, watch.Modified, "b", true), proxyAt(5, watch.Modified, "b", true),
	}
	foreign := proxyAt(2, watch.Added, "c", true)
	foreign.Object.Labels[v1alpha1.LabelFleetUID] = "another"
	placements := []Event[*v1alpha1.ProxyPlacement]{placementAt(0), placementAt(7, "a")}
	want := []Count{
		{At: at(0)},
		{At: at(1), Alive: 1},
		{At: at(2), Alive: 2},
		{At: at(3), Alive: 2, Available: 1},
		{At: at(4), Alive: 2, Available: 2},
		// From the hub's decision on, whatever the proxy says.
		{At: at(7), Alive: 1, Available: 1},
	}
	got := Census(fleetUID, placements, append(east, foreign), west)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLongest(t *testing.T) {
	counts := []Count{{At: at(0), Available: 8}, {At: at(1), Available: 6}, {At: at(2), Available: 8}, {At: at(5), Available: 6}, {At: at(7), Available: 5}}
	under := func(n int) func(Count) bool { return func(c Count) bool { return c.Available < n } }
	tests := map[string]struct {
		reason  string
		rule    func(Count) bool
		want    time.Duration
		atCount int
	}{
		"Never":    {reason: "no count breaks the rule", rule: under(5)},
		"Joined":   {reason: "counts that break it one after another are one time", rule: under(7), want: 5 * time.Second, atCount: 5},
		"TheLast":  {reason: "the last count holds until the end", rule: under(6), want: 3 * time.Second, atCount: 5},
		"AllOfIt":  {reason: "from the first count to the end", rule: under(9), want: 10 * time.Second, atCount: 5},
		"AtTheEnd": {reason: "a count that begins at the end has no length", rule: func(c Count) bool { return c.At.After(at(9)) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			worst, d := Longest(counts, at(10), test.rule)
			if d != test.want || worst.Available != test.atCount {
				t.Errorf("%s: got %s at %+v, want %s at %d", test.reason, d, worst, test.want, test.atCount)
			}
		})
	}
}

func TestAfter(t *testing.T) {
	counts := []Count{{At: at(0), Alive: 1}, {At: at(5), Alive: 2}}
	tests := map[string]struct {
		from int
		want []Count
	}{
		"Between":    {3, []Count{{At: at(3), Alive: 1}, {At: at(5), Alive: 2}}},
		"AfterAll":   {9, []Count{{At: at(9), Alive: 2}}},
		"BeforeAll":  {-1, counts},
		"AtTheFirst": {0, counts},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, After(counts, at(test.from))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
