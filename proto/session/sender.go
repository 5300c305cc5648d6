package session

import (
	"maps"
	"slices"
	"time"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// sender is the lane of items that this side sends.
type sender struct {
	cfg      *Config
	sequence uint64
	items    map[string]*item
	// queue holds the uids of the items that are queued, once each.
	queue []string
	// unacked are the uids that were sent and not acknowledged; resendAt is a time before which none of them is due.
	unacked  map[string]struct{}
	resendAt time.Time
	events   []Event

	// complete says that the caller has put all items.
	complete bool
	// wanted says that a snapshot is to be sent, from notBefore on.
	wanted    bool
	notBefore time.Time
	// snapshot numbers the snapshots; begun is when the last one began, in a row of how many.
	snapshot uint64
	begun    time.Time
	row      int
	// active says that the snapshot has not ended, opening that its first frame
	// was not sent. left is how many items and tombstones it
	// still lacks.
	active, opening bool
	left            int

	// digestAt is when the next digest is due, digestDue that one is to be sent.
	digestAt  time.Time
	digestDue bool
}

// item is an item, or the tombstone of one.
type item struct {
	version  Version
	sequence uint64
	// upsert is nil for a tombstone.
	upsert *agentv1.Upsert
	// needed says that the present snapshot lacks the item or tombstone.
	needed bool
	queued bool
	// sentIn is the snapshot within which sent, the version that was sent last, belongs to what the peer is believed to
	// have; 0 for none.
	sentIn uint64
	sent   Version
	// acked and problem are what the peer said of this sequence.
	acked   bool
	problem string
	// attempts counts how often this sequence was sent; the next is due then.
	attempts int
	due      time.Time
}

func newSender(cfg *Config) sender {
	return sender{
		cfg: cfg, wanted: true,
		items: map[string]*item{}, unacked: map[string]struct{}{},
	}
}

func (s *sender) put(u *agentv1.Upsert) {
	version := Version{UID: u.GetUid(), Generation: u.GetGeneration(), Hash: u.GetHash()}
	it := s.items[version.UID]
	switch {
	case it == nil:
		it = &item{}
		s.items[version.UID] = it
	case it.upsert != nil && it.version == version:
		return
	}
	s.renew(it, version)
	u.Sequence = it.sequence
	it.upsert = u
}

func (s *sender) delete(uid string) {
	it := s.items[uid]
	switch {
	case it == nil:
		it = &item{}
		s.items[uid] = it
	case it.upsert == nil:
		return
	}
	s.renew(it, Version{UID: uid})
	it.upsert = nil
}

// renew begins a new version of the item.
func (s *sender) renew(it *item, version Version) {
	s.sequence++
	it.version, it.sequence = version, s.sequence
	it.acked, it.problem, it.attempts = false, "", 0
	delete(s.unacked, version.UID)
	s.enqueue(it)
}

func (s *sender) enqueue(it *item) {
	if !it.queued {
		it.queued = true
		s.queue = append(s.queue, it.version.UID)
	}
}

// met says that the present snapshot lacks the item no longer.
func (s *sender) met(it *item) {
	if it.needed {
		it.needed = false
		s.left--
	}
}

// resync takes the peer's wish for a snapshot.
func (s *sender) resync(now time.Time) {
	s.wanted = true
	s.begin(now)
}

// begin begins a snapshot if it is time to.
func (s *sender) begin(now time.Time) {
	if !s.wanted || !s.complete || s.active || now.Before(s.notBefore) {
		return
	}
	if !s.begun.IsZero() && now.Sub(s.begun) > 2*s.cfg.SnapshotPauseCap {
		s.row = 0
	}
	s.notBefore = now.Add(doubled(s.cfg.SnapshotPause, s.cfg.SnapshotPauseCap, s.row))
	s.row++
	s.begun = now
	s.wanted = false
	s.snapshot++
	s.active, s.opening = true, true
	s.queue = s.queue[:0]
	uids := slices.Sorted(maps.Keys(s.items))
	// Tombstones go first: what they name must not look as if the snapshot alone lacked it.
	slices.SortStableFunc(uids, func(a, b string) int {
		return order(s.items[a].upsert != nil) - order(s.items[b].upsert != nil)
	})
	for _, uid := range uids {
		it := s.items[uid]
		it.queued, it.needed = false, true
		s.enqueue(it)
	}
	s.left = len(uids)
}

// order puts false before true.
func order(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s *sender) ack(a *agentv1.Ack) {
	it := s.items[a.GetUid()]
	if it == nil || it.sequence != a.GetSequence() || it.attempts == 0 {
		return
	}
	if a.GetError() == "" {
		delete(s.unacked, a.GetUid())
	}
	if it.upsert == nil {
		if a.GetError() == "" {
			s.forget(it)
			s.events = append(s.events, TombstoneAcked{UID: a.GetUid()})
		}
		return
	}
	news := it.problem != a.GetError() || (!it.acked && a.GetError() == "")
	it.acked, it.problem = a.GetError() == "", a.GetError()
	if news {
		s.events = append(s.events, Acked{
			UID: it.version.UID, Generation: it.version.Generation, Hash: it.version.Hash, Problem: it.problem,
		})
	}
}

// forget drops a tombstone that was acknowledged.
func (s *sender) forget(it *item) {
	s.met(it)
	delete(s.items, it.version.UID)
	if it.queued {
		s.queue = slices.DeleteFunc(s.queue, func(uid string) bool { return uid == it.version.UID })
	}
}

func (s *sender) tick(now time.Time) {
	s.begin(now)
	if len(s.unacked) > 0 && !now.Before(s.resendAt) {
		s.resend(now)
	}
	if s.snapshot > 0 && !now.Before(s.digestAt) {
		s.digestDue = true
		s.scheduleDigest(now)
	}
}

// resend queues again what was not acknowledged in time.
func (s *sender) resend(now time.Time) {
	s.resendAt = time.Time{}
	for _, uid := range slices.Sorted(maps.Keys(s.unacked)) {
		it := s.items[uid]
		if now.Before(it.due) {
			s.resendAt = earliest(s.resendAt, it.due)
			continue
		}
		delete(s.unacked, uid)
		s.enqueue(it)
	}
}

func (s *sender) scheduleDigest(now time.Time) {
	spread := 0.5 + s.cfg.Jitter()
	s.digestAt = now.Add(time.Duration(spread * float64(s.cfg.DigestEvery)))
}

// next returns when tick has something to do.
func (s *sender) next() time.Time {
	var next time.Time
	if s.wanted && s.complete && !s.active {
		next = earliest(next, s.notBefore)
	}
	if len(s.unacked) > 0 {
		next = earliest(next, s.resendAt)
	}
	if s.snapshot > 0 {
		next = earliest(next, s.digestAt)
	}
	return next
}

func (s *sender) takeEvents(to []Event) []Event {
	to = append(to, s.events...)
	s.events = nil
	return to
}

// takeFrames fills its first argument with frames until that holds room of them.
func (s *sender) takeFrames(now time.Time, to []*agentv1.Frame, room int) []*agentv1.Frame {
	s.begin(now)
	if s.snapshot == 0 {
		return to
	}
	if s.opening && len(to) < room {
		s.opening = false
		to = append(to, &agentv1.Frame{Kind: &agentv1.Frame_SnapshotBegin{
			SnapshotBegin: &agentv1.SnapshotBegin{Snapshot: s.snapshot},
		}})
	}
	taken := 0
	for len(to) < room && !s.opening {
		if s.active && s.left == 0 {
			to = append(to, s.end(now))
			continue
		}
		if taken == len(s.queue) {
			break
		}
		it := s.items[s.queue[taken]]
		taken++
		it.queued = false
		if it.acked && !it.needed {
			continue
		}
		to = append(to, s.send(now, it))
	}
	s.queue = slices.Delete(s.queue, 0, taken)
	if s.digestDue && !s.active && len(s.queue) == 0 && len(to) < room {
		s.digestDue = false
		versions := s.sentVersions()
		to = append(to, &agentv1.Frame{Kind: &agentv1.Frame_Digest{
			Digest: &agentv1.Digest{Count: uint32(len(versions)), Digest: digest(versions)},
		}})
	}
	return to
}

// send returns the frame of an item, which is from then on believed to be with the peer.
func (s *sender) send(now time.Time, it *item) *agentv1.Frame {
	s.met(it)
	if !it.acked {
		it.due = now.Add(doubled(s.cfg.ResendAfter, s.cfg.ResendCap, it.attempts))
		s.unacked[it.version.UID] = struct{}{}
		s.resendAt = earliest(s.resendAt, it.due)
	}
	it.attempts++
	if it.upsert == nil {
		it.sentIn = 0
		return &agentv1.Frame{Kind: &agentv1.Frame_Tombstone{
			Tombstone: &agentv1.Tombstone{Uid: it.version.UID, Sequence: it.sequence},
		}}
	}
	it.sentIn, it.sent = s.snapshot, it.version
	return &agentv1.Frame{Kind: &agentv1.Frame_Upsert{Upsert: it.upsert}}
}

func (s *sender) end(now time.Time) *agentv1.Frame {
	s.active = false
	s.digestDue = false
	s.scheduleDigest(now)
	versions := s.sentVersions()
	return &agentv1.Frame{Kind: &agentv1.Frame_SnapshotEnd{SnapshotEnd: &agentv1.SnapshotEnd{
		Snapshot: s.snapshot, Count: uint32(len(versions)), Digest: digest(versions),
	}}}
}

// sentVersions is what the peer has if nothing was lost since the snapshot began.
func (s *sender) sentVersions() []Version {
	versions := make([]Version, 0, len(s.items))
	for _, it := range s.items {
		if it.sentIn == s.snapshot {
			versions = append(versions, it.sent)
		}
	}
	return versions
}
