package lease

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Ticket names a waiting [Acquire]. Later ones have greater tickets. They are
// volatile: an engine that was replayed has nobody waiting.
type Ticket uint64

// Bounds of waiting. A waiter costs the hub an open call (about 30 KiB), so
// the bounds are what a hub of 1 GiB can bear.
const (
	// MaxWait bounds Acquire.Wait. Proxies and load balancers between a
	// crawler and the hub drop calls that are silent for longer.
	MaxWait = time.Minute
	// DefaultMaxWaiters is for Options.MaxWaiters.
	DefaultMaxWaiters = 20_000
	// DefaultMaxWaitersPerPrincipal is for Options.MaxWaitersPerPrincipal.
	DefaultMaxWaitersPerPrincipal = 12_000
	// DefaultReserveAfter is for Options.ReserveAfter.
	DefaultReserveAfter = 2 * time.Second
	// maxKinds bounds the different requests that wait in a fleet: what comes
	// free is offered to each kind in turn.
	maxKinds = 512
)

// Waiting answers an [Acquire] that waits. What becomes of it comes later, as
// an [Answer] in the Output of some Step or Tick.
type Waiting struct{ Ticket Ticket }

// Answer is what has become of a waiting [Acquire].
type Answer struct {
	Ticket Ticket
	// Result is what it was granted, or nil.
	Result Result
	// Refusal says why it was not, or is nil.
	Refusal *Refusal
}

// Cancel ends the wait of an [Acquire] whose caller has gone. It leaves no
// trace: no record, no answer. It is answered by [Done], also if nobody waits
// under the ticket.
type Cancel struct{ Ticket Ticket }

// Abandon ends leases whose holder never heard of them, at once and with no
// slot held back, and forgets the request id they were granted for: if it
// comes again, it is a new request. Leases that are not the principal's, or
// have ended, are left alone. It is answered by [Done].
type Abandon struct {
	Principal Principal
	IDs       []ID
}

func (Waiting) result()  {}
func (Cancel) command()  {}
func (Abandon) command() {}

// waiter is an Acquire that waits. It is in its line unless it is gone.
type waiter struct {
	ticket      Ticket
	cmd         Acquire
	fingerprint [sha256.Size]byte // if cmd has a request id
	fleet       *fleet
	line        *line
	place       int
	deadline    timer
	ages        timer // for exclusive ones: when it may get a reservation
	gone        bool
}

func (w *waiter) rank() Ticket { return w.ticket }
func (w *waiter) at() *int     { return &w.place }

// exclusiveOne tells the waiters that can get a reservation.
func (w *waiter) exclusiveOne() bool {
	_, least := w.cmd.counts()
	return w.cmd.Exclusive && least == 1
}

// acquireOrWait grants leases, or says why not, or lets the command wait.
func (e *Engine) acquireOrWait(cmd *Acquire, out *Output) (Result, *Refusal) {
	if cmd.Wait < 0 || cmd.Wait > MaxWait {
		return nil, invalid("wait", fmt.Sprintf("wait is %s; leave it out for an answer at once, or write 0s to %s, and ask again after that",
			cmd.Wait, humane(MaxWait)))
	}
	var twins []*waiter
	var fingerprint [sha256.Size]byte
	if cmd.RequestID != "" && len(e.twins) > 0 {
		twins = e.twins[cmd.requestKey()]
	}
	if len(twins) > 0 {
		if fingerprint = cmd.fingerprint(); twins[0].fingerprint != fingerprint {
			return nil, reusedID(cmd)
		}
	}
	result, refusal := e.acquire(cmd, out)
	if refusal == nil {
		e.answerTwins(cmd, out)
		return result, nil
	}
	switch {
	case cmd.Wait == 0, refusal.RetryAfter == 0, refusal.Reason == RevokedPrincipal, refusal.Reason == TargetHeld:
		return nil, refusal // what an operator has decided is not waited out
	default:
		return e.wait(cmd, refusal)
	}
}

// wait puts a command that was refused into the queue, if there is room.
func (e *Engine) wait(cmd *Acquire, refusal *Refusal) (Result, *Refusal) {
	f := e.fleets[cmd.Fleet]
	if n := e.waitersOf[cmd.Principal]; n >= e.opts.MaxWaitersPerPrincipal {
		return nil, &Refusal{Reason: Quota, RetryAfter: refusal.RetryAfter, Message: fmt.Sprintf(
			"%d calls of %s wait already, and no more may; ask with fewer at a time", n, cmd.Principal)}
	}
	if f.room != nil && f.room.waiters >= e.opts.MaxWaiters {
		return nil, &Refusal{Reason: NoCapacity, RetryAfter: refusal.RetryAfter, Message: fmt.Sprintf(
			"%d calls wait for proxies of %s already, and no more may; retry in %s", f.room.waiters, f.id, humane(refusal.RetryAfter))}
	}
	e.openRoom(f)
	key := e.kindOf(f, cmd)
	if f.room.kinds[key] == nil && len(f.room.kinds) >= maxKinds {
		return nil, &Refusal{Reason: NoCapacity, RetryAfter: refusal.RetryAfter, Message: fmt.Sprintf(
			"calls with %d different selectors, counts and sessions wait for proxies of %s already, and no other may; retry in %s",
			maxKinds, f.id, humane(refusal.RetryAfter))}
	}
	e.lastTicket++
	w := &waiter{ticket: e.lastTicket, cmd: *cmd, fleet: f}
	w.deadline = timer{owner: w, kind: timerWait, rank: uint64(w.ticket)}
	e.waiters[w.ticket] = w
	e.waitersOf[cmd.Principal]++
	f.room.waiters++
	f.room.kind(key, cmd).join(w)
	e.waits.set(&w.deadline, e.now+int64(cmd.Wait))
	if cmd.RequestID != "" {
		w.fingerprint = cmd.fingerprint()
		e.twins[cmd.requestKey()] = append(e.twins[cmd.requestKey()], w)
	}
	if cmd.SessionKey != "" {
		e.seekers[cmd.session()] = append(e.seekers[cmd.session()], w)
	}
	if w.exclusiveOne() {
		w.ages = timer{owner: w, kind: timerAge, rank: uint64(w.ticket)}
		e.waits.set(&w.ages, e.now+int64(e.opts.ReserveAfter))
	}
	switch refusal.Reason { //nolint:exhaustive // what else keeps it waiting is noticed where it ends
	case TargetGuarded, StaleInventory, ReadOnly: // the last one can hide another
		e.armGate(f)
	}
	return Waiting{Ticket: w.ticket}, nil
}

