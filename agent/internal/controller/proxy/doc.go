// Package proxy leads each Proxy through its life: Pending, Provisioning, Ready ⇄ Unhealthy, Draining, Deleting, gone.
//
// A pass gathers what is (scope.go, reads only), runs the phases in order (ceiling.go, provision.go, probing.go, ready.go,
// busy.go; for a Proxy that is being deleted finalize.go), computes the conditions once, one from each phase (status.go),
// and writes one patch.
//
// What keeps it from leaking or doubling an instance, wherever it is killed:
//
//  1. The finalizer is set before the first call to a provider.
//  2. The attempt is written to the status before the instance is asked for: its name, its zone, the ID of its request, and
//     the host port kept for it (attempt.go). The name is derived from the Proxy's UID and the hash of its spec, the ID from
//     the UID and the attempt's number, which is never used again.
//  3. An attempt is made again with the same ID, in the same zone, until the provider has answered. There is another one,
//     perhaps in another zone, only when this one has ended: its request was refused, or its instance is gone.
//  4. Gone means absent from Get and from a complete list that was begun after the Delete (remove.go, lister.go), and for a
//     zoned provider not before what was asked for must have shown. A list that lacks a zone says nothing.
//  5. An instance of another spec is gone before the next one is written down, and the finalizer is removed only when the
//     last one is gone.
//
// The package faultmatrix plays all of that with a fault at every call and every write.
//
// What goes wrong is kept in the status as a setback (setback.go): how often, and when the provider is asked again. So a
// permanent error stays latched, and an instance that keeps dying is asked for more and more slowly, also over a restart.
// What a provider says of a zone, a region or a project holds for all who would ask there (blocks.go): they wait together
// and say so, and nobody else does.
//
// A proxy is Ready only by the verdict of probes through it, never by what its provider says. Only transitions are
// written to the API server; what changes with every probe goes to the hub by the report. A pass that changes nothing
// writes nothing and asks the provider for one look, whatever the number of proxies: what it must know of the others is
// counted as they pass (census.go).
//
// The package must not import the uplink or anything of the hub's protocol.
package proxy
