// Package disk keeps the lease journal in a directory of the hub's own disk.
//
// Records are the values of a log-structured store (Pebble) under growing
// numbers, encoded by package record. An append is one synced batch.
//
// The log does not grow without bound: after a number of appends the records
// are read again and condensed to a snapshot, beside the appends that follow,
// and one synced batch makes it count and drops what it replaces. A process
// that ends in between finds the log as it was.
//
// A torn end of the store's log is what a process leaves that died while it
// wrote: it is dropped, as nobody was answered. Damage further up is refused:
// see tail.go. Only within the very last append the two look the same.
//
// The header says whose journal it is, from when on it holds everything, and
// the epoch of the last start. A directory is used by one process at a time.
//
// The package imports the store and the lease engine, no Kubernetes and no
// Connect, and nothing else of the hub imports the store.
package disk
