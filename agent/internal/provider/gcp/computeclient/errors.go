package computeclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/api/googleapi"
)

// Error is a call that failed.
type Error struct {
	// Call is the call and what it was about: "instances.insert europe-west1-b/shoal-x".
	Call string
	// Status is the HTTP status; 0 where no answer came.
	Status int
	// Reason is Compute Engine's: rateLimitExceeded. A rate limit and a refusal differ in it alone.
	Reason string
	// RetryAfter is when to come back, where the answer said so.
	RetryAfter time.Duration
	// Err is the cause.
	Err error
}

// Error says what failed and why.
func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("%s: %v", e.Call, e.Err)
	}
	return fmt.Sprintf("%s: %d %s: %v", e.Call, e.Status, e.Reason, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// StatusOf gives the HTTP status of an error, or 0.
func StatusOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// IsNotFound says whether the thing asked for is not there.
func IsNotFound(err error) bool { return StatusOf(err) == http.StatusNotFound }

// translate takes the reason from where it is: the first error of the body. The client's APIError has none, and its gRPC
// code is that of a refusal for a rate limit.
func (c *Client) translate(call string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Call: call, Err: err}
	var answer *googleapi.Error
	if errors.As(err, &answer) {
		e.Status = answer.Code
		e.RetryAfter = retryAfter(answer.Header, c.o.Clock.Now())
		e.Err = errors.New(answer.Message)
		if len(answer.Errors) > 0 {
			e.Reason = answer.Errors[0].Reason
		}
	}
	return e
}

func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// outcome is an error in a word or two, for logs.
func outcome(err error) string {
	var e *Error
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &e) && e.Status != 0:
		return fmt.Sprintf("%d %s", e.Status, e.Reason)
	default:
		return "no answer"
	}
}
