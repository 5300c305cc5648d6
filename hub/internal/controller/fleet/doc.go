// Package fleet turns a ProxyFleet into ProxyPlacements and sums up how it fares.
//
// A pass gathers what bears on the fleet into a scope, which nothing but reads fills, and takes it through phases, a
// file each: accept (can the fleet be served at all), plan (how many proxies each member gets), roll (the next safe
// step towards that), write (the placements), drain (deadlines), status. Decisions are made by the pure packages
// placement and rollout; this one brings them what they look at and writes down what they say.
//
// # What protects leases and proxies
//
//   - Writes rest on a live read. Whatever a pass wants to change is decided again on placements that were read past
//     the cache, and each write is conditional on the version that was read: a decision that rests on a state before
//     one's own last write would choose victims a second time.
//   - Nothing is removed on a partial inventory. While a member that has placements of the fleet has not reported since
//     the hub started, and is not lost either, placements only grow (see grow). The same holds for one maxTTL after the
//     start of a hub whose journal does not survive it: leases it has never heard of may live.
//   - A member that is lost, reconnecting or in doubt keeps its placements as they are.
//
// # Proxies that someone else runs
//
// A fleet with external endpoints has one placement a member, of the revision "external", which is edited where it is:
// see rollOutside. Its credentials are read at every pass and kept in memory only; a placement names their version, so
// that the change of a Secret reaches the members like any other change.
//
// # The order of draining
//
// A lease must never be granted on a proxy that is about to be removed, and a restarted hub must not choose others:
//
//  1. The name goes on the placement's drain list with a deadline of now plus drainTimeout. This is the durable
//     decision; leased or not, nothing happens to the proxy yet.
//  2. The lease engine is told that the proxy drains. From its answer on it grants nothing there, and the answer says
//     how many leases are left.
//  3. Only if that is none, the deadline becomes now. Otherwise this is asked again until it is, or the deadline comes.
//
// A crash between any two steps is harmless: the next pass goes on where the list and the engine stand.
package fleet
