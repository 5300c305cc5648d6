package fake

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Verb is one of the verbs of a provider.
type Verb string

// The verbs.
const (
	Create Verb = "Create"
	Get    Verb = "Get"
	Delete Verb = "Delete"
	List   Verb = "List"
	Mark   Verb = "Mark"
)

// Call is one call that was made.
type Call struct {
	Verb Verb
	// Name is the instance's name; empty for List.
	Name string
	// Zone is the zone that was asked for; empty for List.
	Zone string
	// RequestID is that of a Create.
	RequestID string
	// Options are those of a Delete.
	Options provider.DeleteOptions
}

// Options configures a Provider.
type Options struct {
	// Clock dates instances. Required. [Provider.Delay] needs a clock.Clock.
	Clock clock.PassiveClock
	// Slow makes a deleted instance stay, as StateStopping, until Vanish is called.
	Slow bool
	// Operations makes the provider one that takes a request first and does the work later, as clouds do: Create answers
	// with an operation, what fails afterwards is StateRefused, and a request that is made again under its ID changes
	// nothing and gets the first answer again, even when the instance is long gone.
	Operations bool
}

// Provider is a provider in memory. It is safe for concurrent use.
type Provider struct {
	o Options

	mu         sync.Mutex
	instances  map[key]*record
	buried     []*record
	operations map[string]operation
	requests   map[string]string
	failures   map[Verb][]failure
	down       error
	refusals   []error
	delays     map[Verb]time.Duration
	capacity   map[string]int
	dark       []string
	incomplete bool
	late       bool
	lag        time.Duration
	calls      []Call
}

// key names an instance: a name is taken once in each zone.
type key struct{ zone, name string }

// record is an instance, and when it came and went.
type record struct {
	instance           provider.Instance
	appeared, vanished time.Time
	operation          string
	// hidden says that the work on it has only begun: it cannot be seen, and its name is taken.
	hidden bool
	busy   bool
}

// operation is work that was begun; failure is why it came to nothing.
type operation struct {
	key     key
	failure error
}

// failure is an error to answer with, before or after the verb has had its effect.
type failure struct {
	err   error
	after bool
}

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Marker   = (*Provider)(nil)
	_ provider.Zoned    = (*ZonedProvider)(nil)
)

// New makes a Provider that has no instances and fails at nothing.
func New(o Options) *Provider {
	return &Provider{
		o: o, instances: map[key]*record{}, operations: map[string]operation{}, requests: map[string]string{},
		failures: map[Verb][]failure{}, delays: map[Verb]time.Duration{}, capacity: map[string]int{},
	}
}

// ZonedProvider is a Provider whose instances are in zones.
type ZonedProvider struct {
	*Provider
	zones []string
}

// NewZoned makes a Provider with zones.
func NewZoned(o Options, zones ...string) *ZonedProvider {
	return &ZonedProvider{Provider: New(o), zones: zones}
}

// Zones implements [provider.Zoned]: every proxy has an order of its own.
func (p *ZonedProvider) Zones(settings v1alpha1.ProxySettings, proxyUID string) ([]string, error) {
	zones := slices.Clone(p.zones)
	if at := settings.Placement; at != nil && at.Zone != "" {
		zones = slices.DeleteFunc(zones, func(z string) bool { return z != at.Zone })
	}
	if len(zones) == 0 {
		return nil, provider.Errorf(provider.KindInvalidSpec, "choose a zone", "none of %v is asked for", p.zones)
	}
	rank := func(zone string) []byte {
		sum := sha256.Sum256([]byte(zone + "/" + proxyUID))
		return sum[:]
	}
	slices.SortFunc(zones, func(a, b string) int { return bytes.Compare(rank(a), rank(b)) })
	return zones, nil
}

// Create implements [provider.Provider]. A zone that is not offered is an invalid request.
func (p *ZonedProvider) Create(ctx context.Context, r provider.Request) (provider.Receipt, error) {
	if !slices.Contains(p.zones, r.Zone) {
		return provider.Receipt{}, provider.Errorf(provider.KindInvalidSpec, "create", "%q is none of the zones %v", r.Zone, p.zones)
	}
	return p.Provider.Create(ctx, r)
}

