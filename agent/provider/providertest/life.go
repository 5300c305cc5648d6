package providertest

import (
	"fmt"
	"testing"

	"github.com/shoal-dev/shoal/agent/provider"
)

func emptyIsNotFound(t *testing.T, s Subject) {
	nobody := provider.Identity{ProxyUID: "nobody", HubUID: "h", MemberUID: "m", HomeClusterUID: "c"}
	s.gone(t, s.attempt(t, provider.Owner{}, nobody, "x", 1))
	if found := s.list(t, nobody); len(found) != 0 {
		t.Fatalf("List of nothing = %+v", found)
	}
}

func createIsIdempotent(t *testing.T, s Subject) {
	a := s.created(t, "one")
	first := s.get(t, a)
	wantKind(t, "Create again", s.create(t, &a), "")
	next := s.attempt(t, a.Owner, a.Identity, hash, 2)
	wantKind(t, "Create by another attempt", s.create(t, &next), "")
	if second := s.get(t, a); !first.CreatedAt.Equal(second.CreatedAt) {
		t.Errorf("a second Create made another instance: %v, then %v", first.CreatedAt, second.CreatedAt)
	}
	if found := s.list(t, a.Identity); len(found) != 1 {
		t.Errorf("List = %d instances, want 1", len(found))
	}
}

func createdBelongsToOwner(t *testing.T, s Subject) {
	a := s.created(t, "one")
	switch got := s.get(t, a); {
	case got.Identity != a.Identity:
		t.Errorf("identity = %+v, want %+v", got.Identity, a.Identity)
	case got.SpecHash != a.SpecHash:
		t.Errorf("spec hash = %q, want %q", got.SpecHash, a.SpecHash)
	case got.Name != a.Name || got.ProviderID == "" || got.Zone != a.Zone:
		t.Errorf("name %q in zone %q with provider ID %q, want %q in %q with one", got.Name, got.Zone, got.ProviderID, a.Name, a.Zone)
	case got.State != provider.StatePending && got.State != provider.StateRunning:
		t.Errorf("state = %q (%s), want %q or %q", got.State, got.Reason, provider.StatePending, provider.StateRunning)
	case got.CreatedAt.IsZero():
		t.Error("no time of creation")
	}
}

// soonerOrLaterSeen holds that whoever remembers the operation of a request never hears that there is nothing.
func soonerOrLaterSeen(t *testing.T, s Subject) {
	owner, id := s.Owner(t, "one")
	a := s.attempt(t, owner, id, hash, 1)
	wantKind(t, "Create", s.create(t, &a), "")
	if got := s.get(t, a); got.State != provider.StatePending && got.State != provider.StateRunning {
		t.Errorf("state = %q (%s), want %q or %q", got.State, got.Reason, provider.StatePending, provider.StateRunning)
	}
	s.settle(t, a)
	if got := s.get(t, a); got.Identity != id {
		t.Errorf("identity = %+v, want %+v", got.Identity, id)
	}
}

func runningHasEndpoint(t *testing.T, s Subject) {
	a := s.created(t, "one")
	s.Start(t, a.Name)
	got := s.get(t, a)
	if got.State != provider.StateRunning || len(got.Endpoints) != 1 {
		t.Fatalf("state %q with endpoints %v, want %q with one", got.State, got.Endpoints, provider.StateRunning)
	}
	port := a.Settings.Port
	if s.HostPort != 0 {
		port = s.HostPort
	}
	if e := got.Endpoints[0]; e.Network != s.Network || e.Host == "" || e.Port != port {
		t.Errorf("endpoint = %+v, want network %s and port %d", e, s.Network, port)
	}
}

func anotherHubsInstanceIsTheProxys(t *testing.T, s Subject) {
	a := s.created(t, "one")
	a.Identity.HubUID, a.Identity.MemberUID = "another-hub", "another-member"
	a.RequestID = requestID(a.Request, 1)
	wantKind(t, "Create after joining another hub", s.create(t, &a), "")
	s.delete(t, a, provider.DeleteOptions{})
	s.Finish(t, a.Name)
	s.gone(t, a)
}

func foreignIsNeitherTakenNorRemoved(t *testing.T, s Subject) {
	owner, id := s.Owner(t, "one")
	a := s.attempt(t, owner, id, hash, 1)
	s.Foreign(t, a.Zone, a.Name)
	wantKind(t, "Create over a foreign one", s.create(t, &a), provider.KindAlreadyExists)
	wantKind(t, "Delete of a foreign one", s.Provider.Delete(t.Context(), a.ref, id, provider.DeleteOptions{}), provider.KindAlreadyExists)
	if m, ok := s.Provider.(provider.Marker); ok {
		wantKind(t, "Mark of a foreign one", m.Mark(t.Context(), a.ref, id, true), provider.KindAlreadyExists)
	}
	if got := s.get(t, a); got.Identity.SameProxy(id) {
		t.Errorf("identity = %+v: a foreign instance passes for the proxy's", got.Identity)
	}
	if found := s.list(t, id); len(found) != 0 {
		t.Errorf("List = %v; want nothing of ours", found)
	}
}

