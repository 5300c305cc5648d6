package session

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestConvergence joins two machines by a link that cuts, loses, doubles and reorders, while things change, fail and
// restart on both sides. At all times nothing is deleted that the other side wants, and memory is bounded by what there
// is. Once the faults stop, both sides have what the other tells.
func TestConvergence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &storm{T: t, world: newWorld(Config{Graves: 8, Jitter: func() float64 { return 0.25 }})}
		s.log = t.Logf
		for _, p := range []*peer{s.hub, s.agent} {
			p.manual = true
			p.onEvent = func(e Event) { s.check(p, e) }
		}
		// The storm begins in fair weather.
		for range 4 {
			s.invent(s.hub)
			s.invent(s.agent)
		}
		s.hub.markComplete()
		s.agent.markComplete()
		s.connect()
		s.settle()
		deeds := s.deeds()
		for range rapid.IntRange(10, 150).Draw(t, "deeds") {
			rapid.SampledFrom(deeds).Draw(t, "deed").do(t)
			s.bounded()
		}
		s.calm()
	})
}

// storm is a world in trouble.
type storm struct {
	*rapid.T
	*world
	uids int
}

// deed is something that can happen in a storm.
type deed struct {
	name string
	do   func(*rapid.T)
}

// String returns what rapid prints of a deed.
func (d deed) String() string { return d.name }

// deeds returns what can happen, each as often as it is likely.
func (s *storm) deeds() []deed {
	var deeds []deed
	for _, d := range []struct {
		times int
		deed
	}{
		{3, deed{"create", s.create}},
		{4, deed{"change", s.change}},
		{4, deed{"remove", s.remove}},
		{8, deed{"send", s.send}},
		{10, deed{"deliver", s.arrive}},
		{3, deed{"lose", s.lose}},
		{3, deed{"double", s.double}},
		{6, deed{"finish", s.finish}},
		{3, deed{"wait", s.wait}},
		{2, deed{"flow", func(*rapid.T) { s.flow() }}},
		{2, deed{"settle", func(*rapid.T) { s.settle() }}},
		{1, deed{"cut", func(*rapid.T) { s.cut() }}},
		{1, deed{"restart", func(t *rapid.T) { s.restart(s.any(t)) }}},
		{3, deed{"ready", func(t *rapid.T) { s.any(t).markComplete() }}},
		{6, deed{"connect", func(*rapid.T) { s.connectIfCut() }}},
	} {
		for range d.times {
			deeds = append(deeds, d.deed)
		}
	}
	return deeds
}

// String keeps the draws of rapid readable.
func (p *peer) String() string { return p.name }

func (s *storm) any(t *rapid.T) *peer {
	return rapid.SampledFrom([]*peer{s.hub, s.agent}).Draw(t, "peer")
}

// one draws a key of m; false if there is none.
func one[V any](t *rapid.T, m map[string]V) (string, bool) {
	if len(m) == 0 {
		return "", false
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(m))).Draw(t, "uid"), true
}

func (s *storm) create(t *rapid.T) {
	p := s.any(t)
	for range rapid.IntRange(1, 4).Draw(t, "n") {
		s.invent(p)
	}
}

// invent gives a peer something new to tell. No uid is used twice.
func (s *storm) invent(p *peer) {
	s.uids++
	p.put(Version{UID: fmt.Sprintf("u%03d", s.uids), Generation: 1, Hash: "h1"})
}

// settle lets everything arrive and be acted on.
func (s *storm) settle() {
	for busy := true; busy; {
		s.flow()
		busy = false
		for _, p := range []*peer{s.hub, s.agent} {
			for _, uid := range slices.Sorted(maps.Keys(p.working)) {
				p.outcome(uid, "")
				busy = true
			}
		}
	}
}

func (s *storm) change(t *rapid.T) {
	p := s.any(t)
	if uid, ok := one(t, p.truth); ok {
		v := p.truth[uid]
		v.Generation++
		v.Hash = fmt.Sprintf("h%d", v.Generation)
		p.put(v)
	}
}

func (s *storm) remove(t *rapid.T) {
	p := s.any(t)
	if uid, ok := one(t, p.truth); ok {
		p.remove(uid)
	}
}

func (s *storm) send(t *rapid.T) {
	s.any(t).ready(rapid.IntRange(0, 6).Draw(t, "room"))
}

