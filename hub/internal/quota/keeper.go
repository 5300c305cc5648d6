package quota

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

const (
	// reload is how often the file is read again.
	reload = 10 * time.Second
	// mostLimiters bounds the rates that are followed; the least recently used are forgotten, and begin with a full burst.
	mostLimiters = 8192
	// heldRetry is the retryAfter of who holds too much: nobody knows when a lease is given back.
	heldRetry = 5 * time.Second
)

// Doer carries out commands. *keeper.Keeper does.
type Doer interface {
	Do(ctx context.Context, cmd lease.Command) (lease.Result, error)
}

// Options are what a [Keeper] is made with. Next and Clock are required.
type Options struct {
	Next Doer
	// Path is the file of limits.
	Path string
	// Config is used where Path is empty.
	Config Config
	Clock  clock.Clock
	// Logger hears of limits that change: discarded by default.
	Logger *slog.Logger
}

// Keeper is a [Doer] that keeps limits. It is safe for concurrent use.
type Keeper struct {
	next  Doer
	path  string
	clock clock.Clock
	log   *slog.Logger

	mu       sync.Mutex
	config   Config
	reserved map[who]int
	rates    map[who]*list.Element // of *paced
	order    *list.List
}

// who is a tenant or a principal.
type who struct {
	name      string
	principal bool
}

func (w who) String() string {
	if w.principal {
		return w.name
	}
	return "namespace " + w.name
}

// paced is who asks how often.
type paced struct {
	who     who
	limits  Limits
	limiter *rate.Limiter
}

// New makes a keeper, or says what is wrong with the file of limits.
func New(o Options) (*Keeper, error) {
	if o.Next == nil || o.Clock == nil {
		return nil, errors.New("quota: Options need Next and Clock")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{
		next: o.Next, path: o.Path, clock: o.Clock, log: o.Logger, config: o.Config,
		reserved: map[who]int{}, rates: map[who]*list.Element{}, order: list.New(),
	}
	if o.Path != "" {
		config, err := Load(o.Path)
		if err != nil {
			return nil, err
		}
		k.config = config
	}
	return k, nil
}

// Run reads the file again when it changes, until ctx ends. Where it is not good, the limits stay as they were.
func (k *Keeper) Run(ctx context.Context) error {
	told := ""
	for {
		timer := k.clock.NewTimer(reload)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
		if k.path == "" {
			continue
		}
		config, err := Load(k.path)
		switch {
		case err != nil && err.Error() != told:
			told = err.Error()
			k.log.ErrorContext(ctx, "the file of quotas is not good; the limits stay as they were", "path", k.path, "err", err)
		case err == nil:
			told = ""
			k.set(ctx, config)
		}
	}
}

func (k *Keeper) set(ctx context.Context, config Config) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !reflect.DeepEqual(config, k.config) {
		k.config = config
		k.log.InfoContext(ctx, "quotas have changed", "path", k.path)
	}
}

// Do carries out a command, unless it is an Acquire beyond a limit: that is refused with QUOTA.
func (k *Keeper) Do(ctx context.Context, cmd lease.Command) (lease.Result, error) {
	acquire, ok := cmd.(lease.Acquire)
	if !ok {
		return k.next.Do(ctx, cmd)
	}
	callers := [...]who{{name: acquire.Fleet.Namespace()}, {name: string(acquire.Principal), principal: true}}
	n := 1
	if acquire.Count != nil {
		n = min(max(1, *acquire.Count), lease.MaxCount) // what is wrong with it, the engine says
	}
	limits, refusal := k.admit(callers, n)
	if refusal != nil {
		return nil, refusal
	}
	if limits[0].MaxLeases == 0 && limits[1].MaxLeases == 0 {
		return k.next.Do(ctx, cmd)
	}
	defer k.giveBack(callers, n)
	wanted := k.reserve(callers, n)
	result, err := k.next.Do(ctx, lease.ReadHeld{Fleet: acquire.Fleet, Principal: acquire.Principal, RequestID: acquire.RequestID})
	if err != nil {
		return nil, err
	}
	held, ok := result.(lease.Held)
	if !ok {
		return nil, fmt.Errorf("quota: asked what is held, the keeper answers %T", result)
	}
	for i, holds := range [...]int{held.Tenant, held.Principal} {
		most := limits[i].MaxLeases
		if most == 0 || held.Repeated || holds+wanted[i] <= most {
			continue
		}
		refusal := &lease.Refusal{Reason: lease.Quota, RetryAfter: heldRetry, Message: fmt.Sprintf(
			"%s holds %d leases, asks for %d, and may hold %d; release some first", callers[i], holds, wanted[i], most)}
		if n > most {
			refusal.RetryAfter = 0
		}
		return nil, refusal
	}
	return k.next.Do(ctx, cmd)
}

// admit takes from the rates of callers, or from none of them.
func (k *Keeper) admit(callers [2]who, n int) (limits [2]Limits, _ *lease.Refusal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	var taken []*rate.Reservation
	for i, w := range callers {
		limits[i] = k.config.of(w)
		if limits[i].AcquiresPerSecond == 0 {
			continue
		}
		r := k.rate(w, limits[i]).ReserveN(now, min(n, limits[i].Burst))
		taken = append(taken, r)
		if wait := r.DelayFrom(now); wait > 0 {
			for _, r := range taken {
				r.CancelAt(now)
			}
			wait = max(time.Second, (wait + time.Second - 1).Truncate(time.Second))
			return limits, &lease.Refusal{Reason: lease.Quota, RetryAfter: wait, Message: fmt.Sprintf(
				"%s may ask for %g leases a second, and has asked for more; come back in %s", w, limits[i].AcquiresPerSecond, wait)}
		}
	}
	return limits, nil
}

// rate returns the rate of somebody. The lock is held.
func (k *Keeper) rate(w who, limits Limits) *rate.Limiter {
	e := k.rates[w]
	if e == nil {
		e = k.order.PushFront(&paced{who: w, limits: limits, limiter: rate.NewLimiter(rate.Limit(limits.AcquiresPerSecond), limits.Burst)})
		k.rates[w] = e
		if len(k.rates) > mostLimiters {
			oldest := k.order.Back()
			delete(k.rates, oldest.Value.(*paced).who)
			k.order.Remove(oldest)
		}
	}
	k.order.MoveToFront(e)
	p := e.Value.(*paced)
	if p.limits != limits {
		now := k.clock.Now()
		p.limits = limits
		p.limiter.SetLimitAt(now, rate.Limit(limits.AcquiresPerSecond))
		p.limiter.SetBurstAt(now, limits.Burst)
	}
	return p.limiter
}

// reserve counts what is asked for and returns what is under way with it.
func (k *Keeper) reserve(callers [2]who, n int) (wanted [2]int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, w := range callers {
		k.reserved[w] += n
		wanted[i] = k.reserved[w]
	}
	return wanted
}

func (k *Keeper) giveBack(callers [2]who, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range callers {
		if k.reserved[w] -= n; k.reserved[w] <= 0 {
			delete(k.reserved, w)
		}
	}
}
