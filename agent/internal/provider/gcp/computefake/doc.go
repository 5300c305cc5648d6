// Package computefake is a strict, stateful stand-in for the part of the Compute Engine v1 REST API that the gcp provider
// uses. The real Go client talks to it over HTTP, in tests and, as a program (cmd/compute-fake), in the demo.
//
// # Strict
//
// What the fake does not know it refuses with an error of Google's shape that names it: a path, a query parameter, a
// field of a body, a term of a filter. It never ignores anything: a filter that is ignored makes a sweep delete strangers'
// machines. Mistakes that Compute Engine refuses are refused here: names, labels, metadata, references, scheduling,
// fingerprints, request IDs.
//
// # Stateful
//
// An instance goes PROVISIONING → STAGING → RUNNING and leaves by STOPPING; each call that changes something answers with an
// operation that goes PENDING → RUNNING → DONE and holds the error, if there is one: an insert that will fail answers 200.
// The state is a function of the calls made and of the clock, which is injected: nothing happens between two looks at
// it, so that a test with a stopped clock sees every state for as long as it wants to.
//
// The core is world, without a lock, a clock or a goroutine; [Server] is the HTTP shell around it, and holds the faults
// that a test injects ([Server.Inject] and its neighbours).
//
// # What it is not
//
// It serves instances, zonal and regional operations, regional addresses, regions and zones. There are no disks, images,
// networks or firewalls as objects: references to them are checked against lists in [Options]. Authentication is a
// comparison of bearer tokens.
//
// The shapes are those of reference/dataplane.md and were written down from the public API description; where it leaves
// a choice, the stricter one is taken.
package computefake
