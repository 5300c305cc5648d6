// Package valkey keeps the lease journal on a Valkey or Redis server, so that any of several hubs can go on with it.
//
// Four keys share a hash slot: a header, a stream with one entry for each append, and two lists of which one holds the
// snapshot in use and the other the next one. Only scripts change them, so each change is whole or not at all. The
// records are encoded as on disk, by package record.
//
// # One writer
//
// Opening the journal takes the fence: it counts up the epoch in the header. Every later change names its epoch and is
// refused, as [*Deposed], once another hub has taken the fence. So a hub that was deposed without noticing cannot answer
// anyone.
//
// # Once
//
// Batches are numbered. An append is tried again, for [Options].Patience in all, while the server does not answer, is
// being restarted or is a replica. If the server has the batch already, a reply was lost and nothing is done: so no
// batch is applied twice. After that the append fails and the hub has to end; whether that batch is in the journal is
// then unknown, as callers are told.
//
// # A server that forgets
//
// A server that was failed over or restored may lack what it once acknowledged. The header says whose epoch and which
// batch it knows, so the next append finds out: it fails with keeper.ErrForgotten, and the keeper has the journal write
// the engine's whole state down again (see [Journal.Rewrite]). Nothing is lost while the leader lives. A hub that starts
// has nothing to compare with but the server's replication id, which changes with every failover and restart, and the
// epoch that the hub's Secret remembers: unless both fit, history begins now, and nothing is granted for one maxTTL.
//
// A Journal is for one goroutine, as the keeper's.
package valkey
