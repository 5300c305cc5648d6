// Package quota bounds what tenants and principals may take: leases held at a time, and leases asked for a second.
//
// A tenant is the namespace of a fleet. Limits are the hub's, not the tenants': they come from a file, which the chart
// mounts from a ConfigMap in the hub's namespace, and which is read again when it changes.
//
// A [Keeper] stands before the lease keeper. What an Acquire asks for is reserved before the engine is asked what is
// held, and given back once it is answered, so that no number of calls at once goes beyond a limit; a call that waits for
// a proxy counts as long as it waits. To repeat an Acquire that was granted takes nothing. Renew, Release and Report are
// never bounded: they end work that has begun.
package quota
