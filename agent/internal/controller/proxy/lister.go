package proxy

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/provider"
)

// lister asks providers for their lists, for those who must know whether an instance is really gone. There is one list of
// an entry under way at a time; all who wait share it, and it serves whoever comes later as long as it was begun after
// what they did.
type lister struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	tick  uint64
	lists map[listed]*lists
}

// listed is what a list is of.
type listed struct {
	place
	id provider.Identity
}

// lists is what is known of one entry.
type lists struct {
	last    *listing
	current *flight
}

// listing is one answer, and when it was asked for.
type listing struct {
	tick uint64
	at   time.Time
	// of are the instances by the UID of their Proxy.
	of       map[string][]provider.Instance
	complete bool
	missing  []string
}

// flight is a list under way.
type flight struct {
	tick uint64
	at   time.Time
	done chan struct{}
	got  *listing
	err  error
}

func newLister(c clock.PassiveClock) *lister { return &lister{clock: c, lists: map[listed]*lists{}} }

// mark gives a point in the order of things: a list that is begun later has seen what was done before.
func (l *lister) mark() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tick++
	return l.tick
}

// after gives a list that was begun after the mark, and not before a time.
func (l *lister) after(ctx context.Context, what listed, p provider.Provider, mark uint64, notBefore time.Time) (*listing, error) {
	what.id.ProxyUID = ""
	for {
		l.mu.Lock()
		have := l.lists[what]
		if have == nil {
			have = &lists{}
			l.lists[what] = have
		}
		if last := have.last; last != nil && last.tick > mark && !last.at.Before(notBefore) {
			l.mu.Unlock()
			return last, nil
		}
		f := have.current
		mine := f == nil
		if mine {
			l.tick++
			f = &flight{tick: l.tick, at: l.clock.Now(), done: make(chan struct{})}
			have.current = f
		}
		l.mu.Unlock()
		if mine {
			l.fly(ctx, what, p, have, f)
		}
		select {
		case <-ctx.Done():
			return nil, &provider.Error{Kind: provider.KindUnavailable, Op: "list instances", Err: ctx.Err()}
		case <-f.done:
		}
		switch {
		case f.tick <= mark || f.at.Before(notBefore):
			// It was begun too early to say anything. What is asked for next will not have been.
		case f.err != nil:
			return nil, f.err
		default:
			return f.got, nil
		}
	}
}

// fly asks, keeps the answer and tells those who wait.
func (l *lister) fly(ctx context.Context, what listed, p provider.Provider, have *lists, f *flight) {
	found, err := p.List(ctx, what.id)
	if err != nil {
		f.err = err
	} else {
		f.got = &listing{tick: f.tick, at: f.at, of: map[string][]provider.Instance{}, complete: found.Complete, missing: found.Missing}
		for _, i := range found.Instances {
			f.got.of[i.Identity.ProxyUID] = append(f.got.of[i.Identity.ProxyUID], i)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	have.current = nil
	if f.got != nil && f.got.complete {
		// One that lacks a part serves those who wait for it, and nobody after them: the next may lack nothing.
		have.last = f.got
	}
	close(f.done)
}
