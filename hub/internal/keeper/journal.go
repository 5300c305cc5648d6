package keeper

import (
	"context"
	"errors"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Journal makes records durable. journaltest holds the suite that each implementation passes. A journal has one writer;
// its methods are called from one goroutine.
type Journal interface {
	// Load calls yield for every record that was appended, in that order, and stops at the first error, which it
	// returns. It is called once, before the first Append.
	Load(ctx context.Context, yield func(lease.Record) error) error
	// Append makes a batch durable: all of it, or none and an error. When it returns nil the batch survives whatever
	// the journal promises to survive. After an error the journal is not used again: it is opened anew, and then holds
	// the batch as a whole or not at all. A batch may be empty, and as large as the keeper's. The batch is the caller's;
	// its records are never changed.
	Append(ctx context.Context, batch []lease.Record) error
}

// Compactor is a Journal that can do with a snapshot in place of the records
// that led to it. Its methods are called from the goroutine that appends.
type Compactor interface {
	Journal
	// CompactDue tells whether Compact is worth its while. It is asked after
	// each Append, and says no while a snapshot is being made.
	CompactDue() bool
	// Compact begins to replace everything appended so far by a snapshot,
	// which Load yields from then on before what was appended later. It
	// returns at once: condense is called beside the appends that follow, on a
	// goroutine of the journal's, and reads what had been appended when
	// Compact was called. If it fails the journal stays as it was.
	Compact(ctx context.Context, condense Condense)
}

// Room is what a journal can still take.
type Room uint8

// The rooms.
const (
	// RoomForAll is the rule.
	RoomForAll Room = iota
	// RoomForUpkeep is for what keeps promises made before: renewals,
	// releases, reports, expiries, inventory. Grants are refused.
	RoomForUpkeep
	// RoomForNothing is for reading only. Appending now would fail, and time
	// stands still for the leases.
	RoomForNothing
)

// Limited is a Journal that may run out of room and find some again. The
// keeper asks before each batch, and stays within what there is.
type Limited interface {
	Journal
	// Room tells what an Append may hold. It costs little, and may be called
	// from any goroutine. If it is not RoomForAll, why says so for people, as
	// in "the journal's disk is full".
	Room() (room Room, why string)
}

// ErrForgotten is the error of an Append to a store that lacks what it had
// acknowledged before, such as a server that was failed over or restored. The
// batch is not in it.
var ErrForgotten = errors.New("the journal's store has forgotten what it acknowledged")

// Rewriter is a Journal whose store may forget while its process lives. When
// an Append fails with [ErrForgotten] the keeper has it written again.
type Rewriter interface {
	Journal
	// Rewrite replaces everything in the store by the records that snapshot
	// hands to emit: all that the engine knows, the batch that was refused
	// included. When it returns nil, that batch is as durable as if Append had
	// returned nil.
	Rewrite(ctx context.Context, snapshot func(emit func(lease.Record) error) error) error
}
