package keeper

import (
	"errors"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Condense makes a snapshot: it reads the records of a journal from load, in their order, and hands what they came to
// into emit. It stops at the first error of either and returns it. It takes as long as a replay and the memory of a second
// engine, on whatever goroutine it is called.
type Condense func(load func(yield func(lease.Record) error) error, emit func(lease.Record) error) error

// Condenser returns a Condense that replays the records with an engine of its own. The engine that answers callers is
// left alone, however much it knows. What it emits is what a restarted hub would know.
func Condenser(blank func() *lease.Engine) Condense {
	return func(load func(yield func(lease.Record) error) error, emit func(lease.Record) error) error {
		engine := blank()
		if err := load(engine.Apply); err != nil {
			return err
		}
		if out := engine.Tick(engine.Now()); len(out.Records) > 0 {
			return errors.New("keeper: the records to condense do not end with a batch: something is due that has no record")
		}
		return engine.SnapshotTo(emit)
	}
}
