package leaseclient

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

const (
	// undoPatience is how long an Acquire without an answer is tried to be undone; what is left ends with its TTL.
	undoPatience = 30 * time.Second
	// releasePatience is how long a Release is tried; what is left ends with its TTL.
	releasePatience = 30 * time.Second
	// releasesAtOnce bounds the calls of Close.
	releasesAtOnce = 16
)

// Options are what a [Client] is made with.
type Options struct {
	// Service is the lease API, as [Hub.Service] returns it. Required.
	Service Service
	// Retry is how calls are repeated.
	Retry Retry
	// CallTimeout bounds each single call; [DefaultCallTimeout] if it is zero. What an Acquire asks to wait is added.
	CallTimeout time.Duration
	// OnChange is called when what the hub says of a lease has changed: it drains, its exit or its limits are others. It
	// runs on the goroutine that renews the lease or makes the report, and must not wait for the lease. It may be nil.
	OnChange func(lease *Lease, state State)
	// Watch learns at once, over one stream for the client, what else the next renewal would tell, minutes later: for
	// leases that are held for long. The Service then needs WatchLeases. A hub that has no such call is left at renewals.
	Watch bool
	// Logger gets what nobody waits for: leases that were lost, releases that failed. Discarded by default.
	Logger *slog.Logger
}

// Client leases proxies. It is made by [New] and ends with [Client.Close].
type Client struct {
	service     Service
	retry       Retry
	callTimeout time.Duration
	onChange    func(*Lease, State)
	log         *slog.Logger
	watcher     *watcher // nil without Watch

	ctx   context.Context // of all that goes on in the background
	close context.CancelCauseFunc
	busy  sync.WaitGroup // Acquires, what undoes them, reports, and the watch

	mu     sync.Mutex // guards what follows, and adding to busy
	closed bool
	leases map[*Lease]struct{} // those that are not known to be released or over
}

