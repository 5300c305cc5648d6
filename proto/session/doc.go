// Package session is the protocol between the hub and an agent as a pure state machine: frames and time go in, frames
// and events come out.
//
// A session is symmetric. Each side sends a lane of items (the hub what it desires, the agent what it observes) and
// receives the other's. Only the handshake differs: the agent says Hello, the hub answers Welcome. The package imports
// no Kubernetes, no Connect, no clock, and starts no goroutine; a [Session] is not safe for concurrent use. Package
// pump drives one over a stream.
//
// # A sender's lane
//
// Items are kept latest-wins by uid: however often one changes before the stream has room, what is sent is what it is
// then. Memory is bounded by the number of items and nothing is dropped: an item that could not be sent is marked and
// sent later.
//
//	SnapshotBegin{n} Upsert… SnapshotEnd{n, count, digest}   then Upsert, Tombstone, Digest…
//
// The digest is over (uid, generation, hash), in order of uid, of what was sent since SnapshotBegin and not taken back
// by a Tombstone. Changes during a snapshot are part of it: the digest is of what the receiver has if nothing was lost.
// Tombstones are kept until they are acknowledged. What is not acknowledged without an error is sent again, after a
// growing while; that is how a failed Apply is retried as well. Every few minutes, with nothing left to send, a Digest
// lets the receiver find what was lost.
//
// # A receiver's lane
//
//   - Sequences order what is said of one uid. An older one is acknowledged and
//     otherwise ignored, so duplicates and reordering do no harm.
//   - A Tombstone for an uid that nobody knows is acknowledged too.
//   - Nothing is pruned before a snapshot's count and digest match what came of
//     it. If they do not, the receiver asks for another (Resync).
//   - A snapshot that would prune more than half of the known items, and more
//     than a handful, prunes nothing until the next complete one confirms it
//     ([HeldBack]). Tombstones are never held back.
//   - An ack is sent after the caller has acted on the item, not on arrival.
//
// Acks, heartbeats and Resync go ahead of items, and so does what a hub says of leases ([Session.Leased]). That is no
// item: it is a single value of which the newest stands, nobody acknowledges it, and no snapshot has it.
//
// # Duties of the caller
//
//  1. Call [Session.Step] for each frame that arrives, in order, and
//     [Session.Tick] no later than [Session.Next] says. Give all of them a now
//     that never goes back (time.Now does not). After an error the session is
//     over: cut the stream, and begin a new session on a new stream.
//  2. After each call of any method, call [Session.Ready]. Send its frames in
//     order. Give it as room the number of frames the stream takes now, and
//     zero while it takes none: what has to wait is kept here, latest-wins,
//     rather than in a queue there.
//  3. Act on its events. There is at most one [Apply] or [Delete] outstanding
//     for an uid, so those for different uids may run at the same time. Report
//     each with [Session.Applied], also when it failed; until then that uid
//     stands still and [Resynced] waits.
//  4. A hub answers [Greeted] with [Session.Welcome] once it knows that the
//     agent may speak for the member, and not before it has ended the member's
//     previous session ([Epochs] says which one wins).
//  5. Put and Delete items at any time, and call [Session.Complete] when all
//     that exist have been put; no snapshot is sent before. A new session needs
//     them all again: it begins with a snapshot. Keep a deleted uid until
//     [TombstoneAcked] and delete it again in the next session, else only the
//     snapshot says that it is gone.
//  6. Carry [Session.Sequence] into the next session of the same process, with
//     [Session.StartAfter].
//
// Messages that are handed in belong to the session from then on, and those that it hands out are shared: nobody may
// change them.
package session
