package placement

// Shortfall says why not all replicas found a place.
type Shortfall string

const (
	// NoShortfall means that every replica has a place.
	NoShortfall Shortfall = ""
	// NoMembers means that no member takes part: none is eligible, accepted, and free of taints the fleet does not
	// tolerate.
	NoMembers Shortfall = "NoMembers"
	// NoneLive means that members take part but none of them may grow: all are lost, or tainted against new proxies.
	NoneLive Shortfall = "NoneLive"
	// AllFull means that every member that may grow reached its maximum, its capacity, or, having no weight, its
	// minimum.
	AllFull Shortfall = "AllFull"
)

// Allotment is the decision for one member.
type Allotment struct {
	Member MemberID
	UID    MemberUID
	Region string
	Weight int32
	// Wanted is how many proxies the member should run, Have how many it was assigned when the snapshot was taken.
	Wanted, Have int32
	// Why explains Wanted in one line for a person. It is not for branching on.
	Why string
}

// Decision is the outcome of [Plan].
type Decision struct {
	// Members has one row for each member of the snapshot, sorted by ID.
	Members []Allotment
	// Placed is the sum of all Wanted; Placed+Unplaced is what the fleet wants.
	Placed, Unplaced int32
	// Shortfall says why Unplaced is not zero, UnplacedWhy says it to a person.
	Shortfall   Shortfall
	UnplacedWhy string
	// Moved is how many proxies leave a member that has them to begin again on another: the lesser of all growth and
	// all shrinking.
	Moved int32
}
