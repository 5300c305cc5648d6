package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// pollInterval is how often a condition is asked again.
	pollInterval = 200 * time.Millisecond
	// lastAnswer is how long the last answer may take beyond the time in which there should have been a good one: cut
	// short, it would say nothing.
	lastAnswer = 10 * time.Second
)

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
	asking, cancel := context.WithTimeout(ctx, timeout+lastAnswer)
	defer cancel()
	last := errors.New("it was not asked in time")
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(context.Context) (bool, error) {
		last = condition(asking)
		return last == nil, nil
	})
	if wait.Interrupted(err) {
		return last
	}
	return err
}

// Stays asks for the whole time and returns the first objection, or nil if there is none.
func Stays(ctx context.Context, d time.Duration, condition func(ctx context.Context) error) error {
	asking, cancel := context.WithTimeout(ctx, d+lastAnswer)
	defer cancel()
	err := wait.PollUntilContextTimeout(ctx, pollInterval, d, true, func(context.Context) (bool, error) {
		return false, condition(asking)
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("not for all of %s: %w", d, err)
}
