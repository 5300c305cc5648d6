// Package inventory holds what members reported of themselves and judges, by the hub's clock, whether they are there.
//
// Sessions write (Connected, Heard, ObserveProxy, ObserveProxySet, Gone, Resynced, Disconnected); controllers, the feed
// of the lease engine and status read. Nothing here is durable: after a restart of the hub it fills again as members
// connect, and until a member has resynced its part counts as incomplete (see [MemberView]).
//
// # Liveness
//
// A member is Ready while frames arrive, Suspect once none came for [SuspectAfter] and Unreachable after
// [UnreachableAfter]. Loss is counted from the last frame before it. Recovery takes more than one frame: a Suspect
// member must be heard for [RecoverAfter] without another gap, and an Unreachable one must resync. No clock but the
// hub's own is ever compared.
//
// # Completeness
//
// A session that begins reports everything anew. What it has not observed between Connected and Resynced is gone, but a
// member that would thereby lose over half of its proxies is doubted: they stay, no longer ready, until a second
// Resynced confirms the loss. Proxies that were draining do not count, and Gone is never doubted.
//
// The package imports the agents' protocol and no Kubernetes but its clock. Locks are held for the length of map
// accesses; no method waits for a reader; memory is bounded by the number of proxies.
package inventory
