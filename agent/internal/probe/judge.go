package probe

import (
	"slices"
	"time"
)

const (
	// saturatedAfter is the number of consecutive probes without an answer that make a proxy Saturated, over a FailSpan at
	// least: a target that swallows packets looks the same to a health check that waits for less than the proxy does, and
	// would keep every proxy from being leased if one were enough.
	saturatedAfter = 2
	// hurryNew is how long a proxy that has never worked is probed more often: as long as a virtual machine takes to pull
	// the image. After that it is more likely never to come up, and found within an interval if it does.
	hurryNew = 5 * time.Minute
)

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
	verdict Verdict
	added   time.Time
	span    time.Duration // the latest FailSpan
	// firstFailure begins the streak of failures, firstStuck that of probes without an answer.
	firstFailure, firstStuck time.Time
	stuck                    int
	room                     int             // consecutive answers since it was last busy
	same                     int             // consecutive results of the latest class
	failing                  map[EchoID]bool // targets whose latest result through this proxy failed on the way or at the target
	reached                  [families]bool
	exits                    exits
	// mood is how the proxy is counted for freezing.
	mood mood
}

// Recall takes over what was held of a proxy. It does nothing if there is something newer. Verdict tells of it with the
// next result: until then nothing was seen.
func (j *Judge) Recall(now time.Time, uid UID, known Known) {
	if j.proxies[uid] != nil || known.State == "" || known.State == StateUnknown {
		return
	}
	h := j.add(now, uid)
	h.verdict.State, h.verdict.Since = known.State, known.Since
	if known.State == StateUnhealthy {
		h.verdict.Cause = known.Cause
	}
	h.exits.recall(now, known.Exits)
	h.verdict.Exits = h.exits.sorted
	for _, exit := range h.verdict.Exits {
		h.reached[familyOf(exit)] = true
	}
	j.mood(now, h, moodFine)
}

func (j *Judge) add(now time.Time, uid UID) *health {
	h := &health{
		verdict: Verdict{UID: uid, State: StateUnknown, Since: now},
		added:   now, span: j.settings.FailSpan, failing: make(map[EchoID]bool),
	}
	j.proxies[uid] = h
	return h
}

// Observe takes one result in and returns the proxy's verdict, and whether its State, Saturated, Cause or Exits changed.
// Of the proxy's thresholds, what is not set is the judge's. They may differ from one result to the next: the latest ones
// decide.
func (j *Judge) Observe(now time.Time, r Result, limits Thresholds) (Verdict, bool) {
	limits = limits.or(j.settings.Thresholds)
	h := j.proxies[r.UID]
	if h == nil {
		h = j.add(now, r.UID)
	}
	before := h.verdict
	h.span = limits.FailSpan
	if h.verdict.Class != r.Class {
		h.same = 0
	}
	h.same++
	h.verdict.LastProbe, h.verdict.Class, h.verdict.Detail = now, r.Class, r.Detail

	switch r.Class.Blame() {
	case BlameNobody:
		h.answered(limits)
		j.passed(now, h, r, limits)
	case BlameProxy:
		j.failedItself(now, h, r.Class, limits)
	case BlameEither, BlameTarget, BlameExit:
		h.answered(limits)
		j.failedTarget(now, h, r.Echo, limits)
	case BlameConfig:
		// It works and says no.
		h.answered(limits)
		j.alive(now, h)
	case BlameAgent:
	}
	h.explain(limits)

	v := h.verdict
	changed := v.State != before.State || v.Saturated != before.Saturated || v.Cause != before.Cause || !slices.Equal(v.Exits, before.Exits)
	return v, changed
}

// Verdict returns what is held of a proxy; ok is false if it has no result yet.
func (j *Judge) Verdict(uid UID) (v Verdict, ok bool) {
	h, ok := j.proxies[uid]
	if !ok || h.verdict.LastProbe.IsZero() {
		return Verdict{}, false
	}
	return h.verdict, true
}

// Undecided reports whether the proxy's next results may change its state, so that it is worth probing soon. While
// verdicts are frozen nothing is lost by waiting, and most proxies would be probed more often at a bad time.
func (j *Judge) Undecided(now time.Time, uid UID) bool {
	h, ok := j.proxies[uid]
	if !ok {
		return true
	}
	switch v := h.verdict; v.State {
	case StateReady:
		// More probes are no help to a busy proxy; but one that answers again is worth knowing.
		return v.Saturated && h.room > 0 || !v.Saturated && v.Failures > 0 && !j.freeze.state.Frozen
	case StateUnhealthy:
		return v.Successes > 0
	default:
		return now.Sub(h.added) < hurryNew
	}
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
	v.Failures = 0
	v.LastOK = now
	delete(h.failing, r.Echo)
	if v.Latency == 0 {
		v.Latency = r.Latency
	} else {
		v.Latency += (r.Latency - v.Latency) / 5
	}
	for _, t := range j.settings.Targets {
		if t.ID == r.Echo {
			h.reached[t.Family] = true
		}
	}
	h.exits.saw(now, r.Exit, j.settings.ExitMemory)
	v.Exits = h.exits.sorted

	need := limits.PassAfter
	if v.State == StateUnknown {
		need = 1
	}
	if v.State != StateReady && v.Successes >= need {
		v.State, v.Since = StateReady, now
	}
	j.mood(now, h, moodFine)
}

