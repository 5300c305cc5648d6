package lease

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The commands of operators: people who look after the hub. Who may send
// them is for the edge to decide.

// RevocationSlack is how much longer than the longest lease a revocation
// stands: credentials live up to a signing window longer than their lease, and
// the clocks of proxies differ.
const RevocationSlack = 2 * time.Minute

// MaxRevocations bounds the revocations that stand at a time, well below what
// a proxy's deny list takes.
const MaxRevocations = 2000

// maxPauses bounds the targets that are paused hub-wide at a time.
const maxPauses = 1000

// maxWhy bounds the reasons that operators give.
const maxWhy = 200

// Revoke ends the leases of a principal, on one proxy or everywhere, and
// grants it no more there while the revocation stands: until every credential
// that it was given has ended, or For if that is longer. Revoking again
// replaces the revocation. It is answered by [Revoked].
type Revoke struct {
	Principal Principal
	// Proxy is the one it is revoked on; empty means everywhere.
	Proxy ProxyUID
	// For is how long at least; zero leaves it to the engine.
	For time.Duration
	// Why is told to the principal.
	Why string
	// By is who asks, for those who keep a log of it.
	By Principal
}

// Reinstate lifts a revocation. It is answered by [Lifted].
type Reinstate struct {
	Principal Principal
	Proxy     ProxyUID
	By        Principal
}

// ListRevocations asks for the revocations that stand. It is answered by
// [Revocations].
type ListRevocations struct{}

// PauseTarget stops grants for a target in all fleets. Leases go on. It is
// answered by [Paused].
type PauseTarget struct {
	Target Target
	// For is how long; zero means until it is resumed.
	For time.Duration
	// Why is told to those who are refused.
	Why string
	// By is who asks, for those who keep a log of it.
	By Principal
}

// ResumeTarget ends a pause, and those that guards of fleets began. It is
// answered by [Lifted].
type ResumeTarget struct {
	Target Target
	By     Principal
}

// ListPauses asks for the targets that are paused hub-wide. It is answered by
// [Pauses].
type ListPauses struct{}

// ListBans asks for exits that rest or have strikes. It is answered by [Bans],
// and costs a look at every cooldown.
type ListBans struct {
	// Target is a target key; empty means all.
	Target string
	// Exit is one exit; the zero Exit means all.
	Exit Exit
	// Limit is how many are listed at most: 0 for [MaxPageSize].
	Limit int
}

// ClearBan lets an exit work for a target again and forgets its strikes: the
// ban was false. It is answered by [Lifted].
type ClearBan struct {
	// Target is a target key, as [ListBans] shows it.
	Target string
	// Exit is one exit; the zero Exit means all exits of the target.
	Exit Exit
	By   Principal
}

// Revocation says that a principal may not lease.
type Revocation struct {
	Principal Principal
	Proxy     ProxyUID
	Since     time.Time
	Until     time.Time
	Why       string
}

// Pause says that nothing is granted for a target.
type Pause struct {
	Target string // its key
	Since  time.Time
	Until  time.Time // zero means until it is resumed
	Why    string
}

// Ban is one exit's rest for one target, or what is left of it.
type Ban struct {
	Exit   Exit
	Target string
	// Active says that the exit rests now, until Until.
	Active bool
	Until  time.Time
	// Banned tells a ban from a rate limit.
	Banned  bool
	Strikes int
	// Fleets have the exit now.
	Fleets []FleetID
}

// Revoked answers [Revoke].
type Revoked struct {
	Revocation Revocation
	// Ended are the leases that were ended.
	Ended []Subject
}

// Revocations answers [ListRevocations], ordered by principal and proxy.
type Revocations struct{ Standing []Revocation }

// Paused answers [PauseTarget].
type Paused struct{ Pause Pause }

// Pauses answers [ListPauses], ordered by target.
type Pauses struct{ Standing []Pause }

// Bans answers [ListBans], ordered by target and exit.
type Bans struct {
	Bans []Ban
	// Total counts those that match, listed or not.
	Total int
}

