package identity

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

const (
	// writeAttempts bounds how often a write is tried when somebody else keeps changing the same MemberCluster.
	writeAttempts = 5
	// maxWaiting bounds the members of one agent that wait to be accepted: without a token each costs it nothing.
	maxWaiting = 16
)

// Membership decides which agent may speak for which member. A member has one identity, bound when an agent first
// claims it after it was accepted, and one agent, named by spec.agentRef.
type Membership struct {
	client client.Client
	cache  client.Reader
}

// MembershipOptions configures [Membership].
type MembershipOptions struct {
	// Client reads and writes MemberClusters, without a cache in between.
	Client client.Client
	// Cache reads MemberClusters faster. What it would refuse is asked of Client again, because it may be behind.
	Cache client.Reader
}

// NewMembership returns a membership.
func NewMembership(o MembershipOptions) *Membership {
	return &Membership{client: o.Client, cache: o.Cache}
}

// Authorize returns the UID of the member that the agent may speak for, and binds the member's identity if it is
// accepted and has none. Refusals wrap [ErrUnknownMember], [ErrNotAccepted], [ErrNotYours] or [ErrIdentityConflict];
// any other error means that the API server did not answer and that trying again may help.
func (m *Membership) Authorize(ctx context.Context, agent, member string, id *agentv1.MemberIdentity) (string, error) {
	identity, err := identityOf(id)
	if err != nil {
		return "", err
	}
	var object v1alpha1.MemberCluster
	if err := m.cache.Get(ctx, client.ObjectKey{Name: member}, &object); err == nil &&
		object.Status.Identity != nil && authorize(&object, agent, identity) == nil {
		return string(object.UID), nil
	}
	for range writeAttempts {
		if err := m.get(ctx, member, &object); err != nil {
			return "", err
		}
		if err := authorize(&object, agent, identity); err != nil {
			return "", err
		}
		if object.Status.Identity != nil {
			return string(object.UID), nil
		}
		if err := m.checkElsewhere(ctx, Claim{Member: member}, identity); err != nil {
			return "", err
		}
		err = m.bind(ctx, &object, identity)
		if err == nil {
			return string(object.UID), nil
		}
		if !apierrors.IsConflict(err) {
			return "", err
		}
	}
	return "", err
}

// authorize is the decision of [Membership.Authorize]. An identity that is not bound yet stands against nothing.
func authorize(object *v1alpha1.MemberCluster, agent string, identity v1alpha1.MemberIdentity) error {
	// While a member that is being deleted drains, its agent must hear what to remove.
	if !object.Spec.Accepted && object.DeletionTimestamp.IsZero() {
		return notAccepted(object.Name)
	}
	if object.Spec.AgentRef == nil || object.Spec.AgentRef.Name != agent {
		return fmt.Errorf("%w: agent %q does not speak for member %q; register for it with a token from `shoalctl member join-token %s`",
			ErrNotYours, agent, object.Name, object.Name)
	}
	return checkIdentity(object, identity)
}

// MayRenew returns nil if the agent speaks for at least one accepted member, else an error that wraps [ErrNotYours].
func (m *Membership) MayRenew(ctx context.Context, agent string) error {
	speaks := func(list *v1alpha1.MemberClusterList) bool {
		for i := range list.Items {
			if spec := list.Items[i].Spec; spec.Accepted && spec.AgentRef != nil && spec.AgentRef.Name == agent {
				return true
			}
		}
		return false
	}
	var list v1alpha1.MemberClusterList
	if err := m.cache.List(ctx, &list); err == nil && speaks(&list) {
		return nil
	}
	if err := m.client.List(ctx, &list); err != nil {
		return fmt.Errorf("list MemberClusters: %w", err)
	}
	if !speaks(&list) {
		return fmt.Errorf("%w: agent %q speaks for no accepted member; accept it again, or register with a new join token", ErrNotYours, agent)
	}
	return nil
}

