// Package external keeps the credentials of proxies that someone else runs: it reads them from their owners' Secrets and
// holds them in memory, for the sessions that take them to members and for the answers to leases.
//
// They are the one secret that travels. They are in no journal, no object of the hub's own, no hash, log, event or
// message: what names them elsewhere is their key, which is made from the Secret's UID and resource version and changes
// whenever the Secret does.
//
// The hub may get single Secrets where its chart allows it, and neither list nor watch them, so a changed Secret is found
// by asking again (see [Store.Refresh]). What could be read once is kept when it cannot be read any more, until the hub
// restarts: a mistake in a Secret stops changes of the fleet, not its leases.
package external