// Lifted answers [Reinstate], [ResumeTarget] and [ClearBan].
type Lifted struct {
	// Count is how many revocations, pauses or cooldowns there were; 0 means
	// that there was nothing to lift.
	Count int
}

func (Revoke) command()          {}
func (Reinstate) command()       {}
func (ListRevocations) command() {}
func (PauseTarget) command()     {}
func (ResumeTarget) command()    {}
func (ListPauses) command()      {}
func (ListBans) command()        {}
func (ClearBan) command()        {}

func (Revoked) result()     {}
func (Revocations) result() {}
func (Paused) result()      {}
func (Pauses) result()      {}
func (Bans) result()        {}
func (Lifted) result()      {}

// revocationKey is where a revocation holds.
type revocationKey struct {
	principal Principal
	proxy     ProxyUID
}

// operate carries out a command of an operator.
func (e *Engine) operate(cmd Command, out *Output) (Result, *Refusal) {
	switch cmd := cmd.(type) {
	case Revoke:
		return e.revoke(&cmd, out)
	case Reinstate:
		return e.reinstate(&cmd, out)
	case ListRevocations:
		return Revocations{Standing: e.standing()}, nil
	case PauseTarget:
		return e.pauseTarget(&cmd, out)
	case ResumeTarget:
		return e.resumeTarget(&cmd, out)
	case ListPauses:
		return Pauses{Standing: e.pausesNow()}, nil
	case ListBans:
		return e.listBans(&cmd)
	case ClearBan:
		return e.clearBan(&cmd, out)
	case ReadHeld:
		return e.readHeld(&cmd)
	case ReadTotals:
		return e.readTotals(), nil
	default:
		return nil, invalid("command", "the command is none that this engine knows")
	}
}

// pauseTarget stops grants for a target.
func (e *Engine) pauseTarget(cmd *PauseTarget, out *Output) (Result, *Refusal) {
	key := cmd.Target.key
	switch {
	case key == "":
		return nil, invalid("target", "target is empty; write the host to pause, such as example.com")
	case cmd.For < 0:
		return nil, invalid("for", fmt.Sprintf("for is %s; write a positive duration, or leave it out for a pause until it is resumed", cmd.For))
	case len(cmd.Why) > maxWhy:
		return nil, invalid("why", fmt.Sprintf("why has %d bytes; write at most %d", len(cmd.Why), maxWhy))
	}
	if _, paused := e.pauses[key]; !paused && len(e.pausesNow()) >= maxPauses {
		return nil, invalid("target", fmt.Sprintf("%d targets are paused, the most there can be; resume some first", maxPauses))
	}
	pause := Pause{Target: key, Since: moment(e.now), Why: cmd.Why}
	if cmd.For > 0 {
		pause.Until = moment(e.now + int64(cmd.For))
	}
	e.commit(&TargetHalted{At: moment(e.now), Target: key, Until: pause.Until, Why: cmd.Why}, out)
	e.turnAwayAll(func(waiting *Acquire) bool { return waiting.Target.key == key }, out)
	return Paused{Pause: pause}, nil
}

// resumeTarget ends a pause and lifts the guards of the target.
func (e *Engine) resumeTarget(cmd *ResumeTarget, out *Output) (Result, *Refusal) {
	key := cmd.Target.key
	if key == "" {
		return nil, invalid("target", "target is empty; write the host to resume, such as example.com")
	}
	var lifted Lifted
	if pause, paused := e.pauses[key]; paused {
		if pause.stands(e.now) {
			lifted.Count++
		}
		e.commit(&TargetResumed{At: moment(e.now), Target: key}, out)
	}
	lifted.Count += e.liftGuards(key, out)
	return lifted, nil
}

// liftGuards ends the pauses that guards have begun for a target.
func (e *Engine) liftGuards(key string, out *Output) int {
	lifted := 0
	for _, id := range slices.Sorted(maps.Keys(e.fleets)) {
		if e.fleets[id].paused[key] > e.now {
			lifted++
			e.commit(&TargetPaused{At: moment(e.now), Fleet: id, Target: key, Until: moment(e.now)}, out)
		}
	}
	return lifted
}

