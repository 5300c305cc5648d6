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

// freezer counts moods. It freezes when more than half of the Ready proxies fail and thaws when at most a third does,
// so that it does not flap around one number. Of too few proxies nothing can be said, and nothing stays frozen.
type freezer struct {
	from   int
	counts [moods]int
	state  Freeze
}

func (f *freezer) recount(now time.Time, from, to mood) {
	f.counts[from]--
	f.counts[to]++
	failing := f.counts[moodFailing] + f.counts[moodTarget]
	ready := failing + f.counts[moodFine]
	f.state.Ready, f.state.Failing = ready, failing
	switch {
	case !f.state.Frozen && ready >= f.from && 2*failing > ready:
		f.state.Frozen, f.state.Since = true, now
	case f.state.Frozen && (3*failing <= ready || ready < f.from):
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
