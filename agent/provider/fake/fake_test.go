package fake_test

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/agent/provider/fake"
	"github.com/shoal-dev/shoal/agent/provider/providertest"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func subject(o fake.Options) providertest.Subject {
	p := fake.New(o)
	return providertest.Subject{
		Provider: p,
		Owner: func(_ *testing.T, name string) (provider.Owner, provider.Identity) {
			return provider.Owner{Namespace: "ns", Name: name, UID: "uid-" + name},
				provider.Identity{ProxyUID: "uid-" + name, HubUID: "hub", MemberUID: "member", HomeClusterUID: "home"}
		},
		Start: func(_ *testing.T, name string) { p.Run(name, "192.0.2.1", 3128) },
		Finish: func(_ *testing.T, name string) {
			if o.Slow {
				p.Vanish(name)
			}
		},
		Foreign: func(_ *testing.T, name string) {
			p.Put(provider.Instance{Name: name, State: provider.StateRunning, Identity: provider.Identity{ProxyUID: "somebody"}})
		},
		Network: v1alpha1.NetworkVM,
	}
}

func TestContract(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	for name, o := range map[string]fake.Options{
		"AtOnce": {Clock: clock},
		"Slowly": {Clock: clock, Slow: true},
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, func(*testing.T) providertest.Subject { return subject(o) })
		})
	}
}

func TestDials(t *testing.T) {
	p := fake.New(fake.Options{Clock: clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))})
	refused, lost := errors.New("refused"), errors.New("lost")
	p.Fail(fake.Create, refused)
	p.FailAfter(fake.Create, lost)
	r := provider.Request{Name: "a", Identity: provider.Identity{ProxyUID: "u"}}
	if _, err := p.Create(t.Context(), r); !errors.Is(err, refused) || len(p.Instances()) != 0 {
		t.Errorf("first Create: %v with %d instances, want the refusal and none", err, len(p.Instances()))
	}
	if _, err := p.Create(t.Context(), r); !errors.Is(err, lost) || len(p.Instances()) != 1 {
		t.Errorf("second Create: %v with %d instances, want the lost answer and one", err, len(p.Instances()))
	}
	if _, err := p.Create(t.Context(), r); err != nil || len(p.Calls(fake.Create)) != 3 {
		t.Errorf("third Create: %v after %d calls, want none after 3", err, len(p.Calls(fake.Create)))
	}
	p.Incomplete(true)
	if list, _ := p.List(t.Context(), provider.Identity{}); list.Complete {
		t.Error("List says that it is complete")
	}
}
