package leaseclient

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// State is what the hub last said of a lease.
type State struct {
	// Expires is when the lease ends unless it is renewed, on this process's clock and never after the hub's end.
	Expires time.Time
	// Draining says that the proxy is on its way out: the lease cannot be renewed for long. Finish, and lease another.
	Draining bool
	// ExitChanged says that the proxy leaves by another address than when the lease was granted: a target may have
	// bound a session to it.
	ExitChanged bool
	// Exit is the address that the proxy leaves by now, the first if it has several.
	Exit string
	// Limits are what [Lease.Begin] keeps to.
	Limits Limits
}

// Lease is a proxy that this client holds, and keeps until it is released or lost. It is made by [Client.Acquire].
type Lease struct {
	client  *Client
	granted *leasev1.Lease
	proxy   *url.URL
	pace    *pace
	ctx     context.Context // ends with the lease
	cancel  context.CancelFunc
	done    chan struct{}
	due     chan time.Duration // makes the next renewal due within a time

	mu         sync.Mutex // guards what follows
	state      State
	renewAfter time.Duration // since the last answer
	changed    chan struct{}
	err        error // why the lease has ended

	release    sync.Once
	released   chan struct{} // closed when the hub knows, or could not be told
	releaseErr error
}

func newLease(c *Client, granted *leasev1.Lease, proxy *url.URL, sent time.Time) *Lease {
	l := &Lease{
		client: c, granted: granted, proxy: proxy, pace: newPace(),
		done: make(chan struct{}), due: make(chan time.Duration, 1), changed: make(chan struct{}), released: make(chan struct{}),
		state: State{
			Expires: sent.Add(time.Duration(granted.GetTtlSeconds()) * time.Second), Draining: granted.GetDraining(), Exit: granted.GetExit(),
			Limits: limitsOf(granted.GetLimits()),
		},
		renewAfter: time.Duration(granted.GetRenewAfterSeconds()) * time.Second,
	}
	l.pace.set(l.state.Limits)
	// Not the client's: when that is closed the lease ends by its release.
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(c.ctx))
	return l
}

// ID is the lease's id.
func (l *Lease) ID() string { return l.granted.GetLeaseId() }

// Granted is the lease as it was granted, with its credentials. The caller gets a copy.
func (l *Lease) Granted() *leasev1.Lease { return proto.CloneOf(l.granted) }

// ProxyURL is where requests go through, with the credentials. The caller gets a copy, as for [http.ProxyURL].
func (l *Lease) ProxyURL() *url.URL {
	proxy := *l.proxy
	return &proxy
}

// Done is closed when the lease has ended: released, expired, or gone from the hub. Tunnels that are open stay so; new
// ones should not be made.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Err is why the lease has ended: [ErrReleased], [ErrExpired], or a [Refusal]. It is nil while the lease is held.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// State is what the hub last said.
func (l *Lease) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// Changed returns a channel that is closed when the state next changes in anything but Expires. Get it before the state
// to miss nothing.
func (l *Lease) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Report tells the hub how a target answered; an empty target is the lease's. It returns for how long the exit now
// rests for the target, zero if it does not. Reports are taken until 10 minutes after the lease has ended.
func (l *Lease) Report(ctx context.Context, target string, outcome *leasev1.Outcome) (cooldown time.Duration, err error) {
	var answer *leasev1.ReportResponse
	err = l.client.repeat(ctx, l.client.retry.Patience, func(ctx context.Context) (err error) {
		answer, err = l.client.service.Report(ctx, &leasev1.ReportRequest{LeaseId: l.ID(), Target: target, Outcome: outcome})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("report on lease %s: %w", l.ID(), err)
	}
	if !l.isDone() {
		l.update(func(s *State) { s.Limits = limitsOf(answer.GetLimits()) })
	}
	return answer.GetCooldown().AsDuration(), nil
}

// Release ends the lease, and reports the outcome for the lease's target before if there is one. The lease has ended for
// this process when Release is called; it returns when the hub knows. If the context ends first, telling goes on in the
// background, so a canceled crawler releases what it held. Only the first call's outcome counts; later ones wait for
// the same end.
func (l *Lease) Release(ctx context.Context, outcome *leasev1.Outcome) error {
	l.releaseSoon(outcome)
	select {
	case <-l.released:
		return l.releaseErr
	case <-ctx.Done():
		return fmt.Errorf("release of lease %s goes on in the background: %w", l.ID(), context.Cause(ctx))
	}
}

// releaseSoon is Release without the wait.
func (l *Lease) releaseSoon(outcome *leasev1.Outcome) {
	l.release.Do(func() {
		l.end(ErrReleased)
		l.client.remember(l) // It may have been lost before; Close waits for this as well.
		go l.tell(outcome)
	})
}

// tell releases the lease at the hub.
func (l *Lease) tell(outcome *leasev1.Outcome) {
	defer close(l.released)
	defer l.client.forget(l)
	// Whatever has ended, this is tried for its own time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.client.ctx), releasePatience)
	defer cancel()
	err := l.client.repeat(ctx, releasePatience, func(ctx context.Context) error {
		_, err := l.client.service.Release(ctx, &leasev1.ReleaseRequest{LeaseId: l.ID(), Outcome: outcome})
		return err
	})
	if outcome != nil && ReasonOf(err) == leasev1.Refusal_INVALID_REQUEST {
		// What is wrong with the outcome must not keep the lease.
		_, again := l.client.service.Release(ctx, &leasev1.ReleaseRequest{LeaseId: l.ID()})
		err = errors.Join(err, again)
	}
	if err != nil && !gone(err) {
		l.client.log.Warn("a lease could not be released; it ends with its TTL", "lease", l.ID(), "err", err)
		l.releaseErr = fmt.Errorf("release lease %s: %w", l.ID(), err)
	}
}

// end ends the lease for this process, once, and says whether this call did.
func (l *Lease) end(why error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	l.err = why
	close(l.done)
	l.cancel()
	return true
}

func (l *Lease) isDone() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// update takes in what the hub says, and tells who wants to know if it is news.
func (l *Lease) update(change func(s *State)) {
	l.mu.Lock()
	before := l.state
	change(&l.state)
	state, news := l.state, l.state
	news.Expires = before.Expires
	l.pace.set(state.Limits)
	if news == before {
		l.mu.Unlock()
		return
	}
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	if l.client.onChange != nil {
		l.client.onChange(l, state)
	}
}
