package lease

import (
	"maps"
	"slices"
)

// ReadHeld asks how many leases a tenant and a principal hold in all fleets.
// It is answered by [Held], and costs a look at each fleet.
type ReadHeld struct {
	// Fleet's namespace is the tenant.
	Fleet     FleetID
	Principal Principal
	// RequestID is that of an Acquire, if it has one.
	RequestID RequestID
}

// Held answers [ReadHeld].
type Held struct {
	Tenant    int
	Principal int
	// Repeated says that an Acquire with the request id is known: to repeat it
	// takes nothing.
	Repeated bool
}

// ReadTotals asks for counts of everything, for metrics. It is answered by
// [Totals], and costs a look at each fleet and at each target that has bans.
type ReadTotals struct{}

// Totals answers [ReadTotals].
type Totals struct {
	// Fleets are those that exist, in the order of their ids.
	Fleets []FleetTotals
	// Exits are those that proxies have or cooldowns remember; Cooldowns are
	// the pairs of exit and target that rest now.
	Exits     int
	Cooldowns int
	// Targets are those with a cooldown or strikes.
	Targets     int
	Sessions    int
	Revocations int
	Pauses      int
	// GuardTrips counts how often a guard has paused a fleet's target since the
	// start of this engine.
	GuardTrips uint64
}

// FleetTotals are a fleet's.
type FleetTotals struct {
	ID FleetID
	Stats
	// Guarded counts the targets that its guard has paused.
	Guarded int
}

func (ReadHeld) command()   {}
func (ReadTotals) command() {}

func (Held) result()   {}
func (Totals) result() {}

func (e *Engine) readHeld(cmd *ReadHeld) (Result, *Refusal) {
	var held Held
	tenant := cmd.Fleet.Namespace()
	for id, f := range e.fleets {
		if id.Namespace() == tenant {
			held.Tenant += f.leased
		}
		held.Principal += f.holders[cmd.Principal]
	}
	if cmd.RequestID != "" {
		held.Repeated = e.requests[requestKey{principal: cmd.Principal, fleet: cmd.Fleet, id: cmd.RequestID}] != nil
	}
	return held, nil
}

func (e *Engine) readTotals() Totals {
	totals := Totals{
		Exits: len(e.exits), Targets: len(e.targets), Sessions: len(e.sessions),
		Revocations: len(e.standing()), Pauses: len(e.pausesNow()), GuardTrips: e.trips,
	}
	for _, t := range e.targets {
		totals.Cooldowns += t.active
	}
	for _, id := range slices.Sorted(maps.Keys(e.fleets)) {
		f := e.fleets[id]
		if !f.exists {
			continue
		}
		of := FleetTotals{ID: id}
		if stats, refusal := e.readStats(&ReadStats{Fleet: id}); refusal == nil {
			of.Stats, _ = stats.(Stats)
		}
		for _, until := range f.paused {
			if until > e.now {
				of.Guarded++
			}
		}
		totals.Fleets = append(totals.Fleets, of)
	}
	return totals
}
