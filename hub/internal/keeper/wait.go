package keeper

import (
	"sync"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// batch is what some steps of the engine came to. It is answered once its records are durable.
type batch struct {
	records  []lease.Record
	notices  []lease.Notice
	answered []*call
}

// take adds what a step came to, with the answers for calls that have waited.
func (k *Keeper) take(b *batch, out lease.Output) {
	b.records = append(b.records, out.Records...)
	b.notices = append(b.notices, out.Notices...)
	for _, a := range out.Answers {
		c := k.waits.calls[a.Ticket]
		if c == nil {
			continue
		}
		delete(k.waits.calls, a.Ticket)
		c.result = a.Result
		if a.Refusal != nil {
			c.err = a.Refusal
		}
		b.answered = append(b.answered, c)
	}
}

// waits are the calls that wait in the engine's queue, and what has to be given back because a caller has gone. All but
// the list of those who left belongs to the keeper's loop.
type waits struct {
	calls  map[lease.Ticket]*call
	unseen []lease.Abandon
	wake   chan struct{} // holds one token while somebody has left

	mu   sync.Mutex
	left []*call
}

func (w *waits) add(c *call, ticket lease.Ticket) {
	c.ticket = ticket
	w.calls[ticket] = c
}

// leave notes that the caller of a call that may wait has gone. Any goroutine may call it; it never blocks.
func (w *waits) leave(c *call) {
	w.mu.Lock()
	w.left = append(w.left, c)
	w.mu.Unlock()
	w.poke()
}

func (w *waits) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// pending tells whether there is something to give back.
func (w *waits) pending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.left)+len(w.unseen) > 0
}

// returned makes the commands that give back what callers who have gone had. They go before all others: the same
// request may have come again.
func (w *waits) returned() []lease.Command {
	w.mu.Lock()
	left := w.left
	w.left = nil
	w.mu.Unlock()
	if len(left)+len(w.unseen) == 0 {
		return nil
	}
	cmds := make([]lease.Command, 0, len(left)+len(w.unseen))
	for _, cmd := range w.unseen {
		cmds = append(cmds, cmd)
	}
	w.unseen = nil
	for _, c := range left {
		if w.calls[c.ticket] == c { // else it was answered in between
			delete(w.calls, c.ticket)
			cmds = append(cmds, lease.Cancel{Ticket: c.ticket})
		}
	}
	return cmds
}

// answer wakes the callers, and notes the leases of those who have gone. A lease that another call with the same request
// id was told of too is left to that one.
func (w *waits) answer(calls []*call) {
	var unseen []lease.Granted
	for _, c := range calls {
		if c.state.CompareAndSwap(callTaken, callAnswered) {
			close(c.done)
			continue
		}
		if granted, ok := c.result.(lease.Granted); ok && !granted.Repeated {
			unseen = append(unseen, granted)
		}
	}
	if len(unseen) == 0 {
		return
	}
	seen := map[lease.ID]bool{}
	for _, c := range calls {
		if granted, ok := c.result.(lease.Granted); ok && granted.Repeated && c.state.Load() == callAnswered {
			seen[granted.Leases[0].ID] = true
		}
	}
	for _, granted := range unseen {
		if seen[granted.Leases[0].ID] {
			continue
		}
		cmd := lease.Abandon{Principal: granted.Leases[0].Principal}
		for i := range granted.Leases {
			cmd.IDs = append(cmd.IDs, granted.Leases[i].ID)
		}
		w.unseen = append(w.unseen, cmd)
	}
	w.poke()
}
