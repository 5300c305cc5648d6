package hub_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub"
	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// authorized sends a bearer token with every request.
type authorized struct {
	next  http.RoundTripper
	token string
}

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+a.token)
	return a.next.RoundTrip(r)
}

// client calls the hub's lease listener with a token.
func (r *running) client(roots *x509.CertPool, token string) *connect.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	r.t.Cleanup(transport.CloseIdleConnections)
	web := &http.Client{Transport: authorized{transport, token}, Timeout: 10 * time.Second}
	return connect.NewClient(connecthttp.NewTransport(web, "https://"+r.leases))
}

func serviceAccountToken(t *testing.T, namespace, name, clusterRole string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}}
	verb := map[string]string{"shoal-crawler": "lease", "shoal-operator": "operate"}[clusterRole]
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + clusterRole}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"shoal.dev"}, Resources: []string{"proxyfleets"}, Verbs: []string{verb}},
	}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
	var binding client.Object = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: ref, Subjects: subjects}
	if verb == "lease" {
		binding = &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role.Name}, RoleRef: ref, Subjects: subjects}
	}
	for _, o := range []client.Object{account, role, binding} {
		if err := server.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"shoal"}}}
	if err := server.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// TestWhoMayLeaseAndOperate has a crawler and an operator call a whole hub with tokens of Kubernetes, and restarts it.
func TestWhoMayLeaseAndOperate(t *testing.T) {
	c, namespace := server.Client, server.Namespace(t, "hub-")
	fleet := &v1alpha1.ProxyFleet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "news"}}
	fleet.Spec.Template = &v1alpha1.ProxyTemplate{Spec: v1alpha1.ProxyTemplateSpec{Provider: "default"}}
	if err := c.Create(t.Context(), fleet); err != nil {
		t.Fatal(err)
	}
	crawler := serviceAccountToken(t, namespace, "crawler", "shoal-crawler")
	operator := serviceAccountToken(t, namespace, "operator", "shoal-operator")
	principal := "system:serviceaccount:" + namespace + ":crawler"
	directory := t.TempDir()
	auditLog, quotas := filepath.Join(directory, "audit.log"), filepath.Join(directory, "quotas.yaml")
	if err := os.WriteFile(quotas, []byte("tenants: {"+namespace+": {maxLeases: 5}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	configure := func(c *hub.Config) {
		c.JournalType, c.JournalDir = hub.JournalDisk, filepath.Join(directory, "journal")
		c.AuditLog, c.QuotaFile = auditLog, quotas
	}
	first := startHub(t, namespace, configure)
	first.awaitReady()
	roots := readIdentity(t, c, namespace).Authority().Pool()

	acquire := func(r *running, token, fleet string, count int32) leasev1.Refusal_Reason {
		t.Helper()
		wire := r.client(roots, token)
		_, err := leasev1connect.NewLeaseServiceClient(wire).Acquire(t.Context(), &leasev1.AcquireRequest{Fleet: fleet, Count: &count})
		return fault.ReasonOf(err)
	}
	eventually(t, "the fleet is known", func() string {
		return strings.TrimPrefix(acquire(first, crawler, namespace+"/news", 1).String(), "NO_MATCH")
	})
	for name, got := range map[string][2]leasev1.Refusal_Reason{
		"another fleet":    {acquire(first, crawler, "elsewhere/news", 1), leasev1.Refusal_UNKNOWN_FLEET},
		"no right":         {acquire(first, operator, namespace+"/news", 1), leasev1.Refusal_UNKNOWN_FLEET},
		"no token of ours": {acquire(first, crawler+"x", namespace+"/news", 1), leasev1.Refusal_UNAUTHENTICATED},
		"beyond its quota": {acquire(first, crawler, namespace+"/news", 6), leasev1.Refusal_QUOTA},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %s, want %s", name, got[0], got[1])
		}
	}
	wire := first.client(roots, crawler)
	if _, err := leasev1connect.NewOperatorServiceClient(wire).ListBans(t.Context(), &leasev1.ListBansRequest{}); fault.ReasonOf(err) != leasev1.Refusal_FORBIDDEN {
		t.Errorf("the crawler operates: %v", err)
	}
	wire = first.client(roots, operator)
	if _, err := leasev1connect.NewOperatorServiceClient(wire).Revoke(t.Context(), &leasev1.RevokeRequest{Principal: principal, Why: "leaked"}); err != nil {
		t.Fatal(err)
	}
	if got := acquire(first, crawler, namespace+"/news", 1); got != leasev1.Refusal_REVOKED {
		t.Errorf("revoked: %s", got)
	}
	if _, body := get(t, "http://"+first.health+"/metrics", nil, nil); !strings.Contains(body, `shoal_lease_refusals_total{command="acquire",reason="QUOTA"} 1`) ||
		!strings.Contains(body, "shoal_lease_revocations 1") || !strings.Contains(body, `shoal_fleet_leases{fleet="`+namespace+`/news"} 0`) {
		t.Errorf("metrics lack what has happened:\n%s", body)
	}
	first.stopNow()

	second := startHub(t, namespace, configure)
	second.awaitReady()
	if got := acquire(second, crawler, namespace+"/news", 1); got != leasev1.Refusal_REVOKED {
		t.Errorf("revoked, after a restart: %s", got)
	}
	second.stopNow()
	text, err := os.ReadFile(auditLog)
	want := `"event":"operator-revoked","principal":"system:serviceaccount:` + namespace + `:operator"`
	if err != nil || !strings.Contains(string(text), want) || !strings.Contains(string(text), `"of":"`+principal+`","why":"leaked"`) {
		t.Errorf("the audit log has %s %v", text, err)
	}
	for _, secret := range []string{crawler, operator} {
		if all := string(text) + first.log.String() + second.log.String(); strings.Contains(all, secret) || strings.Contains(all, secret[strings.LastIndexByte(secret, '.'):]) {
			t.Error("a log shows a token")
		}
	}
}
