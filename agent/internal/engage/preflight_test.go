package engage_test

import (
	"errors"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/shoal-dev/shoal/agent/internal/apitest"
	"github.com/shoal-dev/shoal/agent/internal/engage"
)

// TestPreflight looks at a real API server as the user of a kubeconfig that is granted one thing after the other.
func TestPreflight(t *testing.T) {
	server := apitest.Start(t)
	user := rest.CopyConfig(server.Config)
	user.Impersonate = rest.ImpersonationConfig{UserName: "agent-of-lab"}
	want := func(f engage.Flight, reason engage.Reason, words ...string) {
		t.Helper()
		uid, err := engage.Preflight(t.Context(), user, f)
		if reason == "" {
			if err != nil || uid == "" {
				t.Fatalf("Preflight = %q, %v, want a cluster's UID", uid, err)
			}
			return
		}
		var problem *engage.Problem
		if !errors.As(err, &problem) || problem.Reason != reason {
			t.Fatalf("Preflight: %v, want the reason %s", err, reason)
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("Preflight says %q, which does not name %q", err, word)
			}
		}
	}
	grant := func(name string, rules ...rbacv1.PolicyRule) {
		t.Helper()
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user.Impersonate.UserName}},
		}
		for _, err := range []error{server.Client.Create(t.Context(), role), server.Client.Create(t.Context(), binding)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	lab := engage.Flight{Namespace: "default", External: true}

	want(lab, engage.ReasonNoRights, "kube-system")
	grant("namespaces", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})
	want(lab, engage.ReasonNoKinds, "ProxySet")
	server.InstallKinds(t)
	// What the chart gives an agent in its own cluster, but for one verb: busy marks are patches of pods.
	grant("almost",
		rbacv1.PolicyRule{APIGroups: []string{"shoal.dev"}, Resources: []string{"proxysets", "proxies"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		rbacv1.PolicyRule{APIGroups: []string{"shoal.dev"}, Resources: []string{"proxysets/status", "proxies/status"}, Verbs: []string{"patch"}},
		rbacv1.PolicyRule{APIGroups: []string{"shoal.dev"}, Resources: []string{"proxysets/finalizers", "proxies/finalizers"}, Verbs: []string{"update"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"resourcequotas", "limitranges"}, Verbs: []string{"list"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "patch", "delete"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
	)
	want(lab, engage.ReasonNoRights, "patch pods", "secrets", "docs/operations/members.md")
	grant("patch", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}})
	want(lab, engage.ReasonNoRights, "secrets")
	// A member that probes nobody else's proxies has no need of their credentials.
	want(engage.Flight{Namespace: "default"}, "")
	grant("secrets", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "create", "patch"}})
	want(lab, "")
}
