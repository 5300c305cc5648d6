package lease

import "time"

// Options are what an Engine is made with.
type Options struct {
	// IDs makes lease ids. Required.
	IDs IDSource
	// Epoch is that of every token granted. It must grow with every start and
	// every change of the authority, so that tokens of two hubs are in order.
	// Where no store counts epochs, the seconds since 1970 at the start do.
	Epoch uint64
	// StartedAt is when this hub began. Unless HistoryComplete, a fleet
	// grants nothing for its maxTTL from then on, as leases from before may
	// still live: see [StaleInventory].
	StartedAt time.Time
	// HistoryComplete says that Apply was given everything that was ever
	// granted: the journal is durable, or this is a new installation.
	HistoryComplete bool
	// Freshness is how long a member counts as present after the last word
	// from it: 1 min by default.
	Freshness time.Duration
	// Guard bounds what bursts of bans can do.
	Guard Guard
	// MaxWaiters and MaxWaitersPerPrincipal bound the Acquires that wait: of
	// one fleet (20,000 by default), and of one principal in all fleets
	// (12,000 by default).
	MaxWaiters             int
	MaxWaitersPerPrincipal int
	// ReserveAfter is how long an exclusive Acquire waits before a proxy is
	// reserved for it: 2 s by default.
	ReserveAfter time.Duration
	// MaxPaces bounds the pairs of an exit and a target whose pace is known:
	// [DefaultMaxPaces] by default. The targets least recently used are
	// forgotten first.
	MaxPaces int
}

// Engine decides who leases which proxy. It is not safe for concurrent use:
// one goroutine owns it. It reads no clock and starts nothing: time comes in
// with each call, and an earlier time than before counts as the same.
type Engine struct {
	opts     Options
	now      int64
	sequence uint64
	readOnly string // why nothing is granted, or ""
	live     bool   // time has passed since the replay

	fleets   map[FleetID]*fleet
	proxies  map[ProxyUID]*proxy
	members  map[MemberID]*member
	leases   map[ID]*lease
	exits    map[Exit]*exit
	targets  map[string]*target
	requests map[requestKey]*request
	sessions map[sessionKey]*session
	guard    guardCounts
	paces    int    // pairs of an exit and a target
	trips    uint64 // of guards, in this life of the engine
	// revocations and pauses are those that operators have set; some may be
	// over.
	revocations map[revocationKey]Revocation
	pauses      map[string]Pause

	timers  timerHeap
	waiting []timerItem // scratch of a replay
	granted []*lease    // scratch of a grant

	// Who waits: see room.go. None of it is durable.
	lastTicket Ticket
	waiters    map[Ticket]*waiter
	waitersOf  map[Principal]int
	twins      map[requestKey][]*waiter // with a request id
	seekers    map[sessionKey][]*waiter // with a session key
	waits      timerHeap                // apart from timers: see waitsDue
	unsettled  []*room
}

// Remembered is how long an ended lease can still be reported on, and its
// request id is known.
const Remembered = 10 * time.Minute

// idleRetry is the retryAfter of a refusal that only the fleet's own progress
// can change: the engine cannot know when that will be.
const idleRetry = 5 * time.Second

// New makes an engine that knows nothing yet. It panics without
// [Options].IDs: a hub that cannot name leases is a mistake in its wiring.
func New(opts Options) *Engine {
	if opts.IDs == nil {
		panic("lease: Options.IDs is required")
	}
	if opts.Freshness <= 0 {
		opts.Freshness = time.Minute
	}
	if opts.MaxPaces <= 0 {
		opts.MaxPaces = DefaultMaxPaces
	}
	opts.Guard = opts.Guard.withDefaults()
	if opts.MaxWaiters <= 0 {
		opts.MaxWaiters = DefaultMaxWaiters
	}
	if opts.MaxWaitersPerPrincipal <= 0 {
		opts.MaxWaitersPerPrincipal = DefaultMaxWaitersPerPrincipal
	}
	if opts.ReserveAfter <= 0 {
		opts.ReserveAfter = DefaultReserveAfter
	}
	return &Engine{
		opts:     opts,
		fleets:   map[FleetID]*fleet{},
		proxies:  map[ProxyUID]*proxy{},
		members:  map[MemberID]*member{},
		leases:   map[ID]*lease{},
		exits:    map[Exit]*exit{},
		targets:  map[string]*target{},
		requests: map[requestKey]*request{},
		sessions: map[sessionKey]*session{},

		revocations: map[revocationKey]Revocation{},
		pauses:      map[string]Pause{},

		waiters:   map[Ticket]*waiter{},
		waitersOf: map[Principal]int{},
		twins:     map[requestKey][]*waiter{},
		seekers:   map[sessionKey][]*waiter{},
	}
}

// Step lets time pass until now and then carries out one command. The error,
// if any, is a *[Refusal], and the command has changed nothing; the Output's
// Records and Answers are to be seen to in either case, because time may have.
func (e *Engine) Step(now time.Time, cmd Command) (Output, error) {
	var out Output
	e.advance(nanos(now), &out)
	result, refusal := e.dispatch(cmd, &out)
	e.settle(&out)
	if refusal != nil {
		return out, refusal
	}
	out.Result = result
	return out, nil
}

func (e *Engine) dispatch(cmd Command, out *Output) (Result, *Refusal) {
	switch cmd := cmd.(type) {
	case Acquire:
		return e.acquireOrWait(&cmd, out)
	case Cancel:
		return e.cancel(&cmd)
	case Abandon:
		return e.abandon(&cmd, out)
	case Renew:
		return e.renew(&cmd, out)
	case Release:
		return e.release(&cmd, out)
	case Report:
		return e.report(&cmd, out)
	case Get:
		return e.get(&cmd)
	case List:
		return e.list(&cmd)
	case ReadStats:
		return e.readStats(&cmd)
	case ReadUse:
		return e.readUse(&cmd)
	case ReadBusy:
		return e.readBusy()
	case ReadInventory:
		return e.readInventory()
	case SetFleet:
		return e.setFleet(&cmd, out)
	case RemoveFleet:
		return e.removeFleet(&cmd, out)
	case UpsertProxy:
		return e.upsertProxy(&cmd, out)
	case RemoveProxy:
		return e.removeProxy(&cmd, out)
	case Drain:
		return e.drain(&cmd, out)
	case SetMember:
		return e.setMember(&cmd, out)
	case Touch:
		return e.touch(&cmd, out)
	case SetReadOnly:
		return e.setReadOnly(&cmd)
	default:
		return e.operate(cmd, out)
	}
}

// Tick lets time pass until now: leases expire, cooldowns end, slots that were
// held back become free, silent members go stale.
func (e *Engine) Tick(now time.Time) Output {
	var out Output
	e.advance(nanos(now), &out)
	return out
}

// NextDeadline returns when time alone next changes something. False means
// never, as things stand.
func (e *Engine) NextDeadline() (time.Time, bool) {
	t, at := e.timers.first()
	if w, due := e.waits.first(); w != nil && (t == nil || due < at) {
		return moment(due), true
	}
	return moment(at), t != nil
}

// Now is the engine's time: the latest it was ever told, by a call or by a
// record.
func (e *Engine) Now() time.Time { return moment(e.now) }

// commit makes a fact durable and true.
func (e *Engine) commit(rec Record, out *Output) {
	out.Records = append(out.Records, rec)
	e.apply(rec, out)
}
