package leaseapi

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// boardLog is how many changes a board remembers. A watcher who is further behind begins anew.
const boardLog = 4096

// boards keep one board for each fleet that is watched, as long as it is.
type boards struct {
	keeper  Keeper
	notices Notices

	mu   sync.Mutex
	open map[lease.FleetID]*board
}

// board is what all watchers of a fleet look at: its proxies as last read, and the latest changes. The keeper is asked once
// for each change, however many watch.
type board struct {
	fleet    lease.FleetID
	stop     context.CancelFunc
	watchers int // guarded by boards.mu

	mu      sync.Mutex
	proxies map[lease.ProxyUID]*posted
	log     []*posted     // the latest changes
	head    uint64        // number of all changes so far; the last of log has head-1
	next    int           // index that the next proxy gets
	changed chan struct{} // closed at the next change
	loaded  bool
	err     error // why the board is of no use any more
}

// posted is a proxy as a board shows it. It is never changed.
type posted struct {
	uid lease.ProxyUID
	// index is the proxy's own on this board, never given again.
	index int
	proxy lease.Proxy
	// wire is nil if the proxy is gone.
	wire *leasev1.Proxy
}

// join returns the board of a fleet. Leave must be called in the end.
func (b *boards) join(ctx context.Context, fleet lease.FleetID) *board {
	b.mu.Lock()
	defer b.mu.Unlock()
	if shared := b.open[fleet]; shared != nil {
		shared.watchers++
		return shared
	}
	// The board outlives the watcher who came first.
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	shared := &board{fleet: fleet, stop: stop, watchers: 1, proxies: map[lease.ProxyUID]*posted{}, changed: make(chan struct{})}
	b.open[fleet] = shared
	go b.run(own, shared)
	return shared
}

// leave ends the board with its last watcher.
func (b *boards) leave(shared *board) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if shared.watchers--; shared.watchers > 0 {
		return
	}
	shared.stop()
	b.forget(shared)
}

// forget makes the next watcher begin a new board. It is called with the lock.
func (b *boards) forget(shared *board) {
	if b.open[shared.fleet] == shared {
		delete(b.open, shared.fleet)
	}
}

// run keeps a board up to date until nobody looks at it, or it cannot be.
func (b *boards) run(ctx context.Context, shared *board) {
	err := b.follow(ctx, shared)
	b.mu.Lock()
	b.forget(shared)
	b.mu.Unlock()
	shared.fail(err)
}

func (b *boards) follow(ctx context.Context, shared *board) error {
	changes := b.notices.WatchFleet(shared.fleet)
	defer changes.Close()
	// First the watch, then the list: what changes in between is read twice, not missed.
	if err := b.readAll(ctx, shared); err != nil {
		return err
	}
	for {
		select {
		case <-changes.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
		uids, all, open := changes.Take()
		var err error
		switch {
		case !open:
			return &keeper.Unavailable{}
		case all:
			err = b.readAll(ctx, shared)
		default:
			err = b.readSome(ctx, shared, uids)
		}
		if err != nil {
			return err
		}
	}
}

// readAll compares the board with all proxies of the fleet, page by page, so that no single command holds up the grants of
// others.
func (b *boards) readAll(ctx context.Context, shared *board) error {
	cmd := lease.List{Fleet: shared.fleet, PageSize: lease.MaxPageSize}
	var found []lease.Listed
	for {
		page, err := ask[lease.Page](ctx, b.keeper, cmd)
		if err != nil {
			return err
		}
		found = append(found, page.Proxies...)
		if page.Next == "" {
			break
		}
		cmd.After = page.Next
	}
	shared.post(found, nil, true)
	return nil
}

// readSome reads the proxies that have changed.
func (b *boards) readSome(ctx context.Context, shared *board, uids []lease.ProxyUID) error {
	slices.Sort(uids)
	for some := range slices.Chunk(uids, lease.MaxPageSize) {
		page, err := ask[lease.Page](ctx, b.keeper, lease.List{Fleet: shared.fleet, Only: some})
		if err != nil {
			return err
		}
		shared.post(page.Proxies, some, false)
	}
	return nil
}

// post takes over what was found of the proxies that were asked for, or of all. Those that were not found are gone.
func (s *board) post(found []lease.Listed, asked []lease.ProxyUID, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := make(map[lease.ProxyUID]struct{}, len(found))
	before := s.head
	for i := range found {
		uid := found[i].Proxy.UID
		there[uid] = struct{}{}
		old, wire := s.proxies[uid], listed(&found[i])
		if old != nil && sameButLeased(old.wire, wire) {
			continue
		}
		entry := &posted{uid: uid, proxy: found[i].Proxy, wire: wire}
		if old != nil {
			entry.index = old.index
		} else {
			entry.index = s.next
			s.next++
		}
		s.proxies[uid] = entry
		s.add(entry)
	}
	gone := func(uid lease.ProxyUID) {
		if _, ok := there[uid]; ok {
			return
		}
		if old := s.proxies[uid]; old != nil {
			delete(s.proxies, uid)
			s.add(&posted{uid: uid, index: old.index})
		}
	}
	if all {
		for uid := range s.proxies {
			gone(uid)
		}
	}
	for _, uid := range asked {
		gone(uid)
	}
	if s.head != before || !s.loaded {
		s.loaded = true
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// add puts a change into the log. It is called with the lock.
func (s *board) add(entry *posted) {
	s.log = append(s.log, entry)
	s.head++
	if len(s.log) >= 2*boardLog {
		s.log = slices.Clone(s.log[len(s.log)-boardLog:])
	}
}

func (s *board) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	close(s.changed)
	s.changed = make(chan struct{})
}

// sameButLeased tells whether a watcher would learn nothing new.
func sameButLeased(a, b *leasev1.Proxy) bool {
	leased := b.Leased
	b.Leased = a.GetLeased()
	same := proto.Equal(a, b)
	b.Leased = leased
	return same
}

// all returns every proxy in the order of uids, and the number of changes until then. Loaded is false while nothing has
// been read.
func (s *board) all() (proxies []*posted, at uint64, loaded bool, changed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded {
		proxies = make([]*posted, 0, len(s.proxies))
		for _, entry := range s.proxies {
			proxies = append(proxies, entry)
		}
		slices.SortFunc(proxies, func(a, b *posted) int { return cmp.Compare(a.uid, b.uid) })
	}
	return proxies, s.head, s.loaded, s.changed, s.err
}

// since returns the changes since there were at of them, of each proxy the last one, and the number of changes now. It
// returns false if they are not remembered any more.
func (s *board) since(at uint64) (changes []*posted, now uint64, changed <-chan struct{}, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, at, s.changed, true, s.err
	}
	behind := s.head - at
	if behind > uint64(len(s.log)) || behind > boardLog {
		return nil, s.head, s.changed, false, nil
	}
	seen := make(map[int]struct{}, behind)
	for _, entry := range slices.Backward(s.log[uint64(len(s.log))-behind:]) {
		if _, later := seen[entry.index]; !later {
			seen[entry.index] = struct{}{}
			changes = append(changes, entry)
		}
	}
	slices.Reverse(changes)
	return changes, s.head, s.changed, true, nil
}

// wordsOf says why a board is of no use, to a watcher.
func (s *service) wordsOf(ctx context.Context, fleet string, err error) error {
	var gone *keeper.Unavailable
	if errors.As(err, &gone) && s.streams.stopped() {
		return stopping()
	}
	return s.refusedIn(ctx, fleet, err)
}
