// Package faultmatrix is a test of the Proxy controller over any provider: whatever goes wrong at whichever call, there is
// one instance in the end or none, never two at any time, and none that nobody knows of.
//
// It plays a few stories of a Proxy's life (it is made, its spec changes, it is deleted, its instance is lost) once without
// a fault, counts the calls to the provider and the writes to the API server in them, and then plays each story again for
// each of those calls and each thing that can happen to it: the agent is killed before or after it, its answer is lost, or
// it fails with any kind of error; lists tell the truth at once, or what was true a while ago. Only tests import it.
package faultmatrix
