package session

import agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"

// Event is something for the caller to act on. It is one of [Greeted], [Welcomed], [Beat], [Leased], [Apply], [Delete],
// [Resynced], [HeldBack], [Acked] and [TombstoneAcked].
type Event interface{ event() }

// Greeted tells the hub who calls. It must be answered with [Session.Welcome], or by ending the session.
type Greeted struct{ Hello *agentv1.Hello }

// Welcomed tells the agent that the hub has let it in. It comes again, with the same epoch, when the hub has new keys.
type Welcomed struct{ Welcome *agentv1.Welcome }

// Beat says that the peer has sent a heartbeat.
type Beat struct{}

// Leased tells the agent which proxies of the member are leased. Each is all that is known: what it does not name is not
// leased, unless it says all of them.
type Leased struct {
	Proxies []string
	All     bool
}

// Apply asks to act on an item. The answer is [Session.Applied] with the uid and sequence of the Upsert.
type Apply struct{ Upsert *agentv1.Upsert }

// Delete asks to remove an item, known or not. The answer is [Session.Applied] with UID and Sequence.
type Delete struct {
	UID      string
	Sequence uint64
	// Pruned says that the item was missing from a snapshot, rather than named by a tombstone.
	Pruned bool
}

// Resynced says that a snapshot whose digest matched has been acted on: all its items were applied, or failed to, and
// what it lacked was deleted.
type Resynced struct {
	// Snapshot is its number, which grows within the session.
	Snapshot uint64
	// Count is the number of its items.
	Count int
	// Pruned is the number of items that were deleted because it lacked them.
	Pruned int
}

// HeldBack says that a snapshot whose digest matched lacks so many known items that none is deleted before another
// snapshot lacks them too. The session asks for that one by itself.
type HeldBack struct {
	Snapshot uint64
	// Missing of Known items would be deleted.
	Missing, Known int
}

// Acked says that the peer has acted on the present version of an item.
type Acked struct {
	UID        string
	Generation int64
	Hash       string
	// Problem says, for people, why it could not. The item is sent again later unless Problem is empty.
	Problem string
}

// TombstoneAcked says that the peer no longer has the item.
type TombstoneAcked struct{ UID string }

func (Greeted) event()        {}
func (Welcomed) event()       {}
func (Beat) event()           {}
func (Leased) event()         {}
func (Apply) event()          {}
func (Delete) event()         {}
func (Resynced) event()       {}
func (HeldBack) event()       {}
func (Acked) event()          {}
func (TombstoneAcked) event() {}
