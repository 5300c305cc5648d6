package probe

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// RunnerOptions configures a [Runner].
type RunnerOptions struct {
	// Probe does one probe; usually [Prober.Probe]. It is called from several goroutines.
	Probe func(ctx context.Context, proxy Proxy, echo Echo) Probe
	// Echoes are the targets, at least one; a proxy is probed with one at a time, in turn.
	Echoes []Echo
	// Settings are the judge's; its Targets are set from the above, and its FailSpan defaults to 1.2 intervals. The
	// thresholds are for proxies whose health check has none.
	Settings Settings
	// Interval is the time between two probes of a settled proxy whose health check has none. Default 10 s.
	Interval time.Duration
	// Hurried is the same while a state may be about to change. Default a fifth of Interval. Proxies with an interval of
	// their own are hurried in the same proportion.
	Hurried time.Duration
	// Limiter bounds the probes under way. Runners of one agent share one; default is one of its own for DefaultProbes.
	Limiter *Limiter
	// SlowFrom is how long a probe takes from which on its proxy queues with the slow ones. Default 2 s.
	SlowFrom time.Duration
	// Seed makes the jitter differ between agents.
	Seed uint64
	// Clock says when probes are due.
	Clock clock.Clock
	// OnVerdict is called after each probe with the verdict, the probe, and whether State, Saturated, Cause or Exits changed.
	// Calls come one at a time, in order; a slow one delays all probing. Never for a proxy after Remove has returned,
	// unless the call had begun.
	OnVerdict func(v Verdict, p Probe, changed bool)
	// OnFreeze is called when verdicts freeze, thaw, or stay frozen for another reason. It may be nil.
	OnFreeze func(Freeze)
}

// Runner probes a changing set of proxies: those of one member, because verdicts freeze member by member. It costs one
// goroutine beside those of its probes. Its methods are safe for concurrent use; Run is called once.
type Runner struct {
	options RunnerOptions
	wake    chan struct{}

	mu       sync.Mutex // guards what follows
	proxies  map[UID]*tracked
	schedule *Schedule
	judge    *Judge
	last     uint64 // incarnation
}

// tracked is a proxy and its place in the round of targets. Another incarnation means that results of probes that are
// under way are about something that is gone.
type tracked struct {
	proxy       Proxy
	incarnation uint64
	turn        int
}

