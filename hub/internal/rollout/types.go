package rollout

import "time"

// MemberID names a member.
type MemberID string

// Revision names a fleet revision.
type Revision string

// ProxyName is the name a member gave a proxy; it is unique within a placement's proxies, and may be used again once
// the proxy is gone.
type ProxyName string

// ProxyUID identifies one proxy for ever.
type ProxyUID string

// Key names a placement.
type Key struct {
	Member   MemberID
	Revision Revision
}

// Drain is a proxy that must go.
type Drain struct {
	Name ProxyName
	// Deadline is when the member removes it, leased or not.
	Deadline time.Time
}

// Placement is the durable decision for one member and revision.
type Placement struct {
	Key
	// Replicas is how many proxies the member keeps, the draining ones not counted.
	Replicas int32
	// Drain lists the proxies that must go, sorted by name.
	Drain []Drain
}

// Proxy is a proxy as its member last reported it.
type Proxy struct {
	Name     ProxyName
	UID      ProxyUID
	Member   MemberID
	Revision Revision
	// Ready is the probes' verdict, Failed a latched permanent error.
	Ready, Failed bool
	// Terminating is set when the proxy is on its way out for a reason of the member's own (somebody deleted it there).
	// The member replaces it.
	Terminating bool
	// Leased is how many leases hold the proxy, Burned how many targets banned it.
	Leased, Burned int
	CreatedAt      time.Time
}

// Member is what one member is wanted to run.
type Member struct {
	ID MemberID
	// Desired is how many proxies placement wants here; below zero counts as zero.
	Desired int32
	// Frozen leaves the member as it is: its inventory is not complete.
	Frozen bool
}

// Input is everything [Step] looks at.
type Input struct {
	Now time.Time
	// Current is the revision all proxies are to be of.
	Current Revision
	// Members are the members that are wanted to run proxies or still do. One that appears only in Placements is wanted
	// to run none.
	Members []Member
	// Placements are the placements as they are written down now.
	Placements []Placement
	// Unconfirmed are the placements whose last write the member has not both applied and reported upon. They are never
	// finished, since a creation that was called off may still arrive. Nil means that all are confirmed.
	Unconfirmed map[Key]bool
	// Proxies are all proxies that members reported, the draining ones too.
	Proxies []Proxy
	// Budget bounds the step, see [Resolve].
	Budget Budget
	// DrainTimeout is how long a leased proxy may go on; below zero counts as zero.
	DrainTimeout time.Duration
}

// Cause says why a proxy was chosen to go.
type Cause string

const (
	// ScaledDown is a proxy of the current revision beyond its member's share.
	ScaledDown Cause = "ScaledDown"
	// Outdated is a proxy of another revision.
	Outdated Cause = "Outdated"
)

// Victim is a proxy that this step chose to go.
type Victim struct {
	Proxy    Proxy
	Cause    Cause
	Deadline time.Time
}

// Counts sums up the members that are not frozen.
type Counts struct {
	// Desired is the wanted number of proxies.
	Desired int32
	// Alive and Available count before the step, over all revisions.
	Alive, Available int32
	// Updated and UpdatedAvailable are the same of the current revision only.
	Updated, UpdatedAvailable int32
	// Draining counts the proxies on drain lists after the step.
	Draining int32
}

// Plan is the outcome of a step.
type Plan struct {
	// Placements are all placements that should exist, the unchanged too, in the order in which to write them.
	Placements []Placement
	// Finished are the placements of the input that have nothing left to do and are to be deleted.
	Finished []Key
	// Drained are the proxies that this step newly put on drain lists.
	Drained []Victim
	// Held is how many proxies must go but may not yet: enough others have to become ready first.
	Held int32
	// Ordered is how many more proxies this step asks members to create, Short how many are missing that maxSurge does
	// not let it ask for yet.
	Ordered, Short int32
	// Counts is for status.
	Counts Counts
	// NextDeadline is the first drain deadline after now; zero when there is none.
	NextDeadline time.Time
	// Done says that every member that is not frozen runs exactly its share of the current revision, ready, and nothing
	// else.
	Done bool
}
