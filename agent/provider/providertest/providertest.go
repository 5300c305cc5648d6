// Package providertest is the suite that every provider passes: what package provider says in prose, as tests.
package providertest

import (
	"fmt"
	"testing"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Subject is a provider under test, empty at first, and hands to do what a provider's world does by itself.
type Subject struct {
	// Provider is the provider under test.
	Provider provider.Provider
	// Owner makes a Proxy that can own an instance, and gives its identity.
	Owner func(t *testing.T, name string) (provider.Owner, provider.Identity)
	// Start makes a created instance run.
	Start func(t *testing.T, name string)
	// Finish makes an instance whose deletion was asked for be gone. It does nothing where that happens by itself.
	Finish func(t *testing.T, name string)
	// Foreign puts something that is not ours under an instance's name.
	Foreign func(t *testing.T, name string)
	// HostPort is the port to ask for; 0 where the provider exposes none.
	HostPort int32
	// Network is the network of the endpoints.
	Network v1alpha1.Network
}

// Run runs the suite. Each test gets a subject of its own.
func Run(t *testing.T, fresh func(t *testing.T) Subject) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Subject){
		"CreateIsIdempotent":              createIsIdempotent,
		"EmptyIsNotFound":                 emptyIsNotFound,
		"RunningHasEndpoint":              runningHasEndpoint,
		"CreatedBelongsToOwner":           createdBelongsToOwner,
		"AnotherHubsInstanceIsTheProxys":  anotherHubsInstanceIsTheProxys,
		"ForeignIsNeitherTakenNorRemoved": foreignIsNeitherTakenNorRemoved,
		"DeleteUntilNotFound":             deleteUntilNotFound,
		"DeleteOfNothingSucceeds":         deleteOfNothingSucceeds,
		"NameCanBeUsedAgain":              nameCanBeUsedAgain,
		"ListTellsOwnOnly":                listTellsOwnOnly,
	} {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

// Request makes a request for an instance of a Proxy.
func (s Subject) request(owner provider.Owner, id provider.Identity, hash string) provider.Request {
	return provider.Request{
		Name: provider.InstanceName(id.ProxyUID, hash), Identity: id, Owner: owner, SpecHash: hash,
		Settings: v1alpha1.ProxySettings{Port: 3128}, HostPort: s.HostPort, Config: "http_port 3128\n",
	}
}

func (s Subject) created(t *testing.T, name string) provider.Request {
	t.Helper()
	owner, id := s.Owner(t, name)
	r := s.request(owner, id, "0123456789abcdef")
	if err := s.create(t, r); err != nil {
		t.Fatalf("Create: %v", err)
	}
	return r
}

func (s Subject) create(t *testing.T, r provider.Request) error {
	t.Helper()
	_, err := s.Provider.Create(t.Context(), r)
	return err
}

func wantKind(t *testing.T, what string, err error, want provider.Kind) {
	t.Helper()
	if got := provider.KindOf(err); got != want {
		t.Fatalf("%s: kind %q (%v), want %q", what, got, err, want)
	}
}

func emptyIsNotFound(t *testing.T, s Subject) {
	_, err := s.Provider.Get(t.Context(), provider.Ref{Name: provider.InstanceName("nobody", "x")})
	wantKind(t, "Get of nothing", err, provider.KindNotFound)
	list, err := s.Provider.List(t.Context(), provider.Identity{HubUID: "h", MemberUID: "m", HomeClusterUID: "c"})
	if err != nil || !list.Complete || len(list.Instances) != 0 {
		t.Fatalf("List of nothing = %+v, %v; want nothing, complete", list, err)
	}
}

func createIsIdempotent(t *testing.T, s Subject) {
	r := s.created(t, "one")
	first, err := s.Provider.Get(t.Context(), provider.Ref{Name: r.Name})
	wantKind(t, "Get", err, "")
	wantKind(t, "Create again", s.create(t, r), "")
	second, err := s.Provider.Get(t.Context(), provider.Ref{Name: r.Name})
	wantKind(t, "Get", err, "")
	if !first.CreatedAt.Equal(second.CreatedAt) {
		t.Errorf("a second Create made another instance: %v, then %v", first.CreatedAt, second.CreatedAt)
	}
	list, err := s.Provider.List(t.Context(), r.Identity)
	if err != nil || len(list.Instances) != 1 {
		t.Errorf("List = %d instances (%v), want 1", len(list.Instances), err)
	}
}

func createdBelongsToOwner(t *testing.T, s Subject) {
	r := s.created(t, "one")
	got, err := s.Provider.Get(t.Context(), provider.Ref{Name: r.Name})
	wantKind(t, "Get", err, "")
	switch {
	case got.Identity != r.Identity:
		t.Errorf("identity = %+v, want %+v", got.Identity, r.Identity)
	case got.SpecHash != r.SpecHash:
		t.Errorf("spec hash = %q, want %q", got.SpecHash, r.SpecHash)
	case got.Name != r.Name || got.ProviderID == "":
		t.Errorf("name = %q and provider ID = %q, want %q and one", got.Name, got.ProviderID, r.Name)
	case got.State != provider.StatePending && got.State != provider.StateRunning:
		t.Errorf("state = %q (%s), want %q or %q", got.State, got.Reason, provider.StatePending, provider.StateRunning)
	case got.CreatedAt.IsZero():
		t.Error("no time of creation")
	}
}

func runningHasEndpoint(t *testing.T, s Subject) {
	r := s.created(t, "one")
	s.Start(t, r.Name)
	got, err := s.Provider.Get(t.Context(), provider.Ref{Name: r.Name})
	wantKind(t, "Get", err, "")
	if got.State != provider.StateRunning || len(got.Endpoints) != 1 {
		t.Fatalf("state %q with endpoints %v, want %q with one", got.State, got.Endpoints, provider.StateRunning)
	}
	port := r.Settings.Port
	if s.HostPort != 0 {
		port = s.HostPort
	}
	if e := got.Endpoints[0]; e.Network != s.Network || e.Host == "" || e.Port != port {
		t.Errorf("endpoint = %+v, want network %s and port %d", e, s.Network, port)
	}
}

func anotherHubsInstanceIsTheProxys(t *testing.T, s Subject) {
	r := s.created(t, "one")
	r.Identity.HubUID, r.Identity.MemberUID = "another-hub", "another-member"
	wantKind(t, "Create after joining another hub", s.create(t, r), "")
	wantKind(t, "Delete after joining another hub", s.Provider.Delete(t.Context(), provider.Ref{Name: r.Name}, r.Identity, provider.DeleteOptions{}), "")
	s.Finish(t, r.Name)
	_, err := s.Provider.Get(t.Context(), provider.Ref{Name: r.Name})
	wantKind(t, "Get after Delete", err, provider.KindNotFound)
}

func foreignIsNeitherTakenNorRemoved(t *testing.T, s Subject) {
	owner, id := s.Owner(t, "one")
	r := s.request(owner, id, "0123456789abcdef")
	s.Foreign(t, r.Name)
	wantKind(t, "Create over a foreign one", s.create(t, r), provider.KindAlreadyExists)
	wantKind(t, "Delete of a foreign one", s.Provider.Delete(t.Context(), provider.Ref{Name: r.Name}, id, provider.DeleteOptions{}), provider.KindAlreadyExists)
	got, err := s.Provider.Get(t.Context(), provider.Ref{Name: r.Name})
	wantKind(t, "Get of a foreign one", err, "")
	if got.Identity.SameProxy(id) {
		t.Errorf("identity = %+v: a foreign instance passes for the proxy's", got.Identity)
	}
	if list, err := s.Provider.List(t.Context(), id); err != nil || len(list.Instances) != 0 {
		t.Errorf("List = %v, %v; want nothing of ours", list, err)
	}
}

func deleteUntilNotFound(t *testing.T, s Subject) {
	for _, drained := range []bool{false, true} {
		r := s.created(t, fmt.Sprintf("drained-%v", drained))
		s.Start(t, r.Name)
		o := provider.DeleteOptions{Drained: drained}
		wantKind(t, "Delete", s.Provider.Delete(t.Context(), provider.Ref{Name: r.Name}, r.Identity, o), "")
		wantKind(t, "Delete again", s.Provider.Delete(t.Context(), provider.Ref{Name: r.Name}, r.Identity, o), "")
		if got, err := s.Provider.Get(t.Context(), provider.Ref{Name: r.Name}); err == nil && (got.State != provider.StateStopping || len(got.Endpoints) != 0) {
			t.Errorf("on its way out it is %q with endpoints %v, want %q without", got.State, got.Endpoints, provider.StateStopping)
		}
		s.Finish(t, r.Name)
		_, err := s.Provider.Get(t.Context(), provider.Ref{Name: r.Name})
		wantKind(t, "Get after Delete", err, provider.KindNotFound)
		wantKind(t, "Delete of what is gone", s.Provider.Delete(t.Context(), provider.Ref{Name: r.Name}, r.Identity, o), "")
	}
}

func deleteOfNothingSucceeds(t *testing.T, s Subject) {
	_, id := s.Owner(t, "one")
	wantKind(t, "Delete of nothing", s.Provider.Delete(t.Context(), provider.Ref{Name: provider.InstanceName(id.ProxyUID, "x")}, id, provider.DeleteOptions{}), "")
}

func nameCanBeUsedAgain(t *testing.T, s Subject) {
	r := s.created(t, "one")
	wantKind(t, "Delete", s.Provider.Delete(t.Context(), provider.Ref{Name: r.Name}, r.Identity, provider.DeleteOptions{}), "")
	s.Finish(t, r.Name)
	wantKind(t, "Create after Delete", s.create(t, r), "")
	got, err := s.Provider.Get(t.Context(), provider.Ref{Name: r.Name})
	wantKind(t, "Get", err, "")
	if got.State == provider.StateStopping {
		t.Error("the new instance is on its way out")
	}
}

func listTellsOwnOnly(t *testing.T, s Subject) {
	a, b := s.created(t, "one"), s.created(t, "two")
	other := s.request(provider.Owner{Namespace: a.Owner.Namespace, Name: a.Owner.Name, UID: a.Owner.UID}, a.Identity, "another-hash")
	other.Identity.HubUID = "another-hub"
	if s.HostPort != 0 {
		other.HostPort++
	}
	wantKind(t, "Create for another hub", s.create(t, other), "")
	list, err := s.Provider.List(t.Context(), provider.Identity{
		HubUID: a.Identity.HubUID, MemberUID: a.Identity.MemberUID, HomeClusterUID: a.Identity.HomeClusterUID,
	})
	if err != nil || !list.Complete {
		t.Fatalf("List: complete %v, %v", list.Complete, err)
	}
	found := map[string]bool{}
	for _, i := range list.Instances {
		found[i.Name] = true
	}
	if len(list.Instances) != 2 || !found[a.Name] || !found[b.Name] {
		t.Errorf("List = %v, want %s and %s", found, a.Name, b.Name)
	}
}
