// Package feed tells the lease engine what may be leased: the fleets' leasing policies, the proxies that members
// reported, and which members are silent.
//
// It takes in the hub's objects (through a cached reader) and the inventory, and gives out inventory commands to the
// keeper. It is level-based and latest-wins: it keeps what it last told the keeper, compares it with what should be
// known, and tells the difference. A command that the keeper does not take is told again. One goroutine ([Feed.Start])
// owns all of it; only the calls to the keeper are made several at a time, so that they share appends to the journal.
//
// A proxy whose name is on its placement's drain list is told as draining, whether or not its member has noticed yet.
// One whose placement is gone, or going, is draining too.
//
// The package imports no edge: controllers may import it, not the other way round.
package feed
