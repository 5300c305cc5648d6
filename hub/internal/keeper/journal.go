package keeper

import (
	"context"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Journal makes records durable. journaltest holds the suite that each implementation passes. A journal has one writer;
// its methods are called from one goroutine.
type Journal interface {
	// Load calls yield for every record that was appended, in that order, and stops at the first error, which it
	// returns. It is called once, before the first Append.
	Load(ctx context.Context, yield func(lease.Record) error) error
	// Append makes a batch durable: all of it, or none and an error. When it returns nil the batch survives whatever
	// the journal promises to survive. After an error the journal is not used again. The batch is the caller's; its
	// records are never changed.
	Append(ctx context.Context, batch []lease.Record) error
}

// Compactor is a Journal that can do with the engine's present state in place
// of all the records that led to it. Its methods are called from the
// goroutine that appends.
type Compactor interface {
	Journal
	// CompactDue tells whether Compact is worth its while. It is asked after
	// each Append.
	CompactDue() bool
	// Compact replaces everything appended so far by a snapshot, which Load
	// yields from then on before what was appended later. It keeps the slice,
	// and may return before it is done; what goes wrong is the next Append's
	// error.
	Compact(ctx context.Context, snapshot []lease.Record)
}
