package proxy

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// latchFirst and latchMost bound how long a permanent error stands before the same is tried again. It doubles.
	latchFirst = time.Hour
	latchMost  = 24 * time.Hour
)

// latch remembers which instances can never be made as they are asked for, so that their provider is not asked again and
// again. Another spec is another name, which is tried at once; so is everything after a restart of the agent.
type latch struct {
	mu      sync.Mutex
	latched map[types.UID]latched
}

type latched struct {
	name  string
	err   error
	until time.Time
	wait  time.Duration
}

func newLatch() *latch { return &latch{latched: map[types.UID]latched{}} }

// held gives how long an error still stands against an instance, and the error.
func (l *latch) held(now time.Time, uid types.UID, name string) (left time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	have, ok := l.latched[uid]
	if !ok || have.name != name {
		return 0, nil
	}
	return have.until.Sub(now), have.err
}

// hold takes note of a permanent error, and gives how long it stands.
func (l *latch) hold(now time.Time, uid types.UID, name string, err error) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait := latchFirst
	if have, ok := l.latched[uid]; ok && have.name == name {
		wait = min(2*have.wait, latchMost)
	}
	l.latched[uid] = latched{name: name, err: err, until: now.Add(wait), wait: wait}
	return wait
}

func (l *latch) release(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.latched, uid)
}
