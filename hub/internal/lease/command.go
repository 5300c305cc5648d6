package lease

import "time"

// Command is something the engine is told or asked. Each is one of the
// structs of this file, by value. Lease commands come from crawlers, inventory
// commands from the hub's own controllers, which are trusted.
type Command interface{ command() }

// Bounds of what callers may write.
const (
	// MaxCount bounds Acquire.Count.
	MaxCount = 100
	// MaxKeyBytes bounds request ids and session keys.
	MaxKeyBytes = 128
	// MaxLabels bounds the labels of a selector.
	MaxLabels = 16
	// MaxPageSize bounds List.PageSize, and DefaultPageSize is for 0.
	MaxPageSize     = 1000
	DefaultPageSize = 100
	// MaxSessionTTL bounds Acquire.SessionTTL.
	MaxSessionTTL = 24 * time.Hour
)

// Acquire asks for leases. It is answered by [Granted], or with Wait by
// [Waiting].
type Acquire struct {
	Principal Principal
	Fleet     FleetID
	Selector  Selector
	// Target is what the lease is for; proxies whose exits cool down for it
	// are passed over. The zero Target passes over none.
	Target Target
	// TTL is nil for the fleet's default. Zero is refused, as is more than
	// the fleet's maxTTL.
	TTL *time.Duration
	// Count is nil for 1; zero is refused. All are granted or none, unless
	// MinCount is given: then at least MinCount and at most Count.
	Count    *int
	MinCount *int
	// SessionKey asks for the proxy that the same principal and key had in
	// this fleet before, as long as the session lives.
	SessionKey string
	// SessionTTL is how long the session outlives this Acquire: nil for the
	// fleet's maxLifetime.
	SessionTTL *time.Duration
	// AllowMove binds the session to another proxy if its own cannot be had,
	// where it would be refused otherwise.
	AllowMove bool
	// Exclusive takes all slots of a proxy that has none taken.
	Exclusive bool
	// Network asks for an endpoint in this network: "" for any.
	Network Network
	// RequestID makes the command safe to repeat: "" for not.
	RequestID RequestID
	// Wait is how long to wait, at most [MaxWait], where the Acquire would be
	// refused for a reason that can pass: see Waiting in the documentation of
	// the package. It is no part of what RequestID identifies.
	Wait time.Duration
}

// Renew extends a lease to now + TTL, capped by the fleet's maxLifetime and,
// on a draining proxy, by the drain deadline. It is answered by [Renewed].
type Renew struct {
	Principal Principal
	ID        ID
	// TTL is nil for what the lease was granted with.
	TTL *time.Duration
}

// Release ends a lease. It is answered by [Released], also the second time.
type Release struct {
	Principal Principal
	ID        ID
	// Outcome is an optional last report.
	Outcome *Observation
}

// Report tells how fetches went. It is accepted until 10 min after the end of
// the lease, and answered by [Reported]. Reports are facts about exits and
// targets, so the order in which they arrive changes nothing for the worse: an
// ok never lifts a ban.
type Report struct {
	Principal    Principal
	ID           ID
	Observations []Observation
}

// Observation is the outcome of fetches from one target.
type Observation struct {
	// Target is the zero Target for the lease's own.
	Target  Target
	Outcome Outcome
	// Pages counts the pages of an OK; 0 means one.
	Pages int
	// RetryAfter is what the target asked for with RateLimited; zero means
	// that it did not say.
	RetryAfter time.Duration
}

// Outcome is how a fetch went.
type Outcome uint8

// The outcomes.
const (
	outcomeUnset Outcome = iota
	// OK means that the page came.
	OK
	// Blocked and Captcha are bans: the exit rests for the target.
	Blocked
	Captcha
	// RateLimited rests the exit for as long as the target asked.
	RateLimited
	// TargetError is the target's own fault: nothing follows.
	TargetError
	// ProxyError and Timeout are counted against the proxy; whether it works
	// is for its agent's probes to judge.
	ProxyError
	Timeout
)

