package lease

import (
	"strconv"
	"time"
)

// Reason says why a command was refused. The names are part of the public
// API: they are added to, never changed.
type Reason string

// The reasons. The first block is about the pool and passes with time, the
// second is about the lease or the caller, the third about the command.
const (
	// NoMatch means that no proxy of the fleet fits the selector at all.
	NoMatch Reason = "NO_MATCH"
	// NoCapacity means that proxies fit, but all their slots are taken, or
	// none of them is ready.
	NoCapacity Reason = "NO_CAPACITY"
	// CoolingDown means that every usable proxy that fits has an exit that
	// is cooling down for the target.
	CoolingDown Reason = "COOLING_DOWN"
	// TargetGuarded means that bans on the target came in a burst and grants
	// for it pause, so that the rest of the pool is not burned.
	TargetGuarded Reason = "TARGET_GUARDED"
	// StaleInventory means that the hub does not know enough to grant: it
	// has not heard from the members, or it restarted without its history.
	StaleInventory Reason = "STALE_INVENTORY"
	// Quota means that the principal holds as many leases as it may.
	Quota Reason = "QUOTA"
	// TargetHeld means that an operator has paused the target in all fleets.
	TargetHeld Reason = "TARGET_PAUSED"
	// ReadOnly means that the journal takes no new leases. Renew, Release
	// and Report still work.
	ReadOnly Reason = "READ_ONLY"

	// LeaseExpired means that the lease has ended, or was never known.
	LeaseExpired Reason = "LEASE_EXPIRED"
	// NotHolder means that the lease belongs to another principal.
	NotHolder Reason = "NOT_HOLDER"
	// RevokedPrincipal means that an operator keeps the caller from leasing.
	RevokedPrincipal Reason = "REVOKED"

	// SessionLost means that the session's proxy is gone, or is on its way
	// out and never granted again.
	SessionLost Reason = "SESSION_LOST"

	// UnknownFleet means that there is no such fleet.
	UnknownFleet Reason = "UNKNOWN_FLEET"
	// InvalidRequest means that the command itself is wrong: Field and Message say
	// what to write instead.
	InvalidRequest Reason = "INVALID_REQUEST"
)

// Refusal is the only kind of error that Step returns. A refused command has
// changed nothing. The message goes to the caller as it is and holds nothing
// that is secret.
type Refusal struct {
	// Reason is what programs branch on.
	Reason Reason
	// Message is for people: it names the object, the cause and the way out.
	Message string
	// Field names the wrong field of an InvalidRequest, else "".
	Field string
	// RetryAfter is the time until the earliest moment that can change the
	// answer, at least a second. Zero means that waiting changes nothing.
	RetryAfter time.Duration
	// Matching counts the proxies of the fleet that fit the selector.
	Matching int
	// Cooling counts the usable ones among them that cool down for the target.
	Cooling int
	// Busy counts the usable ones among them that have no slot left, or wait
	// for their exits' pace.
	Busy int
	// Paced counts those of them whose exits bear no more leases for the
	// target now.
	Paced int
}

// Error returns the message.
func (r *Refusal) Error() string { return r.Message }

// invalid refuses a command for one of its fields.
func invalid(field, message string) *Refusal {
	return &Refusal{Reason: InvalidRequest, Field: field, Message: message}
}

// maxQuoted is how much of a caller's text a message repeats.
const maxQuoted = 80

// quote names a field with its value, shortened and escaped.
func quote(field, value string) string {
	if len(value) > maxQuoted {
		value = value[:maxQuoted] + "…"
	}
	return field + " " + strconv.Quote(value)
}

// humane writes a duration as people say it: "41s", "5m", "1h30m".
func humane(d time.Duration) string {
	if d < time.Second {
		return "1s"
	}
	d = (d + time.Second - 1).Truncate(time.Second)
	hours, minutes, seconds := int64(d/time.Hour), int64(d%time.Hour/time.Minute), int64(d%time.Minute/time.Second)
	text := ""
	if hours > 0 {
		text += strconv.FormatInt(hours, 10) + "h"
	}
	if minutes > 0 {
		text += strconv.FormatInt(minutes, 10) + "m"
	}
	if seconds > 0 && hours == 0 || text == "" {
		text += strconv.FormatInt(seconds, 10) + "s"
	}
	return text
}

// retryIn rounds the time until a moment up to whole seconds, at least one.
func retryIn(now, at int64) time.Duration {
	d := time.Duration(at - now)
	if d <= time.Second {
		return time.Second
	}
	return (d + time.Second - 1).Truncate(time.Second)
}
