// Package crash kills hubs. Its tests let 64 clients acquire, renew, release and report over the real lease API, end the
// hub with SIGKILL at random moments, start the next one, and have package oracle judge what the clients saw.
//
// What is killed, and when, is drawn from a seed, which is printed: moments of the start, moments under load, moments after
// a certain line of the hub's log (a compaction begins, the journal is loaded), after a stop that makes the clock jump
// (SIGSTOP, SIGCONT). The clients draw from the same seed; how their calls interleave is the machine's.
//
// There are two kinds of hubs. Half a hub (hub/internal/halfhub) is the real journal, keeper and lease API without a
// cluster: it starts in a tenth of a second, so that a hundred kills take two minutes, and `make test` can play a few of
// them. With a server's journal there are two: the other takes over when the first is killed, or while it is stopped, and
// then the first must find out that it was deposed. A whole hub (-hub=whole) is shoal-hub with an API server that outlives
// it and simulated members that report their proxies over real sessions.
package crash
