package audit

import (
	"context"
	"errors"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// What a line tells of.
const (
	Granted    = "granted"
	Renewed    = "renewed"
	Released   = "released"
	Ended      = "ended"    // without its holder: State says how
	Reported   = "reported" // a ban or a rate limit
	NotHolder  = "not-holder"
	Revoked    = "operator-revoked"
	Reinstated = "operator-reinstated"
	Paused     = "operator-paused"
	Resumed    = "operator-resumed"
	Cleared    = "operator-cleared"
)

// Doer carries out commands. *keeper.Keeper does.
type Doer interface {
	Do(ctx context.Context, cmd lease.Command) (lease.Result, error)
}

// Keeper is a [Doer] that logs what it was asked and what came of it.
type Keeper struct {
	next Doer
	log  *Log
}

// Wrap makes a keeper that logs.
func Wrap(next Doer, log *Log) *Keeper { return &Keeper{next: next, log: log} }

// Do carries out the command, then queues its lines.
func (k *Keeper) Do(ctx context.Context, cmd lease.Command) (lease.Result, error) {
	result, err := k.next.Do(ctx, cmd)
	if err != nil {
		k.refused(cmd, err)
		return result, err
	}
	switch result := result.(type) {
	case lease.Granted:
		for i := range result.Leases {
			if !result.Repeated {
				k.lease(Granted, &result.Leases[i], "")
			}
		}
	case lease.Renewed:
		k.lease(Renewed, &result.Lease, "")
	case lease.Released:
		cmd, _ := cmd.(lease.Release)
		if cmd.Outcome != nil {
			k.outcome(&result.Lease, cmd.Outcome, lease.Reported{})
		}
		if !result.Already {
			k.lease(Released, &result.Lease, "")
		}
	case lease.Reported:
		cmd, _ := cmd.(lease.Report)
		for i := range cmd.Observations {
			k.outcome(&result.Lease, &cmd.Observations[i], result)
		}
	default:
		k.operated(cmd, result)
	}
	return result, nil
}

// lease writes a line about a lease.
func (k *Keeper) lease(what string, l *lease.Lease, outcome string) {
	e := about(what, l)
	e.Outcome = outcome
	if l.State == lease.Live {
		expires := l.Expires
		e.Expires = &expires
	}
	k.log.Write(e)
}

func about(what string, l *lease.Lease) Event {
	e := Event{
		Event: what, Principal: string(l.Principal), Fleet: string(l.Fleet), Lease: string(l.ID), Fencing: l.Token.String(),
		Proxy: string(l.Proxy), Member: string(l.Member), Target: l.Target.Host(),
	}
	for _, exit := range l.Exits {
		e.Exits = append(e.Exits, exit.String())
	}
	return e
}

// outcome writes a line if a target has refused or slowed down the holder; what went well is no event.
func (k *Keeper) outcome(l *lease.Lease, o *lease.Observation, reported lease.Reported) {
	switch o.Outcome { //nolint:exhaustive // the others are no bans
	case lease.Blocked, lease.Captcha, lease.RateLimited:
	default:
		return
	}
	e := about(Reported, l)
	e.Outcome, e.Guarded = o.Outcome.String(), reported.Guarded > 0
	if !o.Target.IsZero() {
		e.Target = o.Target.Host()
	}
	k.log.Write(e)
}

// refused writes a line about attempts on somebody else's lease.
func (k *Keeper) refused(cmd lease.Command, err error) {
	var refusal *lease.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != lease.NotHolder {
		return
	}
	e := Event{Event: NotHolder, Reason: string(refusal.Reason)}
	switch cmd := cmd.(type) {
	case lease.Renew:
		e.Principal, e.Lease = string(cmd.Principal), string(cmd.ID)
	case lease.Release:
		e.Principal, e.Lease = string(cmd.Principal), string(cmd.ID)
	case lease.Report:
		e.Principal, e.Lease = string(cmd.Principal), string(cmd.ID)
	case lease.Get:
		e.Principal, e.Lease = string(cmd.Principal), string(cmd.ID)
	}
	k.log.Write(e)
}

// operated writes lines about acts of operators.
func (k *Keeper) operated(cmd lease.Command, result lease.Result) {
	switch cmd := cmd.(type) {
	case lease.Revoke:
		revoked, _ := result.(lease.Revoked)
		k.log.Write(Event{
			Event: Revoked, Principal: string(cmd.By), Of: string(cmd.Principal), Proxy: string(cmd.Proxy), Why: cmd.Why,
			Expires: until(revoked.Revocation.Until), Count: len(revoked.Ended),
		})
	case lease.Reinstate:
		k.log.Write(Event{Event: Reinstated, Principal: string(cmd.By), Of: string(cmd.Principal), Proxy: string(cmd.Proxy), Count: lifted(result)})
	case lease.PauseTarget:
		paused, _ := result.(lease.Paused)
		k.log.Write(Event{Event: Paused, Principal: string(cmd.By), Target: cmd.Target.Key(), Why: cmd.Why, Expires: until(paused.Pause.Until)})
	case lease.ResumeTarget:
		k.log.Write(Event{Event: Resumed, Principal: string(cmd.By), Target: cmd.Target.Key(), Count: lifted(result)})
	case lease.ClearBan:
		e := Event{Event: Cleared, Principal: string(cmd.By), Target: cmd.Target, Count: lifted(result)}
		if cmd.Exit.IsValid() {
			e.Exits = []string{cmd.Exit.String()}
		}
		k.log.Write(e)
	}
}

func until(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func lifted(result lease.Result) int {
	l, _ := result.(lease.Lifted)
	return l.Count
}

// Notices tell of leases that end without their holder. *keeper.Subscription does.
type Notices interface {
	Next(ctx context.Context) (notices []lease.Notice, lost bool, err error)
}

// Watch writes lines about leases that end without their holder until ctx or the keeper ends, which is no error. Where it
// is too slow for the keeper's notices, one line of the event "lost" says so.
func Watch(ctx context.Context, notices Notices, log *Log) error {
	for {
		got, lost, err := notices.Next(ctx)
		var stopped *keeper.Unavailable
		switch {
		case ctx.Err() != nil || errors.As(err, &stopped):
			<-ctx.Done() // a stage that ends by itself would end the hub
			return nil   //nolint:nilerr // the keeper has ended, which is no error of the log's
		case err != nil:
			return err
		}
		if lost {
			log.lost.Inc()
			log.Write(Event{Event: Ended, Reason: "some ends of leases were not told in time, and are not in this log"})
		}
		for _, notice := range got {
			ended, ok := notice.(lease.Ended)
			if !ok {
				continue
			}
			log.Write(Event{
				Time: ended.At, Event: Ended, State: ended.State.String(), Principal: string(ended.Of.Principal), Fleet: string(ended.Of.Fleet),
				Lease: string(ended.Of.ID), Proxy: string(ended.Of.Proxy),
			})
		}
	}
}
