package lease

import (
	"container/heap"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"
)

// The yield of a policy is how many pages it fetches from targets that refuse
// what is too fast, of those that they would have given. Nobody tells the
// policies what the targets bear. The clock is simulated.

// yieldSetting is a kind of target.
type yieldSetting struct {
	name  string
	exits int
	// limit and spread are the pages per minute that an exit may fetch: from
	// limit/spread to limit*spread.
	limit, spread float64
	// window is what the target counts pages in.
	window time.Duration
	// strikes within strikeWindow are a ban for ban, twice as long each time.
	strikes      int
	strikeWindow time.Duration
	ban          time.Duration
	// retryAfter is what a refusal says, if anything.
	retryAfter time.Duration
	latency    time.Duration
	// scale changes the limits over the run, of which it gets the part gone.
	scale func(part float64) float64
}

var yieldSettings = []yieldSetting{
	{name: "steady", exits: 6, limit: 30, spread: 1.3, window: time.Minute, strikes: 5, strikeWindow: 5 * time.Minute, ban: time.Hour, latency: time.Second / 2},
	{name: "harsh", exits: 6, limit: 5, spread: 1.5, window: time.Minute, strikes: 3, strikeWindow: 4 * time.Minute, ban: 2 * time.Hour, latency: time.Second},
	{name: "fast", exits: 4, limit: 150, spread: 1.2, window: 10 * time.Second, strikes: 10, strikeWindow: time.Minute, ban: 30 * time.Minute, retryAfter: 30 * time.Second, latency: time.Second / 4},
	{name: "mixed", exits: 8, limit: 25, spread: 4, window: 30 * time.Second, strikes: 4, strikeWindow: 4 * time.Minute, ban: time.Hour, latency: time.Second / 2},
	{name: "slow window", exits: 6, limit: 20, spread: 1.3, window: 4 * time.Minute, strikes: 4, strikeWindow: 4 * time.Minute, ban: time.Hour, latency: 2 * time.Second},
	{name: "captcha", exits: 6, limit: 12, spread: 2, window: 20 * time.Second, strikes: 2, strikeWindow: 90 * time.Second, ban: 3 * time.Hour, latency: time.Second / 2},
}

// yieldAnswer is what a target does with a request.
type yieldAnswer uint8

const (
	pageCame yieldAnswer = iota
	pageRefused
	pageBlocked
)

// yieldExit is one address as a target sees it.
type yieldExit struct {
	limit       float64 // pages per second
	pages       []time.Duration
	strikes     []time.Duration
	bannedUntil time.Duration
	bans        []time.Duration
}

// fetch asks for a page.
func (x *yieldExit) fetch(s *yieldSetting, now time.Duration, scale float64) yieldAnswer {
	if now < x.bannedUntil {
		return pageBlocked
	}
	for len(x.pages) > 0 && x.pages[0] <= now-s.window {
		x.pages = x.pages[1:]
	}
	if float64(len(x.pages)) < math.Max(1, math.Round(x.limit*scale*s.window.Seconds())) {
		x.pages = append(x.pages, now)
		return pageCame
	}
	for len(x.strikes) > 0 && x.strikes[0] <= now-s.strikeWindow {
		x.strikes = x.strikes[1:]
	}
	x.strikes = append(x.strikes, now)
	if len(x.strikes) < s.strikes {
		return pageRefused
	}
	x.strikes = nil
	x.bannedUntil = now + s.ban<<min(len(x.bans), 10)
	x.bans = append(x.bans, now)
	return pageBlocked
}

// yieldWorld is a target and its visitors.
type yieldWorld struct {
	set     yieldSetting
	length  time.Duration
	now     time.Duration
	exits   []*yieldExit
	random  *rand.Rand
	pending yieldEvents
	order   int

	fetched  []float64 // pages in each minute
	possible []float64
}

type yieldEvent struct {
	at    time.Duration
	order int
	run   func()
}

type yieldEvents []yieldEvent

func (h yieldEvents) Len() int { return len(h) }
func (h yieldEvents) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h yieldEvents) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *yieldEvents) Push(e any)   { *h = append(*h, e.(yieldEvent)) }
func (h *yieldEvents) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

