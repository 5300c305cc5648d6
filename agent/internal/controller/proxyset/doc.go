// Package proxyset makes a member's proxies as many as the hub has decided.
//
// It creates what is missing, marks what the hub lists in drain, and deletes a marked proxy when its deadline has
// passed, by the agent's own clock, whether or not the hub can be reached. It never chooses which proxy goes.
//
// It must not import providers, probes or anything of the hub's protocol.
package proxyset
