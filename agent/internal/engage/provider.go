package engage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

const (
	// syncTimeout bounds the first reading of a cluster's objects.
	syncTimeout = 2 * time.Minute
	// retryFirst and retryCap bound the wait before a candidate is tried again. It doubles.
	retryFirst, retryCap = time.Second, 30 * time.Second
	// checkEvery and checkTimeout are how often an engaged cluster is asked whether it answers, and for how long.
	checkEvery, checkTimeout = 5 * time.Second, 4 * time.Second
	// unwellAfter is how many answers must be missing in a row before nothing is asked of a cluster any more.
	unwellAfter = 2
)

// ErrUnwell is what [Provider.Get] returns of a cluster that does not answer. It is worth asking again later.
var ErrUnwell = errors.New("the member's cluster does not answer")

// Candidate is what may become a member.
type Candidate struct {
	// Source is who knows of it. Two sources never have a member of one name.
	Source string
	// Open makes the member's cluster, once it has looked whether that can work. It bounds its own calls, and it may wait
	// for the hub or for a person for as long as that takes. It is called again where the member is lost.
	Open func(ctx context.Context) (cluster.Cluster, error)
	// Kinds are what the controllers watch in the cluster.
	Kinds []client.Object
	// Check asks an engaged cluster for a sign of life; nil where nobody asks.
	Check func(ctx context.Context) error
	// Tell is told each change of phase or reason, one at a time; nil tells nobody. It must return at once.
	Tell func(State)
}

// Options configures a Provider.
type Options struct {
	// Clock waits.
	Clock clock.WithTicker
	// Logger is told what becomes of members.
	Logger *slog.Logger
	// Started are awaited before anything is engaged: the controllers.
	Started []*Started
}

// Provider implements multicluster.Provider and multicluster.ProviderRunnable. It is safe for concurrent use.
type Provider struct {
	o Options

	mu         sync.Mutex // guards what follows
	candidates map[string]*candidate
	aware      multicluster.Aware
	ctx        context.Context //nolint:containedctx // candidates that come later end with Start as well
	stopped    bool
	running    sync.WaitGroup
}

var (
	_ multicluster.Provider         = (*Provider)(nil)
	_ multicluster.ProviderRunnable = (*Provider)(nil)
)

// New makes a Provider.
func New(o Options) (*Provider, error) {
	if o.Clock == nil || o.Logger == nil {
		return nil, errors.New("engage: Clock and Logger are required")
	}
	return &Provider{o: o, candidates: map[string]*candidate{}}, nil
}

// candidate is a Candidate and how far it has come.
type candidate struct {
	Candidate
	provider *Provider
	name     string
	cancel   context.CancelFunc
	// ended is closed when nothing of it runs any more. It is nil before anything does.
	ended chan struct{}
	// before is what had the name until now, and must end first.
	before *candidate

	mu      sync.Mutex // guards what follows
	state   State
	cluster cluster.Cluster // while it is engaged
	unwell  bool
}

// Set makes c the candidate of a name, in place of any that the same source had. It returns at once, with an error only
// where another source has the name.
func (p *Provider) Set(name string, c Candidate) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.candidates[name]
	if before != nil && before.Source != c.Source {
		return fmt.Errorf("member %q is %s already; choose another name", name, before.Source)
	}
	next := &candidate{Candidate: c, provider: p, name: name, before: before}
	next.state = State{Member: name, Source: c.Source, Phase: PhaseWaiting}
	p.candidates[name] = next
	if before != nil && before.cancel != nil {
		before.cancel()
	}
	if p.ctx != nil && !p.stopped {
		p.run(next)
	}
	return nil
}

// Remove ends the candidate that the source has under a name, if it has one. Its member is left as it is.
func (p *Provider) Remove(name, source string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.candidates[name]
	if c == nil || c.Source != source {
		return
	}
	delete(p.candidates, name)
	if c.cancel != nil {
		c.cancel()
	}
}

// Start engages candidates until ctx ends. The manager calls it.
func (p *Provider) Start(ctx context.Context, aware multicluster.Aware) error {
	for _, s := range p.o.Started {
		select {
		case <-s.done:
		case <-ctx.Done():
			return nil
		}
	}
	p.mu.Lock()
	p.ctx, p.aware = ctx, aware
	for _, c := range p.candidates {
		p.run(c)
	}
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.running.Wait()
	return nil
}

// run is called with the lock held.
func (p *Provider) run(c *candidate) {
	ctx, cancel := context.WithCancel(p.ctx)
	c.cancel, c.ended = cancel, make(chan struct{})
	p.running.Go(func() {
		defer close(c.ended)
		defer cancel()
		if c.before != nil && c.before.ended != nil {
			<-c.before.ended
		}
		c.before = nil
		c.run(ctx)
	})
}

// Get gives an engaged cluster.
func (p *Provider) Get(_ context.Context, name multicluster.ClusterName) (cluster.Cluster, error) {
	p.mu.Lock()
	c := p.candidates[string(name)]
	p.mu.Unlock()
	if c == nil {
		return nil, multicluster.ErrClusterNotFound
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.cluster == nil:
		return nil, multicluster.ErrClusterNotFound
	case c.unwell:
		return nil, fmt.Errorf("%w: %s", ErrUnwell, name)
	}
	return c.cluster, nil
}