func newYieldWorld(set yieldSetting, length time.Duration, seed uint64) *yieldWorld {
	if set.scale == nil {
		set.scale = func(float64) float64 { return 1 }
	}
	w := &yieldWorld{set: set, length: length, random: rand.New(rand.NewPCG(seed, 7))}
	sum := 0.0
	for range set.exits {
		factor := math.Pow(set.spread, 2*w.random.Float64()-1)
		w.exits = append(w.exits, &yieldExit{limit: set.limit / 60 * factor})
		sum += set.limit * factor
	}
	minutes := int(length / time.Minute)
	w.fetched, w.possible = make([]float64, minutes), make([]float64, minutes)
	for i := range w.possible {
		w.possible[i] = sum * set.scale(float64(i)/float64(minutes))
	}
	return w
}

func (w *yieldWorld) after(d time.Duration, run func()) {
	w.order++
	heap.Push(&w.pending, yieldEvent{at: w.now + d, order: w.order, run: run})
}

// run lets the world go on to its end.
func (w *yieldWorld) run() {
	for len(w.pending) > 0 {
		e := heap.Pop(&w.pending).(yieldEvent)
		if e.at >= w.length {
			return
		}
		w.now = e.at
		e.run()
	}
}

// fetch asks for a page by an exit now.
func (w *yieldWorld) fetch(x *yieldExit) yieldAnswer {
	answer := x.fetch(&w.set, w.now, w.set.scale(float64(w.now)/float64(w.length)))
	if answer == pageCame {
		w.fetched[int(w.now/time.Minute)]++
	}
	return answer
}

// yield returns the part of the possible pages that was fetched in a stretch.
func (w *yieldWorld) yield(from, to time.Duration) float64 {
	got, most := 0.0, 0.0
	for i := int(from / time.Minute); i < int(to/time.Minute); i++ {
		got += w.fetched[i]
		most += w.possible[i]
	}
	return got / most
}

// bans returns the most bans of one exit in any four hours, and those of all.
func (w *yieldWorld) bans() (worst, all int) {
	for _, x := range w.exits {
		all += len(x.bans)
		for i, first := range x.bans {
			n := 0
			for _, at := range x.bans[i:] {
				if at < first+4*time.Hour {
					n++
				}
			}
			worst = max(worst, n)
		}
	}
	return worst, all
}

// visitors is how many fetch at a time where a policy does not bound it:
// twice what the target bears.
func (w *yieldWorld) visitors() int {
	return max(len(w.exits), int(2*w.possible[0]/60*w.set.latency.Seconds()))
}

// yieldRandom is a crawler that takes any exit for each page.
func yieldRandom(w *yieldWorld) {
	for range w.visitors() {
		var visit func()
		visit = func() {
			w.fetch(w.exits[w.random.IntN(len(w.exits))])
			w.after(w.set.latency, visit)
		}
		w.after(0, visit)
	}
	w.run()
}

// yieldBackoff is one that leaves an exit alone for a while when it was
// refused, longer each time, and forgets that with the first page.
func yieldBackoff(w *yieldWorld) {
	until, failures := make([]time.Duration, len(w.exits)), make([]int, len(w.exits))
	for range w.visitors() {
		var visit func()
		visit = func() {
			var free []int
			for i := range w.exits {
				if until[i] <= w.now {
					free = append(free, i)
				}
			}
			if len(free) > 0 {
				i := free[w.random.IntN(len(free))]
				if w.fetch(w.exits[i]) == pageCame {
					failures[i] = 0
				} else {
					until[i] = w.now + time.Minute<<min(failures[i], 10)
					failures[i]++
				}
			}
			w.after(w.set.latency, visit)
		}
		w.after(0, visit)
	}
	w.run()
}

// yieldReplace is one that replaces an exit when it is banned, which takes two
// minutes. It returns how many addresses it used.
func yieldReplace(w *yieldWorld) int {
	used := len(w.exits)
	ready := make([]time.Duration, len(w.exits))
	for range w.visitors() {
		var visit func()
		visit = func() {
			if i := w.random.IntN(len(w.exits)); ready[i] <= w.now && w.fetch(w.exits[i]) == pageBlocked {
				w.exits[i] = &yieldExit{limit: w.exits[i].limit}
				ready[i] = w.now + 2*time.Minute
				used++
			}
			w.after(w.set.latency, visit)
		}
		w.after(0, visit)
	}
	w.run()
	return used
}

// yieldPaced is a crawler that leases from the engine.
type yieldPaced struct {
	w        *yieldWorld
	engine   *Engine
	perLease int
	idle     int // workers that want a lease
	waking   time.Duration
	journal  []Record
	byProxy  map[ProxyUID]*yieldExit
	start    time.Time
}

