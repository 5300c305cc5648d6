// Package dispatch holds what each member is wanted to run, for the sessions that tell it.
//
// The placement controller writes: Set and Remove, and MarkReady once it has gone through every ProxyPlacement. A
// session reads: Watch first, then Desired, and again whenever the watch signals. What the member confirms comes back
// through Acked and TombstoneAcked and is read by the placement controller. Everything is level-based and latest-wins:
// an item that changes twice before a session looks is sent once.
//
// The package imports no Kubernetes and no Connect, and starts no goroutine. It holds its lock for the length of a map
// access and never waits for a reader; its memory is bounded by the number of placements.
package dispatch

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
)

// Item is the desired state of one placement on a member.
type Item struct {
	// UID is the UID of the ProxyPlacement.
	UID string
	// Generation is the generation of the ProxyPlacement that Spec was made from.
	Generation int64
	// Hash is the SHA-256 of Spec, in hex; with credentials, of Spec and the keys of those.
	Hash string
	// Spec is the canonical JSON of a ProxySetSpec. Nobody changes it once it is here.
	Spec []byte
	// Credentials are what Spec names as credentials of proxies that someone else runs, as far as they are known. What is
	// missing the member goes on with as it has it. Nobody changes them once they are here.
	Credentials []Credentials
}

// Credentials are a user name and a password that proxies of one owner take, and how an item's Spec names them. However
// they are printed or logged, they do not show.
type Credentials struct{ Key, Username, Password string }

// String hides what they are.
func (c Credentials) String() string { return "credentials " + c.Key }

// GoString hides what they are.
func (c Credentials) GoString() string { return c.String() }

// LogValue hides what they are.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Ack is what a member last confirmed of an item.
type Ack struct {
	// Generation and Hash are those of the item the member speaks of, which may be older than the one wanted.
	Generation int64
	Hash       string
	// Problem says, for people, why the member could not act on all of it. Empty means that it could.
	Problem string
}

// Ref names an item of a member.
type Ref struct{ Member, UID string }

// Dispatcher is desired state by member. The zero value is not usable: see New. All methods are safe for concurrent
// use and return at once.
type Dispatcher struct {
	mu      sync.Mutex
	ready   bool
	members map[string]*member
	changed map[Ref]struct{}
	events  chan struct{}
}

type member struct {
	items    map[string]Item
	acks     map[string]Ack
	removed  map[string]*removal
	watchers map[*watcher]struct{}
}

// removal is an item that must be gone from the member.
type removal struct {
	// acked says that the member has confirmed it, forgotten that nobody will ask for it any more.
	acked, forgotten bool
}

type watcher struct{ signal chan struct{} }

// New returns a dispatcher that knows nothing and is not ready.
func New() *Dispatcher {
	return &Dispatcher{
		members: map[string]*member{},
		changed: map[Ref]struct{}{},
		events:  make(chan struct{}, 1),
	}
}

// Set makes item what the member is wanted to have under its UID. Setting what is there already signals nobody. A UID
// that was removed does not come back: UIDs are never used twice, so a late Set is a mistake of order and is ignored.
func (d *Dispatcher) Set(memberName string, item Item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.member(memberName)
	if m.removed[item.UID] != nil {
		return
	}
	if old, ok := m.items[item.UID]; ok && old.Generation == item.Generation && old.Hash == item.Hash {
		return
	}
	m.items[item.UID] = item
	m.signal()
}

// Remove turns the item into a tombstone, which is sent until the member has acknowledged it. It does so too for a UID
// that is not there: after a restart of the hub the member may still have it.
func (d *Dispatcher) Remove(memberName, uid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.member(memberName)
	if m.removed[uid] != nil {
		return
	}
	delete(m.items, uid)
	delete(m.acks, uid)
	m.removed[uid] = &removal{}
	m.signal()
}

// Forget says that nobody will ask for the removed item any more. A tombstone that was not acknowledged is still sent
// until it is.
func (d *Dispatcher) Forget(memberName, uid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.members[memberName]
	if m == nil || m.removed[uid] == nil {
		return
	}
	if r := m.removed[uid]; r.acked {
		delete(m.removed, uid)
	} else {
		r.forgotten = true
	}
	d.prune(memberName)
}

// ForgetMember drops everything kept for a member that is no more, tombstones included.
func (d *Dispatcher) ForgetMember(memberName string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.members[memberName]
	if m == nil {
		return
	}
	clear(m.items)
	clear(m.acks)
	clear(m.removed)
	m.signal()
	d.prune(memberName)
}

