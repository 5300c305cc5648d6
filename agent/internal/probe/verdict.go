package probe

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// State is what is known of a proxy's health.
type State string

const (
	// StateUnknown means that the proxy has never worked: nothing is leased on trust.
	StateUnknown State = "Unknown"
	// StateReady means that pages come through it.
	StateReady State = "Ready"
	// StateUnhealthy means that it worked and does not any more.
	StateUnhealthy State = "Unhealthy"
)

// Thresholds say how strictly one proxy is judged.
type Thresholds struct {
	// FailAfter is the number of consecutive failures blamed on a proxy that make it Unhealthy. Default 3.
	FailAfter int
	// FailSpan is the least time over which they must stretch. It must be longer than the probe interval, so that
	// every other proxy of that interval has been probed as well and a common cause shows. Default 12 s.
	FailSpan time.Duration
	// PassAfter is the number of consecutive successes that make an Unhealthy proxy Ready. A proxy that has never
	// failed needs one. Default 2.
	PassAfter int
}

// or fills in what is not set.
func (t Thresholds) or(d Thresholds) Thresholds {
	if t.FailAfter <= 0 {
		t.FailAfter = d.FailAfter
	}
	if t.FailSpan <= 0 {
		t.FailSpan = d.FailSpan
	}
	if t.PassAfter <= 0 {
		t.PassAfter = d.PassAfter
	}
	return t
}

// Settings are a judge's settings. The zero value of each field means the default in its comment.
type Settings struct {
	// Thresholds are for proxies that have none of their own.
	Thresholds
	// StuckAfter is the number of consecutive probes without any answer that make a saturated proxy Unhealthy: busy
	// for that long is broken. A proxy whose FailAfter is greater needs that many. Default 10.
	StuckAfter int
	// Echoes are the targets in use. With one, its failures say nothing about a proxy; from two on, a proxy through
	// which all of them fail is to blame.
	Echoes []EchoID
	// FreezeFrom is the least number of Ready proxies at which verdicts can freeze. Default 3.
	FreezeFrom int
	// ExitMemory is how long an exit address stays in the set after it was last seen. Default 10 min.
	ExitMemory time.Duration
}

func (s Settings) withDefaults() Settings {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&s.FailAfter, 3)
	set(&s.PassAfter, 2)
	set(&s.StuckAfter, 10)
	set(&s.FreezeFrom, 3)
	if s.FailSpan == 0 {
		s.FailSpan = 12 * time.Second
	}
	if s.ExitMemory == 0 {
		s.ExitMemory = 10 * time.Minute
	}
	return s
}

func (s Settings) check() error {
	if s.FailAfter < 1 || s.PassAfter < 1 || s.StuckAfter < 1 || s.FreezeFrom < 1 || s.FailSpan < 0 || s.ExitMemory < 0 {
		return fmt.Errorf("probe settings: thresholds must be positive, got %+v", s)
	}
	if len(s.Echoes) == 0 {
		return errors.New("probe settings: no echo target; give at least one")
	}
	return nil
}

// Result is one finished probe, as a judge needs it.
type Result struct {
	// UID is the proxy.
	UID UID
	// Echo is the target.
	Echo EchoID
	// Class is what was found out.
	Class Class
	// Exit is the address that the target saw; valid only with ClassOK.
	Exit netip.Addr
	// Latency is the time from the first byte sent to the last received; meaningful only with ClassOK.
	Latency time.Duration
	// Detail is for people: what exactly failed. It holds no credentials.
	Detail string
}

// Verdict is what a judge holds of a proxy.
type Verdict struct {
	// UID is the proxy.
	UID UID
	// State is its health, and Since the time of the last change.
	State State
	Since time.Time
	// Saturated means that it is too busy to answer: it stays Ready, but must get no new leases.
	Saturated bool
	// Class and Detail are those of the latest result.
	Class  Class
	Detail string
	// Successes and Failures are the consecutive ones that count towards a change.
	Successes, Failures int
	// Exits are the addresses that targets saw within the exit memory, sorted; IPv6 ones stand for their /64.
	Exits []netip.Addr
	// Latency is a moving average over successful probes.
	Latency time.Duration
	// LastProbe and LastOK are the times of the latest result and of the latest success; zero if none.
	LastProbe, LastOK time.Time
}