// Create implements [provider.Provider].
func (p *Provider) Create(ctx context.Context, r provider.Request) (provider.Receipt, error) {
	f, done, err := p.begin(ctx, Call{Verb: Create, Name: r.Name, Zone: r.Zone, RequestID: r.RequestID})
	if err != nil {
		return provider.Receipt{}, err
	}
	defer done()
	at := key{r.Zone, r.Name}
	if id, made := p.requests[r.RequestID]; made {
		if was := p.operations[id].key; was != at {
			return provider.Receipt{}, provider.Errorf(provider.KindInvalidSpec, "create", "request %s was for %s/%s", r.RequestID, was.zone, was.name)
		}
		return answer(id, f)
	}
	have := p.instances[at]
	switch {
	case have != nil && !have.instance.Identity.SameProxy(r.Identity):
		return provider.Receipt{}, provider.Errorf(provider.KindAlreadyExists, "create", "%s is somebody else's", r.Name)
	case have != nil:
		return answer(have.operation, f)
	}
	refusal := p.refusal(r.Zone)
	if refusal != nil && !p.o.Operations {
		return provider.Receipt{}, refusal
	}
	id := ""
	if p.o.Operations {
		id = fmt.Sprintf("operation-%d", len(p.operations)+1)
		p.operations[id] = operation{key: at, failure: refusal}
		if r.RequestID != "" {
			p.requests[r.RequestID] = id
		}
	}
	if refusal == nil {
		p.put(&record{operation: id, hidden: p.late && p.o.Operations, instance: provider.Instance{
			Name: r.Name, Zone: r.Zone, ProviderID: providerID(at), State: provider.StatePending, Reason: "starting",
			Identity: r.Identity, SpecHash: r.SpecHash, CreatedAt: p.o.Clock.Now().Truncate(time.Second),
		}})
	}
	return answer(id, f)
}

// answer is what a taken request is answered with; a lost answer tells nothing.
func answer(operation string, f failure) (provider.Receipt, error) {
	if f.err != nil {
		return provider.Receipt{}, f.err
	}
	return provider.Receipt{Operation: operation}, nil
}

// refusal says why there is no instance to be had in a zone now.
func (p *Provider) refusal(zone string) error {
	if len(p.refusals) > 0 {
		err := p.refusals[0]
		p.refusals = p.refusals[1:]
		return err
	}
	most, bounded := p.capacity[zone]
	have := 0
	for at := range p.instances {
		if at.zone == zone {
			have++
		}
	}
	if !bounded || have < most {
		return nil
	}
	return &provider.Error{
		Kind: provider.KindCapacityExhausted, Op: "create", Scope: "zone " + zone, Err: fmt.Errorf("%d instances are all there is room for", most),
	}
}

// Get implements [provider.Provider].
func (p *Provider) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	f, done, err := p.begin(ctx, Call{Verb: Get, Name: ref.Name, Zone: ref.Zone})
	if err != nil {
		return provider.Instance{}, err
	}
	defer done()
	if f.err != nil {
		return provider.Instance{}, f.err
	}
	at := key{ref.Zone, ref.Name}
	have := p.instances[at]
	work, known := p.operations[ref.Operation]
	known = known && work.key == at
	switch {
	case have != nil && !have.hidden:
		return have.instance, nil
	case have != nil && known && have.operation == ref.Operation:
		return provider.Instance{Name: ref.Name, Zone: ref.Zone, State: provider.StatePending, Reason: "the request is being worked on", Identity: have.instance.Identity}, nil
	case have == nil && known && work.failure != nil:
		return provider.Instance{Name: ref.Name, Zone: ref.Zone, State: provider.StateRefused, Reason: work.failure.Error(), Failure: work.failure}, nil
	default:
		return provider.Instance{}, provider.Errorf(provider.KindNotFound, "get", "there is no %s", ref.Name)
	}
}

// Delete implements [provider.Provider].
func (p *Provider) Delete(ctx context.Context, ref provider.Ref, id provider.Identity, o provider.DeleteOptions) error {
	f, done, err := p.begin(ctx, Call{Verb: Delete, Name: ref.Name, Zone: ref.Zone, Options: o})
	if err != nil {
		return err
	}
	defer done()
	at := key{ref.Zone, ref.Name}
	have := p.instances[at]
	switch {
	case have == nil:
	case !have.instance.Identity.SameProxy(id):
		return provider.Errorf(provider.KindAlreadyExists, "delete", "%s is somebody else's", ref.Name)
	case p.o.Slow:
		have.instance.State, have.instance.Reason, have.instance.Endpoints = provider.StateStopping, "it is being deleted", nil
		have.hidden = false
	default:
		p.bury(at)
	}
	return f.err
}

