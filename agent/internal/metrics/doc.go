// Package metrics says how an agent fares, to whoever scrapes it.
//
// What can be asked for is asked for at the scrape ([Collector]): how many proxies are in which phase, whether sessions
// are up. Only what passes by is counted as it does ([Probes]). Nothing is registered but by [Register], with a
// registry that the caller brings.
//
// Labels are of what there are few of: members, entries of the provider file, phases, classes, scopes of a cloud's quota.
// Proxies, fleets, leases and exits have none: their numbers are a hub's to choose. docs/operations/agent.md lists every
// metric.
package metrics
