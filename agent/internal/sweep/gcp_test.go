package sweep_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
	"github.com/shoal-dev/shoal/agent/internal/sweep"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Machines in one project, of two hubs and of two agents, with a zone that is away for a while.
func TestSweepOfMachines(t *testing.T) {
	const project, region = "crawl-project", "europe-west1"
	zones := []string{region + "-b", region + "-c", region + "-d"}
	w := newWorld(t)
	compute, err := computefake.New(computefake.Options{Clock: w.clock, Projects: []string{project}, Zones: zones})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(compute)
	t.Cleanup(server.Close)
	settings := gcp.Settings{Project: project, ProxyImage: "registry.example/shoal-proxy:1", APIEndpoint: server.URL}
	options := settings.ClientOptions()
	options.UserAgent, options.Clock = "shoal-agent/test", w.clock
	client, err := computeclient.New(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	machines, err := gcp.New(gcp.Options{
		Compute: client, Settings: settings, Region: region, Zones: zones,
		Secrets: clientfake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), Namespace: "shoal-agent",
		Keys: func(context.Context) (gcp.Keys, error) { return gcp.Keys{Hub: "{}", Agent: "{}"}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.entries = map[string]provider.Provider{"machines": machines}

	number := 0
	create := func(uid, zone string, change ...func(*provider.Identity)) string {
		t.Helper()
		number++
		r := provider.Request{
			Name: provider.InstanceName(uid, "0123456789abcdef"), Identity: ours, SpecHash: "0123456789abcdef", Zone: zone,
			RequestID: fmt.Sprintf("7d1c2f54-0000-4000-8000-%012d", number),
			Owner:     provider.Owner{Namespace: "shoal-agent", Name: uid, UID: uid}, Settings: v1alpha1.ProxySettings{Port: 3128}, Config: "http_port 3128\n",
		}
		r.Identity.ProxyUID = uid
		for _, f := range change {
			f(&r.Identity)
		}
		if _, err := machines.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		return r.Name
	}
	kept := []string{
		create("owned", zones[0]),
		create("other-hubs", zones[0], func(i *provider.Identity) { i.HubUID = "hub2" }),
		create("other-agents", zones[1], func(i *provider.Identity) { i.MemberUID = "member2" }),
		create("other-homes", zones[1], func(i *provider.Identity) { i.HomeClusterUID = "home2" }),
	}
	create("leaked", zones[1])
	create("leaked-in-d", zones[2])
	w.owners["owned"] = struct{}{}
	w.clock.Step(10 * time.Second)
	want := func(names int, why string) {
		t.Helper()
		var have []string
		for _, i := range compute.Instances(project) {
			have = append(have, i.Name)
		}
		for _, name := range kept {
			if !slices.Contains(have, name) {
				t.Errorf("%s: %s is gone, and it is somebody's", why, name)
			}
		}
		if len(have) != names {
			t.Errorf("%s: %d machines, want %d", why, len(have), names)
		}
	}
	want(6, "at first")
	compute.SetUnreachable(zones[2], true)
	w.sweep(3 * sweep.Grace)
	want(6, "with a zone away")
	if !strings.Contains(w.log.String(), zones[2]) || !w.s.Status().LastComplete.IsZero() {
		t.Errorf("it does not say what is missing:\n%s", w.log.String())
	}
	compute.SetUnreachable(zones[2], false)
	w.sweep(sweep.Grace - sweep.Interval)
	want(6, "while the grace lasts")
	w.sweep(2 * sweep.Interval)
	w.clock.Step(5 * time.Minute)
	want(4, "in the end")
	if s := w.s.Status(); s.Deleted != 2 || s.Failed != 0 {
		t.Errorf("status is %+v\n%s", s, w.log.String())
	}
	// What was asked to go is not asked again while it goes.
	deletions := 0
	for _, c := range compute.Calls() {
		if strings.Contains(strings.ToLower(c.Method), "delete") {
			deletions++
		}
	}
	if deletions != 2 {
		t.Errorf("%d calls to delete, want 2", deletions)
	}
}
