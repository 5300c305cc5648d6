// Package leaseclient is what a crawler written in Go holds in hand: it leases proxies from a Shoal hub, keeps the
// leases alive, and gives them back.
//
// [Client.Acquire] gets a [Lease]. From then on the client renews it in the background until it is released, and tells
// of what the hub says meanwhile: that the proxy drains, that it leaves by another address, that the target wants to be
// asked less often ([Lease.State], [Lease.Changed]). [Lease.Begin] keeps to these limits. [Lease.Report] tells the hub
// how the target answered, [Lease.Release] ends the lease, and [Client.Close] releases whatever is still held.
//
// [Transport] does all of that around an [http.Client]: it leases for each request, or for each session of requests,
// sends them through the leased proxy, reports by what came back, and releases when the body has been read.
//
// # Refusals and lost answers
//
// What the hub refuses is a [Refusal] with a reason and the time to come back. Calls are repeated while there is such
// a time and [Retry] has patience: never before it, and with full jitter after it. An Acquire carries a request id, so
// a repeated one cannot lease twice; one whose answer was lost for good is undone in the background, so that no lease
// is held by nobody.
//
// # Time
//
// Durations of the hub are counted on this process's monotonic clock from the moment before the call was sent: clocks
// need not agree, and the client never believes in a lease for longer than the hub does.
//
// # Concurrency
//
// A [Client], its [Lease]s and a [Transport] are safe for concurrent use. Each lease has one goroutine, which ends with
// it. Nothing is held on to after [Client.Close] has returned without an error.
package leaseclient
