package lease

import "time"

// Output is what a Step or a Tick has done. The caller's duties, in order:
//
//  1. Append Records to the journal, also when Step returned a Refusal: time
//     may have ended leases on the way.
//  2. Only then answer with Result or the Refusal, and those who waited with
//     their Answers.
//  3. Hand on Notices. They may be lost: who missed one learns the same from
//     Renew or Get.
//
// Nothing in an Output is touched by later Steps.
type Output struct {
	// Result answers the command; nil from Tick and with a Refusal.
	Result  Result
	Records []Record
	Notices []Notice
	// Answers are for Acquires that have waited, in the order in which they
	// were served. They are given after the Records are durable, like Result.
	Answers []Answer
}

// Result is the answer to a command. Each is one of the structs of this file,
// by value.
type Result interface{ result() }

// Lease is a lease as its holder sees it.
type Lease struct {
	ID        ID
	Token     FencingToken
	Principal Principal
	Fleet     FleetID
	Target    Target
	// SessionKey is the one it was acquired with, if any.
	SessionKey string
	Exclusive  bool
	// State says whether it lives, and if not, why.
	State State

	// The proxy at the time of the answer; Endpoint is the one in the network
	// that Acquire asked for.
	Proxy     ProxyUID
	ProxyName string
	Member    MemberID
	Region    string
	Country   string
	Endpoint  Endpoint
	Exits     []Exit

	// Granted and Expires are by the hub's clock. Clients count with TTL.
	Granted time.Time
	Expires time.Time
	// LifetimeEnd is the latest that renewals can reach.
	LifetimeEnd time.Time
	// TTL is the time left at the answer, zero if the lease has ended.
	TTL time.Duration
	// RenewAfter is when to renew, counted from the answer: half of TTL.
	RenewAfter time.Duration
	// Draining says that the proxy goes away; DrainDeadline says when, if
	// that is known.
	Draining      bool
	DrainDeadline time.Time
	// ExitsChanged says that the proxy's exits are not those it had when the
	// lease was granted.
	ExitsChanged bool
	// Limits are what the holder should keep to for the target now.
	Limits Limits
}

// State says whether a lease lives.
type State uint8

// The states of a lease.
const (
	// Live leases hold slots.
	Live State = iota
	// StateReleased, StateExpired, StateRemoved and StateRevoked leases have
	// ended: by their holder, by time, with their proxy, or by an operator.
	StateReleased
	StateExpired
	StateRemoved
	StateRevoked
	// StateAbandoned leases were granted to a caller that had gone.
	StateAbandoned
)

var stateNames = [...]string{
	Live: "live", StateReleased: "released", StateExpired: "expired", StateRemoved: "proxy removed", StateRevoked: "revoked",
	StateAbandoned: "abandoned",
}

// String names the state.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "unknown"
}

// Granted answers [Acquire].
type Granted struct {
	// Leases are at least one.
	Leases []Lease
	// Repeated says that these are the leases of an earlier Acquire with the
	// same request id. Some may have ended since; at least one lives.
	Repeated bool
	// Moved says that the session was bound to another proxy.
	Moved bool
}

// Renewed answers [Renew].
type Renewed struct {
	Lease Lease
	// Capped names what kept the lease from getting all it asked for.
	Capped Cap
}

// Cap is what bounded a renewal.
type Cap uint8

// The caps.
const (
	NotCapped Cap = iota
	CappedByLifetime
	CappedByDrain
)

// Released answers [Release].
type Released struct {
	Lease Lease
	// Already says that the lease had ended before.
	Already bool
}

// Reported answers [Report].
type Reported struct {
	// Lease is the lease the report is about; it may have ended.
	Lease Lease
	// Guarded counts the bans that were not acted upon, because this
	// principal reported too many for the target within a minute.
	Guarded int
	// CoolingFor is how long the exit now rests, the longest of the targets
	// reported; zero if it does not.
	CoolingFor time.Duration
}

// Found answers [Get].
type Found struct{ Lease Lease }

// Page answers [List].
type Page struct {
	Proxies []Listed
	// Next continues the list as List.After; "" at its end.
	Next ProxyUID
}

