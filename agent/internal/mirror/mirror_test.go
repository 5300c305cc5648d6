package mirror_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/apitest"
	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/mirror"
	"github.com/shoal-dev/shoal/agent/internal/uplink"
	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/proto/credential"
)

var server apitest.Server

func TestMain(m *testing.M) { apitest.Main(m, &server) }

func newMirror(t *testing.T, namespace string) *mirror.Mirror {
	t.Helper()
	m, err := mirror.New(mirror.Options{Member: "east", Client: server.Client, Reader: server.Client, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

func item(t *testing.T, generation int64, hash string, change func(map[string]any)) uplink.Item {
	t.Helper()
	spec := map[string]any{
		"placementUID": "p-1", "fleetUID": "f-1", "revision": "r1", "replicas": 2,
		"template": map[string]any{"spec": map[string]any{"provider": "default"}},
	}
	if change != nil {
		change(spec)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return uplink.Item{UID: "p-1", Generation: generation, Hash: hash, Spec: text}
}

func get(t *testing.T, namespace string) *v1alpha1.ProxySet {
	t.Helper()
	set := &v1alpha1.ProxySet{}
	if err := server.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: mirror.SetName("p-1")}, set); err != nil {
		t.Fatal(err)
	}
	return set
}

func TestApplyHoldsAndDeletes(t *testing.T) {
	ns := server.Namespace(t)
	m := newMirror(t, ns)
	if err := m.Apply(t.Context(), item(t, 1, "h1", nil)); err != nil {
		t.Fatal(err)
	}
	set := get(t, ns)
	if !strings.HasPrefix(set.Name, "ps-") || len(set.Name) != 15 || set.Spec.Replicas != 2 || set.Spec.PlacementGeneration != 1 {
		t.Errorf("set %s = %+v", set.Name, set.Spec)
	}
	if err := m.Apply(t.Context(), item(t, 1, "h1", nil)); err != nil {
		t.Fatal(err)
	}
	if got := get(t, ns); got.ResourceVersion != set.ResourceVersion {
		t.Error("the same item was written again")
	}
	// A restarted agent holds what the former one held.
	m = newMirror(t, ns)
	held, err := m.Held(t.Context())
	if err != nil || len(held) != 1 || held[0].GetUid() != "p-1" || held[0].GetGeneration() != 1 || held[0].GetHash() != "h1" {
		t.Fatalf("held = %v, %v", held, err)
	}
	// What the newer version leaves out goes.
	if err := m.Apply(t.Context(), item(t, 1, "h2", func(s map[string]any) {
		s["drain"] = []any{map[string]any{"name": "x-0", "deadline": "2026-01-02T03:04:05Z"}}
	})); err != nil {
		t.Fatal(err)
	}
	if err := m.Apply(t.Context(), item(t, 2, "h3", func(s map[string]any) { s["replicas"] = 0 })); err != nil {
		t.Fatal(err)
	}
	if got := get(t, ns).Spec; got.Replicas != 0 || len(got.Drain) != 0 || got.PlacementGeneration != 2 {
		t.Errorf("spec = %+v", got)
	}
	for range 2 { // a tombstone may come again
		if err := m.Delete(t.Context(), "p-1"); err != nil {
			t.Fatal(err)
		}
	}
	// No garbage collector runs here, so the set is still on its way out. That is not held any more, and a placement that
	// comes back has to wait.
	if held, err := m.Held(t.Context()); err != nil || len(held) != 0 {
		t.Errorf("held = %v, %v; want nothing", held, err)
	}
	if err := m.Apply(t.Context(), item(t, 3, "h4", nil)); err == nil {
		t.Error("applied onto a set that is being deleted")
	}
}

func TestUnknownFields(t *testing.T) {
	ns := server.Namespace(t)
	m := newMirror(t, ns)
	newer := item(t, 1, "h1", func(s map[string]any) {
		s["teleport"] = true
		s["template"].(map[string]any)["spec"].(map[string]any)["warp"] = 9
	})
	if err := m.Apply(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	set := get(t, ns)
	for _, field := range []string{"teleport", "template.spec.warp"} {
		if !strings.Contains(set.Annotations[v1alpha1.AnnotationUnknownFields], field) {
			t.Errorf("annotation %q does not name %s", set.Annotations[v1alpha1.AnnotationUnknownFields], field)
		}
	}
	if set.Spec.Replicas != 2 {
		t.Errorf("what is known was not applied: %+v", set.Spec)
	}
	// The same item read by an agent that knows all its fields: the annotation goes, though the hash is the same.
	if err := m.Apply(t.Context(), item(t, 1, "h1", nil)); err != nil {
		t.Fatal(err)
	}
	if _, there := get(t, ns).Annotations[v1alpha1.AnnotationUnknownFields]; there {
		t.Error("the annotation stayed")
	}
}

func TestBadItemsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		item   uplink.Item
		want   string
	}{
		"Garbage":      {"no JSON", uplink.Item{UID: "p-1", Spec: []byte("{")}, "cannot read"},
		"OtherUID":     {"a spec under another's uid", uplink.Item{UID: "p-2", Spec: []byte(`{"placementUID":"p-1"}`)}, "p-2"},
		"WrongType":    {"a field of another type", item(t, 1, "h", func(s map[string]any) { s["replicas"] = "two" }), "cannot read"},
		"AgainstRules": {"the API server's rules hold for the hub too", item(t, 1, "h", func(s map[string]any) { s["replicas"] = -1 }), "replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := server.Namespace(t)
			m := newMirror(t, ns)
			if err := m.Apply(t.Context(), c.item); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error = %v, want one with %q", c.reason, err, c.want)
			}
			list := &v1alpha1.ProxySetList{}
			if err := server.Client.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			for _, s := range list.Items {
				if s.Namespace == ns {
					t.Errorf("half applied: %+v", s.Spec)
				}
			}
		})
	}
}

