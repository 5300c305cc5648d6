package proxy

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const (
	// unplacedFor is how long no node may take an instance before its host port is thought to be the reason. A scheduler
	// says why in words only, and there may be no node for many other reasons: another port is the way to find out.
	unplacedFor = time.Minute
	// mostMoves is how many ports a proxy tries before the reason is taken to be another one.
	mostMoves = 3
	// shunFor is how long a port that a proxy was moved off is chosen by none, as far as there are others, and how long a
	// proxy that has tried enough ports stays where it is.
	shunFor = 10 * time.Minute
)

// moves remembers the host ports that something else seems to have, and how often each proxy has tried another. It is
// memory only: after a restart the ports are found out again.
type moves struct {
	mu      sync.Mutex
	shunned map[place]map[int32]time.Time
	of      map[types.UID]moved
}

type moved struct {
	times int
	last  time.Time
}

func newMoves() *moves {
	return &moves{shunned: map[place]map[int32]time.Time{}, of: map[types.UID]moved{}}
}

// shuns says whether a port is not to be chosen now.
func (m *moves) shuns(now time.Time, p place, port int32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	until, ok := m.shunned[p][port]
	if ok && !until.After(now) {
		delete(m.shunned[p], port)
		return false
	}
	return ok
}

// move notes that a proxy gives a port up, and says whether it may.
func (m *moves) move(now time.Time, p place, uid types.UID, port int32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	have := m.of[uid]
	if now.Sub(have.last) >= shunFor {
		have.times = 0
	}
	if have.times >= mostMoves {
		return false
	}
	m.of[uid] = moved{times: have.times + 1, last: now}
	if m.shunned[p] == nil {
		m.shunned[p] = map[int32]time.Time{}
	}
	m.shunned[p][port] = now.Add(shunFor)
	return true
}

func (m *moves) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, uid)
}

// leavePort has the proxy choose another host port in its next pass where something else has the one it was given: its
// node has said so, or no node has taken the instance for a while. An instance that once ran is left alone.
func (r *Reconciler) leavePort(s *scope) bool {
	i, port := s.instance, s.next.hostPort
	if i == nil || port == 0 || s.draining() {
		return false
	}
	now := r.o.Clock.Now()
	waited := i.State == provider.StatePending && !i.Unplaced.IsZero() && now.Sub(i.Unplaced) >= unplacedFor
	if !i.PortTaken && !waited || !r.moves.move(now, s.place(), s.proxy.UID, port) {
		return false
	}
	why := "no node takes the instance, and in case its host port is the reason"
	if i.PortTaken {
		why = "the node has given its host port to something else, and"
	}
	s.wait(v1alpha1.ReasonProvisioning, fmt.Sprintf("%s another one than %d is chosen: %s", why, port, i.Reason))
	return true
}
