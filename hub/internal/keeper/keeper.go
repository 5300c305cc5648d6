package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Options are what a Keeper is made with.
type Options struct {
	// Engine is the keeper's own from now on, and Journal is loaded into it by Run. Both may come later, with Take.
	Engine  *lease.Engine
	Journal Journal
	// Clock is the real one by default.
	Clock clock.Clock
	// Logger is for what operators should know: discarded by default.
	Logger *slog.Logger
	// Metrics are what the keeper measures into: its own, unseen, by default.
	Metrics *Metrics
	// Queue is how many commands may wait: 2048 by default.
	Queue int
	// Batch is how many commands share one append at most: 1024 by default.
	Batch int
}

// Keeper runs a lease engine.
type Keeper struct {
	engine  *lease.Engine
	journal Journal
	clock   clock.Clock
	log     *slog.Logger
	batch   int
	room    Room // as last heard from the journal
	metrics *Metrics

	queue   chan *call
	started atomic.Bool
	ready   chan struct{} // closed when the journal is loaded
	stopped chan struct{} // closed when Run returns
	hub     noticeHub
	waits   waits
}

// New makes a keeper. Until it runs it answers everybody with *[Unavailable].
func New(opts Options) *Keeper {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Metrics == nil {
		opts.Metrics = NewMetrics()
	}
	if opts.Queue <= 0 {
		opts.Queue = 2048
	}
	if opts.Batch <= 0 {
		opts.Batch = 1024
	}
	k := &Keeper{
		engine: opts.Engine, journal: opts.Journal, clock: opts.Clock, log: opts.Logger, batch: opts.Batch, metrics: opts.Metrics,
		queue: make(chan *call, opts.Queue), ready: make(chan struct{}), stopped: make(chan struct{}),
	}
	k.waits.calls, k.waits.wake = map[lease.Ticket]*call{}, make(chan struct{}, 1)
	return k
}

// Unavailable says that the keeper does not answer: it does not run, or its journal failed. The command may have been
// carried out only if Maybe.
type Unavailable struct {
	// Maybe says that the command was taken up before the keeper stopped.
	Maybe bool
	// Cause is why it stopped, if that is known.
	Cause error
}

