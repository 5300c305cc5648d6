package session

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// world is a hub and an agent, each with what it wants the other to have and what it has of the other, and a link
// between them.
type world struct {
	now        time.Time
	cfg        Config
	epochs     Epochs
	hub, agent *peer
	instances  int
	// log gets what happens.
	log func(format string, args ...any)
}

// peer is one end, with what outlives its sessions.
type peer struct {
	name string
	*world
	session *Session
	// out is what was sent to the other end and has not arrived.
	out []*agentv1.Frame

	// truth is what this end has to tell, gone what it has to say is no more.
	truth    map[string]Version
	gone     map[string]bool
	complete bool
	sequence uint64
	// credentials are the keys of those that go with an item.
	credentials map[string]string
	// kept is what this end has been told.
	kept map[string]Version
	// working are the events whose outcome is not reported, by uid.
	working map[string]Event
	// manual says that outcomes are reported by the test, not at once.
	manual bool
	// acked is what the other end has last said of an item.
	acked map[string]Acked

	// agents only
	instance  string
	lastEpoch uint64
	// onEvent sees each event before it is acted on.
	onEvent func(Event)
}

func newWorld(cfg Config) *world {
	w := &world{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), cfg: cfg, log: func(string, ...any) {}}
	w.hub, w.agent = w.newPeer("hub"), w.newPeer("agent")
	w.restart(w.agent)
	return w
}

func (w *world) newPeer(name string) *peer {
	return &peer{
		name: name, world: w, truth: map[string]Version{}, gone: map[string]bool{},
		credentials: map[string]string{}, kept: map[string]Version{}, working: map[string]Event{}, acked: map[string]Acked{},
	}
}

// restart makes a peer forget what only its process knew.
func (w *world) restart(p *peer) {
	w.cut()
	p.complete, p.sequence = false, 0
	clear(p.acked)
	if p == w.hub {
		// What members reported is in memory; what is desired, and what is being deleted, is in objects.
		w.epochs = Epochs{}
		clear(p.kept)
		return
	}
	clear(p.gone)
	w.instances++
	p.instance, p.lastEpoch = fmt.Sprintf("i%d", w.instances), 0
}

// cut ends the stream, with all that is on the way.
func (w *world) cut() {
	for _, p := range []*peer{w.hub, w.agent} {
		if p == nil || p.session == nil {
			continue
		}
		p.sequence = p.session.Sequence()
		p.lastEpoch = max(p.lastEpoch, p.session.Epoch())
		p.session, p.out = nil, nil
		clear(p.working)
	}
}

// connect begins a session on a new stream.
func (w *world) connect() {
	w.cut()
	w.hub.session = NewHub(w.now, w.hub.config())
	w.agent.session = NewAgent(w.now, w.agent.config(), &agentv1.Hello{
		Member: "east", Instance: w.agent.instance, LastEpoch: w.agent.lastEpoch,
	})
	for _, p := range []*peer{w.hub, w.agent} {
		p.session.StartAfter(p.sequence)
		for i, uid := range slices.Sorted(maps.Keys(p.truth)) {
			// One that has not read all it has knows some of it.
			if p.complete || i%2 == 0 {
				p.session.Put(p.upsertOf(p.truth[uid]))
			}
		}
		for _, uid := range slices.Sorted(maps.Keys(p.gone)) {
			p.session.Delete(uid)
		}
		if p.complete {
			p.session.Complete()
		}
	}
}

// config returns the figures, and what the peer holds from before.
func (p *peer) config() Config {
	cfg := p.cfg
	for _, uid := range slices.Sorted(maps.Keys(p.kept)) {
		cfg.Known = append(cfg.Known, p.kept[uid])
	}
	return cfg
}

func (p *peer) upsertOf(v Version) *agentv1.Upsert {
	u := &agentv1.Upsert{Uid: v.UID, Generation: v.Generation, Hash: v.Hash}
	if key := p.credentials[v.UID]; key != "" {
		u.Credentials = []*agentv1.OwnerCredentials{{Key: key, Username: "fish", Password: passwordOf(key)}}
	}
	return u
}

// passwordOf is what the credentials of a key hold. No transcript shows it.
func passwordOf(key string) string { return "hush-" + key }

func (p *peer) put(v Version) {
	p.truth[v.UID] = v
	delete(p.gone, v.UID)
	if p.session != nil {
		p.session.Put(p.upsertOf(v))
	}
}

func (p *peer) remove(uid string) {
	delete(p.truth, uid)
	delete(p.acked, uid)
	p.gone[uid] = true
	if p.session != nil {
		p.session.Delete(uid)
	}
}

