// Package engine finds the container engine that the clusters run on, and runs a private one where there is none.
//
// The private engine is Debian's dockerd with its data, sockets and state below the cache. It is built to be killed at any
// moment: what a daemon leaves (containers that run on, mounts, cgroups, interfaces, firewall rules) is recognised by our
// directories and recorded networks, not by what the daemon would have remembered. The state of the host before its first
// start is kept until it is stopped, and put back then.
//
// It knows nothing of clusters. Methods are called by one goroutine under the cluster package's lock; Engine itself is safe
// for concurrent use.
package engine
