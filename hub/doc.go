// Package hub runs a hub: the controllers of fleets, members and placements, the listener of the agents, the listener
// of the crawlers and the keeper of the leases, as one program. Run is all there is to call; Config is all it takes.
//
// This package is the only one that sees every part. It makes them, hands each what it needs and starts and stops them
// in order; it decides nothing.
package hub
