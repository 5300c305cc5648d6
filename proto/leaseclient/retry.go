package leaseclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect/v2"
)

// Defaults of [Retry] and of [Options].
const (
	// DefaultBase is a fifth of what a leader's change takes at best, and far above a call's own time.
	DefaultBase = 200 * time.Millisecond
	// DefaultMax is the hub's own first guess of when to come back, twice.
	DefaultMax = 10 * time.Second
	// DefaultPatience covers a hub's failover several times over; most cooldowns are longer, and told at once.
	DefaultPatience = time.Minute
	// DefaultCallTimeout is some thousand times what a call takes.
	DefaultCallTimeout = 10 * time.Second
)

// Retry is how a call is repeated that the hub refused for the time being, or did not answer. The wait before the n-th
// repetition is what the hub said (retryAfter), plus a random time of up to Base·2ⁿ and at most Max.
type Retry struct {
	// Base is the greatest random wait before the first repetition; [DefaultBase] if it is zero.
	Base time.Duration
	// Max bounds the random part of a wait; [DefaultMax] if it is zero.
	Max time.Duration
	// Patience bounds all repetitions of a call. A refusal whose retryAfter lies beyond it, or beyond the deadline of
	// the context, is returned at once. [DefaultPatience] if it is zero; calls are not repeated if it is negative.
	Patience time.Duration
}

func (r Retry) orDefault() Retry {
	if r.Base <= 0 {
		r.Base = DefaultBase
	}
	if r.Max <= 0 {
		r.Max = DefaultMax
	}
	if r.Patience == 0 {
		r.Patience = DefaultPatience
	}
	return r
}

// wait is the time until the next repetition. share is random, in [0, 1).
func (r Retry) wait(repetition int, retryAfter time.Duration, share float64) time.Duration {
	ceiling := r.Max
	if shifted := r.Base << min(repetition, 30); shifted > 0 && shifted < ceiling {
		ceiling = shifted
	}
	return retryAfter + time.Duration(share*float64(ceiling))
}

// worthRepeating says whether the same call may succeed later, and not before when.
func worthRepeating(err error) (retryAfter time.Duration, worth bool) {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return refusal.RetryAfter, refusal.RetryAfter > 0
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		// Somebody has to be told whom to trust.
		return 0, false
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeAborted, connect.CodeInternal, connect.CodeUnknown:
		// The network, something between, or the hub's own mishap. All calls of this package may be made twice.
		return 0, true
	default:
		return 0, false
	}
}

// repeat makes a call until it succeeds, cannot succeed, or patience or the context end. It returns the last error of
// the call; one of the context is joined to it.
func (c *Client) repeat(ctx context.Context, patience time.Duration, call func(ctx context.Context) error) error {
	return c.repeatWaiting(ctx, patience, 0, call)
}

// repeatWaiting is repeat for a call that asks the hub to hold back its answer for as long as hold.
func (c *Client) repeatWaiting(ctx context.Context, patience, hold time.Duration, call func(ctx context.Context) error) error {
	begun := time.Now()
	for repetition := 0; ; repetition++ {
		err := c.once(ctx, hold, call)
		if err == nil {
			return nil
		}
		if ended := context.Cause(ctx); ended != nil {
			return joined(ended, err)
		}
		retryAfter, worth := worthRepeating(err)
		if !worth {
			return err
		}
		wait := c.retry.wait(repetition, retryAfter, rand.Float64())
		if time.Since(begun)+wait > patience {
			return err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return err
		}
		if ended := sleep(ctx, wait); ended != nil {
			return joined(ended, err)
		}
	}
}

// once makes a call with a timeout of its own, so that one lost answer does not eat up the patience. Hold is how long the
// hub may let it wait.
func (c *Client) once(ctx context.Context, hold time.Duration, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.callTimeout+hold)
	defer cancel()
	return typed(call(ctx))
}

// joined says that the context ended, and what the hub had said before.
func joined(ended, last error) error {
	if errors.Is(last, ended) {
		return last
	}
	return fmt.Errorf("%w; before that: %w", ended, last)
}

// sleep waits, or returns why the context has ended.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
