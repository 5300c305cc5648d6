// Package cluster makes and removes groups of kind clusters: a hub and its members, side by side on one container
// network.
//
// A group is named by its prefix and described by one file in the cache. Everything is judged by what is found (the
// engine's containers, the clusters' answers), and the file only adds what cannot be seen from outside: which ranges were
// chosen, and which clusters were completed. What is not complete or does not answer is removed and made anew, so it does
// not matter where an earlier run was interrupted.
package cluster