// IndexField is refused: what a cluster's cache indexes is for Open to say.
func (p *Provider) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return errors.New("engage: fields are indexed where a member's cluster is opened")
}

// States tells of all candidates, by name.
func (p *Provider) States() []State {
	p.mu.Lock()
	states := make([]State, 0, len(p.candidates))
	for _, c := range p.candidates {
		c.mu.Lock()
		states = append(states, c.state)
		c.mu.Unlock()
	}
	p.mu.Unlock()
	slices.SortFunc(states, func(a, b State) int { return strings.Compare(a.Member, b.Member) })
	return states
}

// run engages the candidate, again and again, until ctx ends.
func (c *candidate) run(ctx context.Context) {
	for attempt := 0; ; attempt++ {
		began := c.provider.o.Clock.Now()
		err := c.engage(ctx)
		if ctx.Err() != nil {
			c.tell(State{Phase: PhaseGone})
			return
		}
		if c.provider.o.Clock.Since(began) > retryCap {
			attempt = 0
		}
		c.tell(State{Phase: PhaseWaiting, Reason: reasonOf(err), Err: err})
		if !c.sleep(ctx, retry(attempt)) {
			c.tell(State{Phase: PhaseGone})
			return
		}
	}
}

// retry gives the wait before the next attempt: the members of one agent are few, so half of it is enough jitter.
func retry(attempt int) time.Duration {
	wait := retryCap
	if attempt < 5 {
		wait = min(wait, retryFirst<<attempt)
	}
	return wait/2 + rand.N(wait/2+1)
}

func (c *candidate) sleep(ctx context.Context, d time.Duration) bool {
	timer := c.provider.o.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// engage opens and engages the candidate, and returns when it is lost or ctx ends.
func (c *candidate) engage(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cl, err := c.Open(ctx)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cl.Start(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	if err := c.read(ctx, cl); err != nil {
		return err
	}
	c.hold(cl)
	defer c.hold(nil)
	if err := c.provider.aware.Engage(ctx, multicluster.ClusterName(c.name), cl); err != nil {
		return fmt.Errorf("engage: %w", err)
	}
	c.tell(State{Phase: PhaseEngaged})
	return c.attend(ctx, ended)
}

// read waits until all that controllers will watch has been read once.
func (c *candidate) read(ctx context.Context, cl cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for _, kind := range c.Kinds {
		if _, err := cl.GetCache().GetInformer(ctx, kind); err != nil {
			return &Problem{Reason: ReasonUnreadable, Err: fmt.Errorf("read all of %T: %w", kind, err)}
		}
	}
	if !cl.GetCache().WaitForCacheSync(ctx) {
		return &Problem{Reason: ReasonUnreadable, Err: errors.New("its objects could not be read in time")}
	}
	return nil
}

func (c *candidate) hold(cl cluster.Cluster) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cluster, c.unwell = cl, false
}

// attend asks for signs of life until the cluster ends or ctx does. While a cluster gives none, its proxies are probed
// and reported on, but no controller waits for its answers: there are few of them, for all members.
func (c *candidate) attend(ctx context.Context, ended chan error) error {
	if c.Check == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	ticker := c.provider.o.Clock.NewTicker(checkEvery)
	defer ticker.Stop()
	for missing := 0; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			ended <- err // for whoever waits for the end
			return &Problem{Reason: ReasonUnreadable, Err: fmt.Errorf("its cache has ended: %w", err)}
		case <-ticker.C():
		}
		err := c.check(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			missing = 0
		default:
			missing++
		}
		c.setUnwell(missing >= unwellAfter, err)
	}
}

func (c *candidate) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return c.Check(ctx)
}

func (c *candidate) setUnwell(unwell bool, err error) {
	c.mu.Lock()
	changed := c.unwell != unwell
	c.unwell = unwell
	c.mu.Unlock()
	switch {
	case !changed:
	case unwell:
		c.tell(State{Phase: PhaseEngaged, Reason: ReasonUnreachable, Err: err})
	default:
		c.tell(State{Phase: PhaseEngaged})
	}
}

// tell takes note of a state, and tells it where it is another than before.
func (c *candidate) tell(s State) {
	s.Member, s.Source = c.name, c.Source
	c.mu.Lock()
	same := c.state.Phase == s.Phase && c.state.Reason == s.Reason
	c.state = s
	c.mu.Unlock()
	log := c.provider.o.Logger.With("member", c.name, "source", c.Source)
	switch {
	case same:
		log.Debug("member is as before", "phase", s.Phase, "reason", s.Reason, "err", s.Err)
		return
	case s.Err != nil:
		log.Warn("member does not work", "phase", s.Phase, "reason", s.Reason, "err", s.Err)
	default:
		log.Info("member", "phase", s.Phase)
	}
	if c.Tell != nil {
		c.Tell(s)
	}
}
