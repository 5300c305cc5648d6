// Package probe finds out whether a proxy works by using it: dial, CONNECT with credentials, TLS, and a GET of an echo
// target that answers with the address it saw, which is the proxy's exit.
//
// The parts, from pure to not:
//
//   - classify.go: [Classify] turns what one probe saw into a [Class], and a class into who is to blame.
//   - verdict.go, freeze.go: [Judge] turns the results of all proxies of a member into verdicts, with thresholds and
//     hysteresis. A target's outage is not the proxy's; what hits most proxies at once is none of theirs.
//   - schedule.go: [Schedule] says who is probed when, evenly and with jitter.
//   - prober.go: [Prober] does one probe over the network.
//   - runner.go: [Runner] is the shell: it asks the schedule, probes with bounded concurrency, and hands on verdicts.
//
// The first three are pure: time is an argument, there is no goroutine, no I/O and no randomness but a given seed.
// The package must not import Kubernetes or the API types; whoever owns Proxy objects feeds the runner and writes down
// transitions.
package probe

// UID is the UID of a Proxy object.
type UID string

// EchoID names an echo target in results and messages.
type EchoID string
