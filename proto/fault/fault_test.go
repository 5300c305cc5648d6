package fault_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// want is the public contract: clients in other languages branch on these codes, so a change here is a break.
var want = map[leasev1.Refusal_Reason]struct {
	code   connect.Code
	status int
}{
	leasev1.Refusal_REASON_UNSPECIFIED: {connect.CodeInternal, 500},
	leasev1.Refusal_NO_MATCH:           {connect.CodeNotFound, 404},
	leasev1.Refusal_NO_CAPACITY:        {connect.CodeResourceExhausted, 429},
	leasev1.Refusal_COOLING_DOWN:       {connect.CodeResourceExhausted, 429},
	leasev1.Refusal_TARGET_GUARDED:     {connect.CodeResourceExhausted, 429},
	leasev1.Refusal_STALE_INVENTORY:    {connect.CodeUnavailable, 503},
	leasev1.Refusal_QUOTA:              {connect.CodeResourceExhausted, 429},
	leasev1.Refusal_TARGET_PAUSED:      {connect.CodeResourceExhausted, 429},
	leasev1.Refusal_LEASE_EXPIRED:      {connect.CodeFailedPrecondition, 410},
	leasev1.Refusal_NOT_HOLDER:         {connect.CodePermissionDenied, 403},
	leasev1.Refusal_REVOKED:            {connect.CodePermissionDenied, 403},
	leasev1.Refusal_FORBIDDEN:          {connect.CodePermissionDenied, 403},
	leasev1.Refusal_UNKNOWN_FLEET:      {connect.CodeNotFound, 404},
	leasev1.Refusal_READ_ONLY:          {connect.CodeUnavailable, 503},
	leasev1.Refusal_INVALID_REQUEST:    {connect.CodeInvalidArgument, 400},
	leasev1.Refusal_REQUEST_ID_REUSED:  {connect.CodeAlreadyExists, 409},
	leasev1.Refusal_UNAUTHENTICATED:    {connect.CodeUnauthenticated, 401},
	leasev1.Refusal_SESSION_LOST:       {connect.CodeFailedPrecondition, 409},
	leasev1.Refusal_UNAVAILABLE:        {connect.CodeUnavailable, 503},
}

func TestEveryReason(t *testing.T) {
	for number, name := range leasev1.Refusal_Reason_name {
		t.Run(name, func(t *testing.T) {
			reason := leasev1.Refusal_Reason(number)
			expected, ok := want[reason]
			if !ok {
				t.Fatalf("%s has no expected code and status: decide them in fault.go and here", name)
			}
			err := fault.New(reason, "why", fault.Details{})
			if err.Code() != expected.code || fault.CodeOf(reason) != expected.code {
				t.Errorf("code = %v and %v, want %v", err.Code(), fault.CodeOf(reason), expected.code)
			}
			if got := fault.HTTPStatus(err); got != expected.status {
				t.Errorf("HTTP status = %d, want %d", got, expected.status)
			}
			if got := fault.ReasonOf(err); got != reason {
				t.Errorf("reason = %v, want %v", got, reason)
			}
			if err.Message() != "why" {
				t.Errorf("message = %q, want it as given", err.Message())
			}
		})
	}
	if len(want) != len(leasev1.Refusal_Reason_name) {
		t.Errorf("%d reasons are expected, the protocol has %d", len(want), len(leasev1.Refusal_Reason_name))
	}
}

func TestDetailsSurvive(t *testing.T) {
	err := fault.New(leasev1.Refusal_COOLING_DOWN, "all 9 exits rest", fault.Details{
		RetryAfter: 41 * time.Second, Matching: 12, Cooling: 9, Busy: 3,
		Fields: []*leasev1.FieldViolation{{Field: "target", Message: "rests"}},
	})
	expected := &leasev1.Refusal{
		Reason: leasev1.Refusal_COOLING_DOWN, RetryAfter: durationpb.New(41 * time.Second), Matching: 12, Cooling: 9, Busy: 3,
		Fields: []*leasev1.FieldViolation{{Field: "target", Message: "rests"}},
	}
	// Wrapped, as it is when a client adds what it was doing.
	got, ok := fault.From(fmt.Errorf("acquire: %w", err))
	if !ok {
		t.Fatal("the refusal is lost")
	}
	if diff := cmp.Diff(expected, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestNoRetryAfterWhereWaitingDoesNotHelp(t *testing.T) {
	got, _ := fault.From(fault.New(leasev1.Refusal_NO_MATCH, "none", fault.Details{}))
	if got.RetryAfter != nil {
		t.Errorf("retryAfter = %v, want it absent: zero would say to come back at once", got.RetryAfter)
	}
}

func TestTooLarge(t *testing.T) {
	err := fault.TooLarge("the body is larger than 64 KiB")
	if err.Code() != connect.CodeResourceExhausted || fault.HTTPStatus(err) != http.StatusRequestEntityTooLarge {
		t.Errorf("code = %v, status = %d, want resource_exhausted and 413", err.Code(), fault.HTTPStatus(err))
	}
	if got := fault.ReasonOf(err); got != leasev1.Refusal_INVALID_REQUEST {
		t.Errorf("reason = %v, want INVALID_REQUEST: repeating it is useless", got)
	}
}

func TestWithoutRefusal(t *testing.T) {
	tests := map[string]struct {
		reason string
		err    error
		status int
	}{
		"Plain":         {"not authored for callers", errors.New("disk"), 500},
		"Unimplemented": {"a method of a later version", connect.NewError(connect.CodeUnimplemented, "no"), 501},
		"Deadline":      {"the caller's own timeout", connect.NewError(connect.CodeDeadlineExceeded, "late"), 504},
		"ForeignDetail": {
			"details of other services are passed over",
			connect.NewError(connect.CodeAborted, "no").WithDetail(&connect.ErrorDetail{Type: "example.Other", Value: []byte{1}}), 409,
		},
		"UnknownCode": {"a code of a later version", connect.NewError(connect.Code(99), "new"), 500},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if refusal, ok := fault.From(test.err); ok {
				t.Errorf("found the refusal %v (%s)", refusal, test.reason)
			}
			if got := fault.HTTPStatus(test.err); got != test.status {
				t.Errorf("status = %d, want %d (%s)", got, test.status, test.reason)
			}
		})
	}
}

func TestEveryCodeHasAStatus(t *testing.T) {
	for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
		got := fault.HTTPStatus(connect.NewError(code, "x"))
		if got < 400 || got > 599 {
			t.Errorf("status of %v = %d, want an error", code, got)
		}
		if got == 500 && code != connect.CodeUnknown && code != connect.CodeInternal && code != connect.CodeDataLoss {
			t.Errorf("status of %v = 500, want one that says what happened", code)
		}
	}
}

func TestUnknownReason(t *testing.T) {
	err := fault.New(leasev1.Refusal_Reason(999), "from the future", fault.Details{})
	if err.Code() != connect.CodeInternal || fault.HTTPStatus(err) != 500 {
		t.Errorf("code = %v, status = %d, want internal and 500", err.Code(), fault.HTTPStatus(err))
	}
}
