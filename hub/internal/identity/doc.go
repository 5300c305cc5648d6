// Package identity is who is who on the hub: the hub itself, its agents, its members and its callers.
//
// Hub is the hub's own identity, kept in one Secret that is made once and never replaced. Authority issues
// certificates, for agents and for the hub's listeners. JoinToken and APIToken are what people hand to a new member
// and to a crawler; only hashes of them are stored. TokenStore authenticates callers, JoinTokens authenticates members
// that join, Membership decides which agent may speak for which member.
//
// What decides is pure and takes the time as an argument; what reads and writes the Kubernetes API is a thin layer
// around it. Nothing here logs, and no error carries a key or a token: see Sensitive. The package does not import the
// edges of the hub (agentapi, leaseapi, controllers).
//
// Everything is safe for concurrent use unless it says otherwise.
package identity
