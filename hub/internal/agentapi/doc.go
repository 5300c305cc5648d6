// Package agentapi serves the hub's side of AgentService: sessions, and the calls by which agents get certificates.
//
// A session belongs to one member. Who calls is taken from the verified client certificate, for whom it may speak is
// asked of [Membership] when the session begins and every so often after, and whatever the agent says is said of that
// member and no other. The newest session of a member wins: an older one is ended, and has ended, before the newer one
// is welcomed.
//
// The package is an edge: it moves what [Dispatcher] wants down and what [Inventory] is told up, and decides nothing.
// The protocol itself is package session of module proto. It must not import controllers or other edges, and no lock is
// held while anything slow happens.
package agentapi
