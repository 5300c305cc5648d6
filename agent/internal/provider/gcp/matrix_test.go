package gcp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/controller/proxy/faultmatrix"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// inMemory hands requests to a server without a connection.
type inMemory struct{ http.Handler }

// RoundTrip answers a request.
func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	if r = r.Clone(r.Context()); r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return w.Result(), nil
}

// Whatever goes wrong at whichever call, there is one machine in the end or none, and an address only with its machine.
func TestFaultMatrix(t *testing.T) {
	for _, address := range []gcp.AddressMode{gcp.AddressEphemeral, gcp.AddressStatic} {
		t.Run(string(address), func(t *testing.T) {
			faultmatrix.Run(t, "gcp, "+strings.ToLower(string(address)), func(t *testing.T) faultmatrix.Subject { return machines(t, address) })
		})
	}
}

func machines(t *testing.T, address gcp.AddressMode) faultmatrix.Subject {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
	zones := []string{zoneB, zoneC, zoneD}
	server, err := computefake.New(computefake.Options{Clock: clock, Projects: []string{project}, Zones: zones})
	if err != nil {
		t.Fatal(err)
	}
	settings := gcp.Settings{Project: project, ProxyImage: "registry.example/shoal-proxy:1", Address: address, APIEndpoint: "http://compute.test"}
	open := func(t *testing.T) *computeclient.Client {
		o := settings.ClientOptions()
		o.UserAgent, o.Clock, o.Transport = "shoal-agent/test", clock, inMemory{server}
		c, err := computeclient.New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	accountant := open(t)
	find := func(name string) string {
		for _, i := range server.Instances(project) {
			if i.Name == name {
				return path.Base(i.Zone)
			}
		}
		return ""
	}
	return faultmatrix.Subject{
		Provider: func(t *testing.T, c client.WithWatch) provider.Provider {
			p, err := gcp.New(gcp.Options{
				Compute: open(t), Settings: settings, Region: region, Zones: zones, Secrets: c, Namespace: namespace,
				Keys: func(context.Context) (gcp.Keys, error) { return gcp.Keys{Hub: "{}", Agent: "{}"}, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		Client:    faultmatrix.NewMemory(),
		Namespace: namespace,
		Settings:  v1alpha1.ProxySettings{Port: 3128, Egress: v1alpha1.Egress{Ports: []int32{80}, ConnectPorts: []int32{443}}},
		Clock:     &clock.FakePassiveClock,
		Advance:   func(_ *testing.T, d time.Duration) { clock.Step(d) },
		Instances: func(t *testing.T) []string {
			have, seen := []string{}, map[string]bool{}
			for _, i := range server.Instances(project) {
				have, seen[i.Name] = append(have, path.Base(i.Zone)+"/"+i.Name), true
			}
			if address != gcp.AddressStatic {
				return have
			}
			all, err := accountant.ListAddresses(t.Context(), region)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range all {
				if !seen[strings.TrimSuffix(a.Name, "-ip")] {
					have = append(have, "address/"+a.Name)
				}
			}
			return have
		},
		Lose: func(_ *testing.T, name string) { server.Vanish(project, find(name), name) },
		Fail: func(_ *testing.T, name string) { server.SetStatus(project, find(name), name, "TERMINATED") },
	}
}
