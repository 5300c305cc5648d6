package identity_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/identity"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// region is the identity of a region whose objects are in a cluster.
func (w *world) region(cluster, region string) *agentv1.MemberIdentity {
	id := w.cluster(cluster)
	id.Project, id.Region = w.prefix, region
	return id
}

// further claims a member for an agent that is enrolled already.
func (w *world) further(agent, member string, id *agentv1.MemberIdentity, grant identity.JoinGrant, noToken error) error {
	w.t.Helper()
	got, err := w.membership.Claim(w.t.Context(), identity.Claim{Member: w.name(member), Identity: id, Grant: grant, Agent: agent, NoToken: noToken})
	if err == nil && got != agent {
		w.t.Errorf("member %s is agent %q's, want %q's", member, got, agent)
	}
	return err
}

func TestOneAgentHasSeveralMembers(t *testing.T) {
	w := newWorld(t)
	agent, err := w.claim("east", "one", accept)
	if err != nil {
		t.Fatal(err)
	}
	eu := w.region("one", "europe-west4")
	if err := w.further(agent, "eu", eu, accept, nil); err != nil {
		t.Fatal(err)
	}
	if got := w.member("eu").Status.Identity; got == nil || got.Project != w.prefix || got.Region != "europe-west4" || got.ClusterUID != w.prefix+"-one" {
		t.Errorf("identity = %+v", got)
	}
	if _, err := w.membership.Authorize(t.Context(), agent, w.name("eu"), eu); err != nil {
		t.Errorf("the agent may not speak for its region: %v", err)
	}
	if _, err := w.membership.Authorize(t.Context(), agent, w.name("eu"), w.cluster("one")); !errors.Is(err, identity.ErrIdentityConflict) {
		t.Errorf("the cluster speaks as its region: %v, want ErrIdentityConflict", err)
	}
	// Once it speaks for a member it needs no token to say so again.
	if err := w.further(agent, "eu", eu, identity.JoinGrant{}, identity.ErrExpiredToken); err != nil {
		t.Errorf("registering again without a token: %v", err)
	}

	other, err := w.claim("west", "two", accept)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason  string
		agent   string
		member  string
		id      *agentv1.MemberIdentity
		noToken error
		want    error
	}{
		"RegionTwice":     {"two agents would rule one region", other, "eu2", w.region("two", "europe-west4"), nil, identity.ErrIdentityConflict},
		"RegionRenamed":   {"one region has one name", agent, "eu2", eu, nil, identity.ErrIdentityConflict},
		"AnothersMember":  {"a token for a member does not take it from an agent", other, "eu", eu, nil, identity.ErrNotYours},
		"AnotherHome":     {"its objects would be elsewhere", agent, "eu", w.region("two", "europe-west4"), nil, identity.ErrIdentityConflict},
		"ProjectAlone":    {"it is neither a region nor a cluster", agent, "us", &agentv1.MemberIdentity{ClusterUid: "u", Namespace: "n", Project: "p"}, nil, identity.ErrInvalid},
		"StrangerNoToken": {"a certificate that speaks for nobody asks for nothing", "nobody", "us", w.region("one", "us-east1"), identity.ErrExpiredToken, identity.ErrNotYours},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := w.further(c.agent, c.member, c.id, accept, c.noToken); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.reason, err, c.want)
			}
		})
	}
}

// TestWithoutATokenAPersonDecides adds a member at run time, when the token that the agent has joined with is no more.
func TestWithoutATokenAPersonDecides(t *testing.T) {
	w := newWorld(t)
	agent, err := w.claim("east", "one", accept)
	if err != nil {
		t.Fatal(err)
	}
	us := w.region("one", "us-east1")
	expired := fmt.Errorf("%w: it ended yesterday", identity.ErrExpiredToken)
	for range 2 {
		err := w.further(agent, "us", us, identity.JoinGrant{}, expired)
		if !errors.Is(err, identity.ErrNotAccepted) || errors.Is(err, identity.ErrExpiredToken) {
			t.Fatalf("got %v, want ErrNotAccepted alone", err)
		}
		for _, want := range []string{"shoalctl member accept " + w.name("us"), "it ended yesterday"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("want %q in: %v", want, err)
			}
		}
	}
	object := w.member("us")
	if object.Spec.Accepted || object.Spec.AgentRef == nil || object.Spec.AgentRef.Name != agent || object.Status.Identity != nil {
		t.Errorf("the member that waits is %+v %+v; want it to name who asks, and nothing bound", object.Spec, object.Status)
	}
	if _, err := w.membership.Authorize(t.Context(), agent, w.name("us"), us); !errors.Is(err, identity.ErrNotAccepted) {
		t.Errorf("it speaks before it is accepted: %v", err)
	}
	w.edit("us", func(m *v1alpha1.MemberCluster) { m.Spec.Accepted = true })
	if _, err := w.membership.Authorize(t.Context(), agent, w.name("us"), us); err != nil {
		t.Errorf("accepted, it may not speak: %v", err)
	}
	if err := w.further(agent, "us2", us, identity.JoinGrant{}, expired); !errors.Is(err, identity.ErrIdentityConflict) {
		t.Errorf("the region has a second name: %v", err)
	}

	// What somebody else has made is for whom its token is for.
	made := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: w.name("made")}}
	made.Spec.Accepted = true
	if err := w.client.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	if err := w.further(agent, "made", w.region("one", "asia-east1"), identity.JoinGrant{}, expired); !errors.Is(err, identity.ErrNotYours) {
		t.Errorf("an agent has taken a member without a token: %v", err)
	}
	if object := w.member("made"); object.Spec.AgentRef != nil {
		t.Errorf("it is agent %q's", object.Spec.AgentRef.Name)
	}
}

// TestWaitingMembersAreBounded has an agent ask for members without end.
func TestWaitingMembersAreBounded(t *testing.T) {
	w := newWorld(t)
	agent, err := w.claim("east", "one", accept)
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for i := range 20 {
		name := fmt.Sprint("r", i)
		if err := w.further(agent, name, w.region("one", fmt.Sprint("region-", i)), identity.JoinGrant{}, identity.ErrExpiredToken); !errors.Is(err, identity.ErrNotAccepted) {
			t.Fatal(err)
		}
		var list v1alpha1.MemberClusterList
		if err := w.client.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		made = 0
		for _, m := range list.Items {
			if strings.HasPrefix(m.Name, w.name("r")) {
				made++
			}
		}
	}
	if made != 16 {
		t.Errorf("%d members wait, want no more than 16", made)
	}
}

// TestAcceptedByHandIsClaimedOnce binds an identity at a session's start, which must be nobody else's either.
func TestAcceptedByHandIsClaimedOnce(t *testing.T) {
	w := newWorld(t)
	agent, err := w.claim("east", "one", accept)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.further(agent, "eu", w.region("one", "eu"), accept, nil); err != nil {
		t.Fatal(err)
	}
	hand := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: w.name("hand")}}
	hand.Spec.Accepted, hand.Spec.AgentRef = true, &v1alpha1.AgentRef{Name: agent}
	if err := w.client.Create(t.Context(), hand); err != nil {
		t.Fatal(err)
	}
	if _, err := w.membership.Authorize(t.Context(), agent, w.name("hand"), w.region("one", "eu")); !errors.Is(err, identity.ErrIdentityConflict) {
		t.Errorf("the region is bound twice: %v", err)
	}
}
