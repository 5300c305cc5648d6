package identity_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/identity"
)

func encoded(t *testing.T) map[string][]byte {
	t.Helper()
	hub, err := identity.NewHub(now)
	if err != nil {
		t.Fatal(err)
	}
	data, err := hub.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestHubSurvivesItsSecret(t *testing.T) {
	data := encoded(t)
	hub, err := identity.DecodeHub(data, now.Add(365*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	again, err := hub.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(data, again); diff != "" {
		t.Errorf("decoding and encoding changes the data:\n%s", diff)
	}
}

func TestDecodeHubRefusesDamage(t *testing.T) {
	good, other := encoded(t), encoded(t)
	set := func(key string, value []byte) func(map[string][]byte) {
		return func(data map[string][]byte) { data[key] = value }
	}
	cases := map[string]struct {
		reason string
		damage func(map[string][]byte)
		at     time.Time
		says   string
	}{
		"Empty":         {"an object of the right name is no identity", func(d map[string][]byte) { clear(d) }, now, "hub-uid is missing"},
		"NoLeaseKey":    {"half an identity would issue certificates and sign nothing", func(d map[string][]byte) { delete(d, "lease.key") }, now, "lease.key is missing"},
		"BadUID":        {"the UID labels instances on members", set("hub-uid", []byte("Hub 1")), now, "hub-uid is not a UUID"},
		"OtherCAKey":    {"it would sign what no agent accepts", set("ca.key", other["ca.key"]), now, "ca.key does not belong to ca.crt"},
		"OtherCACert":   {"the same, the other way round", set("ca.crt", other["ca.crt"]), now, "ca.key does not belong to ca.crt"},
		"TwoCACerts":    {"which of the two is it", set("ca.crt", append(bytes.Clone(good["ca.crt"]), other["ca.crt"]...)), now, "ca.crt is not exactly one"},
		"CutCAKey":      {"a cut copy", set("ca.key", good["ca.key"][:60]), now, "ca.key is not exactly one PEM"},
		"LeaseKeyIsEC":  {"keys swapped by hand", set("lease.key", good["ca.key"]), now, "lease.key is not an Ed25519 key"},
		"CAKeyIsEd":     {"keys swapped by hand", set("ca.key", good["lease.key"]), now, "ca.key is not an ECDSA P-256 key"},
		"NotPEM":        {"base64 applied twice", set("lease.key", []byte("LS0tLS1CRUdJTg==")), now, "lease.key is not exactly one PEM"},
		"ExpiredCA":     {"nothing it signs would be accepted", func(map[string][]byte) {}, now.Add(11 * 365 * 24 * time.Hour), "ca.crt expired on"},
		"ClockLongAgo":  {"nothing it signs would be accepted", func(map[string][]byte) {}, now.Add(-24 * time.Hour), "check the clock"},
		"GarbledCACert": {"a flipped byte", set("ca.crt", bytes.Replace(good["ca.crt"], []byte("MI"), []byte("NI"), 1)), now, "ca.crt is not a readable certificate"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			data := maps.Clone(good)
			c.damage(data)
			_, err := identity.DecodeHub(data, c.at)
			if !errors.Is(err, identity.ErrDamaged) {
				t.Fatalf("%s: got %v, want ErrDamaged", c.reason, err)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %q; it should say %q", err, c.says)
			}
			for _, key := range []string{"ca.key", "lease.key"} {
				for line := range bytes.Lines(good[key]) {
					if line = bytes.TrimSpace(line); len(line) > 40 && strings.Contains(err.Error(), string(line)) {
						t.Errorf("the error shows %s", key)
					}
				}
			}
		})
	}
}

func TestHubHidesItsKeys(t *testing.T) {
	hub, err := identity.NewHub(now)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, hub); got != "hub "+hub.UID() {
			t.Errorf("formatted by %s the hub reads %q", verb, got)
		}
		if got := fmt.Sprintf(verb, hub.Authority()); got != "certificate authority "+hub.Authority().Pin() {
			t.Errorf("formatted by %s the authority reads %q", verb, got)
		}
	}
}

func TestEnsureHubMakesOneIdentity(t *testing.T) {
	c, namespace := server.Client, server.Namespace(t, "identity-")
	if _, err := identity.ReadHub(t.Context(), c, namespace, now); err == nil {
		t.Error("ReadHub made an identity, or found one in an empty namespace")
	}
	pins := make([]string, 8)
	var makers atomic.Int32
	var hubs sync.WaitGroup
	for i := range pins {
		hubs.Go(func() {
			hub, created, err := identity.EnsureHub(t.Context(), c, namespace, now)
			if err != nil {
				t.Error(err)
				return
			}
			if created {
				makers.Add(1)
			}
			pins[i] = hub.UID() + hub.Authority().Pin() + string(hub.LeaseKey())
		})
	}
	hubs.Wait()
	if got := makers.Load(); got != 1 {
		t.Errorf("%d hubs say that they made it", got)
	}
	for _, pin := range pins[1:] {
		if pin != pins[0] {
			t.Fatal("hubs that started together have different identities")
		}
	}
	var secret corev1.Secret
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: identity.HubSecretName}, &secret); err != nil {
		t.Fatal(err)
	}
	if got := secret.Labels[v1alpha1.LabelComponent]; got != v1alpha1.ComponentIdentity {
		t.Errorf("the Secret's component is %q", got)
	}
}

func TestEnsureHubNeverReplacesADamagedIdentity(t *testing.T) {
	c, namespace := server.Client, server.Namespace(t, "identity-")
	if _, _, err := identity.EnsureHub(t.Context(), c, namespace, now); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: namespace, Name: identity.HubSecretName}
	var secret corev1.Secret
	if err := c.Get(t.Context(), key, &secret); err != nil {
		t.Fatal(err)
	}
	delete(secret.Data, "ca.key")
	if err := c.Update(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
	_, _, err := identity.EnsureHub(t.Context(), c, namespace, now)
	if !errors.Is(err, identity.ErrDamaged) || !strings.Contains(err.Error(), "ca.key is missing; restore it from the backup") {
		t.Errorf("got %v; want ErrDamaged, what is missing, and the way out", err)
	}
	var after corev1.Secret
	if err := c.Get(t.Context(), key, &after); err != nil {
		t.Fatal(err)
	}
	if after.ResourceVersion != secret.ResourceVersion {
		t.Error("the hub has written to a damaged identity")
	}
}