// Claim is the wish of an agent to speak for a member.
type Claim struct {
	// Member is the member's name.
	Member string
	// Identity is what the agent says it runs in.
	Identity *agentv1.MemberIdentity
	// Region and Country are what the agent says of itself.
	Region, Country string
	// Grant is what the agent's token allows.
	Grant JoinGrant
	// Agent is the name in the certificate of an agent that is enrolled already and asks for a further member; empty for
	// one that has none.
	Agent string
	// NoToken says why such an agent has no token that is good for the member; nil if it has one.
	NoToken error
}

// Claim lets a registering agent speak for a member and returns the name that its certificate is to have. It creates
// the MemberCluster if there is none. The cluster that holds the member already is given the same name again; any
// other is refused. A member that waits to be accepted is claimed by nobody, and the claim changes nothing but to
// create it.
//
// An agent that is enrolled already adds the member to those that it speaks for. Without a token that is good for it the
// member waits to be accepted with the agent's name on it, so that a person decides once; where somebody else has made
// the MemberCluster, only a token proves whom it was made for.
//
// Refusals wrap [ErrInvalid], [ErrUnknownMember], [ErrNotAccepted], [ErrNotYours] or [ErrIdentityConflict]; any other
// error means that the API server did not answer and that trying again may help.
func (m *Membership) Claim(ctx context.Context, c Claim) (agent string, err error) {
	identity, err := identityOf(c.Identity)
	if err != nil {
		return "", err
	}
	if err := checkMemberName(c.Member); err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := checkPlace(c.Region, c.Country); err != nil {
		return "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := m.checkElsewhere(ctx, c, identity); err != nil {
		return "", err
	}
	if c.NoToken != nil {
		if err := m.MayRenew(ctx, c.Agent); err != nil {
			return "", err
		}
	}
	for range writeAttempts {
		agent, err = m.claim(ctx, c, identity)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return agent, err
		}
	}
	return "", err
}

// checkElsewhere refuses a cluster, or a region, that is a member under another name: two would rule one namespace, or one
// region. It also bounds how many members an agent may have waiting.
func (m *Membership) checkElsewhere(ctx context.Context, c Claim, identity v1alpha1.MemberIdentity) error {
	var list v1alpha1.MemberClusterList
	if err := m.client.List(ctx, &list); err != nil {
		return fmt.Errorf("list MemberClusters: %w", err)
	}
	waiting := 0
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == c.Member {
			continue
		}
		if ref := other.Spec.AgentRef; ref != nil && ref.Name == c.Agent && !other.Spec.Accepted {
			waiting++
		}
		if other.Status.Identity == nil || !samePlace(*other.Status.Identity, identity) {
			continue
		}
		what := "this cluster and namespace are"
		if identity.Project != "" {
			what = fmt.Sprintf("region %s of project %s is", identity.Region, identity.Project)
		}
		return fmt.Errorf("%w: %s member %q already; use that name, or `kubectl delete membercluster %s` first",
			ErrIdentityConflict, what, other.Name, other.Name)
	}
	if c.NoToken != nil && waiting >= maxWaiting {
		return fmt.Errorf("%w: %d members of agent %q wait to be accepted, and that is the most; accept or delete some, see `shoalctl member list`",
			ErrNotAccepted, waiting, c.Agent)
	}
	return nil
}

// samePlace tells whether two identities are of one cluster and namespace, or of one region.
func samePlace(a, b v1alpha1.MemberIdentity) bool {
	if a.Project != "" || b.Project != "" {
		return a.Project == b.Project && a.Region == b.Region
	}
	return a.ClusterUID == b.ClusterUID && a.Namespace == b.Namespace
}