// Listed is one proxy of a [Page].
type Listed struct {
	Proxy Proxy
	Exits []Exit
	// Leases counts live leases; Slots are those taken, with slots held back
	// after release; SlotsTotal are all.
	Leases     int
	Slots      int
	SlotsTotal int
	// Usable says that the proxy is ready, fresh and not draining.
	Usable bool
	// CoolingFor is the rest of its cooldown for the target of the List.
	CoolingFor time.Duration
}

// Done answers inventory commands.
type Done struct{}

// Drained answers [Drain].
type Drained struct {
	// Draining tells whether the proxy drains now: false if it is unknown, or
	// if it holds leases and only an idle one was to be drained.
	Draining bool
	// Leases counts its live leases.
	Leases int
	// LastExpiry is when the last of them ends if none is renewed.
	LastExpiry time.Time
}

// Stats answers [ReadStats] with the counts of a fleet.
type Stats struct {
	// Proxies are all known ones; Ready those reported ready and not
	// draining; Usable those of them that can be granted: fresh, on a member
	// that is not suspect, not saturated.
	Proxies  int
	Ready    int
	Usable   int
	Draining int
	// Leases counts live leases. SlotsTaken counts slots under lease, and
	// SlotsHeld those held back after one; SlotsTotal counts the slots of
	// ready proxies.
	Leases     int
	SlotsTaken int
	SlotsHeld  int
	SlotsTotal int
	// Waiting counts the Acquires that wait.
	Waiting int
	// Exits counts distinct exits of all known proxies, and CoolingExits
	// those that cool down for at least one target.
	Exits        int
	CoolingExits int
	// GraceUntil is when a restarted hub begins to grant, if that is ahead.
	GraceUntil time.Time
}

// UseList answers [ReadUse], in the order of uids.
type UseList struct{ Proxies []Use }

// Use is how one proxy is used.
type Use struct {
	UID    ProxyUID
	Member MemberID
	// Leases counts live leases; LastExpiry is when the last of them ends.
	Leases     int
	LastExpiry time.Time
	// LastUsed is when a lease on it last began or ended; zero for never.
	LastUsed time.Time
	// CoolingTargets counts targets for which one of its exits cools down,
	// the most of any of them: the measure of how burned it is.
	CoolingTargets int
	Draining       bool
}

// Busy answers [ReadBusy].
type Busy struct {
	// Proxies are, by member, the proxies with a slot under lease or held back
	// after one, in the order of uids. A member without any is not there.
	Proxies map[MemberID][]ProxyUID
	// Known is false while leases of an earlier hub may live that this one has
	// no record of: then a proxy that is not named may be leased all the same.
	Known bool
}

// Inventory answers [ReadInventory], in the order of ids.
type Inventory struct {
	// Fleets are those that have not been removed.
	Fleets  []Fleet
	Members []Member
	Proxies []Proxy
}

// Member is what the engine knows of a member.
type Member struct {
	ID      MemberID
	Suspect bool
	// Seen is when the hub last heard from it; zero for never.
	Seen time.Time
}

func (Granted) result()   {}
func (Renewed) result()   {}
func (Released) result()  {}
func (Reported) result()  {}
func (Found) result()     {}
func (Page) result()      {}
func (Done) result()      {}
func (Drained) result()   {}
func (Stats) result()     {}
func (UseList) result()   {}
func (Busy) result()      {}
func (Inventory) result() {}

// Notice is a volatile message about a live or just ended lease, for its
// holder's watch. Each is one of the structs below, by value.
type Notice interface {
	// Subject is the lease that the notice is about.
	Subject() Subject
}

// Subject says whose lease a notice is about.
type Subject struct {
	ID        ID
	Principal Principal
	Fleet     FleetID
	Proxy     ProxyUID
}

// Ended says that a lease ended without its holder: by time, with its proxy,
// or by an operator.
type Ended struct {
	Of    Subject
	State State
	At    time.Time
}

// Draining says that the lease's proxy drains, or that its deadline moved.
type Draining struct {
	Of       Subject
	Deadline time.Time
}

// ExitsChanged says that the lease's proxy now leaves by other exits.
type ExitsChanged struct {
	Of    Subject
	Exits []Exit
}

// Subject implements [Notice].
func (n Ended) Subject() Subject { return n.Of }

// Subject implements [Notice].
func (n Draining) Subject() Subject { return n.Of }

// Subject implements [Notice].
func (n ExitsChanged) Subject() Subject { return n.Of }
