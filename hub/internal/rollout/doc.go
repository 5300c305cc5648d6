// Package rollout is the arithmetic of changing a fleet's proxies one safe step at a time: from one revision to the
// next, from one member to another, up and down. It imports no Kubernetes, no Connect, no clock, and starts no
// goroutine; the time is an argument. All its functions are safe for concurrent use.
//
// [Step] looks at what is wanted, at the placements that are written down, and at the proxies the members reported, and
// says what the placements should be next. It is level-based: it keeps no state between calls, any number of calls may
// be lost or repeated, and calling it whenever something changed converges.
//
// # What is written down
//
// There is one [Placement] for each member and revision. Replicas is how many proxies the member keeps that are not
// draining; Drain lists, by name, the ones that must go and when. A member creates what is missing and removes a
// draining proxy once its deadline has passed. It uses no name again that is still on the list. It never chooses a
// victim: scaling down by k is one write that lists k names in Drain and lowers Replicas by k. Draining is one-way; a
// name leaves the list only when the member no longer reports the proxy.
//
// # Rules
//
//   - Available is a proxy that is ready and neither draining nor failed. A
//     step never takes an available proxy if that would leave fewer than
//     desired − maxUnavailable, counting all revisions and members together.
//   - Alive is a proxy that exists or was ordered and is not draining. A step
//     never orders more than desired + maxSurge. Draining proxies are outside
//     both sums, so leases that hold old proxies never block a rollout; a
//     member may for a while run more proxies than desired + maxSurge by
//     the number that drain.
//   - Only proxies of another than the current revision, and those beyond what
//     a member is wanted to run, are ever taken: scaling up takes none.
//   - They go in this order: failed; ordered but not yet created; not ready;
//     ready without a lease (most burned, then oldest); leased (not ready
//     first, then the fewest leases). Within a rank, from the member that is
//     furthest above its share.
//   - A proxy without a lease drains with a deadline of now; a leased one has
//     drainTimeout, and the deadline comes forward to now when its last lease
//     ends. It never moves back.
//   - A failed proxy goes at once. One that is merely not ready goes only
//     while enough others remain that could make up the floor: were a whole
//     fleet to fail its probes for a moment, a rollout must not use the moment
//     to remove all of it.
//
// Members whose inventory is not complete (after a restart of the hub, or lost) are Frozen: their placements are
// carried over as they are and they are left out of all sums, so that one lost region does not stop the others.
//
// # What the caller must do
//
//  1. Give what the API server holds, with its own last writes in it, and make
//     every write conditional on the resource version it read. A step that
//     works from an older drain list would choose victims a second time.
//  2. Apply the placements in the order given: those that shrink come first, so
//     that a failure between two writes leaves too few ordered, not too many.
//  3. Stop the lease engine from granting on the names in Drained before
//     writing them, and step again if one of them was leased meanwhile: an
//     unleased victim's deadline is now.
//  4. Report proxies only of the very placements given, by their UID: one of
//     the same member and revision may have existed before, with proxies of the
//     same names.
//  5. Say in Unconfirmed which placements the member has yet to confirm.
//  6. Pass as current the revision that is to be rolled to; for a paused fleet
//     that is the one before.
//
// A creation that is called off (Replicas lowered before the member created the proxy) may still arrive; it then counts
// as alive and is drained by a later step. A proxy whose placement is not written down is not looked at: the member
// removes it with the placement.
package rollout
