package probe

import "time"

// FreezeReason is why verdicts are frozen.
type FreezeReason string

const (
	// FreezeTargets means that most proxies reach no target: the targets, or the member's way to them, are down.
	FreezeTargets FreezeReason = "TargetsUnreachable"
	// FreezeProxies means that most proxies themselves fail: the agent's way to them, or something they share.
	FreezeProxies FreezeReason = "MostProxiesFail"
)

// Freeze says whether a judge's verdicts are frozen: no Ready proxy becomes Unhealthy then. Successes still count.
type Freeze struct {
	// Frozen is the state, and Since the time of the last change; zero if there was none.
	Frozen bool
	Since  time.Time
	// Reason is why, if Frozen.
	Reason FreezeReason
	// Ready and Failing count the proxies judged Ready, and those of them whose latest result is a failure.
	Ready, Failing int
}

// mood is how a proxy counts: not at all, fine, failing by itself, or failing to reach its target.
type mood int

const (
	moodAbsent mood = iota
	moodFine
	moodFailing
	moodTarget
	moods
)

// calmAfter is how long at most half of the proxies must fail for verdicts to thaw although more than a third does: those
// are no outage any more, and nobody else would judge them.
const calmAfter = time.Minute

// freezer counts moods. It freezes when more than half of the Ready proxies fail and thaws when at most a third does, or
// at most half for a while, so that it does not flap around one number. Of too few proxies nothing can be said, and
// nothing stays frozen.
type freezer struct {
	from   int
	counts [moods]int
	state  Freeze
	calm   time.Time // since when at most half fail; zero if more do
}

func (f *freezer) recount(now time.Time, from, to mood) {
	f.counts[from]--
	f.counts[to]++
	failing := f.counts[moodFailing] + f.counts[moodTarget]
	ready := failing + f.counts[moodFine]
	f.state.Ready, f.state.Failing = ready, failing
	most := 2*failing > ready
	switch {
	case most:
		f.calm = time.Time{}
	case f.calm.IsZero():
		f.calm = now
	}
	switch {
	case !f.state.Frozen && most && ready >= f.from:
		f.state.Frozen, f.state.Since = true, now
	case f.state.Frozen && (3*failing <= ready || ready < f.from || !most && now.Sub(f.calm) >= calmAfter):
		f.state.Frozen, f.state.Since = false, now
	}
	switch {
	case !f.state.Frozen:
		f.state.Reason = ""
	case f.counts[moodTarget] >= f.counts[moodFailing]:
		f.state.Reason = FreezeTargets
	default:
		f.state.Reason = FreezeProxies
	}
}
