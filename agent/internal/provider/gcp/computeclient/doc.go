// Package computeclient is the only package that imports the Compute Engine client: it compiles for minutes, and what is
// wrong with it is mended here, in one place. It speaks in plain types; no protobuf of Compute Engine leaves it.
//
// What the client does by itself, and what is done about it:
//
//   - Waiting for an operation reports no error unless the operation has an HTTP status. Nothing here waits:
//     [Client.ZoneOperation] reads the operation and its error ([Operation.Failures]).
//   - An APIError has no reason for REST, and its gRPC code is the same for a refusal and for a rate limit. [Error] takes
//     the reason from the body's first error.
//   - Lists ignore their context, are never retried, cannot ask for partial success any more, and drop what a page says
//     of parts that could not be read as soon as the next page is there. Each listing therefore has a transport of its own
//     (listing) that binds the context, adds the parameter and reads every page; retries are asked for.
//   - Names go into paths as they are. They are checked before (names.go).
//   - The user agent, the timeout and the credentials are set on the transport, since a given HTTP client bypasses the
//     options.
//
// Every call logs one line with its outcome at V(1), its details at V(2), and its bodies at V(5). A body is logged only if
// it is of Compute Engine itself: what a token is exchanged for never is. Headers are not logged at all.
package computeclient
