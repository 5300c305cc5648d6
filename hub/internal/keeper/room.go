package keeper

import (
	"context"
	"errors"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// retryRoom is the retryAfter of what a journal without room refuses, and how
// often the keeper looks for room while it waits for some.
const retryRoom = 5 * time.Second

// heed asks the journal what it has room for, and has the engine stop or
// resume grants. What waits for a lease may get one when they resume.
func (k *Keeper) heed(ctx context.Context, now time.Time, b *batch) (room Room, why string) {
	limited, ok := k.journal.(Limited)
	if !ok {
		return RoomForAll, ""
	}
	room, why = limited.Room()
	if room == k.room {
		return room, why
	}
	k.room = room
	k.metrics.found(room)
	at := k.engine.Now() // to stop: before time passes, and with nothing to write down
	if room == RoomForAll {
		at = now
	}
	out, err := k.engine.Step(at, lease.SetReadOnly{On: room != RoomForAll, Why: why})
	k.take(b, out)
	switch {
	case err != nil:
		k.log.ErrorContext(ctx, "the lease engine cannot be told what the journal has room for", "err", err)
	case room == RoomForAll:
		k.log.InfoContext(ctx, "the lease journal has room again; leases are granted")
	case room == RoomForUpkeep:
		k.log.ErrorContext(ctx, "nothing is leased (READ_ONLY); renewals, releases and reports go on while the reserve lasts; make room", "why", why)
	default:
		k.log.ErrorContext(ctx, "nothing is leased, renewed, released or reported: the lease journal takes nothing any more; make room", "why", why)
	}
	return room, why
}

// answerReads answers what needs no journal, at the time of the last record:
// nothing may become true that cannot be written down. The rest is refused,
// and has changed nothing.
func (k *Keeper) answerReads(calls []*call, why string) {
	answered := calls[:0]
	for _, c := range calls {
		if !c.state.CompareAndSwap(callQueued, callTaken) {
			continue // its caller has gone
		}
		switch c.cmd.(type) {
		case lease.Get, lease.List, lease.ReadStats, lease.ReadUse, lease.ReadBusy, lease.ReadInventory,
			lease.ListRevocations, lease.ListPauses, lease.ListBans:
			var out lease.Output
			out, c.err = k.engine.Step(k.engine.Now(), c.cmd)
			c.result = out.Result
		case lease.Acquire, lease.Renew, lease.Release, lease.Report:
			c.err = &lease.Refusal{
				Reason: lease.ReadOnly, RetryAfter: retryRoom,
				Message: "the hub can write nothing down now: " + why + "; leases cannot be changed until there is room, and none ends meanwhile",
			}
		default: // whoever tells the engine about the world tells it again
			c.err = &Unavailable{Cause: errors.New(why)}
		}
		answered = append(answered, c)
	}
	k.waits.answer(answered)
}
