// Package engage is the multicluster provider of the agent: it brings clusters and regions into the manager as members
// come and go, and keeps what is wrong with one of them away from all others.
//
// Whoever knows of members (the configuration file, the file of regions, kubeconfig Secrets) calls [Provider.Set] and
// [Provider.Remove]. Each candidate has a goroutine of its own, which opens its cluster, waits until its cache has read
// everything, engages it, asks from time to time whether it still answers, and begins anew, with growing waits, where any
// of that fails. What multicluster-runtime does while it engages a cluster holds locks that all members share, so
// nothing is left for it to wait for by then.
package engage
