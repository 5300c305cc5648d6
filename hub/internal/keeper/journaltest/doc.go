// Package journaltest is the suite that every keeper.Journal passes. A journal that outlives its process passes it with
// Open opening the same store anew.
//
// It holds a journal to the contract of package keeper: order, batches that are whole or not there, records of every
// kind, snapshots beside appends, an engine that comes out as it went in. What one store alone can do (a full disk, a
// server that fails over) is for that journal's own tests.
//
// Only tests import it.
package journaltest
