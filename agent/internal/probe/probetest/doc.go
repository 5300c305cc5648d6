// Package probetest is what probes meet, in a process of its own: proxies, and the echo target behind them. What the
// agent itself costs can be measured so, because none of it is spent on their side. It is for tests and benchmarks only.
package probetest
