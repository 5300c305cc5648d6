// Package e2e tells Shoal's story on real clusters: a hub, two members and a region, Helm charts and real Squid. Run it by
// `make e2e`, which brings all of it up and removes it again.
package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/test/harness"
)

// namespace is the tenant's, on the hub.
const namespace = "crawl"

// A chapter is told in order; one that others stand on ends the story when it fails.
type chapter struct {
	name   string
	stands bool
	tell   func(t *testing.T, s *story)
}

// chapters leave what they made for those after them. What fails leaves everything as it is, for whoever looks.
var chapters = []chapter{
	{"Ready", true, tellReady},
	{"ReadyByConnectOnly", false, tellJudged},
	{"Leases", false, tellLeases},
	{"ProxyRefuses", false, tellProxyRefuses},
	{"Exclusive", false, tellExclusive},
	{"ScaleWithLease", true, tellScale},
	{"Roll", true, tellRoll},
	{"NoSecretsSoFar", false, tellSecrets},
	{"DeleteBegins", true, tellDeleteBegins},
	{"BadFleets", false, tellBadFleets},
	{"BadProxies", false, tellBadProxies},
	{"BadLeases", false, tellBadLeases},
	{"Membership", false, tellMembership},
	{"DeleteLeavesNothing", false, tellDeleted},
	{"Region", false, tellRegion},
	{"AgentKilled", false, tellAgentKilled},
	{"HubKilled", false, tellHubKilled},
	{"HubDown", false, tellHubDown},
	{"NoSecrets", false, tellSecrets},
}

func TestStory(t *testing.T) {
	s := begin(t)
	for _, c := range chapters {
		if !t.Run(c.name, func(t *testing.T) { c.tell(t, s) }) && c.stands {
			t.Fatalf("the chapters after %s stand on it", c.name)
		}
	}
}

// story is what the chapters share.
type story struct {
	*harness.Env
	crawler *harness.Crawler
	random  *rand.Rand

	// proxies has a recorder for each member, from before any fleet was applied.
	proxies    []*harness.Recorder[*v1alpha1.Proxy]
	placements *harness.Recorder[*v1alpha1.ProxyPlacement]
	fleets     *harness.Recorder[*v1alpha1.ProxyFleet]

	mu      sync.Mutex // guards secrets
	secrets map[string]string

	// held is the lease that is held while its fleet is scaled and rolled.
	held harness.Lease
	// deletedUID is the UID of the fleet that DeleteBegins deleted, and deletedAt when.
	deletedUID string
	deletedAt  time.Time
}

func begin(t *testing.T) *story {
	t.Helper()
	env, err := harness.FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SEED is %q; write a number", text)
		}
	}
	t.Logf("random moments by SEED=%d", seed)
	s := &story{Env: env, random: rand.New(rand.NewPCG(seed, seed)), secrets: map[string]string{}}
	ctx := t.Context()
	for _, m := range env.Members {
		r, err := harness.Record[*v1alpha1.Proxy](ctx, m.Cluster, &v1alpha1.ProxyList{}, client.InNamespace(harness.Namespace))
		if err != nil {
			t.Fatal(err)
		}
		s.proxies = append(s.proxies, r)
		if left := r.Live(); len(left) > 0 {
			t.Fatalf("%s has %d proxies already; the story needs clusters of its own: make e2e", m.Name, len(left))
		}
	}
	if s.placements, err = harness.Record[*v1alpha1.ProxyPlacement](ctx, env.Hub, &v1alpha1.ProxyPlacementList{}); err != nil {
		t.Fatal(err)
	}
	if s.fleets, err = harness.Record[*v1alpha1.ProxyFleet](ctx, env.Hub, &v1alpha1.ProxyFleetList{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range []error{harness.StopAll(s.proxies...), s.placements.Stop(), s.fleets.Stop()} {
			if err != nil {
				t.Errorf("a watch broke, so what it should have proved is not proved: %v", err)
			}
		}
	})
	if _, err := env.Hub.Kubectl(ctx, "create", "namespace", namespace); err != nil {
		t.Fatal(err)
	}
	token, err := env.NewToken(ctx, "e2e", namespace+"/*")
	if err != nil {
		t.Fatal(err)
	}
	s.secret("the API token", token)
	s.crawler = env.Crawler(token)
	return s
}

// secret remembers a value that must never be seen anywhere.
func (s *story) secret(what, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets[value] = what
}

// acquire acquires leases and remembers their passwords as secrets.
func (s *story) acquire(t *testing.T, body string) []harness.Lease {
	t.Helper()
	leases, err := s.crawler.Acquire(t.Context(), body)
	if err != nil {
		t.Fatalf("acquire %s: %v", body, err)
	}
	s.keep(leases...)
	return leases
}

func (s *story) keep(leases ...harness.Lease) {
	for _, l := range leases {
		s.secret("the password of lease "+l.LeaseID, l.Password)
	}
}

func (s *story) release(t *testing.T, leases ...harness.Lease) {
	t.Helper()
	for _, l := range leases {
		if err := s.crawler.Release(t.Context(), l.LeaseID); err != nil {
			t.Errorf("release %s: %v", l.LeaseID, err)
		}
	}
}