// index draws a frame on the way from p. Nothing overtakes the handshake: it is what opens a stream.
func index(t *rapid.T, p *peer) int {
	if p.out[0].GetHello() != nil || p.out[0].GetWelcome() != nil {
		return 0
	}
	return rapid.IntRange(0, min(len(p.out)-1, 5)).Draw(t, "frame")
}

func (s *storm) arrive(t *rapid.T) {
	p := s.any(t)
	for range rapid.IntRange(1, 6).Draw(t, "n") {
		if len(p.out) > 0 {
			p.deliver(index(t, p))
			p.other().ready(0)
		}
	}
}

func (s *storm) lose(t *rapid.T) {
	if p := s.any(t); len(p.out) > 0 {
		if i := index(t, p); p.out[i].GetHello() == nil && p.out[i].GetWelcome() == nil {
			p.out = slices.Delete(p.out, i, i+1)
		}
	}
}

func (s *storm) double(t *rapid.T) {
	if p := s.any(t); len(p.out) > 0 {
		if i := index(t, p); p.out[i].GetHello() == nil && p.out[i].GetWelcome() == nil {
			p.out = append(p.out, p.out[i])
		}
	}
}

func (s *storm) finish(t *rapid.T) {
	p := s.any(t)
	if uid, ok := one(t, p.working); ok {
		p.outcome(uid, rapid.SampledFrom([]string{"", "", "no"}).Draw(t, "problem"))
	}
}

func (s *storm) wait(t *rapid.T) {
	s.pass(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds"))*time.Second, func() {})
}

func (s *storm) connectIfCut() {
	if s.hub.session == nil {
		s.connect()
	}
}

// check finds what must never happen.
func (s *storm) check(p *peer, e Event) {
	if d, ok := e.(Delete); ok {
		if v, wanted := p.other().truth[d.UID]; wanted {
			s.Fatalf("the %s is asked to delete %v, which the other side wants", p.name, v)
		}
	}
}

// bounded finds memory that grows with what has happened rather than with what there is.
func (s *storm) bounded() {
	for _, p := range []*peer{s.hub, s.agent} {
		if p.session == nil {
			continue
		}
		out, in := &p.session.out, &p.session.in
		if n := len(p.truth) + len(p.gone); len(out.items) > n {
			s.Fatalf("the %s sends %d items, but has %d", p.name, len(out.items), n)
		}
		if len(out.queue) > len(out.items) || len(out.unacked) > len(out.items) {
			s.Fatalf("the %s queues %d and awaits %d of %d items", p.name, len(out.queue), len(out.unacked), len(out.items))
		}
		live, buried := 0, 0
		for _, e := range in.entries {
			if e.gone {
				buried++
			} else {
				live++
			}
		}
		if n := p.cfg.Graves + len(p.working) + len(in.waiting) + failures(in); buried > n {
			s.Fatalf("the %s remembers %d uids that are gone, more than %d", p.name, buried, n)
		}
		if len(in.acks) > len(in.entries)+p.cfg.Graves || len(in.ackOrder) != len(in.acks) {
			s.Fatalf("the %s has %d acks to send for %d entries, in %d places", p.name, len(in.acks), len(in.entries), len(in.ackOrder))
		}
	}
}

// failures counts the deletions that failed and are awaited again.
func failures(in *receiver) int {
	n := 0
	for _, e := range in.entries {
		if e.gone && e.settled && e.problem != "" {
			n++
		}
	}
	return n
}

// calm ends all faults and checks what has become of it.
func (s *storm) calm() {
	s.hub.markComplete()
	s.agent.markComplete()
	s.connectIfCut()
	s.settle()
	s.pass(20*time.Minute, func() {
		s.connectIfCut()
		s.settle()
	})
	for _, p := range []*peer{s.hub, s.agent} {
		if diff := cmp.Diff(p.other().truth, p.kept); diff != "" {
			s.Fatalf("the %s does not have what it was told (-told +has):\n%s", p.name, diff)
		}
		if len(p.gone) > 0 {
			s.Fatalf("tombstones of the %s are left: %v", p.name, p.gone)
		}
		if n := len(p.session.out.unacked) + len(p.session.out.queue) + len(p.working); n > 0 {
			s.Fatalf("the %s still has %d things to do", p.name, n)
		}
	}
}
