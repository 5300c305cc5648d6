package leaseclient

import (
	"context"
	"math/rand/v2"
	"time"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

const (
	// renewJitter is by how much earlier than renewAfter a renewal may come, so that leases that were made together are
	// not renewed together.
	renewJitter = 0.2
	// renewFloor keeps a lease that can hardly be extended any more from being renewed in a loop.
	renewFloor = time.Second
)

// renew keeps the lease until it ends. It runs on a goroutine of its own.
func (l *Lease) renew() {
	for {
		l.mu.Lock()
		expires, after := l.state.Expires, l.renewAfter
		l.mu.Unlock()
		wait := max(renewFloor, time.Duration((1-renewJitter*rand.Float64())*float64(after)))
		if l.untilDue(wait, expires) != nil {
			return
		}
		if err := l.renewUntil(expires); err != nil {
			if l.end(err) {
				l.client.forget(l)
				l.client.log.Warn("a lease is lost", "lease", l.ID(), "err", err)
			}
			return
		}
	}
}

// untilDue waits for the next renewal, or until something has happened that makes it due.
func (l *Lease) untilDue(wait time.Duration, expires time.Time) error {
	timer := time.NewTimer(min(wait, time.Until(expires)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case soon := <-l.due:
		return sleep(l.ctx, min(soon, time.Until(expires)))
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

// renewUntil renews once, however often that must be tried before the lease expires. An error is why the lease has
// ended.
func (l *Lease) renewUntil(expires time.Time) error {
	// The deadline is the lease's own, so it is checked here and not taken from an error.
	for repetition := 0; ; repetition++ {
		left := time.Until(expires)
		if left <= 0 {
			return ErrExpired
		}
		sent := time.Now()
		var answer *leasev1.RenewResponse
		err := l.client.once(l.ctx, 0, func(ctx context.Context) (err error) {
			ctx, cancel := context.WithTimeout(ctx, left)
			defer cancel()
			answer, err = l.client.service.Renew(ctx, &leasev1.RenewRequest{LeaseId: l.ID()})
			return err
		})
		switch {
		case err == nil:
			l.renewed(answer, sent)
			return nil
		case l.ctx.Err() != nil:
			return l.Err()
		case gone(err):
			return err
		}
		// Whatever else it is may be over before the lease is: a hub that restarts, a token that is being replaced.
		retryAfter, _ := worthRepeating(err)
		wait := l.client.retry.wait(repetition, retryAfter, rand.Float64())
		if sleep(l.ctx, min(wait, time.Until(expires))) != nil {
			return l.Err()
		}
	}
}

func (l *Lease) renewed(answer *leasev1.RenewResponse, sent time.Time) {
	l.mu.Lock()
	l.renewAfter = time.Duration(answer.GetRenewAfterSeconds()) * time.Second
	l.mu.Unlock()
	l.update(func(s *State) {
		s.Expires = sent.Add(time.Duration(answer.GetTtlSeconds()) * time.Second)
		s.Draining = answer.GetDraining()
		s.Limits = limitsOf(answer.GetLimits())
		s.ExitChanged = answer.GetExitChanged()
		if exit := answer.GetExit(); exit != "" {
			s.Exit = exit
		}
	})
}
