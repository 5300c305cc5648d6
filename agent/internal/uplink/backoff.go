package uplink

import (
	"errors"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shoal-dev/shoal/proto/session"
)

const (
	// backoffBase and backoffCap bound the wait before an attempt. The jitter is over the whole of it and comes after
	// the cap: else all who have reached the cap would come at once.
	backoffBase, backoffCap = time.Second, 10 * time.Second
	// slowLeast and slowMost bound the wait after an answer that only a person can change, or that another instance of
	// this agent has caused.
	slowLeast, slowMost = 10 * time.Second, 30 * time.Second
	// longestAsked bounds what a hub may ask to wait.
	longestAsked = 5 * time.Minute
	// steady is how long a session must have lasted to have been a good one.
	steady = 30 * time.Second
)

// pause returns how long to wait after err, on the attempt'th bad attempt in a row, counted from 0. random is in
// [0, 1).
func pause(err error, attempt int, random float64) time.Duration {
	if asked, ok := comeBackAfter(err); ok {
		// Those who are sent away together must not come back together.
		return asked + time.Duration(random*float64(asked))
	}
	if hopeless(err) {
		return slowLeast + time.Duration(random*float64(slowMost-slowLeast))
	}
	limit := backoffBase
	for ; attempt > 0 && limit < backoffCap; attempt-- {
		limit *= 2
	}
	return time.Duration(random * float64(min(limit, backoffCap)))
}

// hopeless tells whether trying again soon is no use.
func hopeless(err error) bool {
	var protocol *session.ProtocolError
	if errors.As(err, &protocol) {
		return true
	}
	var status *connect.Error
	if !errors.As(err, &status) {
		return false
	}
	switch status.Code() {
	case connect.CodeAborted, connect.CodeAlreadyExists, connect.CodeFailedPrecondition, connect.CodeInvalidArgument,
		connect.CodeNotFound, connect.CodePermissionDenied, connect.CodeUnauthenticated, connect.CodeUnimplemented:
		return true
	default:
		return false
	}
}

// comeBackAfter returns the time the hub has asked to wait.
func comeBackAfter(err error) (time.Duration, bool) {
	var status *connect.Error
	if !errors.As(err, &status) {
		return 0, false
	}
	for _, detail := range status.Details() {
		message, err := connectproto.UnmarshalErrorDetail(detail)
		if err != nil {
			continue
		}
		if d, ok := message.(*durationpb.Duration); ok && d.CheckValid() == nil && d.AsDuration() > 0 {
			return min(d.AsDuration(), longestAsked), true
		}
	}
	return 0, false
}

// stranger tells whether the hub says that the agent does not speak for the member, or not yet.
func stranger(err error) bool {
	var status *connect.Error
	if !errors.As(err, &status) {
		return false
	}
	return status.Code() == connect.CodePermissionDenied || status.Code() == connect.CodeFailedPrecondition
}
