package gcp_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// A machine's whole life at the highest level of the log, with long strings in full: what came from a Secret is in the
// machine's user data, where it was meant to be, and nowhere else; and nothing else of the agent's Secrets is anywhere.
func TestSecretsAreInNoLogAndNoMetadata(t *testing.T) {
	const password, other = "hunter2-of-the-fleet", "hunter3-of-the-agent"
	w := newWorld(t, func(s *setup) { s.full = true }, holding(
		secret("boot", "user-data", "#cloud-config\npassword: "+password+"\n"),
		secret("shoal-agent-probe-key", "key", other),
	))
	r := request("a")
	r.Settings.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.SecretKeyRef{Name: "boot", Key: "user-data"}}
	ref := w.running(r)
	w.list()
	w.keys.Hub = "next"
	if err := w.sync(); err != nil {
		t.Fatal(err)
	}
	i := w.only()
	for _, m := range i.Metadata.Items {
		if m.Key != "user-data" && strings.Contains(m.Value, password) || strings.Contains(m.Value, other) {
			t.Errorf("the metadata item %s has a secret", m.Key)
		}
	}
	i.Metadata = nil
	rest, err := json.Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	w.fake.Inject(computefake.Fault{Method: "instances.insert", Status: 400, Reason: "invalid"})
	_, refused := w.Create(t.Context(), r)
	w.wantKind("Delete", w.Delete(t.Context(), ref, r.Identity, provider.DeleteOptions{}), "")
	logged := w.logged()
	if !strings.Contains(logged, "compute request") || !strings.Contains(logged, "shoal-keys-hub") {
		t.Fatal("bodies were not logged: the test proves nothing")
	}
	for where, text := range map[string]string{"the log": logged, "the machine": string(rest), "an error": refused.Error()} {
		for _, s := range []string{password, other} {
			if strings.Contains(text, s) {
				t.Errorf("%s has %q:\n%s", where, s, text)
			}
		}
	}
}
