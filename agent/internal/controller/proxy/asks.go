package proxy

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// asks remembers what this process has asked of providers for each Proxy. What it does not know it takes to have been
// asked by whoever led the Proxy before.
type asks struct {
	mu sync.Mutex
	of map[types.UID]*ask
}

type ask struct {
	// created is when an instance was last asked for.
	created time.Time
	// name is the instance that was last asked to go, and mark the point after that.
	name string
	mark uint64
}

func newAsks() *asks { return &asks{of: map[types.UID]*ask{}} }

func (a *asks) get(uid types.UID) *ask {
	have := a.of[uid]
	if have == nil {
		have = &ask{}
		a.of[uid] = have
	}
	return have
}

// create notes that an instance is asked for now. What was deleted before says nothing any more.
func (a *asks) create(uid types.UID, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*a.get(uid) = ask{created: now}
}

// asked gives when an instance was last asked for by this process.
func (a *asks) asked(uid types.UID) (at time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	have := a.of[uid]
	if have == nil || have.created.IsZero() {
		return time.Time{}, false
	}
	return have.created, true
}

// remove notes that an instance was asked to go; with mark 0, that none was.
func (a *asks) remove(uid types.UID, name string, mark uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	have := a.get(uid)
	have.name, have.mark = name, mark
}

// removed gives the point after which an instance was asked to go.
func (a *asks) removed(uid types.UID, name string) (mark uint64, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	have := a.of[uid]
	if have == nil || have.name != name || have.mark == 0 {
		return 0, false
	}
	return have.mark, true
}

func (a *asks) forget(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, uid)
}
