package leaseapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// retryUnavailable is when to come back where the hub itself cannot know.
const retryUnavailable = 5 * time.Second

// refused turns an error of the keeper into one for callers. This is the only place where the engine's refusals meet
// those of the protocol.
func (s *service) refused(ctx context.Context, err error) error {
	var refusal *lease.Refusal
	switch {
	case errors.As(err, &refusal):
		return translate(refusal)
	case ctx.Err() != nil:
		// Whatever else went wrong, a keeper that stops under a caller who leaves: the interceptor knows what to say.
		return ctx.Err()
	case errors.Is(err, errWaitEnded):
		return fault.New(leasev1.Refusal_UNAVAILABLE, "this hub is stopping, or its clock stands still, so the wait for a lease has ended; try again",
			fault.Details{RetryAfter: time.Second})
	default:
		s.log.WarnContext(ctx, "the keeper does not answer", "err", err)
		return fault.New(leasev1.Refusal_UNAVAILABLE,
			"this hub does not answer for leases at the moment; try again, an Acquire with the same requestId",
			fault.Details{RetryAfter: retryUnavailable})
	}
}

// refusedLease is refused for calls that name a lease. Somebody else's lease and one that never was are answered alike, so
// that nobody finds out by trying which leases others have.
func (s *service) refusedLease(ctx context.Context, id lease.ID, err error) error {
	var refusal *lease.Refusal
	if errors.As(err, &refusal) && refusal.Reason == lease.NotHolder {
		return translate(lease.UnknownLease(id))
	}
	return s.refused(ctx, err)
}

func translate(r *lease.Refusal) *connect.Error {
	details := fault.Details{RetryAfter: r.RetryAfter, Matching: r.Matching, Cooling: r.Cooling, Busy: r.Busy}
	if field := apiField(r.Field); field != "" {
		details.Fields = []*leasev1.FieldViolation{{Field: field, Message: r.Message}}
	}
	return fault.New(reasonOf(r), r.Message, details)
}

// reasonOf returns the protocol's reason. The engine spells its reasons as the protocol does.
func reasonOf(r *lease.Refusal) leasev1.Refusal_Reason {
	if r.Reason == lease.InvalidRequest && r.Field == "request_id" {
		// What is wrong with an id by itself has been refused before; what is left is its second use.
		return leasev1.Refusal_REQUEST_ID_REUSED
	}
	return leasev1.Refusal_Reason(leasev1.Refusal_Reason_value[string(r.Reason)])
}

// apiFields are the engine's fields that are nested in the API's requests.
var apiFields = map[string]string{
	"labels": "selector.labels", "exit": "selector.exit",
	"outcome": "outcome.kind", "outcomes": "outcome", "pages": "outcome.pages", "retry_after": "outcome.retryAfter",
}

// apiField returns a field's path as it is written in JSON.
func apiField(field string) string {
	if path, ok := apiFields[field]; ok {
		return path
	}
	head, rest, _ := strings.Cut(field, "_")
	for rest != "" {
		var word string
		word, rest, _ = strings.Cut(rest, "_")
		head += strings.ToUpper(word[:1]) + word[1:]
	}
	return head
}

// unknownFleet answers for fleets that do not exist and for fleets that the caller may not use alike, so that nobody
// can find out by trying which fleets others have.
func unknownFleet(fleet string) error {
	return fault.New(leasev1.Refusal_UNKNOWN_FLEET, fmt.Sprintf(
		"there is no fleet %q, or this token may not lease from it; write namespace/name of a ProxyFleet that the token was created for", fleet),
		fault.Details{})
}

func invalidRequest(fields []*leasev1.FieldViolation) error {
	bad := invalidFields(fields)
	return fault.New(leasev1.Refusal_INVALID_REQUEST, bad.message, fault.Details{Fields: bad.fields})
}

func tooLargeBody() error {
	return fault.TooLarge(fmt.Sprintf("the request is larger than %d KiB, the most that is read; send less", MaxBody>>10))
}
