package faultmatrix

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// crash is what a call panics with where the agent is killed.
type crash struct{}

// fault is what happens to one call.
type fault struct {
	name string
	// before kills the agent before the call has an effect, after once it has had it.
	before, after bool
	// lost has the call do what it does, and answer with err all the same.
	lost bool
	// err is what the call answers. Without lost it does nothing.
	err error
}

// apply does what the fault leaves of a call.
func (f *fault) apply(call func() error) error {
	switch {
	case f == nil:
		return call()
	case f.before:
		panic(crash{})
	case f.after:
		_ = call()
		panic(crash{})
	case f.lost:
		_ = call()
		return f.err
	default:
		return f.err
	}
}

// providerFaults are what can happen to a call to a provider.
func providerFaults() []fault {
	all := []fault{
		{name: "killed before", before: true},
		{name: "killed after", after: true},
		{name: "answer lost", lost: true, err: provider.Errorf(provider.KindUnavailable, "call", "the connection was lost")},
	}
	for _, kind := range []provider.Kind{
		provider.KindNotFound, provider.KindAlreadyExists, provider.KindQuotaExceeded, provider.KindCapacityExhausted,
		provider.KindThrottled, provider.KindInvalidSpec, provider.KindUnauthorized, provider.KindUnavailable,
	} {
		all = append(all, fault{name: string(kind), err: &provider.Error{Kind: kind, Op: "call", Err: errors.New("injected")}})
	}
	return append(all, fault{name: "QuotaExceeded of all", err: &provider.Error{
		Kind: provider.KindQuotaExceeded, Op: "call", Scope: "region r ADDRESSES", Err: errors.New("injected"),
	}})
}

// writeFaults are what can happen to a write to the API server.
func writeFaults() []fault {
	return []fault{
		{name: "killed before", before: true},
		{name: "killed after", after: true},
		{name: "answer lost", lost: true, err: apierrors.NewTimeoutError("the answer is lost", 1)},
		{name: "Conflict", err: apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "proxies"}, "p", errors.New("injected"))},
		{name: "Unavailable", err: apierrors.NewServiceUnavailable("injected")},
	}
}

// injector counts calls, and has a fault happen to one of them.
type injector struct {
	mu    sync.Mutex
	calls int
	names []string
	at    int
	fault *fault
}

// arm has f happen to the nth call from now on; nil to none.
func (i *injector) arm(n int, f *fault) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls, i.names, i.at, i.fault = 0, nil, n, f
}

// struck says whether the call that the fault was meant for has been made.
func (i *injector) struck() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.calls > i.at
}

func (i *injector) do(name string, call func() error) error {
	i.mu.Lock()
	var f *fault
	if i.fault != nil && i.calls == i.at {
		f = i.fault
	}
	i.calls++
	i.names = append(i.names, name)
	i.mu.Unlock()
	return f.apply(call)
}

// faulty is a provider to whose calls things happen, and whose lists can lag.
type faulty struct {
	provider.Provider
	*injector
	clock clock.PassiveClock
	lag   time.Duration

	mu   sync.Mutex
	past []snapshot
}

// snapshot is what a list told at a time.
type snapshot struct {
	at      time.Time
	listing provider.Listing
}

// zonedFaulty is one of a zoned provider.
type zonedFaulty struct {
	*faulty
	zoned provider.Zoned
}

// Zones implements [provider.Zoned].
func (p zonedFaulty) Zones(settings v1alpha1.ProxySettings, proxyUID string) ([]string, error) {
	return p.zoned.Zones(settings, proxyUID)
}

// wrapped gives the provider to hand to the controller.
func (p *faulty) wrapped() provider.Provider {
	if zoned, ok := p.Provider.(provider.Zoned); ok {
		return zonedFaulty{faulty: p, zoned: zoned}
	}
	return p
}

// Create implements [provider.Provider].
func (p *faulty) Create(ctx context.Context, r provider.Request) (receipt provider.Receipt, err error) {
	err = p.do("Create", func() (err error) {
		receipt, err = p.Provider.Create(ctx, r)
		return err
	})
	if err != nil {
		return provider.Receipt{}, err
	}
	return receipt, nil
}

// Get implements [provider.Provider].
func (p *faulty) Get(ctx context.Context, ref provider.Ref) (i provider.Instance, err error) {
	err = p.do("Get", func() (err error) {
		i, err = p.Provider.Get(ctx, ref)
		return err
	})
	if err != nil {
		return provider.Instance{}, err
	}
	return i, nil
}

// Delete implements [provider.Provider].
func (p *faulty) Delete(ctx context.Context, ref provider.Ref, id provider.Identity, o provider.DeleteOptions) error {
	return p.do("Delete", func() error { return p.Provider.Delete(ctx, ref, id, o) })
}

// List implements [provider.Provider]. With a lag it tells what a list would have told that long ago.
func (p *faulty) List(ctx context.Context, id provider.Identity) (l provider.Listing, err error) {
	err = p.do("List", func() (err error) {
		l, err = p.Provider.List(ctx, id)
		if p.lag > 0 {
			l = p.ago()
		}
		return err
	})
	if err != nil {
		return provider.Listing{}, err
	}
	return l, nil
}

// watch keeps what a list would tell now.
func (p *faulty) watch(ctx context.Context, id provider.Identity) error {
	l, err := p.Provider.List(ctx, id)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.past = append(p.past, snapshot{at: p.clock.Now(), listing: l})
	return nil
}

func (p *faulty) ago() provider.Listing {
	p.mu.Lock()
	defer p.mu.Unlock()
	told := provider.Listing{Complete: true}
	for _, s := range p.past {
		if !s.at.After(p.clock.Now().Add(-p.lag)) {
			told = s.listing
		}
	}
	return told
}

// writes gives a client to whose writes things happen.
func writes(to client.WithWatch, i *injector) client.WithWatch {
	return interceptor.NewClient(to, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return i.do("create object", func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return i.do("patch object", func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return i.do("delete object", func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return i.do("patch "+sub, func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
}
