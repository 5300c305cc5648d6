package uplink

import (
	"maps"
	"slices"
	"sync"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// Outbox holds what the agent has observed, for the sessions that tell the hub: the latest of each uid, and the uids
// that are no more until the hub has acknowledged that. Memory is bounded by the number of objects. It is safe for
// concurrent use, its methods return at once, and it serves one [Uplink].
type Outbox struct {
	mu    sync.Mutex
	items map[string]*agentv1.Upsert
	// told are the uids that a hub may know of, gone those of them that no longer exist.
	told, gone map[string]struct{}
	changed    map[string]struct{}
	ready      bool
	sequence   uint64
	signal     chan struct{}
}

// NewOutbox returns an outbox that is empty and not ready.
func NewOutbox() *Outbox {
	return &Outbox{
		items: map[string]*agentv1.Upsert{}, told: map[string]struct{}{}, gone: map[string]struct{}{},
		changed: map[string]struct{}{}, signal: make(chan struct{}, 1),
	}
}

// Put makes u the latest that was observed under its uid: that of the Proxy, or of the ProxyPlacement for the report of
// a ProxySet. Its hash must change whenever its body does; with the same generation and hash nothing happens. Its
// sequence is not used. u must not be changed afterwards.
func (o *Outbox) Put(u *agentv1.Upsert) {
	o.mu.Lock()
	defer o.mu.Unlock()
	uid := u.GetUid()
	if old := o.items[uid]; old != nil && old.GetGeneration() == u.GetGeneration() && old.GetHash() == u.GetHash() {
		return
	}
	o.items[uid] = u
	delete(o.gone, uid)
	o.change(uid)
}

// Delete says that what was observed under the uid is no more.
func (o *Outbox) Delete(uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.items[uid] == nil {
		return
	}
	delete(o.items, uid)
	if _, told := o.told[uid]; !told {
		delete(o.changed, uid)
		return
	}
	o.gone[uid] = struct{}{}
	o.change(uid)
}

// MarkReady says that everything that exists has been put. Before it the hub is told nothing: it would take what is
// missing for gone.
func (o *Outbox) MarkReady() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ready = true
	o.wake()
}

func (o *Outbox) change(uid string) {
	o.changed[uid] = struct{}{}
	o.wake()
}

func (o *Outbox) wake() {
	select {
	case o.signal <- struct{}{}:
	default:
	}
}

// news is what a session has to tell the hub.
type news struct {
	puts    []*agentv1.Upsert
	deletes []string
	// complete says that nothing is missing any more.
	complete bool
}

// takeAll returns everything there is, for a session that begins, and the sequence it starts after.
func (o *Outbox) takeAll() (n news, sequence uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	uids := slices.AppendSeq(slices.Collect(maps.Keys(o.items)), maps.Keys(o.gone))
	return o.take(uids), o.sequence
}

// takeChanged returns what has changed since the last take.
func (o *Outbox) takeChanged() news {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.take(slices.Collect(maps.Keys(o.changed)))
}

func (o *Outbox) take(uids []string) news {
	slices.Sort(uids)
	n := news{complete: o.ready}
	for _, uid := range uids {
		if u := o.items[uid]; u != nil {
			// A session numbers what it is given, so it gets its own copy.
			n.puts = append(n.puts, &agentv1.Upsert{
				Uid: uid, Generation: u.GetGeneration(), Hash: u.GetHash(), Body: u.GetBody(),
			})
			o.told[uid] = struct{}{}
			continue
		}
		n.deletes = append(n.deletes, uid)
	}
	clear(o.changed)
	return n
}

// acknowledged forgets a uid that the hub knows to be gone.
func (o *Outbox) acknowledged(uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, gone := o.gone[uid]; gone {
		delete(o.gone, uid)
		delete(o.told, uid)
	}
}

// used remembers the last sequence of a session that has ended.
func (o *Outbox) used(sequence uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sequence = max(o.sequence, sequence)
}
