package session

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// receiver is the lane of items that the peer sends.
type receiver struct {
	cfg     *Config
	entries map[string]*entry
	// waiting holds the uids with something to hand out, graves those that are only remembered as deleted, both once
	// each and in order.
	waiting, graves []string
	// acks holds the acks to be sent, one for each uid of ackOrder.
	acks     map[string]*agentv1.Ack
	ackOrder []string
	events   []Event

	// snapshot is the last one that began; active says that it has not ended.
	snapshot uint64
	active   bool
	// before is how many items were known when it began; progress is when it last made some.
	before   int
	progress time.Time
	// synced says that a snapshot of this session has matched.
	synced bool
	// doubted says that the last one was held back.
	doubted bool

	// done is the Resynced that waits for the uids in barrier, each to get as far as the sequence it had then.
	done    *Resynced
	barrier map[string]uint64

	// askAt is when to ask for a snapshot, asking that it is to be sent.
	askAt  time.Time
	asking bool
	reason string
}

// entry is what is known of one uid.
type entry struct {
	version Version
	// sequence is the last one received; 0 for an item known from before.
	sequence uint64
	// seenIn is the snapshot within which it was last received.
	seenIn uint64
	// gone says that the item was deleted, as far as received; buried that it is among the graves.
	gone, buried bool
	// pruning says that it is gone because a snapshot lacked it.
	pruning bool

	// next is what to hand out, an Apply or a Delete; nil for nothing.
	next Event
	// busy says that something was handed out whose outcome is awaited; working is its sequence.
	busy    bool
	working uint64

	// settled says that the outcome of sequence is known; problem is what it was.
	settled bool
	problem string
}

func newReceiver(cfg *Config) receiver {
	r := receiver{cfg: cfg, entries: map[string]*entry{}, acks: map[string]*agentv1.Ack{}, barrier: map[string]uint64{}}
	for _, v := range cfg.Known {
		r.entries[v.UID] = &entry{version: v}
	}
	return r
}

func (r *receiver) upsert(now time.Time, u *agentv1.Upsert) error {
	if u.GetUid() == "" || u.GetSequence() == 0 {
		return &ProtocolError{Reason: "Upsert without uid or sequence"}
	}
	r.progress = now
	e := r.entry(u.GetUid())
	switch {
	case u.GetSequence() > e.sequence:
		e.version = Version{UID: u.GetUid(), Generation: u.GetGeneration(), Hash: u.GetHash()}
		e.gone = false
		e.seenIn = r.snapshot
		r.accept(e, u.GetSequence(), Apply{Upsert: u})
	case u.GetSequence() < e.sequence:
		r.seen(e)
		r.acknowledge(&agentv1.Ack{
			Uid: u.GetUid(), Generation: u.GetGeneration(), Hash: u.GetHash(), Sequence: u.GetSequence(),
		})
	default:
		r.seen(e)
		r.repeat(e, Apply{Upsert: u})
	}
	return nil
}

func (r *receiver) tombstone(now time.Time, t *agentv1.Tombstone) error {
	if t.GetUid() == "" || t.GetSequence() == 0 {
		return &ProtocolError{Reason: "Tombstone without uid or sequence"}
	}
	r.progress = now
	e := r.entry(t.GetUid())
	event := Delete{UID: t.GetUid(), Sequence: t.GetSequence()}
	switch {
	case t.GetSequence() > e.sequence:
		e.version = Version{UID: t.GetUid()}
		e.gone = true
		r.accept(e, t.GetSequence(), event)
	case t.GetSequence() < e.sequence:
		r.acknowledge(&agentv1.Ack{Uid: t.GetUid(), Sequence: t.GetSequence()})
	default:
		r.repeat(e, event)
	}
	return nil
}

func (r *receiver) entry(uid string) *entry {
	e := r.entries[uid]
	if e == nil {
		e = &entry{version: Version{UID: uid}, gone: true}
		r.entries[uid] = e
	}
	return e
}

// seen notes that the present snapshot has the item.
func (r *receiver) seen(e *entry) {
	if !e.gone {
		e.seenIn = r.snapshot
	}
}

// accept takes a newer version of an item, or its end.
func (r *receiver) accept(e *entry, sequence uint64, next Event) {
	e.sequence = sequence
	e.pruning = false
	e.settled, e.problem = false, ""
	r.hand(e, next)
}

