package agentapi

import (
	"context"
	"errors"
	"sync"

	"github.com/shoal-dev/shoal/proto/session"
)

// Why a session ends that could go on.
var (
	errSuperseded = errors.New("a newer session of the member has begun")
	errStopping   = errors.New("the hub is stopping")
	errTooOld     = errors.New("the session has reached its greatest age")
)

// members knows the newest session of each member. Its memory is bounded by the number of members that were ever let
// in.
type members struct {
	mu        sync.Mutex
	epochs    session.Epochs
	live      map[string]*live
	sequences map[string]uint64
	stopping  bool
	// all counts the sessions that have not ended, superseded ones too.
	all sync.WaitGroup
}

// live is a session that has a claim to a member.
type live struct {
	member string
	epoch  uint64
	// sequence is where the session continues to count.
	sequence uint64
	cancel   context.CancelCauseFunc
	// before is the session that this one has superseded; nil for none.
	before *live
	ended  chan struct{}
}

func newMembers() *members {
	return &members{live: map[string]*live{}, sequences: map[string]uint64{}}
}

// claim makes a session the newest of its member and cancels the one before. The caller must release it, and wait for
// that one before it does anything.
func (m *members) claim(member string, seen uint64, cancel context.CancelCauseFunc) (*live, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping {
		return nil, errStopping
	}
	l := &live{
		member: member, epoch: m.epochs.Claim(member, seen), cancel: cancel,
		before: m.live[member], ended: make(chan struct{}),
	}
	m.live[member] = l
	m.all.Add(1)
	if l.before != nil {
		l.before.cancel(errSuperseded)
	}
	return l, nil
}

// await waits until the session before has ended. It has been cancelled, so that is soon. It returns an error if the
// session was superseded meanwhile.
func (m *members) await(l *live) error {
	if l.before != nil {
		<-l.before.ended
		l.before = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.epochs.Newest(l.member, l.epoch) {
		return errSuperseded
	}
	l.sequence = m.sequences[l.member]
	return nil
}

// release ends the claim of a session, which has used sequences up to sequence.
func (m *members) release(l *live, sequence uint64) {
	if l.before != nil {
		<-l.before.ended
	}
	m.mu.Lock()
	m.sequences[l.member] = max(m.sequences[l.member], sequence)
	if m.live[l.member] == l {
		delete(m.live, l.member)
	}
	m.mu.Unlock()
	close(l.ended)
	m.all.Done()
}

func (m *members) shutdown(ctx context.Context) error {
	m.mu.Lock()
	m.stopping = true
	for _, l := range m.live {
		l.cancel(errStopping)
	}
	m.mu.Unlock()
	done := make(chan struct{})
	go func() {
		m.all.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
