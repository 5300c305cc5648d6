package providertest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func lostReplyIsAskedForAgain(t *testing.T, s Subject) {
	needs(t, s.LoseReply != nil, "a lost answer")
	owner, id := s.Owner(t, "one")
	a := s.attempt(t, owner, id, hash, 1)
	s.LoseReply(t)
	if err := s.create(t, &a); err == nil {
		t.Fatal("the answer was not lost")
	}
	wantKind(t, "Create by the same attempt", s.create(t, &a), "")
	s.settle(t, a)
	if got := s.get(t, a); got.Identity != id {
		t.Errorf("identity = %+v, want %+v", got.Identity, id)
	}
	if found := s.list(t, id); len(found) != 1 {
		t.Errorf("%d instances came of one attempt", len(found))
	}
}

func refusedSaysWhy(t *testing.T, s Subject) {
	needs(t, s.Refuse != nil, "a request that is taken and comes to nothing")
	for _, kind := range []provider.Kind{provider.KindQuotaExceeded, provider.KindCapacityExhausted} {
		owner, id := s.Owner(t, "refused-for-"+map[provider.Kind]string{provider.KindQuotaExceeded: "quota", provider.KindCapacityExhausted: "capacity"}[kind])
		a := s.attempt(t, owner, id, hash, 1)
		s.Refuse(t, kind)
		wantKind(t, "Create that is taken", s.create(t, &a), "")
		got := s.get(t, a)
		if got.State != provider.StateRefused || provider.KindOf(got.Failure) != kind {
			t.Errorf("state %q for %v, want %q for %s", got.State, got.Failure, provider.StateRefused, kind)
		}
		if again := s.get(t, a); again.State != provider.StateRefused {
			t.Errorf("asked again it is %q: a crash in between would forget why", again.State)
		}
		if found := s.list(t, id); len(found) != 0 {
			t.Errorf("List = %v; there is no instance", found)
		}
		s.delete(t, a, provider.DeleteOptions{})
	}
}

func refusedIsTriedAgain(t *testing.T, s Subject) {
	needs(t, s.Refuse != nil, "a request that is taken and comes to nothing")
	owner, id := s.Owner(t, "one")
	a := s.attempt(t, owner, id, hash, 1)
	s.Refuse(t, provider.KindCapacityExhausted)
	wantKind(t, "Create that is taken", s.create(t, &a), "")
	if got := s.get(t, a); got.State != provider.StateRefused {
		t.Fatalf("state %q, want %q", got.State, provider.StateRefused)
	}
	// The same attempt, whose outcome a crash may have made us forget, is still the one that failed.
	wantKind(t, "Create by the same attempt", s.create(t, &a), "")
	if got := s.get(t, a); got.State != provider.StateRefused {
		t.Fatalf("state %q by the same attempt, want %q", got.State, provider.StateRefused)
	}
	next := s.attempt(t, owner, id, hash, 2)
	wantKind(t, "Create by the next attempt", s.create(t, &next), "")
	s.settle(t, next)
	if got := s.get(t, next); got.State != provider.StatePending && got.State != provider.StateRunning {
		t.Errorf("state %q by the next attempt, want %q or %q", got.State, provider.StatePending, provider.StateRunning)
	}
	if found := s.list(t, id); len(found) != 1 {
		t.Errorf("%d instances came of two attempts, of which one failed", len(found))
	}
}

