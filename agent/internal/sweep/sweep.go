// Package sweep removes instances that nobody owns any more: the virtual machine whose Proxy's finalizer somebody took
// off by hand, the one that was asked for in the moment in which the agent was killed and its namespace deleted. They
// serve nobody and are paid for every month.
//
// It is the one part of the agent that deletes what it has no object for, and so it is slow and timid. [Decide] says in
// one place what may go. It is told of complete lists only, and asks for owners at the API server, never at a cache.
package sweep

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/provider"
)

const (
	// Interval is the time between two passes.
	Interval = 2 * time.Minute
	// callTimeout bounds a list or a deletion.
	callTimeout = time.Minute
)

// Options configures a Sweeper.
type Options struct {
	// Entries gives the entries that the member has, by name; asked anew in each pass, since regions change.
	Entries func() map[string]provider.Provider
	// Owners gives the UIDs of all Proxies whose instances could be the member's. It reads the API server: what a cache
	// does not show yet is no orphan.
	Owners func(ctx context.Context) (map[string]struct{}, error)
	// Identity gives the UIDs of hub and member, and whether they are known yet.
	Identity func() (hubUID, memberUID string, ok bool)
	// HomeClusterUID is the UID of the cluster that the agent keeps its objects in.
	HomeClusterUID string
	// Elected is closed once this process leads. A nil channel means that it always does.
	Elected <-chan struct{}
	// DryRun makes it say what it would delete and delete nothing.
	DryRun bool
	// Clock says when to sweep, and how long something has been an orphan.
	Clock clock.WithTicker
	// Logger must not be nil.
	Logger *slog.Logger
}

// Sweeper sweeps one member. It is safe for concurrent use; Run is called once.
type Sweeper struct {
	o      Options
	memory Memory
	// told are the orphans that were spoken of, so that each is once.
	told map[string]struct{}

	mu     sync.Mutex // guards what follows
	status Status
}

// Status is what a Sweeper has seen and done, for metrics.
type Status struct {
	// Orphans counts the instances without an owner in the last pass; Held those of them that are kept because they are
	// suspiciously many.
	Orphans, Held int
	// Deleted counts the instances whose deletion was taken since the process began, and Failed the attempts that were not.
	Deleted, Failed uint64
	// LastComplete is when every entry's list was last complete, and the owners were read; zero for never.
	LastComplete time.Time
}

// New makes a Sweeper.
func New(o Options) (*Sweeper, error) {
	if o.Entries == nil || o.Owners == nil || o.Identity == nil || o.HomeClusterUID == "" || o.Clock == nil || o.Logger == nil {
		return nil, errors.New("sweep: Entries, Owners, Identity, HomeClusterUID, Clock and Logger are required")
	}
	return &Sweeper{o: o, told: map[string]struct{}{}}, nil
}

// Status gives what was seen and done so far.
func (s *Sweeper) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Run sweeps until ctx ends, and returns nil then. It does nothing before this process leads.
func (s *Sweeper) Run(ctx context.Context) error {
	if s.o.Elected != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-s.o.Elected:
		}
	}
	ticker := s.o.Clock.NewTicker(Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			s.Pass(ctx)
		}
	}
}

// Pass sweeps once. What fails is told and tried again in the next pass.
func (s *Sweeper) Pass(ctx context.Context) {
	hubUID, memberUID, known := s.o.Identity()
	if !known {
		// Nobody may be told apart yet from whoever shares the project.
		return
	}
	in := Input{
		Identity: provider.Identity{HubUID: hubUID, MemberUID: memberUID, HomeClusterUID: s.o.HomeClusterUID},
		Memory:   s.memory,
	}
	entries := s.o.Entries()
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		in.Seen = append(in.Seen, Seen{Entry: name, Listing: s.list(ctx, name, entries[name], in.Identity)})
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	owners, err := s.o.Owners(call)
	cancel()
	if err != nil {
		if ctx.Err() == nil {
			s.o.Logger.Warn("cannot read who owns instances; nothing is swept", "err", err)
		}
		return
	}
	in.Owners, in.Now = owners, s.o.Clock.Now()
	p := Decide(in)
	s.memory = p.Memory
	for _, o := range p.Delete {
		s.memory[o.Instance.ProviderID] = Mark{Since: o.Since, Tried: in.Now}
	}
	s.note(p, in.Now)
	for _, o := range p.Delete {
		if ctx.Err() != nil {
			return
		}
		s.remove(ctx, entries[o.Entry], o)
	}
}

// list asks one entry. One that does not answer keeps no other waiting, and nothing is concluded from its silence.
func (s *Sweeper) list(ctx context.Context, name string, p provider.Provider, id provider.Identity) provider.Listing {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	listing, err := p.List(ctx, id)
	if err != nil {
		s.o.Logger.Warn("cannot list instances; what this entry has is not swept", "provider", name, "kind", provider.KindOf(err), "err", err)
		return provider.Listing{}
	}
	if !listing.Complete {
		s.o.Logger.Info("a list of instances lacks a part; what this entry has is not swept", "provider", name, "missing", listing.Missing)
	}
	return listing
}

func (s *Sweeper) note(p Plan, now time.Time) {
	s.mu.Lock()
	before := s.status
	s.status.Orphans, s.status.Held = p.Orphans, p.Held
	if p.Complete {
		s.status.LastComplete = now
	}
	s.mu.Unlock()
	if p.Held > 0 && before.Held == 0 {
		s.o.Logger.Warn("most instances have no owner, so nothing is deleted for an hour: bring their Proxies back, or stop the sweep with --sweep-dry-run, if they are wanted",
			"orphans", p.Orphans, "instances", p.Instances, "held", p.Held)
	}
	for id := range s.told {
		if _, still := p.Memory[id]; !still {
			delete(s.told, id)
		}
	}
}

// remove deletes one orphan, or says that it would.
func (s *Sweeper) remove(ctx context.Context, p provider.Provider, o Orphan) {
	log := s.o.Logger.With("provider", o.Entry, "instance", o.Instance.ProviderID, "uid", o.Instance.Identity.ProxyUID,
		"created", o.Instance.CreatedAt, "orphanSince", o.Since)
	id := o.Instance.ProviderID
	_, told := s.told[id]
	if s.o.DryRun {
		if !told {
			log.Info("would delete an instance that no Proxy owns")
			s.told[id] = struct{}{}
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// Its identity is told once more: a provider deletes nothing that is another proxy's.
	err := p.Delete(ctx, provider.Ref{Name: o.Instance.Name, Zone: o.Instance.Zone}, o.Instance.Identity, provider.DeleteOptions{Drained: true})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.status.Failed++
		log.Warn("cannot delete an instance that no Proxy owns; it is tried again", "kind", provider.KindOf(err), "err", err)
		return
	}
	if !told {
		s.status.Deleted++
		log.Info("deletes an instance that no Proxy owns")
		s.told[id] = struct{}{}
	}
}