var outcomeNames = [...]string{
	OK: "ok", Blocked: "blocked", Captcha: "captcha", RateLimited: "rate_limited",
	TargetError: "target_error", ProxyError: "proxy_error", Timeout: "timeout",
}

// String returns the name as the API writes it.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) && o != outcomeUnset {
		return outcomeNames[o]
	}
	return "unknown"
}

// Get asks for a lease of the principal. It is answered by [Found].
type Get struct {
	Principal Principal
	ID        ID
}

// List asks for the proxies of a fleet in the order of their uids. It is
// answered by [Page].
type List struct {
	Fleet    FleetID
	Selector Selector
	Network  Network
	// Target adds to each proxy whether it cools down for it.
	Target Target
	// PageSize is 0 for the default.
	PageSize int
	// After is the Next of the page before: "" for the first page.
	After ProxyUID
	// Only asks for these proxies and no others, at most MaxPageSize, in any
	// order and on one page. Those that are not there are left out. The cost
	// is by their number, whatever the size of the fleet.
	Only []ProxyUID
}

// ReadStats asks for the counts of a fleet. It is answered by [Stats], and
// costs the same in a fleet of any size.
type ReadStats struct{ Fleet FleetID }

// ReadUse asks how each proxy of a fleet is used, for the choice of those to
// remove. It is answered by [UseList].
type ReadUse struct{ Fleet FleetID }

// ReadBusy asks which proxies are leased, of all members. It is answered by
// [Busy], and costs a look at each proxy.
type ReadBusy struct{}

// ReadInventory asks for everything that the inventory commands have told, in
// this life of the hub or in an earlier one. It is answered by [Inventory].
type ReadInventory struct{}

// SetFleet creates a fleet or changes its policy. Leases keep what they were
// granted with; slots change at once, and taken ones are never cut. Like the
// other inventory commands it is answered by [Done] unless it says otherwise.
type SetFleet struct{ Fleet Fleet }

// RemoveFleet forgets a fleet's policy: nothing is granted or renewed any
// more. Leases run to their end or to their proxy's.
type RemoveFleet struct{ ID FleetID }

// UpsertProxy adds a proxy or replaces what is known of it. Its leases stay.
// A proxy may come before its fleet and before its member.
type UpsertProxy struct{ Proxy Proxy }

// RemoveProxy ends the leases of a proxy and forgets it. Removing an unknown
// one is fine.
type RemoveProxy struct{ UID ProxyUID }

// Drain stops granting a proxy's slots, for good. With OnlyIdle it does so
// only if the proxy has no lease, in one step with the check, so that no
// Acquire can come between. It is answered by [Drained].
type Drain struct {
	UID      ProxyUID
	Deadline time.Time
	OnlyIdle bool
}

// SetMember says whether a member is suspect: then nothing on it is granted.
type SetMember struct {
	ID      MemberID
	Suspect bool
}

// Touch says that the hub has heard from a member. All proxies of a member
// are as fresh as the last word from it.
type Touch struct {
	ID MemberID
	// At is when; zero means now.
	At time.Time
}

// SetReadOnly stops or resumes grants when the journal has no room for them.
type SetReadOnly struct {
	On bool
	// Why goes into the refusals' message, as in "the journal's disk is full".
	Why string
}

func (Acquire) command()       {}
func (Renew) command()         {}
func (Release) command()       {}
func (Report) command()        {}
func (Get) command()           {}
func (List) command()          {}
func (ReadStats) command()     {}
func (ReadUse) command()       {}
func (ReadBusy) command()      {}
func (ReadInventory) command() {}
func (SetFleet) command()      {}
func (RemoveFleet) command()   {}
func (UpsertProxy) command()   {}
func (RemoveProxy) command()   {}
func (Drain) command()         {}
func (SetMember) command()     {}
func (Touch) command()         {}
func (SetReadOnly) command()   {}