func zonesAreSteadyAndSpread(t *testing.T, s Subject) {
	zoned, ok := s.Provider.(provider.Zoned)
	needs(t, ok, "a choice of zones")
	settings := s.Settings
	all, err := zoned.Zones(settings, "uid")
	if err != nil || len(all) < 2 {
		t.Fatalf("Zones = %v, %v; want the subject to offer two at least", all, err)
	}
	const proxies = 300
	first := map[string]int{}
	for i := range proxies {
		uid := fmt.Sprintf("4b1d6d0c-0c1a-4a53-9a53-%012d", i)
		zones, err := zoned.Zones(settings, uid)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := zoned.Zones(settings, uid); err != nil || !slices.Equal(zones, again) {
			t.Fatalf("Zones of %s = %v, then %v (%v)", uid, zones, again, err)
		}
		if a, b := slices.Sorted(slices.Values(zones)), slices.Sorted(slices.Values(all)); !slices.Equal(a, b) {
			t.Fatalf("Zones of %s = %v, want all of %v", uid, zones, all)
		}
		first[zones[0]]++
	}
	for _, zone := range all {
		if got, fair := first[zone], proxies/len(all); got < fair/2 || got > fair*2 {
			t.Errorf("%d of %d proxies go to zone %s first, want about %d", got, proxies, zone, fair)
		}
	}
	settings.Placement = &v1alpha1.InstancePlacement{Zone: all[1]}
	if zones, err := zoned.Zones(settings, "uid"); err != nil || !slices.Equal(zones, all[1:2]) {
		t.Errorf("Zones where one is asked for = %v, %v; want %v", zones, err, all[1:2])
	}
	settings.Placement = &v1alpha1.InstancePlacement{Zone: "nowhere-1-x"}
	zones, err := zoned.Zones(settings, "uid")
	if len(zones) != 0 {
		t.Errorf("Zones where one that is not offered is asked for = %v", zones)
	}
	wantKind(t, "Zones where one that is not offered is asked for", err, provider.KindInvalidSpec)
}

func unreachableZoneIsNotEmpty(t *testing.T, s Subject) {
	needs(t, s.Dark != nil, "a zone out of sight")
	a := s.created(t, "one")
	s.Start(t, a.Name)
	s.Dark(t, a.Zone)
	list, err := s.Provider.List(t.Context(), a.Identity)
	if err == nil && (list.Complete || len(list.Missing) == 0) {
		t.Errorf("List with a zone out of sight: complete %v, missing %v; want it to say what is missing", list.Complete, list.Missing)
	}
	if got, err := s.Provider.Get(t.Context(), a.ref); provider.IsNotFound(err) {
		t.Errorf("Get in a zone out of sight = %v: what is not seen is not gone", err)
	} else if err == nil && got.State == provider.StateRefused {
		t.Errorf("Get in a zone out of sight = %q", got.State)
	}
	s.Dark(t)
	if found := s.list(t, a.Identity); len(found) != 1 {
		t.Errorf("List = %v, want the one that was there all the time", found)
	}
}

func markIsIdempotent(t *testing.T, s Subject) {
	m, ok := s.Provider.(provider.Marker)
	needs(t, ok, "a mark")
	a := s.created(t, "one")
	s.Start(t, a.Name)
	before := s.get(t, a)
	for _, busy := range []bool{false, true, true, false, false, true} {
		wantKind(t, "Mark", m.Mark(t.Context(), a.ref, a.Identity, busy), "")
		if s.Busy != nil && s.Busy(t, a.Name) != busy {
			t.Fatalf("busy = %v after it was marked %v", !busy, busy)
		}
	}
	after := s.get(t, a)
	if after.State != before.State || after.Identity != before.Identity || after.SpecHash != before.SpecHash || !slices.Equal(after.Endpoints, before.Endpoints) {
		t.Errorf("a mark changed the instance from %+v to %+v", before, after)
	}
	s.delete(t, a, provider.DeleteOptions{})
	s.Finish(t, a.Name)
	s.gone(t, a)
}

func markOfNothingIsNotFound(t *testing.T, s Subject) {
	m, ok := s.Provider.(provider.Marker)
	needs(t, ok, "a mark")
	owner, id := s.Owner(t, "one")
	a := s.attempt(t, owner, id, hash, 1)
	wantKind(t, "Mark of nothing", m.Mark(t.Context(), a.ref, id, true), provider.KindNotFound)
}