// Judge turns results into verdicts for all proxies of one member. It is not safe for concurrent use.
type Judge struct {
	settings Settings
	proxies  map[UID]*health
	freeze   freezer
}

// NewJudge returns a judge that knows no proxy, or an error if the settings make no sense.
func NewJudge(s Settings) (*Judge, error) {
	s = s.withDefaults()
	if err := s.check(); err != nil {
		return nil, err
	}
	return &Judge{settings: s, proxies: make(map[UID]*health), freeze: freezer{from: s.FreezeFrom}}, nil
}

// health is a proxy's verdict and what it rests on.
type health struct {
	verdict      Verdict
	firstFailure time.Time
	stuck        int
	failing      map[EchoID]bool // targets whose latest result through this proxy failed on the way or at the target
	exits        map[netip.Addr]time.Time
	// mood is how the proxy is counted for freezing.
	mood mood
}

// Observe takes one result in and returns the proxy's verdict, and whether its State, Saturated or Exits changed. Of the
// proxy's thresholds, what is not set is the judge's. They may differ from one result to the next: the latest ones decide.
func (j *Judge) Observe(now time.Time, r Result, limits Thresholds) (Verdict, bool) {
	limits = limits.or(j.settings.Thresholds)
	h := j.proxies[r.UID]
	if h == nil {
		h = &health{
			verdict: Verdict{UID: r.UID, State: StateUnknown, Since: now},
			failing: make(map[EchoID]bool),
			exits:   make(map[netip.Addr]time.Time),
		}
		j.proxies[r.UID] = h
	}
	before := h.verdict
	h.verdict.LastProbe, h.verdict.Class, h.verdict.Detail = now, r.Class, r.Detail

	switch r.Class.Blame() {
	case BlameNobody:
		j.passed(now, h, r, limits)
	case BlameProxy:
		h.verdict.Successes = 0
		switch r.Class {
		case ClassOverloaded:
			h.verdict.Saturated = true
			j.alive(now, h)
		case ClassProxyStuck:
			h.verdict.Saturated = true
			h.stuck++
			j.failed(now, h, moodFailing, h.stuck >= max(j.settings.StuckAfter, limits.FailAfter))
		default:
			h.stuck = 0
			j.failed(now, h, moodFailing, false)
			j.convict(now, h, limits)
		}
	case BlameEither, BlameTarget, BlameExit:
		h.stuck = 0
		h.verdict.Saturated = false // It answered.
		h.failing[r.Echo] = true
		switch {
		case !j.allTargetsFail(h):
			// The proxy answered, and works with another target or may do so: this is the target's outage.
			j.alive(now, h)
		case len(j.settings.Echoes) == 1:
			h.verdict.Failures = 0
			j.mood(now, h, moodTarget)
		default:
			h.verdict.Successes = 0
			j.failed(now, h, moodTarget, false)
			j.convict(now, h, limits)
		}
	case BlameConfig:
		// It works and says no.
		h.verdict.Saturated = false
		j.alive(now, h)
	case BlameAgent:
	}
	if h.verdict.State != StateReady {
		h.verdict.Saturated = false
	}

	v := h.verdict
	changed := v.State != before.State || v.Saturated != before.Saturated || !slices.Equal(v.Exits, before.Exits)
	return v, changed
}

// Verdict returns what is held of a proxy; ok is false if it has no result yet.
func (j *Judge) Verdict(uid UID) (v Verdict, ok bool) {
	h, ok := j.proxies[uid]
	if !ok {
		return Verdict{}, false
	}
	return h.verdict, true
}

// Undecided reports whether the proxy's next results may change its state, so that it is worth probing soon.
func (j *Judge) Undecided(uid UID) bool {
	h, ok := j.proxies[uid]
	if !ok || h.verdict.State == StateUnknown {
		return true
	}
	return h.verdict.State == StateReady && h.verdict.Failures > 0 || h.verdict.State == StateUnhealthy && h.verdict.Successes > 0
}

