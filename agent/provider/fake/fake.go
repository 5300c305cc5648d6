// Package fake is a provider without instances behind it, for tests. It keeps the contract of package provider and has
// dials for what can go wrong.
package fake

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Verb is one of the four verbs of a provider.
type Verb string

// The verbs.
const (
	Create Verb = "Create"
	Get    Verb = "Get"
	Delete Verb = "Delete"
	List   Verb = "List"
)

// Call is one call that was made.
type Call struct {
	Verb Verb
	// Name is the instance's name; empty for List.
	Name string
	// Options are those of a Delete.
	Options provider.DeleteOptions
}

// Options configures a Provider.
type Options struct {
	// Clock dates instances. Required.
	Clock clock.PassiveClock
	// Slow makes a deleted instance stay, as StateStopping, until Vanish is called.
	Slow bool
}

// Provider is a provider in memory. It is safe for concurrent use.
type Provider struct {
	o Options

	mu         sync.Mutex
	instances  map[string]provider.Instance
	failures   map[Verb][]failure
	calls      []Call
	incomplete bool
}

// failure is an error to answer with, before or after the verb has had its effect.
type failure struct {
	err   error
	after bool
}

var _ provider.Provider = (*Provider)(nil)

// New makes a Provider that has no instances and fails at nothing.
func New(o Options) *Provider {
	return &Provider{o: o, instances: map[string]provider.Instance{}, failures: map[Verb][]failure{}}
}

// Fail makes the next call of a verb answer with err and do nothing. Several calls queue up.
func (p *Provider) Fail(verb Verb, err error) { p.fail(verb, failure{err: err}) }

// FailAfter makes the next call of a verb do what it does and answer with err all the same: the answer was lost.
func (p *Provider) FailAfter(verb Verb, err error) { p.fail(verb, failure{err: err, after: true}) }

func (p *Provider) fail(verb Verb, f failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures[verb] = append(p.failures[verb], f)
}

// Incomplete makes List say that it could not see everything.
func (p *Provider) Incomplete(incomplete bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.incomplete = incomplete
}

// Put makes an instance be there, whoever's it is.
func (p *Provider) Put(i provider.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.instances[i.Name] = i
}

// Run makes an instance be running, reached at host and port.
func (p *Provider) Run(name, host string, port int32) {
	p.change(name, func(i *provider.Instance) {
		i.State, i.Reason = provider.StateRunning, ""
		i.Endpoints = []v1alpha1.Endpoint{{Network: v1alpha1.NetworkVM, Host: host, Port: port}}
	})
}

// Become gives an instance another state.
func (p *Provider) Become(name string, state provider.State, reason string) {
	p.change(name, func(i *provider.Instance) { i.State, i.Reason, i.Endpoints = state, reason, nil })
}

// Vanish makes an instance be gone, as if somebody had removed it.
func (p *Provider) Vanish(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.instances, name)
}

func (p *Provider) change(name string, f func(*provider.Instance)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i, ok := p.instances[name]; ok {
		f(&i)
		p.instances[name] = i
	}
}

// Instances gives what is there, by name.
func (p *Provider) Instances() []provider.Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sorted(func(provider.Instance) bool { return true })
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

// begin notes a call, and gives the failure that it was told to end with.
func (p *Provider) begin(c Call) failure {
	p.calls = append(p.calls, c)
	queue := p.failures[c.Verb]
	if len(queue) == 0 {
		return failure{}
	}
	p.failures[c.Verb] = queue[1:]
	return queue[0]
}

// Create implements [provider.Provider].
func (p *Provider) Create(_ context.Context, r provider.Request) (provider.Receipt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.begin(Call{Verb: Create, Name: r.Name})
	if f.err != nil && !f.after {
		return provider.Receipt{}, f.err
	}
	have, there := p.instances[r.Name]
	switch {
	case there && !have.Identity.SameProxy(r.Identity):
		return provider.Receipt{}, provider.Errorf(provider.KindAlreadyExists, "create", "%s is somebody else's", r.Name)
	case there:
		return provider.Receipt{}, f.err
	}
	p.instances[r.Name] = provider.Instance{
		Name: r.Name, ProviderID: "fake/" + r.Name, State: provider.StatePending, Reason: "starting",
		Identity: r.Identity, SpecHash: r.SpecHash, CreatedAt: p.o.Clock.Now().Truncate(time.Second),
	}
	return provider.Receipt{}, f.err
}

// Get implements [provider.Provider].
func (p *Provider) Get(_ context.Context, ref provider.Ref) (provider.Instance, error) {
	name := ref.Name
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.begin(Call{Verb: Get, Name: name}); f.err != nil {
		return provider.Instance{}, f.err
	}
	i, ok := p.instances[name]
	if !ok {
		return provider.Instance{}, provider.Errorf(provider.KindNotFound, "get", "there is no %s", name)
	}
	return i, nil
}

// Delete implements [provider.Provider].
func (p *Provider) Delete(_ context.Context, ref provider.Ref, id provider.Identity, o provider.DeleteOptions) error {
	name := ref.Name
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.begin(Call{Verb: Delete, Name: name, Options: o})
	if f.err != nil && !f.after {
		return f.err
	}
	i, ok := p.instances[name]
	switch {
	case !ok:
	case !i.Identity.SameProxy(id):
		return provider.Errorf(provider.KindAlreadyExists, "delete", "%s is somebody else's", name)
	case p.o.Slow:
		i.State, i.Reason, i.Endpoints = provider.StateStopping, "it is being deleted", nil
		p.instances[name] = i
	default:
		delete(p.instances, name)
	}
	return f.err
}

// List implements [provider.Provider].
func (p *Provider) List(_ context.Context, id provider.Identity) (provider.Listing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.begin(Call{Verb: List}); f.err != nil {
		return provider.Listing{}, f.err
	}
	found := p.sorted(func(i provider.Instance) bool {
		return i.Identity.HubUID == id.HubUID && i.Identity.MemberUID == id.MemberUID && i.Identity.HomeClusterUID == id.HomeClusterUID
	})
	return provider.Listing{Instances: found, Complete: !p.incomplete}, nil
}

func (p *Provider) sorted(keep func(provider.Instance) bool) []provider.Instance {
	var found []provider.Instance
	for _, i := range p.instances {
		if keep(i) {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b provider.Instance) int { return strings.Compare(a.Name, b.Name) })
	return found
}
