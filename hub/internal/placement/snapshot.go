package placement

// FleetUID identifies a fleet; it seeds the breaking of ties.
type FleetUID string

// MemberID names a member; it is unique in a snapshot and what explanations print.
type MemberID string

// MemberUID identifies one incarnation of a member; it breaks ties.
type MemberUID string

// Strategy says what a fleet prefers when several members could take a proxy.
type Strategy string

const (
	// Spread divides over the domains first (see [SpreadRule]), by weight, and then over each domain's members by
	// weight. The weight of a region is that of its heaviest member, so with equal weights regions get equal shares
	// however many members they have. It is the default.
	Spread Strategy = "Spread"
	// Weighted divides over all members by weight and regards domains only for maxSkew.
	Weighted Strategy = "Weighted"
	// Pack fills one member up before it begins the next: the heaviest first, then one that is full already, then the
	// one that has most, then ties by UID. Without maximums or known capacities everything lands on one member.
	Pack Strategy = "Pack"
)

// Domain is what proxies are spread over.
type Domain string

const (
	// ByMember makes every member a domain of its own. It is the default.
	ByMember Domain = "Member"
	// ByRegion makes the members of one region one domain. Members without a region are one domain together.
	ByRegion Domain = "Region"
)

// SpreadRule says over what a fleet is spread, and how evenly.
type SpreadRule struct {
	// By chooses the domains; empty means [ByMember].
	By Domain
	// MaxSkew is the most proxies a domain may have above the emptiest domain that can still take one. Zero or less
	// means no limit. It holds under every strategy.
	MaxSkew int32
}

// Fleet is what placement needs to know of a fleet.
type Fleet struct {
	// UID breaks ties differently for different fleets.
	UID FleetUID
	// Replicas is how many proxies are wanted in all; below zero counts as zero.
	Replicas int32
	// Strategy is how to divide; empty means [Spread].
	Strategy Strategy
	// Spread is over what.
	Spread SpreadRule
	// Tolerations are the taints the fleet puts up with.
	Tolerations []Toleration
}

// Liveness is the hub's verdict on a member.
type Liveness string

const (
	// Ready members are heard and take new proxies.
	Ready Liveness = "Ready"
	// Suspect members missed heartbeats: they keep their share and get nothing new.
	Suspect Liveness = "Suspect"
	// Unreachable members are lost: they keep their share (moving it is failover's work) and get nothing new.
	Unreachable Liveness = "Unreachable"
	// NotJoined members were never heard in this incarnation; they get nothing new.
	NotJoined Liveness = "NotJoined"
)

// Member is one candidate and what it has now.
type Member struct {
	// ID names the member; unique in the snapshot.
	ID MemberID
	// UID breaks ties.
	UID MemberUID
	// Region is the domain under [ByRegion].
	Region string

	// Eligible is the caller's verdict on everything placement does not look at: the fleet's member selector, a member
	// being deleted, a provider that it does not offer.
	Eligible bool
	// Reason says why the member is not eligible, for the explanation.
	Reason string
	// Accepted is whether the hub's owner accepted the member.
	Accepted bool
	// Liveness is the hub's verdict; anything but [Ready] stops growth.
	Liveness Liveness
	// Taints keep fleets away that do not tolerate them.
	Taints []Taint

	// Weight is the member's claim in proportion to the others; the caller writes 1 where the user wrote nothing. Zero
	// means nothing beyond Min; below zero counts as zero.
	Weight int32
	// Min is dealt before anything else; below zero counts as zero.
	Min int32
	// Max is the most the fleet may have here; nil means no limit.
	Max *int32
	// Capacity is the most proxies of this fleet the member said it can hold; nil means unknown. It stops growth and
	// never evicts.
	Capacity *int32
	// CapacityReason says what limits the capacity, for the explanation ("quota: IN_USE_ADDRESSES 3 of 3").
	CapacityReason string

	// Have is how many proxies are assigned to the member now: the durable decision (the sum of its placements'
	// replicas), not what was observed. A member that is slow to create must not lose its share for it.
	Have int32
}

// Snapshot is everything [Plan] looks at.
type Snapshot struct {
	Fleet Fleet
	// Members are all candidates, in any order.
	Members []Member
}
