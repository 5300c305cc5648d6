// Package access is who may lease, and who may operate the hub.
//
// A caller shows one of two bearer tokens. An API token (package identity) is the hub's own: it names its principal and
// its fleets, and is looked up in a cache of Secrets that follows the API server. A ServiceAccount token is
// Kubernetes' own: the API server is asked whose it is (TokenReview, for the audience "shoal" and no other) and what
// its ServiceAccount may do (SubjectAccessReview, verb "lease" or "operate" on proxyfleets.shoal.dev). So RBAC grants
// fleets as it grants everything else, and a crawler in a pod needs no secret but its projected token.
//
// Answers of the API server are remembered for [Remembered], good and bad ones alike, and a question is asked once for
// all who wait for its answer. Both memories are bounded, and strangers cannot push out the callers that are known:
// what was good and what was not are kept apart, and each kind has its own share of the questions in flight. An answer
// that did not come is not remembered, and lets nobody in.
//
// Nothing here logs, and tokens are kept as hashes only.
package access