func newYieldPaced(w *yieldWorld, perLease int) *yieldPaced {
	p := &yieldPaced{w: w, perLease: perLease, byProxy: map[ProxyUID]*yieldExit{}, start: benchStart, engine: newYieldEngine(1)}
	p.step(SetFleet{Fleet: Fleet{ID: "crawl/news", Policy: Policy{
		MaxLeasesPerProxy: 5, MaxTTL: 24 * time.Hour, DefaultTTL: 24 * time.Hour, MaxLifetime: 48 * time.Hour,
		Targets: []TargetRule{{Match: AnyTarget}},
	}}})
	for i, x := range w.exits {
		known := testProxy(i + 1)
		known.Exits = []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})}
		p.byProxy[known.UID] = x
		p.step(UpsertProxy{Proxy: known})
	}
	p.idle = 3 * w.visitors()
	return p
}

func newYieldEngine(epoch uint64) *Engine {
	return New(Options{IDs: &CountingIDs{}, Epoch: epoch, HistoryComplete: true, Freshness: benchForever})
}

func (p *yieldPaced) step(cmd Command) (Result, *Refusal) {
	out, err := p.engine.Step(p.start.Add(p.w.now), cmd)
	p.journal = append(p.journal, out.Records...)
	if err != nil {
		refusal, _ := errors.AsType[*Refusal](err) // Step gives no other error
		return nil, refusal
	}
	return out.Result, nil
}

// run crawls until the end of the world.
func (p *yieldPaced) run() {
	p.w.after(0, p.acquire)
	p.w.run()
}

// restart replaces the engine by one that knows what was on record.
func (p *yieldPaced) restart() error {
	again := newYieldEngine(2)
	again.opts.IDs = p.engine.opts.IDs
	if err := again.Replay(p.journal); err != nil {
		return err
	}
	p.engine = again
	return nil
}

// acquire serves those who want a lease, and comes back when time may have
// brought more.
func (p *yieldPaced) acquire() {
	for p.idle > 0 {
		result, refusal := p.step(Acquire{Principal: "anna", Fleet: "crawl/news", Target: benchTarget})
		if refusal != nil {
			break
		}
		p.idle--
		l := result.(Granted).Leases[0]
		v := &yieldVisit{p: p, lease: l, exit: p.byProxy[l.Proxy], interval: l.Limits.MinInterval}
		v.fetch()
	}
	if p.idle == 0 {
		return
	}
	if at, ok := p.engine.NextDeadline(); ok {
		if at := at.Sub(p.start); p.waking <= p.w.now || at < p.waking {
			p.waking = at
			p.w.after(at-p.w.now, p.acquire)
		}
	}
}

// yieldVisit is the use of one lease.
type yieldVisit struct {
	p          *yieldPaced
	lease      Lease
	exit       *yieldExit
	interval   time.Duration
	done       int
	unreported int
}

func (v *yieldVisit) fetch() {
	began := v.p.w.now
	answer := v.p.w.fetch(v.exit)
	v.p.w.after(v.p.w.set.latency, func() { v.came(began, answer) })
}

// came is what a worker does with an answer: it reports every few pages, and
// gives the lease back when it was refused or has what it wanted.
func (v *yieldVisit) came(began time.Duration, answer yieldAnswer) {
	v.done++
	rest := time.Duration(0)
	o := Observation{Outcome: OK, Pages: 1}
	switch answer {
	case pageCame:
		v.unreported++
		o.Pages = v.unreported
	case pageRefused:
		o = Observation{Outcome: RateLimited, RetryAfter: v.p.w.set.retryAfter}
	case pageBlocked:
		o = Observation{Outcome: Blocked}
	}
	switch {
	case answer != pageCame || v.done == v.p.perLease:
		if answer != pageCame && v.unreported > 0 {
			v.p.step(Report{Principal: "anna", ID: v.lease.ID, Observations: []Observation{{Outcome: OK, Pages: v.unreported}}})
		}
		v.p.step(Release{Principal: "anna", ID: v.lease.ID, Outcome: &o})
		v.p.idle++
		v.p.acquire()
		return
	case v.unreported == 5:
		result, refusal := v.p.step(Report{Principal: "anna", ID: v.lease.ID, Observations: []Observation{o}})
		if refusal == nil {
			reported := result.(Reported)
			v.interval, rest = reported.Lease.Limits.MinInterval, reported.CoolingFor
		}
		v.unreported = 0
		v.p.acquire()
	}
	v.p.w.after(max(rest, began+v.interval-v.p.w.now), v.fetch)
}