func (m *Membership) claim(ctx context.Context, c Claim, identity v1alpha1.MemberIdentity) (string, error) {
	var object v1alpha1.MemberCluster
	err := m.client.Get(ctx, client.ObjectKey{Name: c.Member}, &object)
	switch {
	case apierrors.IsNotFound(err):
		object = newMember(c)
		if err := m.client.Create(ctx, &object); err != nil {
			return "", fmt.Errorf("create MemberCluster %q: %w", c.Member, err)
		}
	case err != nil:
		return "", fmt.Errorf("read MemberCluster %q: %w", c.Member, err)
	}
	spec, refusal := decideClaim(&object, c, identity)
	if refusal != nil && !errors.Is(refusal, ErrNotAccepted) {
		return "", refusal
	}
	// Identity first: if only one of the two is written, the same cluster can go on and no other can. Nothing is bound to
	// who is not accepted.
	if object.Status.Identity == nil && refusal == nil {
		if err := m.bind(ctx, &object, identity); err != nil {
			return "", err
		}
	}
	if equality.Semantic.DeepEqual(object.Spec, spec) {
		return nameOf(spec, refusal)
	}
	base := object.DeepCopy()
	object.Spec = spec
	if err := m.client.Patch(ctx, &object, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return "", fmt.Errorf("claim MemberCluster %q: %w", c.Member, err)
	}
	return nameOf(spec, refusal)
}

// nameOf gives the name of the agent that speaks for a member, if it is not refused.
func nameOf(spec v1alpha1.MemberClusterSpec, refusal error) (string, error) {
	if refusal != nil {
		return "", refusal
	}
	return spec.AgentRef.Name, nil
}

func newMember(c Claim) v1alpha1.MemberCluster {
	object := v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: c.Member, Labels: c.Grant.Labels}}
	object.Spec.Accepted = c.Grant.Accept
	if c.Agent != "" {
		object.Spec.AgentRef = &v1alpha1.AgentRef{Name: c.Agent}
	}
	setPlace(&object.Spec, c)
	return object
}

// setPlace fills what nobody has decided yet: the token's word goes before the agent's.
func setPlace(spec *v1alpha1.MemberClusterSpec, c Claim) {
	for _, region := range []string{c.Grant.Region, c.Region} {
		if spec.Region == "" {
			spec.Region = region
		}
	}
	for _, country := range []string{c.Grant.Country, c.Country} {
		if spec.Country == "" {
			spec.Country = country
		}
	}
}

// decideClaim is the decision of [Membership.Claim]: the spec that the member is to have. With [ErrNotAccepted] it is to
// have that spec all the same: it says whom to accept.
func decideClaim(object *v1alpha1.MemberCluster, c Claim, identity v1alpha1.MemberIdentity) (v1alpha1.MemberClusterSpec, error) {
	spec := *object.Spec.DeepCopy()
	if !object.DeletionTimestamp.IsZero() {
		return spec, fmt.Errorf("%w: member %q is being deleted; wait until it is gone, or choose another name", ErrUnknownMember, object.Name)
	}
	if err := checkIdentity(object, identity); err != nil {
		return spec, err
	}
	if spec.AgentRef != nil && c.Agent != "" && spec.AgentRef.Name != c.Agent {
		return spec, fmt.Errorf("%w: another agent speaks for member %q; choose another name, or `kubectl delete membercluster %s` if that one is gone",
			ErrNotYours, object.Name, object.Name)
	}
	if spec.AgentRef == nil && c.NoToken != nil {
		return spec, fmt.Errorf("%w: member %q waits for an agent with a token, and this one has none that is good for it (%s)", ErrNotYours, object.Name, c.NoToken.Error())
	}
	if spec.AgentRef != nil && c.Agent == "" && object.Status.Identity == nil {
		// Somebody wrote agentRef by hand. That agent has a certificate and needs no token; to hand its name to
		// whoever holds one would give away all members it speaks for.
		return spec, fmt.Errorf("%w: member %q waits for agent %q; remove its spec.agentRef to let another agent register", ErrNotYours, object.Name, spec.AgentRef.Name)
	}
	// A token accepts a member once. If a person takes the acceptance back, the token does not overrule them.
	if c.Grant.Accept && spec.AgentRef == nil {
		spec.Accepted = true
	}
	if spec.AgentRef == nil && c.Agent != "" {
		spec.AgentRef = &v1alpha1.AgentRef{Name: c.Agent}
	}
	switch {
	case !spec.Accepted && c.NoToken != nil:
		return spec, fmt.Errorf("%w: member %q was added to an agent that has joined before, and its join token is of no use for it (%v); "+
			"on the hub run `shoalctl member accept %s`, or give the agent a new token", ErrNotAccepted, object.Name, c.NoToken, object.Name)
	case !spec.Accepted:
		return spec, notAccepted(object.Name)
	}
	if spec.AgentRef == nil {
		spec.AgentRef = &v1alpha1.AgentRef{Name: newAgentName(object.Name)}
	}
	setPlace(&spec, c)
	return spec, nil
}