func deleteUntilNotFound(t *testing.T, s Subject) {
	for _, drained := range []bool{false, true} {
		a := s.created(t, fmt.Sprintf("drained-%v", drained))
		s.Start(t, a.Name)
		o := provider.DeleteOptions{Drained: drained}
		s.delete(t, a, o)
		s.delete(t, a, o)
		if got, err := s.Provider.Get(t.Context(), a.ref); err == nil && (got.State != provider.StateStopping || len(got.Endpoints) != 0) {
			t.Errorf("on its way out it is %q with endpoints %v, want %q without", got.State, got.Endpoints, provider.StateStopping)
		}
		s.Finish(t, a.Name)
		s.gone(t, a)
		s.delete(t, a, o)
	}
}

func deleteOfNothingSucceeds(t *testing.T, s Subject) {
	owner, id := s.Owner(t, "one")
	s.delete(t, s.attempt(t, owner, id, "x", 1), provider.DeleteOptions{})
}

func nameCanBeUsedAgain(t *testing.T, s Subject) {
	a := s.created(t, "one")
	s.delete(t, a, provider.DeleteOptions{})
	s.Finish(t, a.Name)
	s.gone(t, a)
	again := s.attempt(t, a.Owner, a.Identity, hash, 2)
	wantKind(t, "Create after Delete", s.create(t, &again), "")
	s.settle(t, again)
	if got := s.get(t, again); got.State == provider.StateStopping {
		t.Error("the new instance is on its way out")
	}
}

func failedIsThereUntilDeleted(t *testing.T, s Subject) {
	needs(t, s.Fail != nil, "an instance that breaks")
	a := s.created(t, "one")
	s.Start(t, a.Name)
	s.Fail(t, a.Name)
	if got := s.get(t, a); got.State != provider.StateFailed || got.Reason == "" || len(got.Endpoints) != 0 {
		t.Errorf("state %q (%q) with endpoints %v, want %q with a reason and without", got.State, got.Reason, got.Endpoints, provider.StateFailed)
	}
	wantKind(t, "Create over a failed one", s.create(t, &a), "")
	if got := s.get(t, a); got.State != provider.StateFailed {
		t.Errorf("state %q, want %q: a failed instance has to be deleted first", got.State, provider.StateFailed)
	}
	s.delete(t, a, provider.DeleteOptions{})
	s.Finish(t, a.Name)
	s.gone(t, a)
}

func preemptedSaysSo(t *testing.T, s Subject) {
	needs(t, s.Preempt != nil, "preemption")
	a := s.created(t, "one")
	s.Start(t, a.Name)
	s.Preempt(t, a.Name)
	got := s.get(t, a)
	if (got.State != provider.StateStopping && got.State != provider.StateFailed) || !got.Preempted || len(got.Endpoints) != 0 {
		t.Errorf("state %q, preempted %v, endpoints %v; want it to be on its way out for that reason, without endpoints", got.State, got.Preempted, got.Endpoints)
	}
	s.delete(t, a, provider.DeleteOptions{})
	s.Finish(t, a.Name)
	s.gone(t, a)
}

func vanishedIsNotFound(t *testing.T, s Subject) {
	needs(t, s.Vanish != nil, "removal by somebody else")
	a := s.created(t, "one")
	s.Start(t, a.Name)
	s.Vanish(t, a.Name)
	s.gone(t, a)
	if found := s.list(t, a.Identity); len(found) != 0 {
		t.Errorf("List = %v, want nothing", found)
	}
}

func listTellsOwnOnly(t *testing.T, s Subject) {
	a, b := s.created(t, "one"), s.created(t, "two")
	id := a.Identity
	id.HubUID = "another-hub"
	other := s.attempt(t, a.Owner, id, "another-hash", 1)
	if s.HostPort != 0 {
		other.HostPort++
	}
	wantKind(t, "Create for another hub", s.create(t, &other), "")
	s.settle(t, other)
	found := map[string]bool{}
	list := s.list(t, a.Identity)
	for _, i := range list {
		found[i.Name] = true
	}
	if len(list) != 2 || !found[a.Name] || !found[b.Name] {
		t.Errorf("List = %v, want %s and %s", found, a.Name, b.Name)
	}
}
