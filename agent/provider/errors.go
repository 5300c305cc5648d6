package provider

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind classifies an error of a provider. What is not classified is KindUnavailable: to retry is better than to latch.
type Kind string

// The kinds of errors.
const (
	// KindNotFound means that there is no such instance.
	KindNotFound Kind = "NotFound"
	// KindAlreadyExists means that the name is taken by something that is not ours.
	KindAlreadyExists Kind = "AlreadyExists"
	// KindQuotaExceeded means that the owner's quota is used up. Waiting helps only if somebody frees or raises it.
	KindQuotaExceeded Kind = "QuotaExceeded"
	// KindCapacityExhausted means that the provider has no room where it was asked for.
	KindCapacityExhausted Kind = "CapacityExhausted"
	// KindThrottled means that the provider wants fewer calls; RetryAfter says when to come back.
	KindThrottled Kind = "Throttled"
	// KindInvalidSpec means that the request can never succeed as it is.
	KindInvalidSpec Kind = "InvalidSpec"
	// KindUnauthorized means that the agent may not do this.
	KindUnauthorized Kind = "Unauthorized"
	// KindUnavailable means that the provider did not answer, or not in a way that is understood.
	KindUnavailable Kind = "Unavailable"
)

// Error is an error of a provider.
type Error struct {
	// Kind is what callers branch on.
	Kind Kind
	// Op is the verb that failed, for people: "create pod".
	Op string
	// RetryAfter is when to come back, with KindThrottled; 0 where the provider did not say.
	RetryAfter time.Duration
	// Scope names what else the error holds for, with KindQuotaExceeded, KindCapacityExhausted and KindThrottled: "zone
	// europe-west1-b", "region europe-west1 IN_USE_ADDRESSES". Requests of the same scope wait together. What begins with
	// "zone NAME" holds for that zone only ([ZoneOf]); all else holds for the provider's entry in all of its zones. Empty
	// means this instance only.
	Scope string
	// Err is the cause.
	Err error
}

// Error says what failed and why.
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: %s", e.Op, e.Kind)
	}
	return fmt.Sprintf("%s: %v", e.Op, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error of a kind.
func Errorf(kind Kind, op, format string, args ...any) error {
	return &Error{Kind: kind, Op: op, Err: fmt.Errorf(format, args...)}
}

// KindOf gives an error's kind: "" for nil, KindUnavailable for an error that no provider classified.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindUnavailable
}

// IsNotFound says whether there is no such instance.
func IsNotFound(err error) bool { return KindOf(err) == KindNotFound }

// IsForeign says whether the name is taken by something that is not ours.
func IsForeign(err error) bool { return KindOf(err) == KindAlreadyExists }

// IsPermanent says whether the same request can never succeed: it is latched until the request changes. A name that is
// taken is not of that sort: whoever took it can give it back.
func IsPermanent(err error) bool { return KindOf(err) == KindInvalidSpec }

// RetryAfter gives the wait that a provider asked for, or 0.
func RetryAfter(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}

// ZoneOf gives the one zone that a scope holds for, and whether it holds for one zone only.
func ZoneOf(scope string) (zone string, only bool) {
	rest, only := strings.CutPrefix(scope, "zone ")
	zone, _, _ = strings.Cut(rest, " ")
	return zone, only
}

// ScopeOf gives what else an error holds for, or "".
func ScopeOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Scope
	}
	return ""
}
