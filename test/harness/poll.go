package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pollInterval is how often a condition is asked again.
const pollInterval = 200 * time.Millisecond

// Eventually asks until the condition has nothing to say against it, and fails the test with what it last said once the
// time is over. What is wanted goes into the failure: "the fleet is ready".
func Eventually(t *testing.T, timeout time.Duration, wanted string, condition func(ctx context.Context) error) {
	t.Helper()
	began := time.Now()
	if err := Until(t.Context(), timeout, condition); err != nil {
		t.Fatalf("waited %s for this: %s.\nNot so yet: %v", time.Since(began).Round(time.Second), wanted, err)
	}
	if waited := time.Since(began); waited > pollInterval {
		t.Logf("after %s: %s", waited.Round(100*time.Millisecond), wanted)
	}
}

// Until asks until the condition returns nil, and returns its last error once the time is over.
func Until(ctx context.Context, timeout time.Duration, condition func(ctx context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		err := condition(ctx)
		if err != nil && ctx.Err() != nil && last != nil {
			return false, nil // cut short by the deadline: what was seen before says more
		}
		last = err
		return err == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case last != nil:
		return last
	case wait.Interrupted(err):
		return errors.New("no answer at all in this time")
	}
	return err
}

// Stays asks for the whole time and returns the first objection, or nil if there is none.
func Stays(ctx context.Context, d time.Duration, condition func(ctx context.Context) error) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, d, true, func(ctx context.Context) (bool, error) {
		if err := condition(ctx); err != nil && ctx.Err() == nil {
			return false, err
		}
		return false, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("not for all of %s: %w", d, err)
}
