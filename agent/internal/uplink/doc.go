// Package uplink is the agent's end of the session with the hub: it brings down what the hub desires and takes up what
// the agent observes, for one member.
//
// What is observed is put into an [Outbox], which outlives sessions; what is desired is given to an [Applier]. Both are
// level-based: a session begins with everything there is, so that whatever was lost with the one before costs time and
// nothing else. An [Uplink] connects again for ever. The protocol itself is package session of module proto.
//
// The package must not import Kubernetes' API machinery, nor controllers.
package uplink
