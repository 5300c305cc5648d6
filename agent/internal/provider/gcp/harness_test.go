package gcp_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const (
	project   = "crawl-project"
	region    = "europe-west1"
	zoneB     = region + "-b"
	zoneC     = region + "-c"
	zoneD     = region + "-d"
	elsewhere = "us-east1-b"
	namespace = "shoal-agent"
)

// world is Compute Engine as the fake has it, and a provider that talks to it through the real client.
type world struct {
	*gcp.Provider
	t      *testing.T
	fake   *computefake.Server
	clock  *clocktesting.FakeClock
	client *computeclient.Client
	keys   gcp.Keys
	// settings are the provider's.
	settings gcp.Settings

	mu  sync.Mutex
	log []string
}

// change is what a test wants otherwise.
type change func(*setup)

type setup struct {
	fake     computefake.Options
	settings gcp.Settings
	zones    []string
	secrets  []client.Object
	full     bool
}

func inZones(zones ...string) change    { return func(s *setup) { s.zones = zones } }
func with(f func(*gcp.Settings)) change { return func(s *setup) { f(&s.settings) } }
func holding(o ...client.Object) change { return func(s *setup) { s.secrets = o } }
func secret(name, key, value string) client.Object {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{key: []byte(value)}}
}

func newWorld(t *testing.T, changes ...change) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)), keys: gcp.Keys{Hub: `{"keys":["hub"]}`, Agent: `{"keys":["agent"]}`}}
	s := setup{
		fake:     computefake.Options{Clock: w.clock, Projects: []string{project}, Zones: []string{zoneB, zoneC, zoneD, elsewhere}},
		settings: gcp.Settings{Project: project, ProxyImage: "registry.example/shoal-proxy:1"},
		zones:    []string{zoneB},
	}
	for _, c := range changes {
		c(&s)
	}
	var err error
	if w.fake, err = computefake.New(s.fake); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(w.fake)
	t.Cleanup(server.Close)
	s.settings.APIEndpoint = server.URL
	o := s.settings.ClientOptions()
	o.UserAgent, o.Clock, o.WireLogFullPayloads = "shoal-agent/test", w.clock, s.full
	o.Logger = funcr.New(func(prefix, args string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.log = append(w.log, prefix+" "+args)
	}, funcr.Options{Verbosity: 10})
	if w.client, err = computeclient.New(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	w.settings = s.settings
	w.Provider, err = gcp.New(gcp.Options{
		Compute: w.client, Settings: s.settings, Region: region, Zones: s.zones,
		Secrets: newSecrets(s.secrets...), Namespace: namespace,
		Keys: func(context.Context) (gcp.Keys, error) { return w.keys, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// logged is all that was logged.
func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.log, "\n")
}

func identity(uid string) provider.Identity {
	return provider.Identity{ProxyUID: uid, HubUID: "hub", MemberUID: "member", HomeClusterUID: "home"}
}

// request asks for the machine of a proxy in zone b.
func request(uid string) provider.Request {
	const hash = "0123456789abcdef"
	return provider.Request{
		Name: provider.InstanceName(uid, hash), Identity: identity(uid), SpecHash: hash, Zone: zoneB, RequestID: requestID(1),
		Owner: provider.Owner{Namespace: namespace, Name: "proxy-" + uid, UID: uid}, Settings: v1alpha1.ProxySettings{Port: 3128}, Config: "http_port 3128\n",
	}
}

func requestID(n int) string { return fmt.Sprintf("7d1c2f54-0000-4000-8000-%012d", n) }

// created makes a machine and gives what names it.
func (w *world) created(r provider.Request) provider.Ref {
	w.t.Helper()
	receipt, err := w.Create(w.t.Context(), r)
	if err != nil {
		w.t.Fatalf("Create: %v", err)
	}
	return provider.Ref{Name: r.Name, Zone: r.Zone, Operation: receipt.Operation}
}

// running makes one and waits until it runs.
func (w *world) running(r provider.Request) provider.Ref {
	w.t.Helper()
	ref := w.created(r)
	w.clock.Step(3 * time.Second)
	w.want(ref, provider.StateRunning)
	return ref
}

// want looks at a machine.
func (w *world) want(ref provider.Ref, state provider.State) provider.Instance {
	w.t.Helper()
	i, err := w.Get(w.t.Context(), ref)
	if err != nil || i.State != state {
		w.t.Fatalf("Get = %s (%s), %v; want %s", i.State, i.Reason, err, state)
	}
	return i
}

func (w *world) wantKind(what string, err error, kind provider.Kind) {
	w.t.Helper()
	if got := provider.KindOf(err); got != kind {
		w.t.Fatalf("%s: kind %q (%v), want %q", what, got, err, kind)
	}
}

// wantGone looks for a machine that should not be there.
func (w *world) wantGone(ref provider.Ref) {
	w.t.Helper()
	_, err := w.Get(w.t.Context(), ref)
	w.wantKind("Get of what is gone", err, provider.KindNotFound)
}

// calls counts the calls of a method.
func (w *world) calls(method string) (n int) {
	for _, c := range w.fake.Calls() {
		if c.Method == method {
			n++
		}
	}
	return n
}

// only gives the one machine that there is.
func (w *world) only() computefake.Instance {
	w.t.Helper()
	all := w.fake.Instances(project)
	if len(all) != 1 {
		w.t.Fatalf("there are %d instances, want 1", len(all))
	}
	return all[0]
}

// foreign puts somebody else's machine under a name.
func (w *world) foreign(zone, name string, labels map[string]string) {
	w.t.Helper()
	_, err := w.client.InsertInstance(w.t.Context(), zone, "", computeclient.InstanceSpec{
		Name: name, MachineType: "e2-small", Image: gcp.DefaultImage, DiskGB: 10, Network: gcp.DefaultNetwork, Labels: labels,
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func newSecrets(o ...client.Object) client.Reader {
	return clientfake.NewClientBuilder().WithObjects(o...).Build()
}

func noKeys(context.Context) (gcp.Keys, error) { return gcp.Keys{}, nil }
