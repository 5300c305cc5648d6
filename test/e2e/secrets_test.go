package e2e

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/test/harness"
)

// tellSecrets searches for every secret of the run: in the logs of hub, agents and proxies, in events, and in every
// object that is no Secret. It says where one is, and never repeats it.
func tellSecrets(t *testing.T, s *story) {
	s.clusterSecrets(t)
	places, err := s.places(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	credentials := s.anyCredential(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	for name, text := range places {
		size += len(text)
		for value, what := range s.secrets {
			if strings.Contains(text, value) {
				t.Errorf("%s shows %s", name, what)
			}
		}
		for _, pattern := range credentials {
			if pattern.MatchString(text) {
				t.Errorf("%s shows a signed credential", name)
			}
		}
	}
	// Of nothing, nothing can be found.
	if len(places) < 12 || size < 50_000 || len(s.secrets) < 12 || len(credentials) < 3 {
		t.Errorf("%d places of %d bytes were searched for %d secrets and %d kinds of credentials: too little to mean anything",
			len(places), size, len(s.secrets), len(credentials))
	}
	t.Logf("searched %d places, %d KB, for %d secrets and the credentials of %d keys", len(places), size>>10, len(s.secrets), len(credentials))
}

// clusterSecrets remembers what the clusters' Secrets of ours hold.
func (s *story) clusterSecrets(t *testing.T) {
	t.Helper()
	read := func(c *harness.Cluster, name string) map[string][]byte {
		var secret corev1.Secret
		if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: harness.Namespace, Name: name}, &secret); err != nil {
			t.Fatal(err)
		}
		return secret.Data
	}
	hub := read(s.Hub, "shoal-hub-identity")
	s.privateKey(t, "the hub's CA key", hub["ca.key"])
	s.privateKey(t, "the hub's lease key", hub["lease.key"])
	for _, m := range s.Members {
		s.privateKey(t, "the key of the agent of "+m.Name, read(m.Cluster, "shoal-agent-identity")["tls.key"])
		token := string(read(m.Cluster, "shoal-agent-join")["token"])
		if token == "" {
			t.Fatalf("%s has no join token", m.Name)
		}
		s.secret("the join token of "+m.Name, token)
		seed := read(m.Cluster, "shoal-agent-probe-key")["seed"]
		if len(seed) != 32 {
			t.Fatalf("the probe key of %s has %d bytes", m.Name, len(seed))
		}
		for _, text := range []string{
			base64.StdEncoding.EncodeToString(seed), base64.RawURLEncoding.EncodeToString(seed), hex.EncodeToString(seed), string(seed),
		} {
			s.secret("the probe key of "+m.Name, text)
		}
	}
}

// privateKey remembers the lines of a key in PEM, each by itself, and the whole as a Secret's YAML shows it.
func (s *story) privateKey(t *testing.T, what string, text []byte) {
	t.Helper()
	lines := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); len(line) > 20 && !strings.HasPrefix(line, "-----") {
			s.secret(what, line)
			lines++
		}
	}
	if lines == 0 {
		t.Fatalf("%s is not in PEM", what)
	}
	s.secret(what, base64.StdEncoding.EncodeToString(text))
}

// anyCredential returns a pattern for the tokens of every key that signs here: they begin with a version and the key's
// id. It finds those that nobody but a proxy and its agent ever saw.
func (s *story) anyCredential(t *testing.T) []*regexp.Regexp {
	t.Helper()
	var patterns []*regexp.Regexp
	ids := map[string]bool{}
	for _, m := range s.Members {
		var keys corev1.ConfigMap
		if err := m.Client.Get(t.Context(), client.ObjectKey{Namespace: harness.Namespace, Name: "shoal-keys"}, &keys); err != nil {
			t.Fatal(err)
		}
		for name, text := range keys.Data {
			var file struct {
				Keys []struct {
					ID string `json:"id"`
				} `json:"keys"`
			}
			if err := json.Unmarshal([]byte(text), &file); err != nil {
				t.Fatalf("shoal-keys on %s: %s: %v", m.Name, name, err)
			}
			for _, key := range file.Keys {
				id, err := hex.DecodeString(key.ID)
				if err != nil || len(id) != 6 {
					t.Fatalf("shoal-keys on %s: %s: the id of a key is %q", m.Name, name, key.ID)
				}
				if ids[key.ID] {
					continue
				}
				ids[key.ID] = true
				// 7 bytes fill 9 characters and a part of the tenth.
				prefix := base64.RawURLEncoding.EncodeToString(append([]byte{1}, id...))[:9]
				patterns = append(patterns, regexp.MustCompile(regexp.QuoteMeta(prefix)+`[A-Za-z0-9_-]{90,}`))
			}
		}
	}
	return patterns
}

// places collects everything that people and other programs get to see, by a name for people.
func (s *story) places(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	clusters := map[string]*harness.Cluster{"the hub": s.Hub}
	for _, m := range s.Members {
		clusters[m.Name] = m.Cluster
	}
	for name, c := range clusters {
		var pods corev1.PodList
		if err := c.Client.List(ctx, &pods, client.InNamespace(harness.Namespace)); err != nil {
			return nil, err
		}
		for i := range pods.Items {
			for _, status := range pods.Items[i].Status.ContainerStatuses {
				place := fmt.Sprintf("the log of %s on %s", pods.Items[i].Name, name)
				log, err := c.PodLog(ctx, pods.Items[i].Name, status.Name, false)
				if err != nil {
					// A container that is being made, or removed, has no log at this moment.
					continue
				}
				found[place] = log
				// The kubelet keeps what a restarted container has logged for a while only.
				if log, err = c.PodLog(ctx, pods.Items[i].Name, status.Name, true); status.RestartCount > 0 && err == nil {
					found[place+", before it restarted"] = log
				}
			}
		}
		// Objects of every kind, in full: specs, statuses, annotations.
		kinds := []string{"events", "pods", "configmaps", "deployments", "services", "leases.coordination.k8s.io"}
		if c == s.Hub {
			kinds = append(kinds, "proxyfleets", "proxyplacements", "memberclusters")
		} else {
			kinds = append(kinds, "proxysets", "proxies")
		}
		for _, kind := range kinds {
			text, err := c.Kubectl(ctx, "get", kind, "--all-namespaces", "--output", "yaml")
			if err != nil {
				return nil, err
			}
			found[fmt.Sprintf("what kubectl get %s shows on %s", kind, name)] = text
		}
	}
	logs := 0
	for place := range found {
		if slices.ContainsFunc([]string{"the log of shoal-hub", "the log of shoal-agent"}, func(p string) bool { return strings.HasPrefix(place, p) }) {
			logs++
		}
	}
	if logs < 1+len(s.Members) {
		return nil, fmt.Errorf("%d logs of hub and agents, not %d", logs, 1+len(s.Members))
	}
	return found, nil
}
