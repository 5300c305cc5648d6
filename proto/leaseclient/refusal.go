package leaseclient

import (
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

var (
	// ErrClosed is returned by a client that has been closed.
	ErrClosed = errors.New("leaseclient: the client is closed")
	// ErrReleased is why a lease has ended that was released.
	ErrReleased = errors.New("leaseclient: the lease was released")
	// ErrExpired is why a lease has ended that could not be renewed in time: the hub was not reached, or the lease has
	// come to its fleet's maxLifetime or to the end of its proxy's drain.
	ErrExpired = errors.New("leaseclient: the lease has expired")
)

// Refusal is what the hub answers in place of what was asked for. Programs branch on Reason; Message is for people and
// says what to do.
type Refusal struct {
	// Reason is why.
	Reason leasev1.Refusal_Reason
	// Message names the object, the cause and the way out.
	Message string
	// RetryAfter is when to come back. Zero says that waiting does not help.
	RetryAfter time.Duration
	// Matching counts the proxies that match the request, Cooling and Busy those of them that rest or are taken.
	Matching, Cooling, Busy int
	// Fields say what is wrong with the request, field by field.
	Fields []*leasev1.FieldViolation

	cause error
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("%s (%s)", r.Message, r.Reason) }

// Unwrap returns the error of Connect, with its code.
func (r *Refusal) Unwrap() error { return r.cause }

// ReasonOf returns the reason of the refusal that an error carries, or REASON_UNSPECIFIED.
func ReasonOf(err error) leasev1.Refusal_Reason {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.Reason
	}
	return leasev1.Refusal_REASON_UNSPECIFIED
}

// typed makes a [Refusal] of an error that carries one, and leaves others as they are.
func typed(err error) error {
	known, ok := fault.From(err)
	if !ok {
		return err
	}
	refusal := &Refusal{
		Reason: known.GetReason(), RetryAfter: known.GetRetryAfter().AsDuration(),
		Matching: int(known.GetMatching()), Cooling: int(known.GetCooling()), Busy: int(known.GetBusy()),
		Fields: known.GetFields(), cause: err,
	}
	if answer, ok := errors.AsType[*connect.Error](err); ok {
		refusal.Message = answer.Message()
	}
	return refusal
}

// gone says whether an error means that the lease is no longer this client's, whatever is tried.
func gone(err error) bool {
	switch ReasonOf(err) {
	case leasev1.Refusal_LEASE_EXPIRED, leasev1.Refusal_NOT_HOLDER:
		return true
	default:
		return false
	}
}

// unanswered says whether the hub may have done what was asked without this client knowing.
func unanswered(err error) bool {
	_, refused := errors.AsType[*Refusal](err)
	return err != nil && !refused
}
