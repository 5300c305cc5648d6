package identity_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/identity"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// world is an API server with members whose names and clusters are the test's own: MemberClusters are cluster-scoped.
type world struct {
	t          *testing.T
	client     client.Client
	membership *identity.Membership
	prefix     string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, namespace := server.Client, server.Namespace(t, "identity-")
	return &world{
		t: t, client: c, prefix: namespace,
		membership: identity.NewMembership(identity.MembershipOptions{Client: c, Cache: c}),
	}
}

func (w *world) name(member string) string { return w.prefix + "-" + member }

func (w *world) cluster(name string) *agentv1.MemberIdentity {
	return &agentv1.MemberIdentity{ClusterUid: w.prefix + "-" + name, Namespace: "shoal-agent"}
}

func (w *world) claim(member, cluster string, grant identity.JoinGrant) (string, error) {
	w.t.Helper()
	return w.membership.Claim(w.t.Context(), identity.Claim{Member: w.name(member), Identity: w.cluster(cluster), Region: "said-by-agent", Country: "SE", Grant: grant})
}

func (w *world) member(member string) *v1alpha1.MemberCluster {
	w.t.Helper()
	var object v1alpha1.MemberCluster
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: w.name(member)}, &object); err != nil {
		w.t.Fatal(err)
	}
	return &object
}

func (w *world) edit(member string, change func(*v1alpha1.MemberCluster)) {
	w.t.Helper()
	object := w.member(member)
	change(object)
	if err := w.client.Update(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

var accept = identity.JoinGrant{Accept: true}

func TestClaimCreatesAnAcceptedMember(t *testing.T) {
	w := newWorld(t)
	agent, err := w.claim("east", "one", identity.JoinGrant{Accept: true, Labels: map[string]string{"shoal.dev/egress": "true"}, Region: "us-east1"})
	if err != nil {
		t.Fatal(err)
	}
	object := w.member("east")
	wantSpec := v1alpha1.MemberClusterSpec{
		Accepted: true, AgentRef: &v1alpha1.AgentRef{Name: agent}, Region: "us-east1", Country: "SE",
		DeletionPolicy: v1alpha1.DeletionDrain,
	}
	if diff := cmp.Diff(wantSpec, object.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if object.Labels["shoal.dev/egress"] != "true" {
		t.Errorf("labels = %v", object.Labels)
	}
	wantIdentity := &v1alpha1.MemberIdentity{ClusterUID: w.prefix + "-one", Namespace: "shoal-agent"}
	if diff := cmp.Diff(wantIdentity, object.Status.Identity); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
	if len(agent) > 63 || !strings.HasPrefix(agent, w.name("east")) {
		t.Errorf("the agent is called %q", agent)
	}

	again, err := w.claim("east", "one", accept)
	if err != nil || again != agent {
		t.Errorf("the same cluster registers again: %q, %v; want the same name %q", again, err, agent)
	}
	if _, err := w.claim("east", "two", accept); !errors.Is(err, identity.ErrIdentityConflict) {
		t.Errorf("another cluster registers under the name: %v, want ErrIdentityConflict", err)
	}
	if _, err := w.claim("east2", "one", accept); !errors.Is(err, identity.ErrIdentityConflict) {
		t.Errorf("the same cluster registers under another name: %v, want ErrIdentityConflict", err)
	}
	err = w.client.Get(t.Context(), client.ObjectKey{Name: w.name("east2")}, &v1alpha1.MemberCluster{})
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a refused claim has created a member: %v", err)
	}
}

func TestClaimWaitsForAcceptance(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		_, err := w.claim("east", "one", identity.JoinGrant{})
		if !errors.Is(err, identity.ErrNotAccepted) {
			t.Fatalf("got %v, want ErrNotAccepted", err)
		}
		if want := fmt.Sprintf(`kubectl patch membercluster %s --type merge -p '{"spec":{"accepted":true}}'`, w.name("east")); !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %q; it should say %s", err, want)
		}
	}
	if object := w.member("east"); object.Spec.Accepted || object.Spec.AgentRef != nil || object.Status.Identity != nil {
		t.Errorf("a member that waits was claimed: %+v %+v", object.Spec, object.Status)
	}
	w.edit("east", func(m *v1alpha1.MemberCluster) { m.Spec.Accepted = true; m.Spec.Region = "chosen-by-hub" })
	if _, err := w.claim("east", "one", identity.JoinGrant{Region: "chosen-by-token"}); err != nil {
		t.Fatal(err)
	}
	if got := w.member("east").Spec; got.Region != "chosen-by-hub" || got.Country != "SE" {
		t.Errorf("region %q, country %q; the hub's word goes first, then the token's, then the agent's", got.Region, got.Country)
	}

	w.edit("east", func(m *v1alpha1.MemberCluster) { m.Spec.Accepted = false })
	if _, err := w.claim("east", "one", accept); !errors.Is(err, identity.ErrNotAccepted) {
		t.Errorf("a token has accepted a member that a person had turned away: %v", err)
	}
}