// failedItself takes note of a failure that is the proxy's own.
func (j *Judge) failedItself(now time.Time, h *health, class Class, limits Thresholds) {
	h.verdict.Successes, h.room = 0, 0
	switch class {
	case ClassOverloaded:
		// It says so itself, in an answer.
		j.alive(now, h)
		h.stuck, h.verdict.Saturated = 0, h.verdict.State == StateReady
	case ClassProxyStuck:
		if h.stuck == 0 {
			h.firstStuck = now
		}
		h.stuck++
		j.failed(now, h, moodFailing)
		if h.verdict.State == StateReady && h.stuck >= saturatedAfter && j.sure(now, h.firstStuck, limits) {
			h.verdict.Saturated = true
		}
		if h.stuck >= max(j.settings.StuckAfter, limits.FailAfter) {
			j.condemn(now, h, limits)
		}
	default:
		h.stuck = 0
		j.failed(now, h, moodFailing)
		if h.verdict.Failures >= limits.FailAfter {
			j.condemn(now, h, limits)
		}
	}
}

// failedTarget takes note of a failure on the way to a target, or at it. The proxy has answered.
func (j *Judge) failedTarget(now time.Time, h *health, echo EchoID, limits Thresholds) {
	h.failing[echo] = true
	counted, failing := 0, 0
	for _, t := range j.settings.Targets {
		if h.counts(t.Family) {
			counted++
			if h.failing[t.ID] {
				failing++
			}
		}
	}
	switch {
	case failing < counted:
		// It works with another target, or may do so: this is the target's outage.
		j.alive(now, h)
	case counted <= 1:
		h.verdict.Failures = 0
		j.mood(now, h, moodTarget)
	default:
		h.verdict.Successes = 0
		j.failed(now, h, moodTarget)
		if h.verdict.Failures >= limits.FailAfter {
			j.condemn(now, h, limits)
		}
	}
}

// counts says whether a family's targets can tell that this proxy is broken.
func (h *health) counts(f Family) bool { return f == FamilyAny || h.reached[f] }

// answered takes note of an answer, whatever it says: the proxy is not too busy for one. As many make it so as make an
// Unhealthy one Ready.
func (h *health) answered(limits Thresholds) {
	h.stuck = 0
	h.room++
	if h.room >= limits.PassAfter {
		h.verdict.Saturated = false
	}
}

// failed counts a failure that may be the proxy's own.
func (j *Judge) failed(now time.Time, h *health, m mood) {
	if h.verdict.Failures == 0 {
		h.firstFailure = now
	}
	h.verdict.Failures++
	j.mood(now, h, m)
}

// alive takes note of an answer that is neither success nor failure: it ends a streak of failures.
func (j *Judge) alive(now time.Time, h *health) {
	h.verdict.Failures = 0
	j.mood(now, h, moodFine)
}

// condemn moves a Ready proxy to Unhealthy. One that never worked stays Unknown.
func (j *Judge) condemn(now time.Time, h *health, limits Thresholds) {
	if h.verdict.State != StateReady || !j.sure(now, h.firstFailure, limits) {
		return
	}
	h.verdict.State, h.verdict.Since, h.verdict.Cause = StateUnhealthy, now, h.verdict.Class
	h.verdict.Saturated = false
	j.mood(now, h, moodAbsent)
}

// sure says whether a streak of failures is the proxy's own: it has lasted, verdicts are not frozen, and the others have
// been heard since, so that they would be. With more proxies than can be probed in time, in an outage where each probe
// waits for its deadline, the first to fail would else be judged before most others had their turn.
func (j *Judge) sure(now, since time.Time, limits Thresholds) bool {
	if j.freeze.state.Frozen || now.Sub(since) < limits.FailSpan {
		return false
	}
	heard, late := 0, 0
	for _, h := range j.proxies {
		last := h.added
		if h.verdict.LastProbe.After(last) {
			last = h.verdict.LastProbe
		}
		switch {
		case h.mood == moodAbsent:
		case !last.Before(since):
			heard++
		case now.Sub(last) > h.span:
			late++
		}
	}
	return heard >= late
}

// explain keeps the cause of a proxy that is not Ready. It is written down, so that it must not change with every probe.
func (h *health) explain(limits Thresholds) {
	v := &h.verdict
	switch {
	case v.State == StateReady:
		v.Cause = ""
	case v.Class == ClassOK || h.same < limits.FailAfter || v.State == StateUnhealthy && v.Class == ClassAgentFault:
	default:
		v.Cause = v.Class
	}
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
