package mirror_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/shoal-dev/shoal/agent/internal/mirror"
	"github.com/shoal-dev/shoal/agent/internal/uplink"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// outside is an item of proxies that someone else runs, one for each key of credentials.
func outside(t *testing.T, generation int64, hash string, keys []string, with ...uplink.Credentials) uplink.Item {
	t.Helper()
	i := item(t, generation, hash, func(spec map[string]any) {
		delete(spec, "template")
		endpoints := []any{}
		for n, key := range keys {
			e := map[string]any{"name": fmt.Sprintf("x%d", n), "host": "proxy.example", "port": 3128 + n}
			if key != "" {
				e["credentials"] = key
			}
			endpoints = append(endpoints, e)
		}
		spec["external"] = map[string]any{"endpoints": endpoints}
	})
	i.Credentials = with
	return i
}

func secretOf(t *testing.T, namespace string) map[string]string {
	t.Helper()
	secret := &corev1.Secret{}
	name := types.NamespacedName{Namespace: namespace, Name: v1alpha1.CredentialsSecretName(mirror.SetName("p-1"))}
	err := server.Client.Get(t.Context(), name, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	set := get(t, namespace)
	if !metav1.IsControlledBy(secret, set) || secret.Labels[v1alpha1.LabelComponent] != v1alpha1.ComponentCredentials ||
		secret.Labels[v1alpha1.LabelMember] != "east" || secret.Labels[v1alpha1.LabelProxySet] != set.Name {
		t.Errorf("the Secret does not go with its set: %+v", secret.ObjectMeta)
	}
	data := map[string]string{}
	for key, value := range secret.Data {
		data[key] = string(value)
	}
	return data
}

func TestCredentials(t *testing.T) {
	ns := server.Namespace(t)
	m := newMirror(t, ns)
	k1 := uplink.Credentials{Key: "k1", Username: "fish", Password: "p@:ss w/rd"}
	k2 := uplink.Credentials{Key: "k2", Username: "crab", Password: ""}
	k3 := uplink.Credentials{Key: "k3", Username: "fish", Password: "new"}
	for _, step := range []struct {
		reason string
		item   uplink.Item
		want   map[string]string
	}{
		{"nothing is kept for proxies that ask for nothing", outside(t, 1, "h1", []string{""}), nil},
		{"what came is kept", outside(t, 2, "h2", []string{"k1", "k2"}, k1, k2), map[string]string{"k1": "fish:p@:ss w/rd", "k2": "crab:"}},
		{"a hub that does not know them takes nothing away", outside(t, 2, "h3", []string{"k1", "k2"}), map[string]string{"k1": "fish:p@:ss w/rd", "k2": "crab:"}},
		{"new ones come, under the same generation too, and old ones go", outside(t, 2, "h4", []string{"k3", "k2"}, k3), map[string]string{"k3": "fish:new", "k2": "crab:"}},
		{"what nobody names goes", outside(t, 3, "h5", []string{""}), map[string]string{}},
	} {
		if err := m.Apply(t.Context(), step.item); err != nil {
			t.Fatalf("%s: %v", step.reason, err)
		}
		if diff := cmp.Diff(step.want, secretOf(t, ns)); diff != "" {
			t.Errorf("%s: %s", step.reason, diff)
		}
		// No object but the Secret holds any of it, and nothing that is printed.
		if text := fmt.Sprintf("%+v %+v %#v", get(t, ns), step.item, step.item.Credentials); strings.Contains(text, "fish") || strings.Contains(text, "p@") {
			t.Errorf("%s: shown: %s", step.reason, text)
		}
	}
	// A Secret that was lost comes back with the same item: a session begins with all of them.
	if err := m.Apply(t.Context(), outside(t, 4, "h6", []string{"k1"}, k1)); err != nil {
		t.Fatal(err)
	}
	lost := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.CredentialsSecretName(mirror.SetName("p-1"))}}
	if err := server.Client.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	if err := m.Apply(t.Context(), outside(t, 4, "h6", []string{"k1"}, k1)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"k1": "fish:p@:ss w/rd"}, secretOf(t, ns)); diff != "" {
		t.Error(diff)
	}
}

// TestCredentialsOfAHostileHub are refused, and not quoted.
func TestCredentialsOfAHostileHub(t *testing.T) {
	ns := server.Namespace(t)
	m := newMirror(t, ns)
	for _, bad := range []uplink.Credentials{
		{Key: "../k", Username: "hush", Password: "hush"},
		{Key: "", Username: "hush", Password: "hush"},
		{Key: "k1", Username: "hu:sh", Password: "hush"},
		{Key: "k1", Username: "", Password: "hush"},
		{Key: "k1", Username: "hush\r\nX: y", Password: "hush"},
		{Key: "k1", Username: "hush", Password: "hush\r\nX: y"},
	} {
		err := m.Apply(t.Context(), outside(t, 1, "h", []string{"k1"}, bad))
		if err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v", bad.Key, err)
		}
	}
	// A Secret of somebody else's is not taken over.
	foreign := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.CredentialsSecretName(mirror.SetName("p-1"))},
		Data:       map[string][]byte{"mine": []byte("x")},
	}
	if err := server.Client.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if err := m.Apply(t.Context(), outside(t, 2, "h2", []string{"k1"}, uplink.Credentials{Key: "k1", Username: "fish", Password: "x"})); err == nil {
		t.Error("a Secret that is not the set's was written")
	}
}