// List implements [provider.Provider].
func (p *Provider) List(ctx context.Context, id provider.Identity) (provider.Listing, error) {
	f, done, err := p.begin(ctx, Call{Verb: List})
	if err != nil {
		return provider.Listing{}, err
	}
	defer done()
	if f.err != nil {
		return provider.Listing{}, f.err
	}
	then := p.o.Clock.Now().Add(-p.lag)
	listing := provider.Listing{Complete: !p.incomplete && len(p.dark) == 0}
	for _, zone := range p.dark {
		listing.Missing = append(listing.Missing, "zone "+zone)
	}
	listing.Instances = p.sorted(func(r *record) bool {
		of := r.instance.Identity
		switch {
		case of.HubUID != id.HubUID || of.MemberUID != id.MemberUID || of.HomeClusterUID != id.HomeClusterUID:
			return false
		case r.hidden || slices.Contains(p.dark, r.instance.Zone):
			return false
		default:
			return !r.appeared.After(then) && (r.vanished.IsZero() || r.vanished.After(then))
		}
	})
	return listing, nil
}

// Mark implements [provider.Marker].
func (p *Provider) Mark(ctx context.Context, ref provider.Ref, id provider.Identity, busy bool) error {
	f, done, err := p.begin(ctx, Call{Verb: Mark, Name: ref.Name, Zone: ref.Zone})
	if err != nil {
		return err
	}
	defer done()
	have := p.instances[key{ref.Zone, ref.Name}]
	switch {
	case have == nil || have.hidden:
		return provider.Errorf(provider.KindNotFound, "mark", "there is no %s", ref.Name)
	case !have.instance.Identity.SameProxy(id):
		return provider.Errorf(provider.KindAlreadyExists, "mark", "%s is somebody else's", ref.Name)
	}
	have.busy = busy
	return f.err
}

// begin notes a call and waits as long as it was told to. It gives the failure that the call is to end with after its
// effect, or the error that ends it now; without one, the provider is locked until done is called.
func (p *Provider) begin(ctx context.Context, c Call) (f failure, done func(), err error) {
	p.mu.Lock()
	p.calls = append(p.calls, c)
	wait := p.delays[c.Verb]
	p.mu.Unlock()
	if err := p.sleep(ctx, wait); err != nil {
		return failure{}, nil, &provider.Error{Kind: provider.KindUnavailable, Op: strings.ToLower(string(c.Verb)), Err: err}
	}
	p.mu.Lock()
	if queue := p.failures[c.Verb]; len(queue) > 0 {
		f, p.failures[c.Verb] = queue[0], queue[1:]
	}
	switch {
	case p.down != nil:
		err = p.down
	case f.err != nil && !f.after:
		err = f.err
	case c.Verb != List && slices.Contains(p.dark, c.Zone):
		err = provider.Errorf(provider.KindUnavailable, strings.ToLower(string(c.Verb)), "zone %s does not answer", c.Zone)
	}
	if err != nil {
		p.mu.Unlock()
		return failure{}, nil, err
	}
	return f, p.mu.Unlock, nil
}

func (p *Provider) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := p.o.Clock.(clock.Clock).NewTimer(d) //nolint:forcetypeassert // Delay has checked it
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}

func (p *Provider) put(r *record) {
	r.appeared = p.o.Clock.Now()
	p.instances[key{r.instance.Zone, r.instance.Name}] = r
}

func (p *Provider) bury(at key) {
	if r, ok := p.instances[at]; ok {
		r.vanished = p.o.Clock.Now()
		p.buried = append(p.buried, r)
		delete(p.instances, at)
	}
}

// sorted gives the instances that are there and those that were, as far as they are wanted.
func (p *Provider) sorted(keep func(*record) bool) []provider.Instance {
	var found []provider.Instance
	for _, r := range p.instances {
		if keep(r) {
			found = append(found, r.instance)
		}
	}
	for _, r := range p.buried {
		if keep(r) {
			found = append(found, r.instance)
		}
	}
	slices.SortFunc(found, func(a, b provider.Instance) int { return strings.Compare(a.Name+" "+a.Zone, b.Name+" "+b.Zone) })
	return found
}

func providerID(at key) string {
	if at.zone == "" {
		return "fake/" + at.name
	}
	return "fake/" + at.zone + "/" + at.name
}
