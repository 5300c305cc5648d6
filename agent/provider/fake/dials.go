package fake

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Fail makes the next call of a verb answer with err and do nothing. Several calls queue up.
func (p *Provider) Fail(verb Verb, err error) { p.FailTimes(verb, 1, err) }

// FailTimes makes the next n calls of a verb answer with err and do nothing.
func (p *Provider) FailTimes(verb Verb, n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures[verb] = append(p.failures[verb], slices.Repeat([]failure{{err: err}}, n)...)
}

// FailAfter makes the next call of a verb do what it does and answer with err all the same: the answer was lost.
func (p *Provider) FailAfter(verb Verb, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures[verb] = append(p.failures[verb], failure{err: err, after: true})
}

// LoseReplies makes the next n calls of a verb do what they do and tell nobody.
func (p *Provider) LoseReplies(verb Verb, n int) {
	for range n {
		p.FailAfter(verb, provider.Errorf(provider.KindUnavailable, string(verb), "the connection was lost before the answer came"))
	}
}

// Down makes every call fail with err until it is called with nil.
func (p *Provider) Down(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = err
}

// Delay makes every call of a verb take d by the provider's clock before it does anything; a context that ends first ends
// the call.
func (p *Provider) Delay(verb Verb, d time.Duration) {
	if _, ok := p.o.Clock.(clock.Clock); !ok {
		panic(fmt.Sprintf("fake provider: Delay needs a clock.Clock, and %T cannot wait", p.o.Clock))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delays[verb] = d
}

// Refuse makes the next Create be turned down with err: at once, or after it was taken where the provider works by
// operations. Several calls queue up.
func (p *Provider) Refuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusals = append(p.refusals, err)
}

// Capacity bounds how many instances there can be in a zone; a negative number bounds nothing. The zone is empty where
// the provider has none.
func (p *Provider) Capacity(zone string, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if most < 0 {
		delete(p.capacity, zone)
		return
	}
	p.capacity[zone] = most
}

// Incomplete makes List say that it could not see everything.
func (p *Provider) Incomplete(incomplete bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.incomplete = incomplete
}

// Dark makes zones not answer, in place of those that did not before: List misses them, and calls in them fail.
func (p *Provider) Dark(zones ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dark = zones
}

// Lag makes List tell what was d ago: what has come since is missing, and what has gone since is still there.
func (p *Provider) Lag(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lag = d
}

// Late makes instances that are created from now on invisible until Appear, where the provider works by operations.
func (p *Provider) Late(late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = late
}

// Appear makes an instance that is under way be seen.
func (p *Provider) Appear(name string) { p.change(name, func(r *record) { r.hidden = false }) }

// Abort makes the work on an instance that is under way fail with err: the instance will never have been.
func (p *Provider) Abort(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, r := range p.instances {
		if at.name == name && r.operation != "" {
			p.operations[r.operation] = operation{key: at, failure: err}
			delete(p.instances, at)
		}
	}
}

// Put makes an instance be there, whoever's it is.
func (p *Provider) Put(i provider.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(&record{instance: i})
}

// Run makes an instance be running, reached at host and port.
func (p *Provider) Run(name, host string, port int32) {
	p.change(name, func(r *record) {
		r.hidden = false
		r.instance.State, r.instance.Reason = provider.StateRunning, ""
		r.instance.Endpoints = []v1alpha1.Endpoint{{Network: v1alpha1.NetworkVM, Host: host, Port: port}}
	})
}

// Become gives an instance another state.
func (p *Provider) Become(name string, state provider.State, reason string) {
	p.change(name, func(r *record) {
		r.hidden = false
		r.instance.State, r.instance.Reason, r.instance.Endpoints = state, reason, nil
	})
}

// Preempt makes the provider take an instance back: it stops, and stays until Vanish, or Become of another state.
func (p *Provider) Preempt(name string) {
	p.change(name, func(r *record) {
		r.hidden = false
		r.instance.State, r.instance.Reason, r.instance.Endpoints = provider.StateStopping, "preempted", nil
		r.instance.Preempted = true
	})
}

// Vanish makes an instance be gone, as if somebody had removed it.
func (p *Provider) Vanish(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.instances {
		if at.name == name {
			p.bury(at)
		}
	}
}

// change changes the instances of a name, in whatever zones they are.
func (p *Provider) change(name string, f func(*record)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, r := range p.instances {
		if at.name == name {
			f(r)
		}
	}
}

// Instances gives what is there, by name, also what cannot be seen yet: what somebody would have to pay for.
func (p *Provider) Instances() []provider.Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sorted(func(r *record) bool { return r.vanished.IsZero() })
}

// Busy says whether an instance is marked as leased.
func (p *Provider) Busy(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, r := range p.instances {
		if at.name == name && r.busy {
			return true
		}
	}
	return false
}

// Calls gives the calls that were made of a verb, and forgets none.
func (p *Provider) Calls(verb Verb) []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []Call
	for _, c := range p.calls {
		if c.Verb == verb {
			found = append(found, c)
		}
	}
	return found
}

// Unplace makes an instance wait for a node, since a time.
func (p *Provider) Unplace(name string, since time.Time) {
	p.change(name, func(r *record) {
		r.instance.State, r.instance.Reason, r.instance.Endpoints = provider.StatePending, "no node takes it", nil
		r.instance.Unplaced = since
	})
}

// TakePort makes an instance's node refuse it because of its host port.
func (p *Provider) TakePort(name string) {
	p.change(name, func(r *record) {
		r.instance.State, r.instance.Reason, r.instance.Endpoints = provider.StateFailed, "its node has no such port left", nil
		r.instance.PortTaken = true
	})
}