// dismiss takes a waiter out of everything that knows it.
func (e *Engine) dismiss(w *waiter) {
	w.gone = true
	delete(e.waiters, w.ticket)
	if e.waitersOf[w.cmd.Principal]--; e.waitersOf[w.cmd.Principal] == 0 {
		delete(e.waitersOf, w.cmd.Principal)
	}
	e.waits.remove(&w.deadline)
	e.waits.remove(&w.ages)
	if w.cmd.RequestID != "" {
		drop(e.twins, w.cmd.requestKey(), w)
	}
	if w.cmd.SessionKey != "" {
		drop(e.seekers, w.cmd.session(), w)
	}
	f := w.fleet
	if f.room.holder == w {
		f.room.holder = nil
		f.unreserve()
	}
	f.room.leave(w)
	if f.room.waiters--; f.room.waiters == 0 {
		e.closeRoom(f)
	}
}

// cancel ends the wait of a caller that has gone.
func (e *Engine) cancel(cmd *Cancel) (Result, *Refusal) {
	if w := e.waiters[cmd.Ticket]; w != nil {
		e.dismiss(w)
	}
	return Done{}, nil
}

// answerTwins gives the waiters with the request id of a grant the same
// leases: they are the same call, made again.
func (e *Engine) answerTwins(cmd *Acquire, out *Output) {
	if cmd.RequestID == "" || len(e.twins) == 0 {
		return
	}
	for twins := e.twins[cmd.requestKey()]; len(twins) > 0; twins = e.twins[cmd.requestKey()] {
		w := twins[0]
		e.dismiss(w)
		result, refusal := e.acquire(&w.cmd, out)
		out.Answers = append(out.Answers, Answer{Ticket: w.ticket, Result: result, Refusal: refusal})
	}
}

// turnAway ends the waits of a fleet that are wanted, with the answer that
// there is now.
func (e *Engine) turnAway(f *fleet, wanted func(*Acquire) bool, out *Output) {
	if f.room == nil {
		return
	}
	for _, w := range f.room.inOrder() {
		if wanted(&w.cmd) {
			e.giveUp(w, out)
		}
	}
}

// turnAwayAll does so for all fleets. It looks at everybody who waits.
func (e *Engine) turnAwayAll(wanted func(*Acquire) bool, out *Output) {
	for _, id := range slices.Sorted(maps.Keys(e.fleets)) {
		e.turnAway(e.fleets[id], wanted, out)
	}
}

// giveUp ends a wait with the answer that there is now.
func (e *Engine) giveUp(w *waiter, out *Output) {
	if w.gone {
		return
	}
	e.dismiss(w)
	result, refusal := e.acquire(&w.cmd, out)
	out.Answers = append(out.Answers, Answer{Ticket: w.ticket, Result: result, Refusal: refusal})
	if refusal == nil {
		e.answerTwins(&w.cmd, out)
	}
}

// abandon ends leases that nobody heard of.
func (e *Engine) abandon(cmd *Abandon, out *Output) (Result, *Refusal) {
	for _, id := range cmd.IDs {
		if l := e.leases[id]; l != nil && l.principal == cmd.Principal && l.state == Live {
			e.commit(&Finished{At: moment(e.now), ID: id, State: StateAbandoned, HeldUntil: moment(e.now)}, out)
		}
	}
	return Done{}, nil
}

// disown forgets the request that a lease was granted for.
func (e *Engine) disown(l *lease) {
	req := l.request
	if req == nil {
		return
	}
	if e.requests[req.key] == req {
		delete(e.requests, req.key)
	}
	for _, granted := range req.leases {
		granted.request = nil
	}
}

// requestKey scopes the command's request id.
func (cmd *Acquire) requestKey() requestKey {
	return requestKey{principal: cmd.Principal, fleet: cmd.Fleet, id: cmd.RequestID}
}

// session scopes the command's session key.
func (cmd *Acquire) session() sessionKey {
	return sessionKey{principal: cmd.Principal, fleet: cmd.Fleet, key: cmd.SessionKey}
}

// drop takes a waiter out of a list that is found under a key.
func drop[K comparable](lists map[K][]*waiter, key K, w *waiter) {
	list := lists[key]
	for i, other := range list {
		if other == w {
			list = append(list[:i], list[i+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(lists, key)
		return
	}
	lists[key] = list
}
