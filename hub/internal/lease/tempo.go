package lease

import (
	"math"
	"slices"
	"time"
)

// How a rate is learnt. The figures are those that fetch most over the
// settings of yieldsim_test.go; none of them is tuned to one target.
const (
	// startRate is the first rate of all: one page in ten seconds.
	startRate = 0.1
	// leastRate and mostRate bound rates, in pages per second.
	leastRate = 1.0 / 3600
	mostRate  = 1000
	// fromPool is the part of the pool's median with which an exit starts.
	fromPool = 0.6
	// epochLength and epochPages are the least over which use is measured.
	epochLength = 20 * time.Second
	epochPages  = 4
	// busyPart is how much of a rate must be used for it to grow: what nobody
	// asks for teaches nothing.
	busyPart = 0.6
	// quickGrowth is per epoch, up to quickPart of what is known to be borne.
	quickGrowth = 1.25
	quickPart   = 0.85
	// creepGrowth is per minute from there, up to holdPart of what was refused.
	creepGrowth = 0.015
	holdPart    = 0.96
	// holdFor is how long after a refusal the rate stays there. From then on
	// it grows by probeGrowth per minute, twice as fast after each
	// probeDouble: the target may tolerate more by now.
	holdFor     = 2 * time.Hour
	probeGrowth = 0.003
	probeDouble = 20 * time.Minute
	// average is over how long the use is averaged that a refusal is judged by:
	// a target that counts over minutes refuses long after it was too much.
	average = 4 * time.Minute
	// again is within how long after a refusal another one is the same
	// trouble: then the rate falls further and the pause doubles.
	again = 30 * time.Minute
	// idleAfter is how long a rate keeps without a page. Then it halves in
	// each idleHalf, down to startRate: targets change while nobody looks.
	idleAfter = time.Hour
	idleHalf  = 6 * time.Hour
	// recordEvery and recordPart bound how often a rate is made durable.
	recordEvery = time.Minute
	recordPart  = 0.2
)

// afterRefusals is the part of the refused rate to go on with, by the number
// of refusals in a row.
var afterRefusals = [...]float64{1, 0.8, 0.6, 0.5}

// tempo is a learnt rate: how fast pages of one target may be fetched through
// one exit. It knows nothing of leases.
type tempo struct {
	rate      float64 // pages per second
	limit     float64 // the rate that was refused last, or 0
	borne     float64 // what was used on average before that
	refusedAt int64
	streak    int // refusals in a row

	began    int64   // of the present epoch
	pages    float64 // in it
	used     float64 // pages per second in the last epoch, or 0
	mean     float64 // the same over the last minutes
	lastPage int64

	recorded   float64 // the rate of the last record
	recordedAt int64
}

// startTempo begins with what is known of other exits.
func startTempo(now int64, pool float64) tempo {
	rate := startRate
	if pool > 0 {
		rate = fromPool * pool
	}
	return tempo{rate: rate, began: now, lastPage: now}
}

// at returns the rate, less what idleness takes from it.
func (t *tempo) at(now int64) float64 {
	idle := now - t.lastPage - int64(idleAfter)
	if idle <= 0 || t.rate <= startRate {
		return t.rate
	}
	return max(startRate, t.rate*math.Exp2(-float64(idle)/float64(idleHalf)))
}

// fetched learns from pages that came. The pool is what other exits suggest
// as the limit, or 0.
func (t *tempo) fetched(now int64, pages int, pool float64) {
	gap := now - t.lastPage
	t.rate = t.at(now)
	t.lastPage = now
	if gap > int64(2*epochLength)+int64(10/t.rate*float64(time.Second)) {
		t.began, t.pages, t.mean = now, 0, 0 // a pause is not slow use
		return
	}
	t.pages += float64(pages)
	span := float64(now-t.began) / float64(time.Second)
	if span < epochLength.Seconds() || span*t.rate < epochPages {
		return
	}
	t.used = t.pages / span
	if t.mean == 0 {
		t.mean = t.used
	}
	t.mean += (t.used - t.mean) * (1 - math.Exp(-span/average.Seconds()))
	t.began, t.pages = now, 0
	if t.used < busyPart*t.rate {
		return
	}
	t.rate = min(mostRate, t.grown(now, span/60, pool))
}

// grown returns the rate after a busy epoch of some minutes.
func (t *tempo) grown(now int64, minutes, pool float64) float64 {
	borne := t.borne
	if t.limit == 0 {
		borne = pool
	}
	switch {
	case borne == 0:
		return t.rate * quickGrowth
	case t.rate < quickPart*borne:
		return min(t.rate*quickGrowth, quickPart*borne)
	case t.limit == 0: // what others bear is not this exit's limit
		return t.rate * (1 + creepGrowth*minutes)
	case t.rate < holdPart*t.limit:
		return min(t.rate*(1+creepGrowth*minutes), holdPart*t.limit)
	}
	held := now - t.refusedAt - int64(holdFor)
	if held < 0 {
		return t.rate
	}
	growth := probeGrowth * math.Exp2(float64(held)/float64(probeDouble))
	return t.rate * (1 + min(growth*minutes, quickGrowth-1))
}

// refused learns from a refusal, and returns how many there were in a row.
func (t *tempo) refused(now int64) int {
	t.rate = t.at(now)
	if t.refusedAt != 0 && now-t.refusedAt < int64(again)*int64(max(1, t.streak)) {
		t.streak++
	} else {
		t.streak = 1
	}
	limit, borne := t.rate, t.mean
	switch {
	case t.used > 0 && t.used < busyPart*t.rate: // less was asked for than allowed
		limit = max(1.1*t.used, t.rate/4)
	case borne == 0: // it was refused before anything could be measured
		borne = 0.7 * limit
	}
	borne = min(borne, limit)
	falls := min(t.streak, len(afterRefusals)-1)
	t.rate = max(leastRate, limit/8, min(limit*afterRefusals[falls], 0.9*borne))
	t.limit, t.borne, t.refusedAt = limit, borne, now
	t.began, t.pages, t.used, t.mean, t.lastPage = now, 0, 0, 0, now
	return t.streak
}

// worthRecording tells whether the rate has changed enough since it was last
// made durable, and long enough ago.
func (t *tempo) worthRecording(now int64) bool {
	if now-t.recordedAt < int64(recordEvery) {
		return false
	}
	known := t.recorded
	if known == 0 {
		known = startRate
	}
	return math.Abs(t.rate-known) > recordPart*known
}

// poolSize is how many of a target's last refusals make its median.
const poolSize = 32

// pool is what the exits of a target have found out together.
type pool struct {
	limits []float64 // what exits bore before their last refusals
	next   int
	median float64
}

// learn adds what an exit bore.
func (p *pool) learn(limit float64) {
	if len(p.limits) < poolSize {
		p.limits = append(p.limits, limit)
	} else {
		p.limits[p.next] = limit
	}
	p.next = (p.next + 1) % poolSize
	var sorted [poolSize]float64
	some := sorted[:copy(sorted[:], p.limits)]
	slices.Sort(some)
	p.median = some[len(some)/2]
}
