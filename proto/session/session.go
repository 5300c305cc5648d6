package session

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// phase is how far the handshake is.
type phase int

const (
	// waiting: the hub for Hello, the agent for Welcome.
	waiting phase = iota
	// greeted: the hub has to decide whether it welcomes the agent.
	greeted
	// open: items, acks and heartbeats flow.
	open
)

// Session is one end of a session. See the package comment for how to use it.
type Session struct {
	cfg   Config
	hub   bool
	phase phase
	// err is why the session is over.
	err error

	// since is when the session began; heard is when the peer was last heard.
	since, heard time.Time
	// beatAt is when the next heartbeat is due, beatDue that one has to be sent.
	beatAt    time.Time
	beatDue   bool
	lastEpoch uint64
	epoch     uint64

	// leased is the newest of what the peer is to know of leases; nil once it was sent.
	leased *agentv1.Leased

	control []*agentv1.Frame
	events  []Event
	out     sender
	in      receiver
}

// Ready is what a session wants done.
type Ready struct {
	// Frames are to be sent, in order, before those of any later Ready.
	Frames []*agentv1.Frame
	// Events are to be acted on. Apply and Delete may be acted on at the same time as other events; the rest in order.
	Events []Event
}

// NewHub returns the hub's end of a session with an agent that has just called.
func NewHub(now time.Time, cfg Config) *Session { return newSession(now, cfg, true) }

// NewAgent returns the agent's end of a session, which begins with the hello. The hello's last_epoch is the least that
// the hub's epoch must exceed; its inventory is set from [Config.Known].
func NewAgent(now time.Time, cfg Config, hello *agentv1.Hello) *Session {
	s := newSession(now, cfg, false)
	s.lastEpoch = hello.GetLastEpoch()
	hello.Inventory = nil
	for _, v := range cfg.Known {
		hello.Inventory = append(hello.Inventory, &agentv1.Held{Uid: v.UID, Generation: v.Generation, Hash: v.Hash})
	}
	s.control = append(s.control, &agentv1.Frame{Kind: &agentv1.Frame_Hello{Hello: hello}})
	return s
}

func newSession(now time.Time, cfg Config, hub bool) *Session {
	s := &Session{cfg: cfg.withDefaults(), hub: hub, since: now, heard: now}
	s.out = newSender(&s.cfg)
	s.in = newReceiver(&s.cfg)
	return s
}

// Epoch returns the epoch of the session, or 0 before Welcome.
func (s *Session) Epoch() uint64 { return s.epoch }

// StartAfter makes the session count its sequences from there on. It must be called before anything was put.
func (s *Session) StartAfter(sequence uint64) { s.out.sequence = sequence }

// Sequence returns the last sequence that was used, for StartAfter of the next session of the same process with the
// same peer.
func (s *Session) Sequence() uint64 { return s.out.sequence }

// Put makes u the present version of its item. Its sequence is set by the session. Nothing happens if generation and
// hash are what they were.
func (s *Session) Put(u *agentv1.Upsert) { s.out.put(u) }

// Delete takes the item back: the peer is told until it acknowledges, also if it was never told of the item in this
// session.
func (s *Session) Delete(uid string) { s.out.delete(uid) }

// Complete says that all items that exist have been put. No snapshot is sent before it.
func (s *Session) Complete() { s.out.complete = true }

// Welcome lets the agent in. The epoch must come from [Epochs]; the heartbeat interval is set from [Config]. Calling it
// again, with the same epoch, sends the agent new keys. It panics before [Greeted] and on an agent's end: that is a
// mistake of the caller.
func (s *Session) Welcome(now time.Time, w *agentv1.Welcome) {
	switch {
	case !s.hub || s.phase == waiting:
		panic("session: Welcome without a Hello")
	case s.phase == greeted:
		s.opened(now, w.GetEpoch())
	}
	w.HeartbeatInterval = durationpb.New(s.cfg.HeartbeatInterval)
	s.control = append(s.control, &agentv1.Frame{Kind: &agentv1.Frame_Welcome{Welcome: w}})
}

// MaxLeased is how many proxies one Leased names: of 36 bytes each, and far more than a member should have.
const MaxLeased = 20_000

// Leased tells the agent which of the member's proxies are leased, all of them, in order. What was told before and not
// sent yet is forgotten: the newest stands. A hub calls it at the beginning of each session and whenever that changes,
// as seldom as will do. It panics on an agent's end: that is a mistake of the caller.
func (s *Session) Leased(proxies []string) {
	if !s.hub {
		panic("session: an agent grants no leases")
	}
	s.leased = &agentv1.Leased{Proxies: proxies}
	if len(proxies) > MaxLeased {
		s.leased = &agentv1.Leased{All: true}
	}
}

// Resync asks the peer for a snapshot, after the given while. The reason is for people.
func (s *Session) Resync(now time.Time, after time.Duration, reason string) {
	s.in.ask(now.Add(after), reason)
}

// Applied reports the outcome of an [Apply] or [Delete]: the problem, for people, or an empty text if there was none.
// An outcome that nobody waits for is ignored.
func (s *Session) Applied(now time.Time, uid string, sequence uint64, problem string) {
	s.in.applied(now, uid, sequence, problem)
}

// Step takes a frame of the peer. An error ends the session: it is [ErrSilent] or a [*ProtocolError].
func (s *Session) Step(now time.Time, f *agentv1.Frame) error {
	if s.err != nil {
		return s.err
	}
	s.heard = now
	s.err = s.step(now, f)
	return s.err
}

