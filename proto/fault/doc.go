// Package fault turns the reasons of shoal.lease.v1.Refusal into errors that travel, and back.
//
// A refusal has one meaning on every protocol. [New] builds it: a Connect error with the code that belongs to the
// reason and the Refusal as its typed detail. [From] reads it back, in a client or on the way out of a server, and
// [HTTPStatus] says how plain HTTP calls it. This is the only package that knows both reasons and codes; whoever
// adds a reason to the protocol adds a line to its table, and a test fails until then.
//
// It holds no state, reads no clock, and everything in it is safe for concurrent use. It must not import the hub or
// the agent.
package fault