// apply applies a fleet of the namespace with a spec in YAML's flow style.
func (s *story) apply(t *testing.T, name, spec string) {
	t.Helper()
	if err := s.Hub.Apply(t.Context(), s.manifest(name, spec)); err != nil {
		t.Fatalf("apply fleet %s: %v", name, err)
	}
}

func (s *story) manifest(name, spec string) string {
	spec = strings.ReplaceAll(spec, "TARGET", s.Target.String())
	return fmt.Sprintf("apiVersion: shoal.dev/v1alpha1\nkind: ProxyFleet\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", name, namespace, spec)
}

func (s *story) scale(t *testing.T, name string, replicas int) {
	t.Helper()
	if _, err := s.Hub.Kubectl(t.Context(), "-n", namespace, "scale", "proxyfleet", name, "--replicas", strconv.Itoa(replicas)); err != nil {
		t.Fatal(err)
	}
}

func (s *story) fleet(ctx context.Context, name string) (*v1alpha1.ProxyFleet, error) {
	var fleet v1alpha1.ProxyFleet
	err := s.Hub.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &fleet)
	return &fleet, err
}

// settled says what still keeps the fleet from being all that its spec asks for, with nothing else left: in its own words,
// and on its members, because the words of a hub that is down stand as they were.
func (s *story) settled(name string, replicas int32) func(context.Context) error {
	return func(ctx context.Context) error {
		fleet, err := s.fleet(ctx, name)
		if err != nil {
			return err
		}
		st := fleet.Status
		counts := fmt.Sprintf("replicas %d, updated %d, ready %d, draining %d of %d wanted", st.Replicas, st.Updated, st.Ready, st.Draining, replicas)
		switch {
		case st.ObservedGeneration != fleet.Generation:
			return fmt.Errorf("status speaks of generation %d, spec is %d", st.ObservedGeneration, fleet.Generation)
		case st.Replicas != replicas, st.Updated != replicas, st.Ready != replicas, st.Draining != 0:
			return fmt.Errorf("%s; %s", counts, said(st.Conditions))
		}
		for kind, want := range map[string]struct {
			status metav1.ConditionStatus
			reason string
		}{
			v1alpha1.ConditionAccepted:    {metav1.ConditionTrue, v1alpha1.ReasonAccepted},
			v1alpha1.ConditionAvailable:   {metav1.ConditionTrue, v1alpha1.ReasonAllReady},
			v1alpha1.ConditionProgressing: {metav1.ConditionFalse, v1alpha1.ReasonComplete},
			v1alpha1.ConditionDegraded:    {metav1.ConditionFalse, v1alpha1.ReasonAsExpected},
		} {
			if c := find(st.Conditions, kind); c.Status != want.status || c.Reason != want.reason {
				return fmt.Errorf("%s, but %s", counts, said(st.Conditions))
			}
		}
		return s.ready(ctx, string(fleet.UID), replicas)
	}
}

// ready says where the members do not have as many proxies of the fleet as wanted, every one of them ready.
func (s *story) ready(ctx context.Context, fleetUID string, replicas int32) error {
	all, err := s.of(ctx, fleetUID)
	if err != nil {
		return err
	}
	n := int32(0)
	for member, proxies := range all {
		for i := range proxies {
			p := &proxies[i]
			if p.DeletionTimestamp != nil || !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) {
				return fmt.Errorf("%s on %s is %s: %s", p.Name, member, p.Status.Phase, said(p.Status.Conditions))
			}
			n++
		}
	}
	if n != replicas {
		return fmt.Errorf("the members have %d proxies of the fleet, not %d", n, replicas)
	}
	return nil
}

func find(conditions []metav1.Condition, kind string) metav1.Condition {
	for _, c := range conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}

// said is what an object says of itself.
func said(conditions []metav1.Condition) string {
	var words []string
	for _, c := range conditions {
		words = append(words, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	slices.Sort(words)
	return strings.Join(words, " | ")
}

// of returns the live proxies of a fleet on each member, by the member's name.
func (s *story) of(ctx context.Context, fleetUID string) (map[string][]v1alpha1.Proxy, error) {
	all := map[string][]v1alpha1.Proxy{}
	for _, m := range s.Members {
		var list v1alpha1.ProxyList
		if err := m.Client.List(ctx, &list, client.InNamespace(harness.Namespace), client.MatchingLabels{v1alpha1.LabelFleetUID: fleetUID}); err != nil {
			return nil, err
		}
		all[m.Name] = list.Items
	}
	return all, nil
}

// proxyUIDs returns the UIDs of a fleet's proxies on all members, and the names of their members.
func (s *story) proxyUIDs(t *testing.T, fleetUID string) map[string]string {
	t.Helper()
	all, err := s.of(t.Context(), fleetUID)
	if err != nil {
		t.Fatal(err)
	}
	uids := map[string]string{}
	for _, member := range slices.Sorted(maps.Keys(all)) {
		for i := range all[member] {
			uids[string(all[member][i].UID)] = member
		}
	}
	return uids
}

func (s *story) fleetUID(t *testing.T, name string) string {
	t.Helper()
	fleet, err := s.fleet(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return string(fleet.UID)
}
