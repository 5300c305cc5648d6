package fault

import (
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/types/known/durationpb"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// class is what one reason is called by Connect, gRPC and gRPC-Web, and by plain HTTP.
type class struct {
	code   connect.Code
	status int
}

// classes names every reason once. The statuses answer the question "what should a client do": 429 and 503 are worth
// repeating after Retry-After (the pool's state, the hub's state), all others are not worth repeating unchanged.
var classes = map[leasev1.Refusal_Reason]class{
	// A refusal without a reason is a mistake of the hub.
	leasev1.Refusal_REASON_UNSPECIFIED: {connect.CodeInternal, http.StatusInternalServerError},

	// Nothing in the fleet has what was asked for, so the way out is another selector or fleet, not patience.
	leasev1.Refusal_NO_MATCH:      {connect.CodeNotFound, http.StatusNotFound},
	leasev1.Refusal_UNKNOWN_FLEET: {connect.CodeNotFound, http.StatusNotFound},

	leasev1.Refusal_NO_CAPACITY:    {connect.CodeResourceExhausted, http.StatusTooManyRequests},
	leasev1.Refusal_COOLING_DOWN:   {connect.CodeResourceExhausted, http.StatusTooManyRequests},
	leasev1.Refusal_TARGET_GUARDED: {connect.CodeResourceExhausted, http.StatusTooManyRequests},
	leasev1.Refusal_QUOTA:          {connect.CodeResourceExhausted, http.StatusTooManyRequests},
	leasev1.Refusal_TARGET_PAUSED:  {connect.CodeResourceExhausted, http.StatusTooManyRequests},

	leasev1.Refusal_STALE_INVENTORY: {connect.CodeUnavailable, http.StatusServiceUnavailable},
	leasev1.Refusal_READ_ONLY:       {connect.CodeUnavailable, http.StatusServiceUnavailable},
	leasev1.Refusal_UNAVAILABLE:     {connect.CodeUnavailable, http.StatusServiceUnavailable},

	leasev1.Refusal_INVALID_REQUEST: {connect.CodeInvalidArgument, http.StatusBadRequest},
	leasev1.Refusal_UNAUTHENTICATED: {connect.CodeUnauthenticated, http.StatusUnauthorized},
	leasev1.Refusal_NOT_HOLDER:      {connect.CodePermissionDenied, http.StatusForbidden},
	leasev1.Refusal_REVOKED:         {connect.CodePermissionDenied, http.StatusForbidden},
	leasev1.Refusal_FORBIDDEN:       {connect.CodePermissionDenied, http.StatusForbidden},

	// The lease existed and will never come back: that is what Gone means, where 404 would suggest a wrong id.
	leasev1.Refusal_LEASE_EXPIRED: {connect.CodeFailedPrecondition, http.StatusGone},
	// Both contradict what the hub remembers from an earlier call.
	leasev1.Refusal_REQUEST_ID_REUSED: {connect.CodeAlreadyExists, http.StatusConflict},
	leasev1.Refusal_SESSION_LOST:      {connect.CodeFailedPrecondition, http.StatusConflict},
}

// statuses is for errors without a refusal, by their code.
var statuses = map[connect.Code]int{
	connect.CodeCanceled:           499, // the client went away; nobody reads it, but access logs do
	connect.CodeUnknown:            http.StatusInternalServerError,
	connect.CodeInvalidArgument:    http.StatusBadRequest,
	connect.CodeDeadlineExceeded:   http.StatusGatewayTimeout,
	connect.CodeNotFound:           http.StatusNotFound,
	connect.CodeAlreadyExists:      http.StatusConflict,
	connect.CodePermissionDenied:   http.StatusForbidden,
	connect.CodeResourceExhausted:  http.StatusTooManyRequests,
	connect.CodeFailedPrecondition: http.StatusConflict,
	connect.CodeAborted:            http.StatusConflict,
	connect.CodeOutOfRange:         http.StatusBadRequest,
	connect.CodeUnimplemented:      http.StatusNotImplemented,
	connect.CodeInternal:           http.StatusInternalServerError,
	connect.CodeUnavailable:        http.StatusServiceUnavailable,
	connect.CodeDataLoss:           http.StatusInternalServerError,
	connect.CodeUnauthenticated:    http.StatusUnauthorized,
}

// Details are the optional parts of a refusal.
type Details struct {
	// RetryAfter is when to come back; zero says that waiting does not help.
	RetryAfter time.Duration
	// Matching counts the proxies that match the request, Cooling and Busy those of them that rest or are taken.
	Matching, Cooling, Busy int
	// Fields say what is wrong with the request, field by field.
	Fields []*leasev1.FieldViolation
}

// New returns the error for a refusal. The message goes to the caller on every protocol: it names the object, the
// cause and the way out, and holds nothing that is secret. A reason that this version does not know becomes an
// internal error.
func New(reason leasev1.Refusal_Reason, message string, details Details) *connect.Error {
	known, ok := classes[reason]
	if !ok {
		known = classes[leasev1.Refusal_REASON_UNSPECIFIED]
	}
	return newError(known.code, reason, message, details)
}

// TooLarge returns the error for a request that exceeds a size limit, which the message names. It is an
// INVALID_REQUEST, as repeating it is useless, with the code that Connect and gRPC use for messages beyond a limit;
// on plain HTTP it is 413.
func TooLarge(message string) *connect.Error {
	return newError(connect.CodeResourceExhausted, leasev1.Refusal_INVALID_REQUEST, message, Details{})
}

func newError(code connect.Code, reason leasev1.Refusal_Reason, message string, details Details) *connect.Error {
	refusal := &leasev1.Refusal{
		Reason:   reason,
		Matching: int32(details.Matching),
		Cooling:  int32(details.Cooling),
		Busy:     int32(details.Busy),
		Fields:   details.Fields,
	}
	if details.RetryAfter > 0 {
		refusal.RetryAfter = durationpb.New(details.RetryAfter)
	}
	err := connect.NewError(code, message)
	detail, packErr := connectproto.NewErrorDetail(refusal)
	if packErr != nil {
		// Only a message that is not UTF-8 cannot be packed. The code still tells the client what to do.
		return err.WithCause(packErr)
	}
	return err.WithDetail(detail)
}

// From returns the refusal that an error carries, on either side of the wire, and false if there is none.
func From(err error) (*leasev1.Refusal, bool) {
	var connectErr *connect.Error
	if !errors.As(err, &connectErr) {
		return nil, false
	}
	for _, detail := range connectErr.Details() {
		msg, unpackErr := connectproto.UnmarshalErrorDetail(detail)
		if unpackErr != nil {
			continue
		}
		if refusal, ok := msg.(*leasev1.Refusal); ok {
			return refusal, true
		}
	}
	return nil, false
}

// ReasonOf returns the reason of the refusal that an error carries, or REASON_UNSPECIFIED.
func ReasonOf(err error) leasev1.Refusal_Reason {
	refusal, _ := From(err)
	return refusal.GetReason()
}

// CodeOf returns the Connect code of a reason; internal for one that this version does not know.
func CodeOf(reason leasev1.Refusal_Reason) connect.Code {
	known, ok := classes[reason]
	if !ok {
		return connect.CodeInternal
	}
	return known.code
}

// HTTPStatus returns the status of an error on plain HTTP: by its refusal, else by its Connect code, else 500.
func HTTPStatus(err error) int {
	code := connect.CodeOf(err)
	if refusal, ok := From(err); ok {
		if refusal.GetReason() == leasev1.Refusal_INVALID_REQUEST && code == connect.CodeResourceExhausted {
			return http.StatusRequestEntityTooLarge
		}
		if known, ok := classes[refusal.GetReason()]; ok && known.code == code {
			return known.status
		}
	}
	if status, ok := statuses[code]; ok {
		return status
	}
	return http.StatusInternalServerError
}