// repeat answers a sequence that was received before: with the outcome if it is known, by trying again if it was bad,
// and else when it will be known.
func (r *receiver) repeat(e *entry, again Event) {
	switch {
	case !e.settled:
	case e.problem == "":
		r.acknowledge(e.ack())
	case !e.busy && e.next == nil:
		r.hand(e, again)
	}
}

// hand gets next handed out as soon as nothing of the uid is outstanding.
func (r *receiver) hand(e *entry, next Event) {
	if e.next == nil && !e.busy {
		r.waiting = append(r.waiting, e.version.UID)
	}
	e.next = next
}

func (e *entry) ack() *agentv1.Ack {
	return &agentv1.Ack{
		Uid: e.version.UID, Generation: e.version.Generation, Hash: e.version.Hash,
		Sequence: e.sequence, Error: e.problem,
	}
}

// acknowledge queues an ack. One for a later sequence of the uid stays.
func (r *receiver) acknowledge(a *agentv1.Ack) {
	queued := r.acks[a.GetUid()]
	switch {
	case queued == nil:
		r.ackOrder = append(r.ackOrder, a.GetUid())
	case queued.GetSequence() > a.GetSequence():
		return
	}
	r.acks[a.GetUid()] = a
}

func (r *receiver) applied(now time.Time, uid string, sequence uint64, problem string) {
	e := r.entries[uid]
	if e == nil || !e.busy || e.working != sequence {
		return
	}
	e.busy = false
	// A Delete that prunes has the sequence of the item it prunes.
	if next, ok := e.next.(Delete); sequence >= r.barrier[uid] && (!ok || !next.Pruned) {
		delete(r.barrier, uid)
	}
	switch {
	case e.next != nil:
		// Something newer has arrived meanwhile; its outcome is what counts.
		r.waiting = append(r.waiting, uid)
	case e.sequence != sequence:
	case e.pruning:
		r.pruned(now, e, problem)
	default:
		e.settled, e.problem = true, problem
		r.acknowledge(e.ack())
		if e.gone && problem == "" {
			r.bury(e)
		}
	}
	r.finish()
}

// pruned takes the outcome of a Delete that no tombstone asked for.
func (r *receiver) pruned(now time.Time, e *entry, problem string) {
	if problem == "" {
		e.settled = true
		r.bury(e)
		return
	}
	// It is still there. The next snapshot will lack it again.
	e.gone, e.pruning = false, false
	r.ask(now.Add(r.cfg.ResyncRetry), fmt.Sprintf("%s could not be pruned: %s", e.version.UID, problem))
}

// bury keeps the sequence of a deleted item, for a while.
func (r *receiver) bury(e *entry) {
	if e.buried {
		return
	}
	e.buried = true
	r.graves = append(r.graves, e.version.UID)
	for len(r.graves) > r.cfg.Graves {
		uid := r.graves[0]
		r.graves = slices.Delete(r.graves, 0, 1)
		old := r.entries[uid]
		old.buried = false
		if old.gone && !old.busy && old.next == nil {
			delete(r.entries, uid)
		}
	}
}

func (r *receiver) begin(now time.Time, b *agentv1.SnapshotBegin) {
	if b.GetSnapshot() <= r.snapshot {
		return
	}
	r.snapshot = b.GetSnapshot()
	r.active = true
	r.progress = now
	r.askAt, r.asking = time.Time{}, false
	r.before = 0
	for _, e := range r.entries {
		if !e.gone {
			r.before++
		}
	}
}

