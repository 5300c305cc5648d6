package access_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/hub/internal/access"
	"github.com/shoal-dev/shoal/hub/internal/apiserver"
)

// cluster is a real API server with what the tests want in it.
type cluster struct {
	t *testing.T
	*apiserver.Server
}

func (c *cluster) create(objects ...client.Object) {
	c.t.Helper()
	for _, o := range objects {
		if err := c.Client.Create(c.t.Context(), o); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) serviceAccount(namespace, name string) *corev1.ServiceAccount {
	c.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.create(account)
	return account
}

func (c *cluster) token(account *corev1.ServiceAccount, audiences ...string) string {
	c.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if err := c.Client.SubResource("token").Create(c.t.Context(), account, request); err != nil {
		c.t.Fatal(err)
	}
	return request.Status.Token
}

// TestServiceAccounts has a real API server say who may lease.
func TestServiceAccounts(t *testing.T) {
	c := &cluster{t: t, Server: apiserver.Start(t)}
	namespace, elsewhere := c.Namespace(t, "crawl-"), c.Namespace(t, "lab-")
	anna, bert, operator := c.serviceAccount(namespace, "anna"), c.serviceAccount(elsewhere, "bert"), c.serviceAccount(elsewhere, "operator")
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "news"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "news"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "anna"}},
	}
	c.create(
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "news"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"shoal.dev"}, Resources: []string{"proxyfleets"}, ResourceNames: []string{"news"}, Verbs: []string{"lease"}},
		}},
		binding,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"shoal.dev"}, Resources: []string{"proxyfleets"}, Verbs: []string{"operate"}},
		}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "operator"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "operator"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: elsewhere, Name: "operator"}},
		},
	)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	gate := access.New(access.Options{Kubernetes: access.NewKubernetes(c.Client), APITokens: noTokens{}, Clock: clock})

	good := c.token(anna, access.Audience)
	t.Run("Refused", func(t *testing.T) {
		forged := good[:strings.LastIndexByte(good, '.')+1] + strings.Repeat("A", 342)
		foreign := jwt(`{"aud":["shoal"],"exp":99999999999,"sub":"system:serviceaccount:`+namespace+`:anna"}`, "c2lnbmF0dXJl")
		for name, token := range map[string]string{
			"OfTheAPIServer": c.token(anna), "OfAnother": c.token(anna, "vault"), "Forged": forged, "Foreign": foreign, "None": "",
		} {
			if caller, err := gate.Authenticate(t.Context(), token); !errors.Is(err, access.ErrRefused) {
				t.Errorf("%s: let in as %q, %v", name, caller.Principal, err)
			} else if len(token) > 100 && strings.Contains(err.Error(), token[len(token)-50:]) {
				t.Errorf("%s: the error shows the token: %v", name, err)
			}
		}
	})
	t.Run("MayLease", func(t *testing.T) {
		may := func(token string, allowed ...string) {
			t.Helper()
			caller, err := gate.Authenticate(t.Context(), token)
			if err != nil {
				t.Fatal(err)
			}
			for _, fleet := range []string{namespace + "/news", namespace + "/other", elsewhere + "/news"} {
				want := len(allowed) > 0 && allowed[0] == fleet
				if got, err := caller.AllowsFleet(t.Context(), fleet); got != want || err != nil {
					t.Errorf("%s on %s: %v %v, want %v", caller.Principal, fleet, got, err, want)
				}
			}
			if operates, err := caller.MayOperate(t.Context()); operates != strings.HasSuffix(caller.Principal, ":operator") || err != nil {
				t.Errorf("%s may operate: %v %v", caller.Principal, operates, err)
			}
		}
		may(good, namespace+"/news")
		may(c.token(anna, "vault", access.Audience), namespace+"/news")
		may(c.token(bert, access.Audience))
		may(c.token(operator, access.Audience))
	})
	t.Run("Expired", func(t *testing.T) {
		clock.SetTime(time.Now().Add(2 * time.Hour))
		defer clock.SetTime(time.Now())
		if _, err := gate.Authenticate(t.Context(), good); !errors.Is(err, access.ErrRefused) {
			t.Errorf("after its end: %v", err)
		}
	})
	t.Run("Revoked", func(t *testing.T) {
		caller, err := gate.Authenticate(t.Context(), good)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Client.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		c.eventually(clock, "the right ends", func() bool {
			allowed, err := caller.AllowsFleet(t.Context(), namespace+"/news")
			return err == nil && !allowed
		})
		if err := c.Client.Delete(t.Context(), anna); err != nil {
			t.Fatal(err)
		}
		c.eventually(clock, "the token ends", func() bool {
			_, err := gate.Authenticate(t.Context(), good)
			return errors.Is(err, access.ErrRefused)
		})
	})
}

// eventually passes over what the gate remembers, and waits for what the API server does: 10 s for tokens.
func (c *cluster) eventually(clock *clocktesting.FakePassiveClock, what string, done func() bool) {
	c.t.Helper()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for late := time.After(30 * time.Second); ; {
		clock.SetTime(clock.Now().Add(access.Remembered))
		if done() {
			return
		}
		select {
		case <-ticker.C:
		case <-late:
			c.t.Fatalf("not in time: %s", what)
		}
	}
}
