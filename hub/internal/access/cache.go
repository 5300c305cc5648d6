package access

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// key is the hash of a question.
type key [sha256.Size]byte

// errBusy means that too many questions wait for the API server.
var errBusy = errors.New("too many questions to the API server are waiting for their answers")

// answer is what was found out, and for how long it holds.
type answer[V any] struct {
	value V
	// good answers let somebody in.
	good bool
	// until is when it is to be asked again.
	until time.Time
}

// cache remembers answers. Those that are good and those that are not have a bounded memory each.
type cache[V any] struct {
	clock   clock.PassiveClock
	timeout time.Duration

	mu        sync.Mutex
	good, bad memory[V]
	flights   map[key]*flight[V]
	// waiting counts the flights of those who were let in before, and of strangers.
	waiting [2]int
	most    int
}

// flight is a question under way.
type flight[V any] struct {
	done   chan struct{}
	answer answer[V]
	err    error
}

func newCache[V any](clock clock.PassiveClock, size, flights int, timeout time.Duration) *cache[V] {
	return &cache[V]{
		clock: clock, timeout: timeout, good: newMemory[V](size), bad: newMemory[V](size),
		flights: map[key]*flight[V]{}, most: flights,
	}
}

// get returns the answer that is remembered, or asks. An error of ask is for all who wait for it, and is not
// remembered. The question goes on when the one who asked it goes away: others may wait for it as well.
func (c *cache[V]) get(ctx context.Context, k key, ask func(context.Context) (answer[V], error)) (answer[V], error) {
	c.mu.Lock()
	found, known := c.good.get(k)
	if !known {
		found, known = c.bad.get(k)
	}
	if known && c.clock.Now().Before(found.until) {
		c.mu.Unlock()
		return found, nil
	}
	f := c.flights[k]
	if f == nil {
		kind := 0
		if !known || !found.good {
			kind = 1
		}
		if c.waiting[kind] >= c.most {
			c.mu.Unlock()
			return answer[V]{}, errBusy
		}
		f = &flight[V]{done: make(chan struct{})}
		c.flights[k] = f
		c.waiting[kind]++
		go c.fly(context.WithoutCancel(ctx), k, kind, f, ask)
	}
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.answer, f.err
	case <-ctx.Done():
		return answer[V]{}, context.Cause(ctx)
	}
}

// fly asks one question and remembers its answer.
func (c *cache[V]) fly(ctx context.Context, k key, kind int, f *flight[V], ask func(context.Context) (answer[V], error)) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	f.answer, f.err = ask(ctx)
	c.mu.Lock()
	delete(c.flights, k)
	c.waiting[kind]--
	if f.err == nil {
		// What was good and is not any more must not be found again.
		c.good.forget(k)
		c.bad.forget(k)
		if f.answer.good {
			c.good.put(k, f.answer)
		} else {
			c.bad.put(k, f.answer)
		}
	}
	c.mu.Unlock()
	close(f.done)
}

// memory holds a bounded number of answers and forgets the least recently used.
type memory[V any] struct {
	size  int
	by    map[key]*list.Element
	order *list.List // of remembered[V], the last used first
}

type remembered[V any] struct {
	key    key
	answer answer[V]
}

func newMemory[V any](size int) memory[V] {
	return memory[V]{size: size, by: map[key]*list.Element{}, order: list.New()}
}

func (m *memory[V]) get(k key) (answer[V], bool) {
	e := m.by[k]
	if e == nil {
		return answer[V]{}, false
	}
	m.order.MoveToFront(e)
	return e.Value.(remembered[V]).answer, true
}

func (m *memory[V]) put(k key, a answer[V]) {
	m.by[k] = m.order.PushFront(remembered[V]{key: k, answer: a})
	if len(m.by) > m.size {
		last := m.order.Back()
		delete(m.by, last.Value.(remembered[V]).key)
		m.order.Remove(last)
	}
}

func (m *memory[V]) forget(k key) {
	if e := m.by[k]; e != nil {
		delete(m.by, k)
		m.order.Remove(e)
	}
}
