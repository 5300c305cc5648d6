package computeclient

import (
	"errors"
	"net/http"
	"slices"
	"time"

	gax "github.com/googleapis/gax-go/v2"
	"google.golang.org/api/googleapi"
)

// attempts bounds how often a read is made. Without a bound the client would go on until the context ends.
const attempts = 3

// retried is the option of every read: lists would not be retried at all, and others without end. Writes are never
// retried here: whoever asked looks first.
func retried() gax.CallOption {
	return gax.WithRetry(func() gax.Retryer {
		return &retryer{left: attempts - 1, backoff: gax.Backoff{Initial: 100 * time.Millisecond, Max: 2 * time.Second, Multiplier: 3}}
	})
}

type retryer struct {
	left    int
	backoff gax.Backoff
}

// Retry says when to try again.
func (r *retryer) Retry(err error) (time.Duration, bool) {
	var answer *googleapi.Error
	again := errors.As(err, &answer) && slices.Contains([]int{
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}, answer.Code)
	if !again || r.left == 0 {
		return 0, false
	}
	r.left--
	return r.backoff.Pause(), true
}
