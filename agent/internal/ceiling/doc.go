// Package ceiling decides what a hub may ask of a member. Its owner writes the policy into the agent's own
// configuration, which no hub can change; a request above it is refused proxy by proxy, with the rule named.
//
// The hub is taken for an enemy here: whoever holds it may send any spec that can be written. What the API server
// refuses by its schema is refused again where a member's safety hangs on it. The schema bounds single fields, this
// package bounds what they add up to.
//
//   - policy.go: the policy, what its zero values mean, and the names of its rules
//   - ceiling.go: Check, which asks every rule
//   - a file for each group of rules: addresses.go, ports.go, counts.go, machines.go, nodes.go
//
// The package is pure: it imports the API's types and nothing of Kubernetes, and it neither reads nor writes anything.
package ceiling
