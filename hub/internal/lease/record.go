package lease

import "time"

// Record is a durable fact. The engine changes state by records only: Step
// decides what is true from now on, and Apply makes it so, in a live engine
// and in a replay alike. Records are absolute (they say until when, not how
// much longer) and in the order of their times.
//
// Each is a pointer to one of the structs of this file. They are not changed
// once they are in an Output.
type Record interface {
	// When is the engine's time of the record.
	When() time.Time
}

// FleetSet records a fleet and its policy, defaults filled in.
type FleetSet struct {
	At    time.Time
	Fleet Fleet
}

// FleetRemoved records that a fleet is gone.
type FleetRemoved struct {
	At time.Time
	ID FleetID
}

// ProxySet records what a grant needs to know of a proxy.
type ProxySet struct {
	At    time.Time
	Proxy Proxy
}

// ProxyRemoved records that a proxy is gone, and with it its leases.
type ProxyRemoved struct {
	At  time.Time
	UID ProxyUID
}

// MemberSeen records what is known of a member, at most twice per freshness
// window unless Suspect changes.
type MemberSeen struct {
	At      time.Time
	ID      MemberID
	Suspect bool
	Seen    time.Time
}

// LeasesGranted records one Acquire. All its leases are one record, because
// all or none are granted.
type LeasesGranted struct {
	At        time.Time
	Principal Principal
	Fleet     FleetID
	Target    Target
	Network   Network
	Exclusive bool
	TTL       time.Duration
	Expires   time.Time
	// LifetimeEnd is the latest that renewals can reach.
	LifetimeEnd time.Time
	Leases      []GrantedLease
	// RequestID and Fingerprint of the command remember it, if it had an id.
	RequestID   RequestID
	Fingerprint [32]byte
	// SessionKey binds the session to the first lease's proxy.
	SessionKey   string
	SessionUntil time.Time
}

// GrantedLease is one lease of a LeasesGranted.
type GrantedLease struct {
	ID    ID
	Token FencingToken
	Proxy ProxyUID
	// Slots are what it takes: one, or all if it is exclusive.
	Slots int
}

// Extended records a renewal.
type Extended struct {
	At      time.Time
	ID      ID
	Expires time.Time
}

// Finished records that a lease was released or expired. Its slots
// are free from HeldUntil on.
type Finished struct {
	At        time.Time
	ID        ID
	State     State
	HeldUntil time.Time
}

// ExitCooled records a ban or a rate limit: the exit rests for the target key
// until then.
type ExitCooled struct {
	At     time.Time
	Exit   Exit
	Target string
	Until  time.Time
	// Banned tells a ban from a rate limit.
	Banned bool
	// Strikes counts bans in a row, and Rest is the length of the last
	// cooldown: after Until, each Rest without a ban forgives one strike.
	Strikes int
	Rest    time.Duration
}

// PaceLearned records what was learnt of the pace that a target tolerates from
// an exit: at each refusal, and otherwise at most once a minute for each pair
// and only if the rate has changed by a fifth.
type PaceLearned struct {
	At     time.Time
	Exit   Exit
	Target string
	// Rate is in pages per second, Limit the one that was refused last, 0 for
	// none, and Borne what was used on average before that.
	Rate  float64
	Limit float64
	Borne float64
	// RefusedAt is when, and Streak counts refusals in a row.
	RefusedAt time.Time
	Streak    int
	// LastPage is when a page last came.
	LastPage time.Time
	// PerLease is how many pages a lease for the target brings, on average; 0
	// if that is not known yet.
	PerLease float64
}

// TargetPaused records that grants of a fleet for a target key pause.
type TargetPaused struct {
	At     time.Time
	Fleet  FleetID
	Target string
	Until  time.Time
}

// TargetHalted records that an operator has paused a target key in all fleets.
type TargetHalted struct {
	At     time.Time
	Target string
	Until  time.Time // zero means until it is resumed
	Why    string
}

// TargetResumed records that an operator has ended such a pause.
type TargetResumed struct {
	At     time.Time
	Target string
}

// RevocationSet records that an operator has revoked a principal, on a proxy
// or, without one, everywhere.
type RevocationSet struct {
	At        time.Time
	Principal Principal
	Proxy     ProxyUID
	Until     time.Time
	Why       string
}

// RevocationLifted records that a revocation is no more.
type RevocationLifted struct {
	At        time.Time
	Principal Principal
	Proxy     ProxyUID
}

// CooldownCleared records that an operator has lifted an exit's rest for a
// target key, with its strikes.
type CooldownCleared struct {
	At     time.Time
	Exit   Exit
	Target string
}

// When implements [Record].
func (r *FleetSet) When() time.Time { return r.At }

// When implements [Record].
func (r *FleetRemoved) When() time.Time { return r.At }

// When implements [Record].
func (r *ProxySet) When() time.Time { return r.At }

// When implements [Record].
func (r *ProxyRemoved) When() time.Time { return r.At }

// When implements [Record].
func (r *MemberSeen) When() time.Time { return r.At }

// When implements [Record].
func (r *LeasesGranted) When() time.Time { return r.At }

// When implements [Record].
func (r *Extended) When() time.Time { return r.At }

// When implements [Record].
func (r *Finished) When() time.Time { return r.At }

// When implements [Record].
func (r *ExitCooled) When() time.Time { return r.At }

// When implements [Record].
func (r *PaceLearned) When() time.Time { return r.At }

// When implements [Record].
func (r *TargetPaused) When() time.Time { return r.At }

// When implements [Record].
func (r *TargetHalted) When() time.Time { return r.At }

// When implements [Record].
func (r *TargetResumed) When() time.Time { return r.At }

// When implements [Record].
func (r *RevocationSet) When() time.Time { return r.At }

// When implements [Record].
func (r *RevocationLifted) When() time.Time { return r.At }

// When implements [Record].
func (r *CooldownCleared) When() time.Time { return r.At }
