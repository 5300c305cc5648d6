package fake_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/agent/provider/fake"
	"github.com/shoal-dev/shoal/agent/provider/providertest"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func identity(name string) provider.Identity {
	return provider.Identity{ProxyUID: "uid-" + name, HubUID: "hub", MemberUID: "member", HomeClusterUID: "home"}
}

// subject is a provider with zones or without, which works at once or by operations.
func subject(o fake.Options, zones ...string) providertest.Subject {
	p := fake.New(o)
	s := providertest.Subject{Provider: p}
	if len(zones) > 0 {
		zoned := fake.NewZoned(o, zones...)
		p, s.Provider = zoned.Provider, zoned
		s.Dark = func(_ *testing.T, zones ...string) { p.Dark(zones...) }
	}
	p.Late(o.Operations)
	s.Owner = func(_ *testing.T, name string) (provider.Owner, provider.Identity) {
		return provider.Owner{Namespace: "ns", Name: name, UID: "uid-" + name}, identity(name)
	}
	s.Settle = func(_ *testing.T, name string) { p.Appear(name) }
	s.Start = func(_ *testing.T, name string) { p.Run(name, "192.0.2.1", 3128) }
	s.Fail = func(_ *testing.T, name string) { p.Become(name, provider.StateFailed, "it broke") }
	s.Preempt = func(_ *testing.T, name string) { p.Preempt(name) }
	s.Vanish = func(_ *testing.T, name string) { p.Vanish(name) }
	s.Finish = func(_ *testing.T, name string) {
		if o.Slow {
			p.Vanish(name)
		}
	}
	s.Foreign = func(_ *testing.T, zone, name string) {
		p.Put(provider.Instance{Name: name, Zone: zone, State: provider.StateRunning, Identity: provider.Identity{ProxyUID: "somebody"}})
	}
	s.Busy = func(_ *testing.T, name string) bool { return p.Busy(name) }
	s.LoseReply = func(*testing.T) { p.LoseReplies(fake.Create, 1) }
	if o.Operations {
		s.Refuse = func(_ *testing.T, kind provider.Kind) { p.Refuse(provider.Errorf(kind, "create", "no room")) }
	}
	s.Network = v1alpha1.NetworkVM
	return s
}

func TestContract(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	for name, c := range map[string]struct {
		o     fake.Options
		zones []string
	}{
		"AtOnce":   {o: fake.Options{Clock: clock}},
		"Slowly":   {o: fake.Options{Clock: clock, Slow: true}},
		"InZones":  {o: fake.Options{Clock: clock, Slow: true, Operations: true}, zones: []string{"a", "b", "c"}},
		"ByOrders": {o: fake.Options{Clock: clock, Operations: true}},
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, func(*testing.T) providertest.Subject { return subject(c.o, c.zones...) })
		})
	}
}

func request(name, zone, id string) provider.Request {
	return provider.Request{Name: name, Zone: zone, RequestID: id, Identity: identity(name)}
}

func TestCallsFailBeforeOrAfterTheirEffect(t *testing.T) {
	p := fake.New(fake.Options{Clock: clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))})
	refused, lost := errors.New("refused"), errors.New("lost")
	p.FailTimes(fake.Create, 2, refused)
	p.FailAfter(fake.Create, lost)
	for _, c := range []struct {
		want error
		have int
	}{{refused, 0}, {refused, 0}, {lost, 1}, {nil, 1}} {
		if _, err := p.Create(t.Context(), request("a", "", "")); !errors.Is(err, c.want) || len(p.Instances()) != c.have {
			t.Errorf("Create = %v with %d instances, want %v and %d", err, len(p.Instances()), c.want, c.have)
		}
	}
	if len(p.Calls(fake.Create)) != 4 {
		t.Errorf("%d calls were noted, want 4", len(p.Calls(fake.Create)))
	}
	p.Down(refused)
	if _, err := p.Get(t.Context(), provider.Ref{Name: "a"}); !errors.Is(err, refused) {
		t.Errorf("Get of a provider that is down: %v", err)
	}
	p.Down(nil)
	if _, err := p.Get(t.Context(), provider.Ref{Name: "a"}); err != nil {
		t.Errorf("Get: %v", err)
	}
}

func TestCallsTakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fake.New(fake.Options{Clock: clock.RealClock{}})
		p.Delay(fake.Create, time.Minute)
		begun := time.Now()
		if _, err := p.Create(t.Context(), request("a", "", "")); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("Create took %v and gave %v, want a minute and no error", time.Since(begun), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Create(ctx, request("b", "", "")); !errors.Is(err, context.DeadlineExceeded) || provider.KindOf(err) != provider.KindUnavailable {
			t.Errorf("Create that hangs: %v, want the context's end, as %s", err, provider.KindUnavailable)
		}
		if len(p.Instances()) != 1 {
			t.Errorf("%d instances, want the first only", len(p.Instances()))
		}
	})
}

func TestZonesHaveRoomEachForItself(t *testing.T) {
	for name, operations := range map[string]bool{"AtOnce": false, "Later": true} {
		t.Run(name, func(t *testing.T) {
			p := fake.NewZoned(fake.Options{Clock: clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0)), Operations: operations}, "a", "b")
			p.Capacity("a", 1)
			try := func(name, zone string) error {
				receipt, err := p.Create(t.Context(), request(name, zone, "attempt-"+name+zone))
				if err != nil {
					return err
				}
				i, err := p.Get(t.Context(), provider.Ref{Name: name, Zone: zone, Operation: receipt.Operation})
				if err != nil {
					return err
				}
				return i.Failure
			}
			if err := try("one", "a"); err != nil {
				t.Fatal(err)
			}
			if err := try("two", "a"); provider.KindOf(err) != provider.KindCapacityExhausted || provider.ScopeOf(err) != "zone a" {
				t.Errorf("a full zone says %v in scope %q", err, provider.ScopeOf(err))
			}
			if err := try("two", "b"); err != nil {
				t.Errorf("the other zone says %v", err)
			}
			p.Capacity("a", -1)
			if err := try("three", "a"); err != nil {
				t.Errorf("a zone without bounds says %v", err)
			}
		})
	}
}

func TestListLags(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	p := fake.New(fake.Options{Clock: clock})
	p.Lag(10 * time.Second)
	names := func() (found string) {
		list, err := p.List(t.Context(), identity("a"))
		if err != nil || !list.Complete {
			t.Fatal(list, err)
		}
		for _, i := range list.Instances {
			found += i.Name
		}
		return found
	}
	create := func(name string) {
		if _, err := p.Create(t.Context(), request(name, "", "")); err != nil {
			t.Fatal(err)
		}
	}
	create("a")
	if got := names(); got != "" {
		t.Errorf("List tells of %q at once", got)
	}
	clock.SetTime(clock.Now().Add(10 * time.Second))
	create("b")
	p.Vanish("a")
	if got := names(); got != "a" {
		t.Errorf("List tells of %q, want what was 10 s ago: a", got)
	}
	clock.SetTime(clock.Now().Add(10 * time.Second))
	if got := names(); got != "b" {
		t.Errorf("List tells of %q, want b", got)
	}
}

func TestWorkThatIsAborted(t *testing.T) {
	p := fake.New(fake.Options{Clock: clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0)), Operations: true})
	p.Late(true)
	receipt, err := p.Create(t.Context(), request("a", "", "first"))
	if err != nil {
		t.Fatal(err)
	}
	p.Abort("a", provider.Errorf(provider.KindQuotaExceeded, "create", "IN_USE_ADDRESSES"))
	got, err := p.Get(t.Context(), provider.Ref{Name: "a", Operation: receipt.Operation})
	if err != nil || got.State != provider.StateRefused || provider.KindOf(got.Failure) != provider.KindQuotaExceeded {
		t.Errorf("Get = %+v, %v; want it refused for the quota", got, err)
	}
	if len(p.Instances()) != 0 {
		t.Error("it is there all the same")
	}
}
