// Package keeper is the shell of the lease engine: the one place where leases meet a clock, a queue and a journal.
//
// One goroutine, [Keeper.Run], owns the engine. It takes what waits in the queue without sleeping, steps the engine
// through it, appends one batch of records to the [Journal], and only then answers. So an answer is never ahead of the
// journal, and many callers share one append. Between commands it waits for the next command or for the engine's next
// deadline.
//
// Duties of whoever wires it:
//
//  1. Make the engine with [lease.Options].HistoryComplete as the journal
//     deserves: true if it holds everything that was ever granted, or if this
//     is a new installation.
//  2. Call Run once; end the program when it returns an error. A journal that
//     refuses a batch leaves the engine ahead of it, so nothing that the engine
//     knows can be trusted any more.
//  3. Bound each call by its context.
//
// [Keeper.Do] and the methods by command may be called from any goroutine. A refused command is a *[lease.Refusal]; a
// keeper that does not run is an *[Unavailable]; a caller whose context ends gets the context's error, and then a
// command that had already been taken up may have been carried out: that is what request ids are for. An Acquire is given
// back in that case, because nobody will ever use what it was granted.
//
// An Acquire that waits costs its caller's goroutine, and an entry in the engine's queue. It is answered in the batch in
// which the engine serves it, after the journal has what it was granted.
//
// The package imports no Kubernetes API and no Connect.
package keeper