func (s *Session) step(now time.Time, f *agentv1.Frame) error {
	switch kind := f.GetKind().(type) {
	case *agentv1.Frame_Hello:
		return s.hello(kind.Hello)
	case *agentv1.Frame_Welcome:
		return s.welcomed(now, kind.Welcome)
	case nil:
		// A kind that a newer peer knows. It asks nothing of those who do not.
		return nil
	}
	if s.phase != open {
		return &ProtocolError{Reason: fmt.Sprintf("%T before the handshake", f.GetKind())}
	}
	switch kind := f.GetKind().(type) {
	case *agentv1.Frame_SnapshotBegin:
		s.in.begin(now, kind.SnapshotBegin)
	case *agentv1.Frame_Upsert:
		return s.in.upsert(now, kind.Upsert)
	case *agentv1.Frame_Tombstone:
		return s.in.tombstone(now, kind.Tombstone)
	case *agentv1.Frame_SnapshotEnd:
		s.in.end(now, kind.SnapshotEnd)
	case *agentv1.Frame_Digest:
		s.in.compare(now, kind.Digest)
	case *agentv1.Frame_Ack:
		s.out.ack(kind.Ack)
	case *agentv1.Frame_Resync:
		s.out.resync(now)
	case *agentv1.Frame_Heartbeat:
		s.events = append(s.events, Beat{})
	case *agentv1.Frame_Leased:
		if s.hub {
			return &ProtocolError{Reason: "Leased from an agent"}
		}
		s.events = append(s.events, Leased{Proxies: kind.Leased.GetProxies(), All: kind.Leased.GetAll()})
	}
	return nil
}

func (s *Session) hello(hello *agentv1.Hello) error {
	if !s.hub || s.phase != waiting {
		return &ProtocolError{Reason: "Hello out of place"}
	}
	s.phase = greeted
	s.events = append(s.events, Greeted{Hello: hello})
	return nil
}

func (s *Session) welcomed(now time.Time, w *agentv1.Welcome) error {
	interval := w.GetHeartbeatInterval().AsDuration()
	switch {
	case s.hub:
		return &ProtocolError{Reason: "Welcome from an agent"}
	case s.phase == open && w.GetEpoch() != s.epoch:
		return &ProtocolError{Reason: fmt.Sprintf("Welcome of epoch %d in a session of epoch %d", w.GetEpoch(), s.epoch)}
	case s.phase != open && w.GetEpoch() <= s.lastEpoch:
		// A hub that has lost its turn, or its memory.
		return &ProtocolError{Reason: fmt.Sprintf("epoch %d, but epoch %d was seen", w.GetEpoch(), s.lastEpoch)}
	case interval <= 0:
		return &ProtocolError{Reason: "Welcome without a heartbeat interval"}
	}
	s.cfg.HeartbeatInterval = interval
	if s.phase != open {
		s.opened(now, w.GetEpoch())
	}
	s.events = append(s.events, Welcomed{Welcome: w})
	return nil
}

func (s *Session) opened(now time.Time, epoch uint64) {
	s.phase = open
	s.epoch = epoch
	s.heard = now
	s.beatAt = now.Add(s.cfg.HeartbeatInterval)
}

// Tick lets time pass. It must be called no later than [Session.Next] says; an earlier call does no harm. An error ends
// the session, as with Step.
func (s *Session) Tick(now time.Time) error {
	if s.err != nil {
		return s.err
	}
	if limit := s.limit(); !limit.IsZero() && !now.Before(limit) {
		s.err = fmt.Errorf("%w: nothing heard for %s", ErrSilent, now.Sub(s.heard).Round(time.Millisecond))
		return s.err
	}
	if s.phase == open {
		if !now.Before(s.beatAt) {
			s.beatDue = true
			s.beatAt = now.Add(s.cfg.HeartbeatInterval)
		}
		s.out.tick(now)
		s.in.tick(now)
	}
	return nil
}

// limit is when the peer has been silent for too long; zero for never.
func (s *Session) limit() time.Time {
	switch s.phase {
	case waiting:
		return s.since.Add(s.cfg.HandshakeTimeout)
	case open:
		return s.heard.Add(time.Duration(s.cfg.MissedHeartbeats) * s.cfg.HeartbeatInterval)
	default:
		return time.Time{}
	}
}

// Next returns when Tick has to be called, or the zero time for never.
func (s *Session) Next() time.Time {
	next := s.limit()
	if s.phase == open {
		next = earliest(next, s.beatAt)
		next = earliest(next, s.out.next())
		next = earliest(next, s.in.next())
	}
	return next
}

// Ready takes out what is to be done: all events, and no more frames than room.
func (s *Session) Ready(now time.Time, room int) Ready {
	r := Ready{Events: s.events}
	s.events = nil
	if s.phase == open {
		r.Events = s.out.takeEvents(r.Events)
		r.Events = s.in.takeEvents(r.Events)
	}
	if s.err != nil {
		return r
	}
	n := min(room, len(s.control))
	r.Frames = append(r.Frames, s.control[:n]...)
	s.control = s.control[n:]
	if s.phase != open {
		return r
	}
	r.Frames = s.in.takeFrames(now, r.Frames, room)
	if s.beatDue && len(r.Frames) < room {
		s.beatDue = false
		beat := &agentv1.Heartbeat{SentAt: timestamppb.New(now)}
		r.Frames = append(r.Frames, &agentv1.Frame{Kind: &agentv1.Frame_Heartbeat{Heartbeat: beat}})
	}
	if s.leased != nil && len(r.Frames) < room {
		r.Frames = append(r.Frames, &agentv1.Frame{Kind: &agentv1.Frame_Leased{Leased: s.leased}})
		s.leased = nil
	}
	r.Frames = s.out.takeFrames(now, r.Frames, room)
	return r
}