func (r *receiver) end(now time.Time, end *agentv1.SnapshotEnd) {
	switch {
	case end.GetSnapshot() < r.snapshot, end.GetSnapshot() == r.snapshot && !r.active:
		return
	case end.GetSnapshot() > r.snapshot:
		r.ask(now, fmt.Sprintf("snapshot %d has an end but no beginning", end.GetSnapshot()))
		return
	}
	r.active = false
	var have []Version
	var missing []*entry
	for _, uid := range slices.Sorted(maps.Keys(r.entries)) {
		switch e := r.entries[uid]; {
		case e.gone:
		case e.seenIn == r.snapshot:
			have = append(have, e.version)
		default:
			missing = append(missing, e)
		}
	}
	if len(have) != int(end.GetCount()) || !bytes.Equal(digest(have), end.GetDigest()) {
		r.ask(now, fmt.Sprintf("snapshot %d does not match: %d items instead of %d, or other versions", r.snapshot, len(have), end.GetCount()))
		return
	}
	r.synced = true
	if !r.doubted && len(missing) > r.cfg.Handful && 2*len(missing) > r.before {
		r.doubted = true
		r.events = append(r.events, HeldBack{Snapshot: r.snapshot, Missing: len(missing), Known: r.before})
		r.ask(now.Add(r.cfg.ConfirmAfter), fmt.Sprintf("snapshot %d lacks %d of %d known items; send it again to confirm", r.snapshot, len(missing), r.before))
		return
	}
	r.doubted = false
	for _, e := range missing {
		e.gone, e.pruning = true, true
		e.settled, e.problem = false, ""
		r.hand(e, Delete{UID: e.version.UID, Sequence: e.sequence, Pruned: true})
	}
	r.done = &Resynced{Snapshot: r.snapshot, Count: len(have), Pruned: len(missing)}
	clear(r.barrier)
	for uid, e := range r.entries {
		if e.busy || e.next != nil {
			r.barrier[uid] = e.sequence
		}
	}
	r.finish()
}

// finish tells of the snapshot once all of it was acted on.
func (r *receiver) finish() {
	if r.done != nil && len(r.barrier) == 0 {
		r.events = append(r.events, *r.done)
		r.done = nil
	}
}

// compare looks whether anything was lost on the way.
func (r *receiver) compare(now time.Time, d *agentv1.Digest) {
	switch {
	case r.active, r.doubted, !r.askAt.IsZero(), r.asking:
		return
	case !r.synced:
		r.ask(now, "a digest, but no complete snapshot before it")
		return
	}
	var have []Version
	for _, e := range r.entries {
		if !e.gone {
			have = append(have, e.version)
		}
	}
	if len(have) != int(d.GetCount()) || !bytes.Equal(digest(have), d.GetDigest()) {
		r.ask(now, fmt.Sprintf("the digest does not match: %d items instead of %d, or other versions", len(have), d.GetCount()))
	}
}

// ask asks for a snapshot at a time, or earlier if that is planned already.
func (r *receiver) ask(at time.Time, reason string) {
	if r.askAt.IsZero() || at.Before(r.askAt) {
		r.askAt, r.reason = at, reason
	}
}

func (r *receiver) tick(now time.Time) {
	if r.active && now.Sub(r.progress) >= r.cfg.ResyncRetry {
		r.active = false
		r.ask(now, fmt.Sprintf("snapshot %d has stopped half-way", r.snapshot))
	}
	r.askIfDue(now)
}

// askIfDue asks, and plans to ask again in case no snapshot comes of it.
func (r *receiver) askIfDue(now time.Time) {
	if !r.askAt.IsZero() && !now.Before(r.askAt) {
		r.asking = true
		r.askAt = now.Add(r.cfg.ResyncRetry)
	}
}

// next returns when tick has something to do.
func (r *receiver) next() time.Time {
	next := r.askAt
	if r.active {
		next = earliest(next, r.progress.Add(r.cfg.ResyncRetry))
	}
	return next
}

func (r *receiver) takeEvents(to []Event) []Event {
	for _, uid := range r.waiting {
		e := r.entries[uid]
		if e == nil || e.next == nil || e.busy {
			continue
		}
		to = append(to, e.next)
		e.next, e.busy, e.working = nil, true, e.sequence
	}
	r.waiting = r.waiting[:0]
	to = append(to, r.events...)
	r.events = nil
	return to
}

// takeFrames fills its first argument with frames until that holds room of them.
func (r *receiver) takeFrames(now time.Time, to []*agentv1.Frame, room int) []*agentv1.Frame {
	r.askIfDue(now)
	if r.asking && len(to) < room {
		r.asking = false
		to = append(to, &agentv1.Frame{Kind: &agentv1.Frame_Resync{Resync: &agentv1.Resync{Reason: r.reason}}})
	}
	n := max(0, min(room-len(to), len(r.ackOrder)))
	for _, uid := range r.ackOrder[:n] {
		to = append(to, &agentv1.Frame{Kind: &agentv1.Frame_Ack{Ack: r.acks[uid]}})
		delete(r.acks, uid)
	}
	r.ackOrder = slices.Delete(r.ackOrder, 0, n)
	return to
}
