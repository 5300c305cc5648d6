// Package leaseapi is what crawlers talk to: shoal.lease.v1.LeaseService over Connect, gRPC and gRPC-Web, and the
// same calls over REST.
//
// One connect.Server holds the service and its interceptors. Connect's own transport serves the first three
// protocols; rest.go is a second, small transport that maps paths and JSON bodies to the same procedures. So
// authentication, validation, refusals and limits exist once and cannot differ between protocols.
//
// A call passes: recovery (panics and unforeseen errors get a reference and are logged) → the interceptors of
// [Options] (metrics) → faults (every error carries its Refusal) → authentication, from headers alone, before a byte
// of the body is decoded → decoding, strict in JSON → the service: validation, one command to the keeper, and the
// answer with everything a client needs.
//
// What is strict: JSON with unknown fields, unknown enum names, duplicate keys or anything after the object is
// refused with a message that says what is allowed; so are unknown query parameters. Bodies are limited to
// [MaxBody].
//
// The package decides nothing about leases: that is package lease, behind [Keeper]. It reads no clock. It must not
// import Kubernetes clients, controllers or other edges of the hub. Tokens and credentials never reach its logs or
// errors. Everything exported is safe for concurrent use.
package leaseapi
