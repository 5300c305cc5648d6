package faultmatrix_test

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/controller/proxy/faultmatrix"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/agent/provider/fake"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// TestFakeProvider plays the matrix over the provider in memory: one that makes instances at once, as pods are, and one
// that takes requests first and works on them later, in zones, as clouds do.
func TestFakeProvider(t *testing.T) {
	type cloud interface {
		provider.Provider
		Instances() []provider.Instance
		Run(name, host string, port int32)
		Vanish(name string)
		Become(name string, state provider.State, reason string)
	}
	for name, open := range map[string]func(c *clocktesting.FakePassiveClock) cloud{
		"fake": func(c *clocktesting.FakePassiveClock) cloud { return fake.New(fake.Options{Clock: c, Slow: true}) },
		"fake, zoned, by operations": func(c *clocktesting.FakePassiveClock) cloud {
			p := fake.NewZoned(fake.Options{Clock: c, Slow: true, Operations: true}, "a", "b", "c")
			p.Late(true)
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			faultmatrix.Run(t, name, func(t *testing.T) faultmatrix.Subject {
				clock := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
				p := open(clock)
				return faultmatrix.Subject{
					Provider:  func(*testing.T, client.WithWatch) provider.Provider { return p },
					Client:    faultmatrix.NewMemory(),
					Namespace: "member",
					Settings:  v1alpha1.ProxySettings{Port: 3128, Egress: v1alpha1.Egress{Ports: []int32{80}, ConnectPorts: []int32{443}}},
					Clock:     clock,
					Advance: func(_ *testing.T, d time.Duration) {
						clock.SetTime(clock.Now().Add(d))
						// What is asked for takes a while, and so does what is let go.
						for _, i := range p.Instances() {
							switch {
							case clock.Since(i.CreatedAt) < 4*time.Second:
							case i.State == provider.StatePending:
								p.Run(i.Name, "192.0.2.1", 3128)
							case i.State == provider.StateStopping:
								p.Vanish(i.Name)
							}
						}
					},
					Instances: func(*testing.T) []string {
						var names []string
						for _, i := range p.Instances() {
							names = append(names, i.Zone+"/"+i.Name)
						}
						return names
					},
					Lose: func(_ *testing.T, name string) { p.Vanish(name) },
					Fail: func(_ *testing.T, name string) { p.Become(name, provider.StateFailed, "it ended") },
				}
			})
		})
	}
}

// TestPods plays it over pods, with an API server in memory. The package above plays a part of it over a real one.
func TestPods(t *testing.T) {
	faultmatrix.Run(t, "kubernetes", func(*testing.T) faultmatrix.Subject {
		clock := clocktesting.NewFakePassiveClock(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
		return faultmatrix.Pods(faultmatrix.NewMemoryAt(clock), "member", clock)
	})
}