// MarkReady says that every placement there is has been Set. Before it, Desired is not complete and must not be sent as
// a snapshot: the member would remove what is missing from it.
func (d *Dispatcher) MarkReady() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ready {
		return
	}
	d.ready = true
	for _, m := range d.members {
		m.signal()
	}
}

// Ready tells whether MarkReady was called.
func (d *Dispatcher) Ready() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ready
}

// Desired returns what the member is wanted to have and what must be gone from it, each in order of UID. While ready is
// false the lists are not complete.
func (d *Dispatcher) Desired(memberName string) (items []Item, tombstones []string, ready bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.members[memberName]
	if m == nil {
		return nil, nil, d.ready
	}
	for _, item := range m.items {
		items = append(items, item)
	}
	slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.UID, b.UID) })
	for uid, r := range m.removed {
		if !r.acked {
			tombstones = append(tombstones, uid)
		}
	}
	slices.Sort(tombstones)
	return items, tombstones, d.ready
}

// Watch returns a channel that holds a signal whenever Desired of the member may have changed since the last receive.
// It has one in it from the start. cancel ends the watch; the channel is not closed.
func (d *Dispatcher) Watch(memberName string) (changed <-chan struct{}, cancel func()) {
	w := &watcher{signal: make(chan struct{}, 1)}
	w.signal <- struct{}{}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.member(memberName).watchers[w] = struct{}{}
	return w.signal, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if m := d.members[memberName]; m != nil {
			delete(m.watchers, w)
			d.prune(memberName)
		}
	}
}

// Acked records that the member has acted on the item, or tried to and met problem. An ack for a UID that is not wanted
// there is ignored.
func (d *Dispatcher) Acked(memberName, uid string, generation int64, hash, problem string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.members[memberName]
	if m == nil {
		return
	}
	if _, wanted := m.items[uid]; !wanted {
		return
	}
	ack := Ack{Generation: generation, Hash: hash, Problem: problem}
	if old, ok := m.acks[uid]; ok && old == ack {
		return
	}
	m.acks[uid] = ack
	d.note(Ref{Member: memberName, UID: uid})
}

// TombstoneAcked records that nothing of the item is left on the member.
func (d *Dispatcher) TombstoneAcked(memberName, uid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.members[memberName]
	if m == nil {
		return
	}
	r := m.removed[uid]
	switch {
	case r == nil || r.acked:
		return
	case r.forgotten:
		delete(m.removed, uid)
		d.prune(memberName)
		return
	}
	r.acked = true
	d.note(Ref{Member: memberName, UID: uid})
}

// Ack returns what the member last confirmed of the item; false if it has confirmed nothing since the hub started.
func (d *Dispatcher) Ack(memberName, uid string) (Ack, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.members[memberName]
	if m == nil {
		return Ack{}, false
	}
	ack, ok := m.acks[uid]
	return ack, ok
}

// Gone tells whether the member has acknowledged the tombstone of a removed item. It is false for an item that was
// never removed.
func (d *Dispatcher) Gone(memberName, uid string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.members[memberName]
	return m != nil && m.removed[uid] != nil && m.removed[uid].acked
}

// Events holds a signal whenever acks have changed since the last call of Changed. It is for one reader.
func (d *Dispatcher) Events() <-chan struct{} { return d.events }

// Changed returns the items whose acks have changed since the last call, in no order.
func (d *Dispatcher) Changed() []Ref {
	d.mu.Lock()
	defer d.mu.Unlock()
	refs := make([]Ref, 0, len(d.changed))
	for ref := range d.changed {
		refs = append(refs, ref)
	}
	clear(d.changed)
	return refs
}

func (d *Dispatcher) note(ref Ref) {
	d.changed[ref] = struct{}{}
	select {
	case d.events <- struct{}{}:
	default:
	}
}

func (d *Dispatcher) member(name string) *member {
	m := d.members[name]
	if m == nil {
		m = &member{
			items: map[string]Item{}, acks: map[string]Ack{}, removed: map[string]*removal{},
			watchers: map[*watcher]struct{}{},
		}
		d.members[name] = m
	}
	return m
}

// prune drops a member that nothing is kept for.
func (d *Dispatcher) prune(name string) {
	if m := d.members[name]; m != nil && len(m.items)+len(m.removed)+len(m.watchers) == 0 {
		delete(d.members, name)
	}
}

func (m *member) signal() {
	for w := range m.watchers {
		select {
		case w.signal <- struct{}{}:
		default:
		}
	}
}