// New makes a client, or says what is missing.
func New(o Options) (*Client, error) {
	if o.Service == nil {
		return nil, errors.New("leaseclient: Options need a Service; Hub.Service makes one")
	}
	if o.CallTimeout <= 0 {
		o.CallTimeout = DefaultCallTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{
		service: o.Service, retry: o.Retry.orDefault(), callTimeout: o.CallTimeout, onChange: o.OnChange, log: o.Logger,
		leases: map[*Lease]struct{}{},
	}
	if o.Watch {
		service, ok := o.Service.(watched)
		if !ok {
			return nil, errors.New("leaseclient: Options.Watch needs a Service with WatchLeases; Hub.Service makes one")
		}
		c.watcher = &watcher{open: func(ctx context.Context) (events, error) {
			return service.WatchLeases(ctx, &leasev1.WatchLeasesRequest{})
		}}
	}
	c.ctx, c.close = context.WithCancelCause(context.Background())
	return c, nil
}

// Acquire leases one proxy. The request is not changed; a request id is made where it has none. Whoever brings one can
// ask again with it after an error, and is given what the hub had granted; nothing is undone for them. A request with a
// count belongs to [Client.AcquireAll].
func (c *Client) Acquire(ctx context.Context, request *leasev1.AcquireRequest) (*Lease, error) {
	if count := request.GetCount(); request != nil && request.Count != nil && count != 1 {
		return nil, fmt.Errorf("leaseclient: Acquire leases one proxy and the request's count is %d; use AcquireAll", count)
	}
	leases, err := c.AcquireAll(ctx, request)
	if err != nil {
		return nil, err
	}
	return leases[0], nil
}

// AcquireAll leases as many proxies as the request's count says, or with minCount as many of them as can be had. On an
// error none is held.
func (c *Client) AcquireAll(ctx context.Context, request *leasev1.AcquireRequest) ([]*Lease, error) {
	return c.acquire(ctx, request, c.retry.Patience)
}

func (c *Client) acquire(ctx context.Context, request *leasev1.AcquireRequest, patience time.Duration) ([]*Lease, error) {
	request = proto.CloneOf(request)
	if request == nil {
		request = &leasev1.AcquireRequest{}
	}
	ours := request.RequestId == ""
	if ours {
		request.RequestId = rand.Text()
	}
	if !c.begin() {
		return nil, ErrClosed
	}
	defer c.busy.Done()
	ctx, cancel := c.until(ctx)
	defer cancel()

	var answer *leasev1.AcquireResponse
	var sent time.Time
	lost := false // whether some answer may have been lost
	hold := max(0, request.GetWait().AsDuration())
	err := c.repeatWaiting(ctx, patience, hold, func(ctx context.Context) (err error) {
		sent = time.Now()
		answer, err = c.service.Acquire(ctx, request)
		lost = lost || unanswered(typed(err))
		return err
	})
	if err == nil {
		var leases []*Lease
		if leases, err = c.hold(answer.GetLeases(), sent); err == nil {
			return leases, nil
		}
		lost = true
	}
	if lost && ours {
		// The hub may have granted what nobody knows of. Whoever brings an id may mean to ask again.
		c.busy.Go(func() { c.undo(request) })
	}
	return nil, fmt.Errorf("acquire a proxy of %s: %w", request.GetFleet(), err)
}

// hold keeps the leases of an answer, all or none.
func (c *Client) hold(granted []*leasev1.Lease, sent time.Time) ([]*Lease, error) {
	if len(granted) == 0 {
		return nil, errors.New("the hub has granted no lease and has not said why")
	}
	leases := make([]*Lease, len(granted))
	for i, g := range granted {
		proxy, err := url.Parse(g.GetProxyUrl())
		if err != nil {
			// Not with the URL: it has a password in it.
			return nil, fmt.Errorf("the proxy URL of lease %s cannot be read", g.GetLeaseId())
		}
		leases[i] = newLease(c, g, proxy, sent)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	for _, l := range leases {
		c.leases[l] = struct{}{}
		go l.renew()
	}
	if c.watcher != nil {
		c.watcher.start.Do(func() { c.busy.Go(c.watch) })
	}
	return leases, nil
}

// undo releases what an Acquire was granted whose answer is lost: asked again with the same id, the hub names it.
func (c *Client) undo(request *leasev1.AcquireRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), undoPatience)
	defer cancel()
	request.Wait = nil // what was not granted is not to be granted now
	var answer *leasev1.AcquireResponse
	err := c.repeat(ctx, undoPatience, func(ctx context.Context) (err error) {
		answer, err = c.service.Acquire(ctx, request)
		if _, refused := errors.AsType[*Refusal](typed(err)); refused {
			// Nothing was granted, or it has ended.
			return nil
		}
		return err
	})
	for _, granted := range answer.GetLeases() {
		err = errors.Join(err, c.repeat(ctx, undoPatience, func(ctx context.Context) error {
			_, err := c.service.Release(ctx, &leasev1.ReleaseRequest{LeaseId: granted.GetLeaseId()})
			return err
		}))
	}
	if err != nil {
		c.log.Warn("an Acquire without an answer could not be undone; what it was granted ends with its TTL", "fleet", request.GetFleet(), "err", err)
	}
}

// Close releases every lease that is held and returns when the hub knows, or when the context ends. Acquires that wait
// return [ErrClosed]. It is an error that some lease could not be released; it ends with its TTL. Close may be called
// more than once.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	held := make([]*Lease, 0, len(c.leases))
	for l := range c.leases {
		held = append(held, l)
	}
	c.mu.Unlock()
	c.close(ErrClosed)

	var wg sync.WaitGroup
	errs := make([]error, len(held))
	slots := make(chan struct{}, releasesAtOnce)
	for i, l := range held {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = l.Release(ctx, nil)
		})
	}
	wg.Wait()

	idle := make(chan struct{})
	go func() {
		defer close(idle)
		c.busy.Wait()
	}()
	select {
	case <-idle:
		return errors.Join(errs...)
	case <-ctx.Done():
		return errors.Join(errors.Join(errs...), context.Cause(ctx))
	}
}

// begin counts an Acquire in, unless the client is closed.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.busy.Add(1)
	return true
}

// until ends the context with the client as well.
func (c *Client) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

func (c *Client) remember(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases[l] = struct{}{}
}

// inBackground does what Close waits for, and nothing once the client is closed. What it returns is closed when that is
// done.
func (c *Client) inBackground(do func()) <-chan struct{} {
	done := make(chan struct{})
	if !c.begin() {
		close(done)
		return done
	}
	go func() {
		defer c.busy.Done()
		defer close(done)
		do()
	}()
	return done
}

func (c *Client) forget(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leases, l)
}