// Forget drops a proxy that is gone, or that was replaced by another instance.
func (j *Judge) Forget(now time.Time, uid UID) {
	if h, ok := j.proxies[uid]; ok {
		j.mood(now, h, moodAbsent)
		delete(j.proxies, uid)
	}
}

// Freeze returns whether verdicts are frozen, since when and why.
func (j *Judge) Freeze() Freeze { return j.freeze.state }

func (j *Judge) passed(now time.Time, h *health, r Result, limits Thresholds) {
	v := &h.verdict
	v.Successes++
	v.Failures, h.stuck, v.Saturated = 0, 0, false
	v.LastOK = now
	delete(h.failing, r.Echo)
	if v.Latency == 0 {
		v.Latency = r.Latency
	} else {
		v.Latency += (r.Latency - v.Latency) / 5
	}
	h.saw(now, r.Exit, j.settings.ExitMemory)

	need := limits.PassAfter
	if v.State == StateUnknown {
		need = 1
	}
	if v.State != StateReady && v.Successes >= need {
		v.State, v.Since = StateReady, now
	}
	j.mood(now, h, moodFine)
}

// failed counts a failure that is the proxy's own; broken skips the count.
func (j *Judge) failed(now time.Time, h *health, m mood, broken bool) {
	if h.verdict.Failures == 0 {
		h.firstFailure = now
	}
	h.verdict.Failures++
	j.mood(now, h, m)
	if broken {
		j.condemn(now, h)
	}
}

// alive takes note of an answer that is neither success nor failure: it ends a streak of failures.
func (j *Judge) alive(now time.Time, h *health) {
	h.stuck, h.verdict.Failures = 0, 0
	j.mood(now, h, moodFine)
}

// convict makes a proxy Unhealthy if its failures are enough and stretch far enough.
func (j *Judge) convict(now time.Time, h *health, limits Thresholds) {
	if h.verdict.Failures >= limits.FailAfter && now.Sub(h.firstFailure) >= limits.FailSpan {
		j.condemn(now, h)
	}
}

// condemn moves a Ready proxy to Unhealthy unless verdicts are frozen. One that never worked stays Unknown.
func (j *Judge) condemn(now time.Time, h *health) {
	if h.verdict.State != StateReady || j.freeze.state.Frozen {
		return
	}
	h.verdict.State, h.verdict.Since = StateUnhealthy, now
	j.mood(now, h, moodAbsent)
}

func (j *Judge) allTargetsFail(h *health) bool {
	return !slices.ContainsFunc(j.settings.Echoes, func(e EchoID) bool { return !h.failing[e] })
}

// mood recounts the proxy for freezing. Only Ready ones count: a proxy that never worked, or is known to be broken,
// is no sign of a common cause.
func (j *Judge) mood(now time.Time, h *health, m mood) {
	if h.verdict.State != StateReady {
		m = moodAbsent
	}
	j.freeze.recount(now, h.mood, m)
	h.mood = m
}

// maxExits bounds what one proxy can report; a NAT shows a few.
const maxExits = 8

// saw adds an exit address and forgets those not seen for a while.
func (h *health) saw(now time.Time, exit netip.Addr, memory time.Duration) {
	if !exit.IsValid() {
		return
	}
	h.exits[ExitOf(exit)] = now
	maps.DeleteFunc(h.exits, func(_ netip.Addr, seen time.Time) bool { return now.Sub(seen) > memory })
	for len(h.exits) > maxExits {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(h.exits)), func(a, b netip.Addr) int {
			if c := h.exits[a].Compare(h.exits[b]); c != 0 {
				return c
			}
			return a.Compare(b)
		})
		delete(h.exits, oldest)
	}
	h.verdict.Exits = slices.SortedFunc(maps.Keys(h.exits), netip.Addr.Compare)
}

// ExitOf returns the address by which an exit is known: an IPv4 address itself, of an IPv6 address the first of its
// /64, because a host there chooses freely within.
func ExitOf(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return addr
	}
	return netip.PrefixFrom(addr, 64).Masked().Addr()
}
