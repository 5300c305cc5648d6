// Package proxy leads each Proxy through its life: Pending, Provisioning, Ready ⇄ Unhealthy, Draining, Deleting, gone.
//
// A pass gathers what is (scope.go, reads only), runs the phases in order (ceiling.go, provision.go, probing.go; for a
// Proxy that is being deleted finalize.go), computes all conditions once (status.go) and writes one patch.
//
// What keeps it from leaking or doubling an instance, wherever it is killed:
//
//  1. The finalizer is set before the first call to a provider.
//  2. The instance's name, and the host port kept for it, are written to the status before the instance is asked for. The
//     name is derived from the Proxy's UID and the hash of its spec, so even a lost write leads to the same name.
//  3. Create is idempotent by name; the controller looks (Get) before it acts.
//  4. An instance of another spec is deleted, and gone, before the next one is asked for.
//  5. The finalizer is removed only when Get has said NotFound after a Delete.
//
// A proxy is Ready only by the verdict of probes through it, never by what its provider says. Only transitions are
// written to the API server; what changes with every probe goes to the hub by the report.
//
// The package must not import the uplink or anything of the hub's protocol.
package proxy
