package enroll_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/shoal-dev/shoal/agent/internal/enroll"
)

func TestSecretStoreKeepsTheLastState(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).Build()
	store := enroll.NewSecretStore(c, "shoal-system")
	if _, err := store.Load(t.Context()); !errors.Is(err, enroll.ErrNoState) {
		t.Errorf("an empty store: %v, want ErrNoState", err)
	}
	first := enroll.State{Key: []byte("k1"), Chain: []byte("c1"), Bundle: []byte("b1"), Agent: "east-01", HubUID: "h", Member: "east", Pin: "sha256:1"}
	second := first
	second.Key, second.Chain = []byte("k2"), []byte("c2")
	for _, state := range []enroll.State{first, second} {
		if err := store.Save(t.Context(), state); err != nil {
			t.Fatal(err)
		}
		got, err := store.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(state, got); diff != "" {
			t.Errorf("state (-saved +loaded):\n%s", diff)
		}
	}
	var secrets corev1.SecretList
	if err := c.List(t.Context(), &secrets, client.InNamespace("shoal-system")); err != nil || len(secrets.Items) != 1 {
		t.Errorf("%d Secrets, %v; want one", len(secrets.Items), err)
	}
}