// Error says what to do.
func (u *Unavailable) Error() string {
	text := "the lease keeper is not running; retry"
	if u.Maybe {
		text = "the lease keeper stopped before it could answer; retry with the same request_id"
	}
	if u.Cause != nil {
		text += ": " + u.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (u *Unavailable) Unwrap() error { return u.Cause }

// call is one command on its way through the queue.
type call struct {
	cmd   lease.Command
	state atomic.Int32
	done  chan struct{}
	// result and err are written before done is closed.
	result lease.Result
	err    error
	ticket lease.Ticket // the loop's own, if the command waits in the engine
}

const (
	callQueued    int32 = iota
	callTaken           // the engine has it
	callAnswered        // its caller will see result and err
	callAbandoned       // its caller has gone
)

// Take gives the keeper its engine and its journal, before Run: for a hub that stands by, and has neither.
func (k *Keeper) Take(engine *lease.Engine, journal Journal) { k.engine, k.journal = engine, journal }

// Ready is closed once the journal is loaded and commands are answered.
func (k *Keeper) Ready() <-chan struct{} { return k.ready }

// Run loads the journal and carries out commands until the context ends, which is no error. Any error leaves the keeper
// unusable.
func (k *Keeper) Run(ctx context.Context) error {
	if k.engine == nil || k.journal == nil {
		return errors.New("keeper: Run needs an engine and a journal")
	}
	if k.started.Swap(true) {
		return errors.New("keeper: Run was called twice")
	}
	defer k.hub.close()
	defer close(k.stopped)
	began := k.clock.Now()
	loaded, err := k.load(ctx)
	if err != nil {
		return fmt.Errorf("keeper: load the journal: %w", err)
	}
	k.log.InfoContext(ctx, "lease journal loaded", "records", loaded, "took", k.clock.Since(began))
	if err := k.carryOut(ctx, nil); err != nil { // what became due meanwhile
		return err
	}
	close(k.ready)
	return k.loop(ctx)
}

// loadGC is the garbage collector's target (as in GOGC) while the journal is
// loaded: most of what a replay allocates stays, so that looking for garbage
// again and again as the heap grows is work for nothing.
const loadGC = 400

// load gives the engine all records of the journal and counts them.
func (k *Keeper) load(ctx context.Context) (loaded int, err error) {
	if before := debug.SetGCPercent(loadGC); before > loadGC || before < 0 {
		debug.SetGCPercent(before) // somebody knows better
	} else {
		defer debug.SetGCPercent(before)
	}
	if journal, ok := k.journal.(interface{ Expected() int }); ok {
		k.engine.Expect(journal.Expected())
	}
	err = k.journal.Load(ctx, func(rec lease.Record) error {
		loaded++
		return k.engine.Apply(rec)
	})
	return loaded, err
}

// loop is the life of a keeper: wait, take what there is, step, append, answer.
func (k *Keeper) loop(ctx context.Context) error {
	timer := k.clock.NewTimer(time.Hour)
	defer timer.Stop()
	calls := make([]*call, 0, k.batch)
	for {
		k.arm(timer)
		calls = calls[:0]
		select {
		case <-ctx.Done():
			if k.waits.pending() {
				return k.carryOut(ctx, nil)
			}
			return nil
		case <-timer.C():
		case <-k.waits.wake:
		case c := <-k.queue:
			calls = k.drain(append(calls, c))
		}
		if err := k.carryOut(ctx, calls); err != nil {
			return err
		}
	}
}

// arm sets the timer to the engine's next deadline, or to an hour. While the
// journal takes nothing, deadlines wait for room.
func (k *Keeper) arm(timer clock.Timer) {
	wait := time.Hour
	if k.room == RoomForNothing {
		wait = retryRoom
	} else if at, ok := k.engine.NextDeadline(); ok {
		wait = max(0, at.Sub(k.clock.Now()))
	}
	timer.Stop()
	timer.Reset(wait)
}

// drain takes what waits in the queue, up to a batch, without waiting for more.
func (k *Keeper) drain(calls []*call) []*call {
	for len(calls) < k.batch {
		select {
		case c := <-k.queue:
			calls = append(calls, c)
		default:
			return calls
		}
	}
	return calls
}

// carryOut steps the engine through the calls, appends what became true, and answers.
func (k *Keeper) carryOut(ctx context.Context, calls []*call) error {
	now := k.clock.Now()
	var b batch
	if room, why := k.heed(ctx, now, &b); room == RoomForNothing {
		k.answerReads(calls, why)
		return nil
	}
	k.take(&b, k.engine.Tick(now))
	for _, cmd := range k.waits.returned() {
		out, err := k.engine.Step(now, cmd)
		k.take(&b, out)
		if err != nil {
			k.log.ErrorContext(ctx, "the lease engine refused to give back what nobody waits for; it ends by itself", "err", err)
		}
	}
	for _, c := range calls {
		if !c.state.CompareAndSwap(callQueued, callTaken) {
			continue // its caller has gone
		}
		out, err := k.engine.Step(now, c.cmd)
		k.take(&b, out)
		if waiting, ok := out.Result.(lease.Waiting); ok {
			k.waits.add(c, waiting.Ticket)
			continue
		}
		c.result, c.err = out.Result, err
		b.answered = append(b.answered, c)
	}
	if err := k.append(ctx, b.records); err != nil {
		for _, c := range b.answered {
			c.result, c.err = nil, &Unavailable{Maybe: true, Cause: err}
			close(c.done)
		}
		return fmt.Errorf("keeper: append to the journal: %w", err)
	}
	defer k.compact(ctx) // after the answers
	k.waits.answer(b.answered)
	k.hub.publish(b.records, b.notices)
	return nil
}

// append makes a batch durable, even if the keeper is asked to stop meanwhile:
// the engine has stepped through it already. If the journal's store has
// forgotten earlier ones, all that the engine knows is written again.
func (k *Keeper) append(ctx context.Context, records []lease.Record) error {
	if len(records) == 0 {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	began := k.clock.Now()
	err := k.journal.Append(ctx, records)
	if journal, ok := k.journal.(Rewriter); ok && errors.Is(err, ErrForgotten) {
		k.log.ErrorContext(ctx, "the lease journal has forgotten something; writing all of it again", "err", err)
		err = journal.Rewrite(ctx, k.engine.SnapshotTo)
	}
	if err != nil {
		k.log.ErrorContext(ctx, "the lease journal failed; the hub must restart", "err", err)
		return err
	}
	k.metrics.appended(len(records), k.clock.Since(began))
	return nil
}

// compact has the journal condensed if it is time for that. The journal has
// all that the engine knows: it is called between an append and the next step.
func (k *Keeper) compact(ctx context.Context) {
	if journal, ok := k.journal.(Compactor); ok && journal.CompactDue() {
		journal.Compact(context.WithoutCancel(ctx), Condenser(k.engine.Blank))
	}
}

// Do carries out one command. The context bounds both the wait for a place in the queue and the wait for the answer.
// The result is of the type that the command's documentation names. An Acquire that waits is answered when its wait is
// over; if the context ends before that it leaves no trace, and what it was granted meanwhile is given back.
func (k *Keeper) Do(ctx context.Context, cmd lease.Command) (lease.Result, error) {
	if !k.started.Load() {
		return nil, &Unavailable{}
	}
	c := &call{cmd: cmd, done: make(chan struct{})}
	select {
	case k.queue <- c:
	case <-ctx.Done():
		return nil, fmt.Errorf("the lease keeper is busy: %w", context.Cause(ctx))
	case <-k.stopped:
		return nil, &Unavailable{}
	}
	select {
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done():
		if c.state.CompareAndSwap(callQueued, callAbandoned) {
			return nil, fmt.Errorf("the lease keeper is busy, and the command was not carried out: %w", context.Cause(ctx))
		}
		if !c.state.CompareAndSwap(callTaken, callAbandoned) {
			<-c.done // answered at the same moment
			return c.result, c.err
		}
		if acquire, ok := cmd.(lease.Acquire); ok {
			if acquire.Wait > 0 {
				k.waits.leave(c)
			}
			return nil, fmt.Errorf("the wait for a lease was given up: %w", context.Cause(ctx))
		}
		return nil, fmt.Errorf("the lease keeper did not answer in time, and the command may have been carried out: %w", context.Cause(ctx))
	case <-k.stopped:
		select {
		case <-c.done: // answered by the last batch
			return c.result, c.err
		default:
			return nil, &Unavailable{}
		}
	}
}
