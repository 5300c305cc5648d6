package lease

import "time"

// Guard bounds what bursts of bans can do: a crawler that reports nonsense, or
// a target that bans everything, must not burn the whole pool. Counts are per
// target key, in windows that follow each other, and are not durable.
type Guard struct {
	// Window is one minute by default.
	Window time.Duration
	// ReporterFloor and ReporterShare bound the bans of one principal for one
	// target that act: the greater of the floor (20 by default) and the share
	// (0.1 by default) of its fleet's exits. Further ones cool nothing and are
	// counted in [Reported].Guarded.
	ReporterFloor int
	ReporterShare float64
	// TargetFloor and TargetShare trip the guard of a fleet's target: when
	// more bans acted than the greater of the floor (10 by default) and the
	// share (0.5 by default) of the fleet's exits, its grants for the target
	// pause for a Window.
	TargetFloor int
	TargetShare float64
}

func (g Guard) withDefaults() Guard {
	if g.Window <= 0 {
		g.Window = time.Minute
	}
	if g.ReporterFloor <= 0 {
		g.ReporterFloor = 20
	}
	if g.ReporterShare <= 0 {
		g.ReporterShare = 0.1
	}
	if g.TargetFloor <= 0 {
		g.TargetFloor = 10
	}
	if g.TargetShare <= 0 {
		g.TargetShare = 0.5
	}
	return g
}

// guardCounts are the bans of the present window.
type guardCounts struct {
	began     int64
	reporters map[reporterKey]int
	targets   map[fleetTarget]int
}

type reporterKey struct {
	principal Principal
	target    string
}

type fleetTarget struct {
	fleet  FleetID
	target string
}

// roll begins a new window if the present one is over.
func (g *guardCounts) roll(now int64, window time.Duration) {
	if g.reporters != nil && now < g.began+int64(window) {
		return
	}
	g.began = now
	g.reporters = map[reporterKey]int{}
	g.targets = map[fleetTarget]int{}
}

// guarded counts a ban by a reporter, and tells whether it goes beyond what
// the reporter's bans may do.
func (e *Engine) guarded(l *lease, key string) bool {
	e.guard.roll(e.now, e.opts.Guard.Window)
	reporter := reporterKey{principal: l.principal, target: key}
	limit := max(e.opts.Guard.ReporterFloor, int(e.opts.Guard.ReporterShare*float64(l.fleet.exits)))
	if e.guard.reporters[reporter] >= limit {
		return true
	}
	e.guard.reporters[reporter]++
	return false
}

// countBan counts a ban that acted, and pauses the target if that was one too
// many.
func (e *Engine) countBan(l *lease, key string, out *Output) {
	pair := fleetTarget{fleet: l.fleet.id, target: key}
	e.guard.targets[pair]++
	limit := max(e.opts.Guard.TargetFloor, int(e.opts.Guard.TargetShare*float64(l.fleet.exits)))
	if e.guard.targets[pair] <= limit {
		return
	}
	delete(e.guard.targets, pair)
	e.trips++
	e.commit(&TargetPaused{
		At: moment(e.now), Fleet: l.fleet.id, Target: key, Until: moment(e.now + int64(e.opts.Guard.Window)),
	}, out)
}
