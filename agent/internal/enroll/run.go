package enroll

import (
	"context"
	"errors"
	"time"
)

// When to renew.
const (
	// renewFrom and renewSpread give the part of a certificate's life that is left when it is renewed: 20 to 25 %, a
	// little different for each agent, so that agents that joined together do not renew together.
	renewFrom   = 0.20
	renewSpread = 0.05
	// recheck bounds every wait: timers stand still while a machine sleeps, certificates do not.
	recheck = 10 * time.Minute
	// renewRetryCap bounds the wait after a renewal that failed. There are hours left for it.
	renewRetryCap = 5 * time.Minute
)

// renewTime returns when to renew a certificate; spread is from 0 to below 1.
func renewTime(notBefore, notAfter time.Time, spread float64) time.Time {
	life := notAfter.Sub(notBefore)
	return notAfter.Add(-time.Duration((renewFrom + renewSpread*spread) * float64(life)))
}

// Run enrolls the agent if it is not, renews its certificate in time and tries again, with growing waits, when that
// fails. A certificate that ended all the same is replaced by registering again, if the join token is still good. It
// returns an error only as [Enroller.Enroll] does; when the context ends it returns nil.
func (e *Enroller) Run(ctx context.Context) error {
	if e.current.Load() == nil {
		if err := e.Enroll(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	for ctx.Err() == nil {
		leaf := e.current.Load().pair.Leaf
		if !e.sleepUntil(ctx, renewTime(leaf.NotBefore, leaf.NotAfter, e.o.Rand())) {
			return nil
		}
		e.renewAnyhow(ctx)
	}
	return nil
}

// renewAnyhow tries until there is a new certificate or the context ends.
func (e *Enroller) renewAnyhow(ctx context.Context) {
	wait := retryFirst
	for ctx.Err() == nil {
		expired := !e.o.Clock.Now().Before(e.NotAfter())
		var err error
		if expired {
			err = e.register(ctx)
		} else {
			err = e.renew(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		if final(err) || errors.Is(err, errNotYet) {
			wait = renewRetryCap
		}
		pause := time.Duration((0.5 + e.o.Rand()/2) * float64(wait))
		log := e.o.Logger.WarnContext
		if expired {
			log = e.o.Logger.ErrorContext
		}
		log(ctx, "cannot renew the certificate", "agent", e.Agent(), "notAfter", e.NotAfter(), "err", err, "retryIn", pause.Round(time.Millisecond).String())
		if !e.sleep(ctx, pause) {
			return
		}
		wait = min(2*wait, renewRetryCap)
	}
}

func (e *Enroller) sleepUntil(ctx context.Context, at time.Time) bool {
	for {
		left := at.Sub(e.o.Clock.Now())
		if left <= 0 {
			return ctx.Err() == nil
		}
		if !e.sleep(ctx, min(left, recheck)) {
			return false
		}
	}
}