func (p *Pause) stands(now int64) bool { return p.Until.IsZero() || nanos(p.Until) > now }

// pausesNow lists the pauses that stand.
func (e *Engine) pausesNow() []Pause {
	var standing []Pause
	for _, key := range slices.Sorted(maps.Keys(e.pauses)) {
		if p := e.pauses[key]; p.stands(e.now) {
			standing = append(standing, p)
		}
	}
	return standing
}

// targetPaused refuses what an operator has paused.
func (e *Engine) targetPaused(key string) *Refusal {
	pause, paused := e.pauses[key]
	if !paused || key == "" || !pause.stands(e.now) {
		return nil
	}
	r := &Refusal{Reason: TargetHeld, RetryAfter: pauseRetry}
	until := "until that is lifted"
	if !pause.Until.IsZero() {
		r.RetryAfter = retryIn(e.now, nanos(pause.Until))
		until = "for " + humane(r.RetryAfter)
	}
	r.Message = fmt.Sprintf("an operator has paused grants for %s %s%s", key, until, because(pause.Why))
	return r
}

// pauseRetry is the retryAfter where a pause has no end: a person ends it.
const pauseRetry = time.Minute

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// listBans lists cooldowns.
func (e *Engine) listBans(cmd *ListBans) (Result, *Refusal) {
	limit := cmd.Limit
	switch {
	case limit < 0 || limit > MaxPageSize:
		return nil, invalid("limit", fmt.Sprintf("limit is %d; leave it out, or write 1 to %d", limit, MaxPageSize))
	case limit == 0:
		limit = MaxPageSize
	}
	var found []*cooldown
	for key, t := range e.targets {
		if cmd.Target != "" && cmd.Target != key {
			continue
		}
		for x, c := range t.cooldowns {
			if !cmd.Exit.IsValid() || cmd.Exit == x.exit {
				found = append(found, c)
			}
		}
	}
	slices.SortFunc(found, func(a, b *cooldown) int {
		return cmp.Or(cmp.Compare(a.target.key, b.target.key), a.exit.exit.prefix.Compare(b.exit.exit.prefix))
	})
	bans := Bans{Total: len(found)}
	for _, c := range found[:min(limit, len(found))] {
		ban := Ban{
			Exit: c.exit.exit, Target: c.target.key, Active: c.active, Until: moment(c.until), Banned: c.banned, Strikes: c.strikesAt(e.now),
		}
		for f := range c.exit.fleets {
			ban.Fleets = append(ban.Fleets, f.id)
		}
		slices.Sort(ban.Fleets)
		bans.Bans = append(bans.Bans, ban)
	}
	return bans, nil
}

// clearBan forgets cooldowns of a target, and lifts its guards with them.
func (e *Engine) clearBan(cmd *ClearBan, out *Output) (Result, *Refusal) {
	if cmd.Target == "" {
		return nil, invalid("target", "target is empty; write the target whose ban is false, such as example.com")
	}
	var lifted Lifted
	if t := e.targets[cmd.Target]; t != nil {
		exits := slices.SortedFunc(maps.Keys(t.cooldowns), func(a, b *exit) int { return a.exit.prefix.Compare(b.exit.prefix) })
		for _, x := range exits {
			if cmd.Exit.IsValid() && cmd.Exit != x.exit {
				continue
			}
			lifted.Count++
			e.commit(&CooldownCleared{At: moment(e.now), Exit: x.exit, Target: cmd.Target}, out)
		}
	}
	if !cmd.Exit.IsValid() || lifted.Count > 0 {
		e.liftGuards(cmd.Target, out)
	}
	return lifted, nil
}

// applyCleared forgets a cooldown.
func (e *Engine) applyCleared(r *CooldownCleared) {
	c := e.cooldownOf(r.Exit, r.Target)
	if c == nil {
		return
	}
	c.until, c.strikes, c.rest = nanos(r.At), 0, 0
	e.cooldownDue(c, e.now)
}
