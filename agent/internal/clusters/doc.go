// Package clusters brings other clusters than the agent's own into the agent as members: those whose kubeconfigs are in
// Secrets of its namespace that are labelled shoal.dev/component=kubeconfig. A Secret has the keys kubeconfig and
// member.yaml, which says what the member is called and what its owner allows; it is checked as strictly as the agent's
// own configuration. A changed Secret takes effect at once, all of it or nothing.
//
// multicluster-runtime has a provider for such Secrets. It is not used: it engages what it has not looked at, so that one
// bad cluster holds up all others, and it tries again only where an error reaches its own reconciler.
package clusters