func (p *peer) markComplete() {
	p.complete = true
	if p.session != nil {
		for _, uid := range slices.Sorted(maps.Keys(p.truth)) {
			p.session.Put(p.upsertOf(p.truth[uid]))
		}
		p.session.Complete()
	}
}

// other returns the other end.
func (p *peer) other() *peer {
	if p == p.hub {
		return p.agent
	}
	return p.hub
}

// ready takes what the session wants done, and does it.
func (p *peer) ready(room int) (busy bool) {
	if p.session == nil {
		return false
	}
	r := p.session.Ready(p.now, room)
	for _, e := range r.Events {
		if e != Event(Beat{}) {
			p.log("%-5s ! %s", p.name, printEvent(e))
		}
		p.act(e)
	}
	for _, f := range r.Frames {
		if f.GetHeartbeat() == nil {
			p.log("%-5s > %s", p.name, printFrame(f))
		}
		p.out = append(p.out, f)
	}
	return len(r.Events)+len(r.Frames) > 0
}

func (p *peer) act(e Event) {
	if p.onEvent != nil {
		p.onEvent(e)
	}
	switch e := e.(type) {
	case Greeted:
		epoch := p.epochs.Claim(e.Hello.GetMember(), e.Hello.GetLastEpoch())
		p.session.Welcome(p.now, &agentv1.Welcome{Epoch: epoch})
	case Welcomed:
		p.lastEpoch = e.Welcome.GetEpoch()
	case Apply:
		p.begin(e.Upsert.GetUid(), e)
	case Delete:
		p.begin(e.UID, e)
	case Acked:
		p.acked[e.UID] = e
	case TombstoneAcked:
		delete(p.gone, e.UID)
	}
}

func (p *peer) begin(uid string, e Event) {
	if p.working[uid] != nil {
		panic(fmt.Sprintf("%s: %s while %s is outstanding", p.name, printEvent(e), printEvent(p.working[uid])))
	}
	p.working[uid] = e
	if !p.manual {
		p.outcome(uid, "")
	}
}

// outcome reports what came of the event of an uid.
func (p *peer) outcome(uid, problem string) {
	e := p.working[uid]
	delete(p.working, uid)
	switch e := e.(type) {
	case Apply:
		for _, c := range e.Upsert.GetCredentials() {
			if c.GetPassword() != passwordOf(c.GetKey()) {
				panic("credentials were lost or mixed up on the way")
			}
		}
		if problem == "" {
			p.kept[uid] = Version{UID: uid, Generation: e.Upsert.GetGeneration(), Hash: e.Upsert.GetHash()}
		}
		p.session.Applied(p.now, uid, e.Upsert.GetSequence(), problem)
	case Delete:
		if problem == "" {
			delete(p.kept, uid)
		}
		p.session.Applied(p.now, uid, e.Sequence, problem)
	}
}

// deliver lets the i'th frame on the way from p arrive.
func (p *peer) deliver(i int) {
	f := p.out[i]
	p.out = slices.Delete(p.out, i, i+1)
	if to := p.other(); to.session != nil {
		if err := to.session.Step(p.now, f); err != nil {
			p.ended(to, err)
		}
	}
}

// ended cuts the stream after a session has died.
func (w *world) ended(p *peer, err error) {
	w.log("%-5s ! over: %v", p.name, err)
	w.cut()
}

// flow lets everything be sent and arrive until nothing happens any more.
func (w *world) flow() {
	for busy := true; busy; {
		busy = false
		for _, p := range []*peer{w.agent, w.hub} {
			for len(p.out) > 0 {
				busy = true
				p.deliver(0)
				p.other().ready(100)
			}
			busy = p.ready(100) || busy
		}
	}
}

// pass lets time pass, and ticks when the sessions ask for it. each is called after every tick.
func (w *world) pass(d time.Duration, each func()) {
	until := w.now.Add(d)
	for {
		next := until
		for _, p := range []*peer{w.hub, w.agent} {
			if p.session == nil {
				continue
			}
			if n := p.session.Next(); !n.IsZero() && n.Before(next) {
				next = n
			}
		}
		if next.After(w.now) {
			w.now = next
		}
		for _, p := range []*peer{w.agent, w.hub} {
			if p.session == nil {
				continue
			}
			if err := p.session.Tick(w.now); err != nil {
				if !errors.Is(err, ErrSilent) {
					panic(err)
				}
				w.ended(p, err)
			}
		}
		each()
		if !w.now.Before(until) {
			return
		}
	}
}
