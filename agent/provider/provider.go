package provider

import (
	"context"
	"time"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Identity says whose an instance is. A provider attaches all of it in the call that creates the instance, never later:
// an instance without an owner's name on it can only be found by a person reading a bill.
type Identity struct {
	// ProxyUID is the UID of the Proxy.
	ProxyUID string
	// HubUID is the UID of the hub at whose wish the instance exists.
	HubUID string
	// MemberUID is the UID of the member.
	MemberUID string
	// HomeClusterUID is the UID of the cluster that the agent keeps its objects in.
	HomeClusterUID string
}

// SameProxy says whether both name the same Proxy of the same cluster. Hub and member may differ: a member that joins
// another hub keeps its instances, and must still be able to remove them.
func (i Identity) SameProxy(o Identity) bool {
	return i.ProxyUID == o.ProxyUID && i.HomeClusterUID == o.HomeClusterUID
}

// Request describes the instance to create.
type Request struct {
	// Name is the instance's name, as InstanceName derives it.
	Name string
	// Identity says whose the instance is.
	Identity Identity
	// Owner names the Proxy, for providers whose instances are objects of the same cluster.
	Owner Owner
	// SpecHash is the hash of all that the instance is made from.
	SpecHash string
	// Settings is what the Proxy's spec asks for.
	Settings v1alpha1.ProxySettings
	// Zone is where the instance is to be, of those that [Zoned] offered; empty where the provider is not zoned.
	Zone string
	// RequestID is a UUID of this attempt, written down before it is made. The same attempt is made with the same ID however
	// often its answer is lost; the next one has another.
	RequestID string
	// HostPort is the port kept for the proxy on the member's nodes; 0 where it is not exposed that way.
	HostPort int32
	// Config is the proxy's rendered squid.conf.
	Config string
}

// Ref names an instance by what was written down before it was asked for, and by what the answer said.
type Ref struct {
	// Name is the instance's name.
	Name string
	// Zone is the zone that was asked for; empty where the provider is not zoned.
	Zone string
	// Operation is what the provider called the work of making it, where its answer arrived and said so.
	Operation string
}

// Receipt is what a provider answers to a request that it took.
type Receipt struct {
	// Operation names the work under way, for providers that tell of its failure nowhere else.
	Operation string
}

// Owner names a Proxy.
type Owner struct {
	Namespace string
	Name      string
	UID       string
}

// State is what a provider says of an instance. A provider's status that no version of this package knows is
// StateUnknown, and an unknown instance counts as existing.
type State string

// The states of an instance.
const (
	// StatePending means that the instance exists and does not run yet.
	StatePending State = "Pending"
	// StateRunning means that the instance runs. Whether it serves is for probes to say.
	StateRunning State = "Running"
	// StateStopping means that the instance is on its way out.
	StateStopping State = "Stopping"
	// StateFailed means that the instance will never run again; it still has to be deleted.
	StateFailed State = "Failed"
	// StateRefused means that there is no instance, and that the request for it, taken at first, has failed since:
	// Instance.Failure says why. Only another attempt helps.
	StateRefused State = "Refused"
	// StateUnknown means that the provider said something that is not understood, or cannot see the instance now.
	StateUnknown State = "Unknown"
)

// Instance is what a provider says of one instance.
type Instance struct {
	// Name is the instance's name.
	Name string
	// ProviderID names the instance to its provider and needs nothing beside it: "namespace/pod",
	// "project/zone/name".
	ProviderID string
	// State is how far the instance is.
	State State
	// Reason explains the state, for people. It may be empty.
	Reason string
	// Failure is why the request failed, with its kind; only with StateRefused.
	Failure error
	// Preempted says that the provider takes the instance back, with StateStopping and StateFailed.
	Preempted bool
	// Unplaced is since when there is no node that takes the instance, with StatePending; zero where there is one, and where
	// the provider has no nodes.
	Unplaced time.Time
	// PortTaken says that the instance's node refused it because of its host port, with StateFailed.
	PortTaken bool
	// Zone is where the instance is; empty where the provider is not zoned.
	Zone string
	// Endpoints are where the proxy is reached, as far as they are known.
	Endpoints []v1alpha1.Endpoint
	// Identity says whose the instance is, as read back from it.
	Identity Identity
	// SpecHash is the hash the instance was created with.
	SpecHash string
	// CreatedAt is when the instance was created, by the provider's clock.
	CreatedAt time.Time
}

// DeleteOptions says how an instance is deleted.
type DeleteOptions struct {
	// Drained means that no lease is left on the proxy, so that nobody has to be waited for.
	Drained bool
}

// Listing is what a provider says of all instances of an identity.
type Listing struct {
	// Instances are those that were seen.
	Instances []Instance
	// Complete is false where a part of the provider could not be read: nothing may be concluded from an absence then.
	Complete bool
	// Missing names the parts that could not be read, for people: "zone europe-west1-b".
	Missing []string
}

// Provider makes and removes the instances of proxies.
//
// All methods are safe for concurrent use, return promptly, and honour the context. Every error is of a [Kind].
type Provider interface {
	// Create asks for an instance. Success means that the request was taken, not that the instance runs, nor that it ever
	// will: Get tells.
	//
	// It is idempotent by name: where an instance of that name exists and is of the same proxy ([Identity.SameProxy]),
	// Create succeeds and changes nothing. KindAlreadyExists means that the name is taken by something that is not
	// ours; KindInvalidSpec, that this request can never succeed. After any other error the instance may exist or not,
	// and the controller looks before it asks again.
	Create(ctx context.Context, r Request) (Receipt, error)

	// Get observes one instance. KindNotFound means that the provider does not have it and that nothing is under way that
	// would make it: before the first Create, after the last Delete, and whenever someone else removed it. It never means
	// that something else is missing. While the work that the ref names goes on, an instance that cannot be seen yet is
	// StatePending; where that work has failed, it is StateRefused. An instance that is not the caller's is told like any
	// other; its Identity says whose it is.
	Get(ctx context.Context, ref Ref) (Instance, error)

	// Delete asks for an instance to be removed. Success means that the request was taken or that there was nothing to
	// remove; the controller calls it again until Get says KindNotFound. An instance of another proxy, or of nobody, is
	// left alone and is KindAlreadyExists.
	Delete(ctx context.Context, ref Ref, id Identity, o DeleteOptions) error

	// List observes every instance that carries the hub, member and home cluster of id, whatever its ProxyUID. An error
	// means that nothing was learnt.
	List(ctx context.Context, id Identity) (Listing, error)
}

// Zoned is a provider whose instances are in zones. The controller chooses the zone and writes it down before it asks for
// the instance, so that no attempt is ever made in two zones at once.
type Zoned interface {
	// Zones gives the zones in which an instance of these settings may be, best first. The order depends on the proxy, so
	// that proxies spread, and is the same whenever it is asked for. KindInvalidSpec means that there is none.
	Zones(settings v1alpha1.ProxySettings, proxyUID string) ([]string, error)
}

// Marker is a provider that can keep others away from an instance while it is leased.
type Marker interface {
	// Mark says whether the instance is leased. It changes nothing else, is idempotent, and KindNotFound means that there is
	// no such instance.
	Mark(ctx context.Context, ref Ref, id Identity, busy bool) error
}