func TestClaimRefuses(t *testing.T) {
	w := newWorld(t)
	byHand := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: w.name("byhand")}}
	byHand.Spec.Accepted = true
	byHand.Spec.AgentRef = &v1alpha1.AgentRef{Name: "somebody"}
	leaving := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: w.name("leaving"), Finalizers: []string{"shoal.dev/test"}}}
	for _, object := range []*v1alpha1.MemberCluster{byHand, leaving} {
		if err := w.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.client.Delete(t.Context(), leaving); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := w.client.Patch(context.WithoutCancel(t.Context()), leaving, free); err != nil {
			t.Error(err)
		}
	})
	base := identity.Claim{Member: w.name("new"), Identity: w.cluster("new"), Grant: accept}
	cases := map[string]struct {
		reason string
		change func(*identity.Claim)
		want   error
	}{
		"AgentByHand": {"a token for one member must not give away the name of an agent that may have others", func(c *identity.Claim) { c.Member = w.name("byhand") }, identity.ErrNotYours},
		"Leaving":     {"the member is being emptied", func(c *identity.Claim) { c.Member = w.name("leaving") }, identity.ErrUnknownMember},
		"BadName":     {"no object can have it", func(c *identity.Claim) { c.Member = "No_Name" }, identity.ErrInvalid},
		"NoIdentity":  {"it could never be told from another cluster", func(c *identity.Claim) { c.Identity = nil }, identity.ErrInvalid},
		"NoNamespace": {"two agents in one cluster differ by it", func(c *identity.Claim) { c.Identity = &agentv1.MemberIdentity{ClusterUid: "x"} }, identity.ErrInvalid},
		"BadCountry":  {"the API server would refuse it half-way", func(c *identity.Claim) { c.Country = "Sweden" }, identity.ErrInvalid},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			claim := base
			c.change(&claim)
			if agent, err := w.membership.Claim(t.Context(), claim); !errors.Is(err, c.want) || agent != "" {
				t.Errorf("%s: got %q, %v; want %v", c.reason, agent, err, c.want)
			}
		})
	}
}

func TestOnlyOneOfManyClustersClaimsAMember(t *testing.T) {
	w := newWorld(t)
	var claims sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		claims.Go(func() { _, results[i] = w.claim("east", fmt.Sprint("cluster", i), accept) })
	}
	claims.Wait()
	won := 0
	for _, err := range results {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, identity.ErrIdentityConflict):
			t.Errorf("a cluster that lost the race got %v, want ErrIdentityConflict", err)
		}
	}
	if won != 1 {
		t.Errorf("%d clusters hold one member", won)
	}
}

func TestAuthorize(t *testing.T) {
	w := newWorld(t)
	agent, err := w.claim("east", "one", accept)
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.claim("west", "two", accept)
	if err != nil {
		t.Fatal(err)
	}
	w.edit("west", func(m *v1alpha1.MemberCluster) { m.Spec.Accepted = false })
	uid, err := w.membership.Authorize(t.Context(), agent, w.name("east"), w.cluster("one"))
	if err != nil || uid != string(w.member("east").UID) {
		t.Errorf("Authorize = %q, %v; want the member's UID", uid, err)
	}
	cases := map[string]struct {
		reason        string
		agent, member string
		cluster       string
		want          error
	}{
		"OtherAgent":   {"a certificate is good for its own member only", other, "east", "one", identity.ErrNotYours},
		"NamePrefix":   {"names are compared whole", agent[:len(agent)-1], "east", "one", identity.ErrNotYours},
		"OtherCluster": {"an agent's certificate was copied to another cluster", agent, "east", "three", identity.ErrIdentityConflict},
		"NotAccepted":  {"a person has taken the acceptance back", other, "west", "two", identity.ErrNotAccepted},
		"Unknown":      {"there is no such member", agent, "south", "one", identity.ErrUnknownMember},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if uid, err := w.membership.Authorize(t.Context(), c.agent, w.name(c.member), w.cluster(c.cluster)); !errors.Is(err, c.want) || uid != "" {
				t.Errorf("%s: got %q, %v; want %v", c.reason, uid, err, c.want)
			}
		})
	}
	if err := w.membership.MayRenew(t.Context(), agent); err != nil {
		t.Errorf("MayRenew(%s) = %v", agent, err)
	}
	if err := w.membership.MayRenew(t.Context(), other); !errors.Is(err, identity.ErrNotYours) {
		t.Errorf("an agent whose only member was turned away may renew: %v", err)
	}
}

func TestAuthorizeBindsTheIdentityOfAMemberGivenByHand(t *testing.T) {
	w := newWorld(t)
	object := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: w.name("region")}}
	object.Spec.Accepted = true
	object.Spec.AgentRef = &v1alpha1.AgentRef{Name: "big-agent"}
	if err := w.client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if _, err := w.membership.Authorize(t.Context(), "big-agent", w.name("region"), w.cluster("one")); err != nil {
		t.Fatal(err)
	}
	if got := w.member("region").Status.Identity; got == nil || got.ClusterUID != w.prefix+"-one" {
		t.Errorf("identity = %v, want it bound", got)
	}
	if _, err := w.membership.Authorize(t.Context(), "big-agent", w.name("region"), w.cluster("two")); !errors.Is(err, identity.ErrIdentityConflict) {
		t.Errorf("another cluster: %v, want ErrIdentityConflict", err)
	}
}

// staleCache is a cache that has not heard of anything yet.
type staleCache struct{ client.Reader }

func (staleCache) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	*object.(*v1alpha1.MemberCluster) = v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}
	return nil
}

func (staleCache) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func TestACacheThatIsBehindRefusesNobody(t *testing.T) {
	w := newWorld(t)
	agent, err := w.claim("east", "one", accept)
	if err != nil {
		t.Fatal(err)
	}
	behind := identity.NewMembership(identity.MembershipOptions{Client: w.client, Cache: staleCache{}})
	if _, err := behind.Authorize(t.Context(), agent, w.name("east"), w.cluster("one")); err != nil {
		t.Errorf("Authorize right after Register: %v", err)
	}
	if err := behind.MayRenew(t.Context(), agent); err != nil {
		t.Errorf("MayRenew right after Register: %v", err)
	}
}
