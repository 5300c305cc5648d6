package metrics_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/agent/provider/fake"
	"github.com/shoal-dev/shoal/agent/provider/metrics"
	"github.com/shoal-dev/shoal/agent/provider/providertest"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

var clock = clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))

func newMetrics(t *testing.T) (*metrics.Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m, err := metrics.New(metrics.Options{Registerer: registry, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return m, registry
}

func TestCallsAreCountedByOutcome(t *testing.T) {
	m, registry := newMetrics(t)
	inner := fake.New(fake.Options{Clock: clock})
	p := metrics.Wrap("east", inner, m)
	inner.Fail(fake.Create, provider.Errorf(provider.KindQuotaExceeded, "create", "no more addresses"))
	r := provider.Request{Name: "a", Identity: provider.Identity{ProxyUID: "u"}}
	for range 3 {
		_, _ = p.Create(t.Context(), r)
	}
	_, _ = p.Get(t.Context(), provider.Ref{Name: "b"})
	_, _ = p.List(t.Context(), provider.Identity{})
	_ = p.(provider.Marker).Mark(t.Context(), provider.Ref{Name: "a"}, r.Identity, true) //nolint:forcetypeassert // the fake marks
	_ = p.Delete(t.Context(), provider.Ref{Name: "a"}, r.Identity, provider.DeleteOptions{})
	want := `
# HELP shoal_agent_provider_calls_total Calls of providers, by entry of the provider file, verb, and outcome: OK, or the kind of the error.
# TYPE shoal_agent_provider_calls_total counter
shoal_agent_provider_calls_total{outcome="NotFound",provider="east",verb="get"} 1
shoal_agent_provider_calls_total{outcome="OK",provider="east",verb="create"} 2
shoal_agent_provider_calls_total{outcome="OK",provider="east",verb="delete"} 1
shoal_agent_provider_calls_total{outcome="OK",provider="east",verb="list"} 1
shoal_agent_provider_calls_total{outcome="OK",provider="east",verb="mark"} 1
shoal_agent_provider_calls_total{outcome="QuotaExceeded",provider="east",verb="create"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "shoal_agent_provider_calls_total"); err != nil {
		t.Error(err)
	}
}

// slow is a provider whose Get takes two seconds.
type slow struct{ provider.Provider }

func (s slow) Get(_ context.Context, ref provider.Ref) (provider.Instance, error) {
	clock.SetTime(clock.Now().Add(2 * time.Second))
	return provider.Instance{Name: ref.Name}, nil
}

func TestCallsAreTimed(t *testing.T) {
	m, registry := newMetrics(t)
	if _, err := metrics.Wrap("east", slow{}, m).Get(t.Context(), provider.Ref{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "shoal_agent_provider_call_duration_seconds" {
			if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() != 2 {
				t.Errorf("%d calls took %v s, want one of 2 s", h.GetSampleCount(), h.GetSampleSum())
			}
			return
		}
	}
	t.Error("no call was timed")
}

// zonedOnly has zones and no marks.
type zonedOnly struct {
	provider.Provider
	provider.Zoned
}

func TestWrappedIsWhatItWas(t *testing.T) {
	m, _ := newMetrics(t)
	zoned := fake.NewZoned(fake.Options{Clock: clock}, "a", "b")
	for name, c := range map[string]struct {
		p             provider.Provider
		zoned, marker bool
	}{
		"Both":       {zoned, true, true},
		"ZonedOnly":  {zonedOnly{slow{}, zoned}, true, false},
		"MarkerOnly": {fake.New(fake.Options{Clock: clock}), false, true},
		"Neither":    {slow{}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := metrics.Wrap("east", c.p, m)
			z, isZoned := w.(provider.Zoned)
			_, isMarker := w.(provider.Marker)
			if isZoned != c.zoned || isMarker != c.marker {
				t.Fatalf("zoned %v and marker %v, want %v and %v", isZoned, isMarker, c.zoned, c.marker)
			}
			if isZoned {
				if zones, err := z.Zones(v1alpha1.ProxySettings{}, "u"); err != nil || len(zones) != 2 {
					t.Errorf("zones = %v, %v", zones, err)
				}
			}
		})
	}
}

func TestWrappedKeepsTheContract(t *testing.T) {
	providertest.Run(t, func(t *testing.T) providertest.Subject {
		t.Helper()
		m, _ := newMetrics(t)
		inner := fake.NewZoned(fake.Options{Clock: clock, Operations: true}, "a", "b")
		return providertest.Subject{
			Provider: metrics.Wrap("east", inner, m),
			Owner: func(_ *testing.T, name string) (provider.Owner, provider.Identity) {
				return provider.Owner{Namespace: "ns", Name: name, UID: "uid-" + name},
					provider.Identity{ProxyUID: "uid-" + name, HubUID: "hub", MemberUID: "member", HomeClusterUID: "home"}
			},
			Start:  func(_ *testing.T, name string) { inner.Run(name, "192.0.2.1", 3128) },
			Finish: func(*testing.T, string) {},
			Foreign: func(_ *testing.T, zone, name string) {
				inner.Put(provider.Instance{Name: name, Zone: zone, State: provider.StateRunning})
			},
			Refuse:  func(_ *testing.T, kind provider.Kind) { inner.Refuse(provider.Errorf(kind, "create", "no room")) },
			Network: v1alpha1.NetworkVM,
		}
	})
}

func TestMetricsAreRegisteredOnce(t *testing.T) {
	_, registry := newMetrics(t)
	if _, err := metrics.New(metrics.Options{Registerer: registry, Clock: clock}); err == nil {
		t.Error("a second set of the same metrics was taken")
	}
	if _, err := metrics.New(metrics.Options{}); err == nil {
		t.Error("no registerer was taken")
	}
}