func keys(t *testing.T, use credential.Use, seed byte) []byte {
	t.Helper()
	key := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
	s, err := credential.NewSigner(credential.SignerOptions{Key: key, Use: use, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	text, err := credential.Marshal([]credential.Key{s.PublicKey()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestKeysAndIdentityOutliveTheAgent(t *testing.T) {
	ns := server.Namespace(t)
	m := newMirror(t, ns)
	agent, hub := keys(t, credential.UseProbe, 'a'), keys(t, credential.UseLease, 'h')
	if err := m.SetProbeKeys(t.Context(), agent); err != nil {
		t.Fatal(err)
	}
	m.Welcomed("hub-1", "member-1")
	if _, _, ok := m.Identity(); ok {
		t.Error("known before the hub's keys are kept: the first pods would refuse every lease")
	}
	if err := m.SetKeys(t.Context(), []byte("nonsense")); err == nil {
		t.Error("took nonsense for keys")
	}
	if err := m.SetKeys(t.Context(), hub); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*mirror.Mirror{m, newMirror(t, ns)} {
		if h, member, ok := m.Identity(); h != "hub-1" || member != "member-1" || !ok {
			t.Errorf("identity = %q, %q, %v", h, member, ok)
		}
	}
	object := &corev1.ConfigMap{}
	if err := server.Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: mirror.KeysConfigMap}, object); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{mirror.HubKeys: string(hub), mirror.AgentKeys: string(agent)}, object.Data); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// A hub that sends placements without end, or one without an end, fills no API server.
func TestFloodStopsAtTheCeiling(t *testing.T) {
	ns := server.Namespace(t)
	m, err := mirror.New(mirror.Options{
		Member: "east",
		Client: server.Client, Reader: server.Client, Namespace: ns,
		Policy: func() ceiling.Policy { return ceiling.Policy{MaxProxySets: 3} },
	})
	if err != nil {
		t.Fatal(err)
	}
	numbered := func(i int) uplink.Item {
		it := item(t, 1, "h", func(s map[string]any) { s["placementUID"] = fmt.Sprintf("p-%d", i) })
		it.UID = fmt.Sprintf("p-%d", i)
		return it
	}
	for i := range 3 {
		if err := m.Apply(t.Context(), numbered(i)); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(it uplink.Item, rule ceiling.Rule) {
		t.Helper()
		if err := m.Apply(t.Context(), it); err == nil || !strings.Contains(err.Error(), string(rule)) {
			t.Errorf("refused with %v, want a word of %s", err, rule)
		}
	}
	for i := 3; i < 10; i++ {
		refused(numbered(i), ceiling.RuleMaxProxySets)
	}
	again := numbered(0)
	again.Generation, again.Hash = 2, "h2"
	if err := m.Apply(t.Context(), again); err != nil {
		t.Errorf("one that has its place is updated: %v", err)
	}
	long := numbered(0)
	long.Spec = append(long.Spec, make([]byte, ceiling.MaxSpecBytes)...)
	refused(long, ceiling.RuleSpecSize)
	list := &v1alpha1.ProxySetList{}
	if err := server.Client.List(t.Context(), list, client.InNamespace(ns)); err != nil || len(list.Items) != 3 {
		t.Fatalf("%d sets, %v, want 3", len(list.Items), err)
	}
	// What cannot be kept takes no place, and what goes gives its own back.
	if err := m.Delete(t.Context(), "p-2"); err != nil {
		t.Fatal(err)
	}
	bad := numbered(7)
	bad.Spec = []byte("{")
	if err := m.Apply(t.Context(), bad); err == nil {
		t.Fatal("a spec that is none was taken")
	}
	if err := m.Apply(t.Context(), numbered(8)); err != nil {
		t.Errorf("there was room for one more: %v", err)
	}
	// Another process of the agent counts what is there.
	if _, err := m.Held(t.Context()); err != nil {
		t.Fatal(err)
	}
	list = &v1alpha1.ProxySetList{}
	if err := server.Client.List(t.Context(), list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) < 3 {
		t.Fatalf("%d sets are there, want 3 or more", len(list.Items))
	}
	refused(numbered(9), ceiling.RuleMaxProxySets)
}

// TestMembersShareANamespace has two members whose objects are side by side. Neither sees what is the other's, and both
// know who they are after a restart.
func TestMembersShareANamespace(t *testing.T) {
	ns := server.Namespace(t)
	of := func(member string) *mirror.Mirror {
		t.Helper()
		m, err := mirror.New(mirror.Options{Member: member, Client: server.Client, Reader: server.Client, Namespace: ns})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		return m
	}
	east, eu := of("east"), of("gce-eu")
	if err := east.Apply(t.Context(), item(t, 1, "h1", nil)); err != nil {
		t.Fatal(err)
	}
	if held, err := eu.Held(t.Context()); err != nil || len(held) != 0 {
		t.Errorf("a member holds what is another's: %v, %v", held, err)
	}
	if err := eu.Apply(t.Context(), item(t, 2, "h2", nil)); err == nil || get(t, ns).Spec.PlacementGeneration != 1 {
		t.Errorf("a member has written what is another's: %v", err)
	}
	if err := eu.Delete(t.Context(), "p-1"); err != nil || get(t, ns).DeletionTimestamp != nil {
		t.Errorf("a member has removed what is another's: %v", err)
	}

	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := credential.NewSigner(credential.SignerOptions{Key: private, Use: credential.UseLease, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := credential.Marshal([]credential.Key{signer.PublicKey()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for member, m := range map[string]*mirror.Mirror{"east": east, "gce-eu": eu} {
		m.Welcomed("hub-1", "uid-of-"+member)
		if err := m.SetKeys(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
	}
	for _, member := range []string{"east", "gce-eu"} {
		again := of(member)
		if hub, uid, ok := again.Identity(); !ok || hub != "hub-1" || uid != "uid-of-"+member || again.Keys().Hub != string(keys) {
			t.Errorf("after a restart member %s is %q of %q, %t", member, uid, hub, ok)
		}
	}
	if _, _, ok := of("gce-us").Identity(); ok {
		t.Error("a member that nobody has welcomed knows who it is")
	}
}

// TestAdoptsWhatHasNoMember takes over what an agent has made that knew of one member only, and nothing else.
func TestAdoptsWhatHasNoMember(t *testing.T) {
	ns := server.Namespace(t)
	m := newMirror(t, ns)
	if err := m.Apply(t.Context(), item(t, 1, "h1", nil)); err != nil {
		t.Fatal(err)
	}
	old := get(t, ns)
	delete(old.Labels, v1alpha1.LabelMember)
	if err := server.Client.Update(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	others := old.DeepCopy()
	others.ObjectMeta = metav1.ObjectMeta{Namespace: ns, Name: "ps-others", Labels: map[string]string{v1alpha1.LabelMember: "gce-eu"}}
	if err := server.Client.Create(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	if held, err := m.Held(t.Context()); err != nil || len(held) != 0 {
		t.Fatalf("before: %v, %v", held, err)
	}
	if err := m.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held, err := m.Held(t.Context()); err != nil || len(held) != 1 {
		t.Errorf("after: %v, %v; want the one that was nobody's", held, err)
	}
}

func TestOnKeysIsCalledWhenTheyChange(t *testing.T) {
	calls := 0
	m, err := mirror.New(mirror.Options{Member: "east", Client: server.Client, Reader: server.Client, Namespace: server.Namespace(t), OnKeys: func() { calls++ }})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		keys string
		want int
	}{{"a", 1}, {"a", 1}, {"b", 2}} {
		if err := m.SetProbeKeys(t.Context(), []byte(step.keys)); err != nil {
			t.Fatal(err)
		}
		if calls != step.want || m.Keys().Agent != step.keys {
			t.Errorf("after %q: %d calls, keys %q; want %d calls", step.keys, calls, m.Keys().Agent, step.want)
		}
	}
}
