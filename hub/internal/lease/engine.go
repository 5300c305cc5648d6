package lease

import "time"

// Options are what an Engine is made with.
type Options struct {
	// IDs makes lease ids. Required.
	IDs IDSource
	// Epoch is that of every token granted. It must grow with every change
	// of the authority, so that tokens of two hubs are in order.
	Epoch uint64
	// StartedAt is when this hub began. Unless HistoryComplete, a fleet
	// grants nothing for its maxTTL from then on, as leases from before may
	// still live: see [StaleInventory].
	StartedAt time.Time
	// HistoryComplete says that Apply was given everything that was ever
	// granted: the journal is durable, or this is a new installation.
	HistoryComplete bool
	// Freshness is how long a member counts as present after the last word
	// from it: 1 min by default.
	Freshness time.Duration
	// Guard bounds what bursts of bans can do.
	Guard Guard
}

// Guard bounds what bursts of bans can do. The counts are per target key and
// within one Window; they are not durable.
type Guard struct {
	// Window is one minute by default.
	Window time.Duration
	// PerReporter is how many bans of one principal act upon the pool: 20 by
	// default. Further ones are counted in [Reported].Guarded only.
	PerReporter int
	// Floor and Share trip the guard of a fleet's target: when more bans than
	// Floor (10 by default) and than Share (0.5 by default) of the fleet's
	// exits came, grants for the target pause for a Window.
	Floor int
	Share float64
}

// Engine decides who leases which proxy. It is not safe for concurrent use:
// one goroutine owns it. It reads no clock and starts nothing: time comes in
// with each call, and an earlier time than before counts as the same.
type Engine struct {
	opts Options
}

// New makes an engine that knows nothing yet.
func New(opts Options) *Engine { return &Engine{opts: opts} }

// Step carries out one command at a time. The error, if any, is a *Refusal;
// the Output's Records are to be persisted in either case.
func (e *Engine) Step(now time.Time, cmd Command) (Output, error) {
	return Output{}, invalid("command", "not yet")
}

// Tick lets time pass.
func (e *Engine) Tick(now time.Time) Output { return Output{} }

// NextDeadline returns when the next Tick has something to do. False means
// never, as things stand.
func (e *Engine) NextDeadline() (time.Time, bool) { return time.Time{}, false }

// Apply rebuilds state from a record of the journal. Records are applied in
// their order, before the first Step.
func (e *Engine) Apply(rec Record) error { return nil }