// NewRunner returns a runner without proxies, or an error if the options make no sense.
func NewRunner(o RunnerOptions) (*Runner, error) {
	if o.Probe == nil || o.Clock == nil || o.OnVerdict == nil {
		return nil, errors.New("probe runner: a probe function, a clock and OnVerdict are required")
	}
	if len(o.Echoes) == 0 {
		return nil, errors.New("probe runner: no echo target; without one no proxy can ever be judged Ready, so give at least one")
	}
	if o.Interval == 0 {
		o.Interval = 10 * time.Second
	}
	if o.Hurried == 0 {
		o.Hurried = o.Interval / 5
	}
	if o.SlowFrom == 0 {
		o.SlowFrom = 2 * time.Second
	}
	if o.Limiter == nil {
		var err error
		if o.Limiter, err = NewLimiter(DefaultProbes); err != nil {
			return nil, err
		}
	}
	if o.Settings.FailSpan == 0 {
		o.Settings.FailSpan = spanOf(o.Interval)
	}
	o.Settings.Targets = nil
	for _, e := range o.Echoes {
		o.Settings.Targets = append(o.Settings.Targets, Target{ID: e.ID, Family: e.family()})
	}
	judge, err := NewJudge(o.Settings)
	if err != nil {
		return nil, err
	}
	schedule, err := NewSchedule(ScheduleOptions{Interval: o.Interval, Hurried: o.Hurried, Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	return &Runner{
		options: o, wake: make(chan struct{}, 1), proxies: make(map[UID]*tracked), schedule: schedule, judge: judge,
	}, nil
}

// Upsert adds a proxy, to be probed soon, or updates it. A proxy whose endpoint changed is another instance: it is
// judged from the beginning. One whose health check changed keeps its verdict; its next result is judged by the new one.
func (r *Runner) Upsert(p Proxy) {
	now := r.options.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if have, ok := r.proxies[p.UID]; ok {
		if have.proxy.Endpoint == p.Endpoint {
			changed := have.proxy.HealthCheck != p.HealthCheck
			have.proxy = p
			if changed {
				r.schedule.Put(now, p.UID, p.HealthCheck.Interval)
				r.nudge()
			}
			return
		}
		r.remove(now, p.UID)
	}
	r.last++
	// Proxies begin with different targets, so that a dead one does not meet all of them at once.
	r.proxies[p.UID] = &tracked{proxy: p, incarnation: r.last, turn: int(r.last % uint64(len(r.options.Echoes)))}
	r.judge.Recall(now, p.UID, p.Known)
	r.schedule.Put(now, p.UID, p.HealthCheck.Interval)
	r.nudge()
}

// Remove forgets a proxy. The result of a probe that is under way is dropped.
func (r *Runner) Remove(uid UID) {
	now := r.options.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(now, uid)
}

func (r *Runner) remove(now time.Time, uid UID) {
	delete(r.proxies, uid)
	r.schedule.Remove(uid)
	r.judge.Forget(now, uid)
}

// Verdict returns what is held of a proxy; ok is false if it has no result yet.
func (r *Runner) Verdict(uid UID) (v Verdict, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.judge.Verdict(uid)
}

// Freeze returns whether verdicts are frozen.
func (r *Runner) Freeze() Freeze {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.judge.Freeze()
}

func (r *Runner) nudge() {
	select {
	case r.wake <- struct{}{}:
	default: // It is awake already.
	}
}

// finished is a probe, the incarnation that it was of, and how long it took.
type finished struct {
	probe       Probe
	incarnation uint64
	took        time.Duration
}

// Run probes until the context is done and returns nil then, after the probes under way have ended.
func (r *Runner) Run(ctx context.Context) error {
	results := make(chan finished)
	underWay := 0
	var frozen Freeze
	for {
		due, timer := r.due()
		var lane Lane
		select {
		case <-ctx.Done():
			stop(timer)
			for ; underWay > 0; underWay-- {
				<-results
			}
			return nil
		case f := <-results:
			underWay--
			frozen = r.finish(f, frozen)
			stop(timer)
			continue
		case <-r.wake:
			stop(timer)
			continue
		case <-expiry(timer):
			continue
		case due[LaneQuick] <- struct{}{}:
			lane = LaneQuick
		case due[LaneSlow] <- struct{}{}:
			lane = LaneSlow
		}
		stop(timer)
		if r.start(ctx, lane, results) {
			underWay++
		}
	}
}

// due returns where to ask for a place for each lane that has a probe due, and a timer for the next one that has none.
func (r *Runner) due() (places [lanes]chan<- struct{}, timer clock.Timer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.options.Clock.Now()
	var next time.Time
	for lane := range lanes {
		at, ok := r.schedule.Next(lane)
		switch {
		case !ok:
		case !at.After(now):
			places[lane] = r.options.Limiter.places[lane]
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	if !next.IsZero() {
		timer = r.options.Clock.NewTimer(next.Sub(now))
	}
	return places, timer
}

// start begins the probe of a lane that is due, if there still is one, in the place that was got. It gives the place
// back when the probe has ended.
func (r *Runner) start(ctx context.Context, lane Lane, results chan<- finished) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := r.options.Clock.Now()
	uid, ok := r.schedule.Take(begun, lane)
	if !ok {
		<-r.options.Limiter.places[lane]
		return false
	}
	t := r.proxies[uid]
	proxy, incarnation, echo := t.proxy, t.incarnation, r.options.Echoes[t.turn%len(r.options.Echoes)]
	t.turn++
	go func() {
		probe := r.options.Probe(ctx, proxy, echo)
		probe.UID, probe.Echo = uid, echo.ID
		took := r.options.Clock.Since(begun)
		<-r.options.Limiter.places[lane]
		results <- finished{probe: probe, incarnation: incarnation, took: took}
	}()
	return true
}

func expiry(t clock.Timer) <-chan time.Time {
	if t == nil {
		return nil
	}
	return t.C()
}

func stop(t clock.Timer) {
	if t != nil {
		t.Stop()
	}
}

// finish judges a result and tells the owner. It returns the freeze that the owner knows of.
func (r *Runner) finish(f finished, known Freeze) Freeze {
	now := r.options.Clock.Now()
	uid := f.probe.UID
	r.mu.Lock()
	t, ok := r.proxies[uid]
	if !ok || t.incarnation != f.incarnation {
		r.mu.Unlock()
		return known
	}
	verdict, changed := r.judge.Observe(now, f.probe.Result, t.proxy.HealthCheck.thresholds())
	freeze := r.judge.Freeze()
	lane := LaneQuick
	if f.took >= r.options.SlowFrom {
		lane = LaneSlow
	}
	r.schedule.Done(now, uid, r.judge.Undecided(now, uid), lane)
	r.mu.Unlock()

	// Outside of the lock: the owner may call back.
	r.options.OnVerdict(verdict, f.probe, changed)
	if freeze.Frozen != known.Frozen || freeze.Reason != known.Reason {
		if r.options.OnFreeze != nil {
			r.options.OnFreeze(freeze)
		}
	}
	return freeze
}
