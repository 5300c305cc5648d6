// Package oracle judges what clients of the lease API saw. It takes a [History], which is a list of operations with the
// times at which each was asked and answered, and says which promises of the API the answers break.
//
// It is pure: it knows no network and no clock, so that a test can plant every violation and see it found. What it may
// conclude from times is bounded by what a client can know: an operation took effect at some moment between its call and
// its return, an operation without an answer at some moment after its call or never. The times of calls and returns are of
// the same clock as the hub's expiries, and [Limits].Slack allows for what this clock is worth.
//
// A client that gives up on a renewal does not look at that lease again, and may only release it: it cannot know its end.
// One that gives up on anything else may go on.
//
// [Check] holds a history to these:
//
//   - No slot is granted twice, and an exclusive lease is alone on its proxy.
//   - A lease that was acknowledged lives until its time ends, by the last expiry that was acknowledged, or until its
//     release is asked for.
//   - A release that was acknowledged stays: the lease is never seen alive again, and what [Op].Expect says of the slots
//     of a fleet at rest is so.
//   - A ban that was acknowledged cools its exits for its target for as long as was answered.
//   - Fencing tokens are unique, and of two grants of which one was answered before the other was asked for, the later has
//     the greater.
//   - The same request id is given the same leases, and no other request is given any of them.
//   - A session keeps its proxy.
//   - For each proxy the grants, renewals and ends of its leases are linearizable (by porcupine, see model.go).
//   - Nothing is refused for a reason that the operation cannot have.
package oracle
