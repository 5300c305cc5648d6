// Package audit writes down who did what with leases: one line of JSON for each lease that is granted, renewed,
// released or ended without its holder, each report of a ban, each attempt on somebody else's lease, and each act of an
// operator.
//
// A [Keeper] stands before the lease keeper and sees every command with its answer, whatever call it came by; Watch
// adds what happens without a command. Lines go through a bounded queue to a [Log], which never makes a caller wait:
// where its writer is too slow lines are lost, and counted. No line holds a token, a password or a credential: commands
// and answers have none, and session keys and request ids, which crawlers choose, are left out.
package audit
