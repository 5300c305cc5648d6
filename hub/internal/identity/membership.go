package identity

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// writeAttempts bounds how often a write is tried when somebody else keeps changing the same MemberCluster.
const writeAttempts = 5

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
}

// Claim lets a registering agent speak for a member and returns the name that its certificate is to have. It creates
// the MemberCluster if there is none. The cluster that holds the member already is given the same name again; any
// other is refused. A member that waits to be accepted is claimed by nobody, and the claim changes nothing but to
// create it.
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
	if err := m.checkElsewhere(ctx, c.Member, identity); err != nil {
		return "", err
	}
	for range writeAttempts {
		agent, err = m.claim(ctx, c, identity)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return agent, err
		}
	}
	return "", err
}

// checkElsewhere refuses a cluster that is a member under another name: two agents would rule one namespace.
func (m *Membership) checkElsewhere(ctx context.Context, member string, identity v1alpha1.MemberIdentity) error {
	var list v1alpha1.MemberClusterList
	if err := m.client.List(ctx, &list); err != nil {
		return fmt.Errorf("list MemberClusters: %w", err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name != member && other.Status.Identity != nil && *other.Status.Identity == identity {
			return fmt.Errorf("%w: this cluster and namespace are member %q already; set member.name to that, or `kubectl delete membercluster %s` first",
				ErrIdentityConflict, other.Name, other.Name)
		}
	}
	return nil
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
	spec, err := decideClaim(&object, c, identity)
	if err != nil {
		return "", err
	}
	// Identity first: if only one of the two is written, the same cluster can go on and no other can.
	if object.Status.Identity == nil {
		if err := m.bind(ctx, &object, identity); err != nil {
			return "", err
		}
	}
	if equality.Semantic.DeepEqual(object.Spec, spec) {
		return spec.AgentRef.Name, nil
	}
	base := object.DeepCopy()
	object.Spec = spec
	if err := m.client.Patch(ctx, &object, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return "", fmt.Errorf("claim MemberCluster %q: %w", c.Member, err)
	}
	return spec.AgentRef.Name, nil
}

func newMember(c Claim) v1alpha1.MemberCluster {
	object := v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: c.Member, Labels: c.Grant.Labels}}
	object.Spec.Accepted = c.Grant.Accept
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

// decideClaim is the decision of [Membership.Claim]: the spec that the member is to have.
func decideClaim(object *v1alpha1.MemberCluster, c Claim, identity v1alpha1.MemberIdentity) (v1alpha1.MemberClusterSpec, error) {
	spec := *object.Spec.DeepCopy()
	if !object.DeletionTimestamp.IsZero() {
		return spec, fmt.Errorf("%w: member %q is being deleted; wait until it is gone, or choose another name", ErrUnknownMember, object.Name)
	}
	if err := checkIdentity(object, identity); err != nil {
		return spec, err
	}
	if spec.AgentRef != nil && object.Status.Identity == nil {
		// Somebody wrote agentRef by hand. That agent has a certificate and needs no token; to hand its name to
		// whoever holds one would give away all members it speaks for.
		return spec, fmt.Errorf("%w: member %q waits for agent %q; remove its spec.agentRef to let another agent register", ErrNotYours, object.Name, spec.AgentRef.Name)
	}
	// A token accepts a member once. If a person takes the acceptance back, the token does not overrule them.
	if c.Grant.Accept && spec.AgentRef == nil {
		spec.Accepted = true
	}
	if !spec.Accepted {
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
	return fmt.Errorf("%w: member %q is another cluster, or another namespace of this one (status.identity of MemberCluster %s says which): choose another member.name, or `kubectl delete membercluster %s` if that one is gone",
		ErrIdentityConflict, object.Name, object.Name, object.Name)
}

func notAccepted(member string) error {
	return fmt.Errorf("%w: member %q waits to be accepted; on the hub's cluster run: kubectl patch membercluster %s --type merge -p '{\"spec\":{\"accepted\":true}}'",
		ErrNotAccepted, member, member)
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
	identity := v1alpha1.MemberIdentity{ClusterUID: id.GetClusterUid(), Namespace: id.GetNamespace()}
	switch {
	case identity.ClusterUID == "" || len(identity.ClusterUID) > 128:
		return identity, fmt.Errorf("%w: the member's cluster UID has %d characters; send the UID of its kube-system namespace", ErrInvalid, len(identity.ClusterUID))
	case identity.Namespace == "" || len(identity.Namespace) > 63:
		return identity, fmt.Errorf("%w: the member's namespace has %d characters; send the namespace of the agent", ErrInvalid, len(identity.Namespace))
	}
	return identity, nil
}
