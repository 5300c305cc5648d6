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