// checkIdentity does not say which cluster has the name: whoever holds a token could then claim to be that one.
func checkIdentity(object *v1alpha1.MemberCluster, identity v1alpha1.MemberIdentity) error {
	bound := object.Status.Identity
	if bound == nil || *bound == identity {
		return nil
	}
	return fmt.Errorf("%w: member %q is another cluster or region, or another namespace of this one (status.identity of MemberCluster %s says which): choose another member.name, or `kubectl delete membercluster %s` if that one is gone",
		ErrIdentityConflict, object.Name, object.Name, object.Name)
}

func notAccepted(member string) error {
	return fmt.Errorf("%w: member %q waits to be accepted; run `shoalctl member accept %s`, or on the hub's cluster: kubectl patch membercluster %s --type merge -p '{\"spec\":{\"accepted\":true}}'",
		ErrNotAccepted, member, member, member)
}

// newAgentName makes a name that was never used before: certificates of an agent whose member was deleted and made
// anew are good for some hours still, but speak for nobody.
func newAgentName(member string) string {
	raw := make([]byte, 4)
	_, _ = rand.Read(raw)
	const room = maxMemberName - 9
	if len(member) > room {
		member = strings.TrimRight(member[:room], ".-")
	}
	return member + "-" + hex.EncodeToString(raw)
}

func (m *Membership) get(ctx context.Context, member string, object *v1alpha1.MemberCluster) error {
	err := m.client.Get(ctx, client.ObjectKey{Name: member}, object)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: there is no MemberCluster %q; join with a token from `shoalctl member join-token %s`", ErrUnknownMember, member, member)
	case err != nil:
		return fmt.Errorf("read MemberCluster %q: %w", member, err)
	}
	return nil
}

// bind writes the identity, if nobody has changed the object meanwhile.
func (m *Membership) bind(ctx context.Context, object *v1alpha1.MemberCluster, identity v1alpha1.MemberIdentity) error {
	base := object.DeepCopy()
	object.Status.Identity = &identity
	if err := m.client.Status().Patch(ctx, object, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("bind the identity of MemberCluster %q: %w", object.Name, err)
	}
	return nil
}

func identityOf(id *agentv1.MemberIdentity) (v1alpha1.MemberIdentity, error) {
	identity := v1alpha1.MemberIdentity{ClusterUID: id.GetClusterUid(), Namespace: id.GetNamespace(), Project: id.GetProject(), Region: id.GetRegion()}
	switch {
	case identity.ClusterUID == "" || len(identity.ClusterUID) > 128:
		return identity, fmt.Errorf("%w: the member's cluster UID has %d characters; send the UID of its kube-system namespace", ErrInvalid, len(identity.ClusterUID))
	case identity.Namespace == "" || len(identity.Namespace) > 63:
		return identity, fmt.Errorf("%w: the member's namespace has %d characters; send the namespace of the agent", ErrInvalid, len(identity.Namespace))
	case (identity.Project == "") != (identity.Region == "") || len(identity.Project) > 128 || len(identity.Region) > 63:
		return identity, fmt.Errorf("%w: the member's project has %d characters and its region %d; a region has both, a cluster neither", ErrInvalid, len(identity.Project), len(identity.Region))
	}
	return identity, nil
}
