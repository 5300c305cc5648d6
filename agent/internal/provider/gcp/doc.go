// Package gcp runs proxies as virtual machines of Compute Engine, one each.
//
// A machine is Container-Optimized OS with the same proxy image and the same squid.conf as a pod. It is made by one call
// that carries its whole identity as labels, without a service account whose token could be taken, shielded, and with a
// bound on its life that Compute Engine itself keeps, so that nothing is left running where an agent is gone for good.
//
// Compute Engine answers a request before it knows whether it can fulfil it. [Provider.Create] therefore gives the
// operation's name, and nothing waits: [Provider.Get] looks for the machine, and where there is none, for what became of
// the operation. Only an operation that is done and has failed lets the controller try elsewhere; one that cannot be read
// is taken for one that goes on.
//
// # What a machine knows
//
// No secret. Its metadata has squid.conf, the image, and the public keys and denials that credentials are checked with;
// whoever may read instances may read it. The keys and denials change while a machine runs: [Provider.SyncKeys] writes
// them, and a unit in the machine watches them. The rest never changes: another spec is another machine.
//
// # Addresses
//
// Without a static address a machine takes any. A static one is reserved before the machine and given back after it, under
// a name that is derived from the machine's; whose it is stands in its description, which can be written in the call that
// reserves it, as labels cannot.
//
// The package computeclient beneath is the only one that imports the Compute Engine client; computefake is what both are
// tested against.
package gcp
