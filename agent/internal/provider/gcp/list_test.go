package gcp_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
	"github.com/shoal-dev/shoal/agent/provider"
)

func (w *world) list() provider.Listing {
	w.t.Helper()
	l, err := w.List(w.t.Context(), identity(""))
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// More than one page, over three zones; strangers' machines beside them.
func TestAllOf501AreListed(t *testing.T) {
	w := newWorld(t, inZones(zoneB, zoneC, zoneD))
	const proxies = 501
	want := map[string]string{}
	for n := range proxies {
		r := request(fmt.Sprintf("uid-%d", n))
		r.Zone, r.RequestID = []string{zoneB, zoneC, zoneD}[n%3], requestID(n+1)
		w.created(r)
		want[r.Name] = r.Zone
	}
	for n := range 20 {
		w.foreign(zoneB, fmt.Sprintf("bank-%d", n), map[string]string{"shoal-managed-by": "shoal-agent", "shoal-hub-uid": "other"})
	}
	l := w.list()
	if !l.Complete || len(l.Instances) != proxies {
		t.Fatalf("%d instances, complete %v; want %d and all", len(l.Instances), l.Complete, proxies)
	}
	for _, i := range l.Instances {
		if zone, ok := want[i.Name]; !ok || zone != i.Zone {
			t.Errorf("%s in %s is not one of ours, or twice there", i.Name, i.Zone)
		}
		delete(want, i.Name)
	}
	if n := w.calls("instances.aggregatedList"); n < 2 {
		t.Errorf("%d pages: the test is about more than one", n)
	}
}

// A zone that cannot be read has not lost its machines, and one of another region is none of our business.
func TestUnreachableZoneIsUnknown(t *testing.T) {
	w := newWorld(t, inZones(zoneB, zoneC))
	first := w.running(request("a"))
	r := request("b")
	r.Zone, r.RequestID = zoneC, requestID(2)
	second := w.running(r)
	w.fake.SetUnreachable(elsewhere, true)
	if l := w.list(); !l.Complete || len(l.Instances) != 2 {
		t.Errorf("list = %+v; a zone of another region is silent, and ours are all here", l)
	}
	w.fake.SetUnreachable(zoneC, true)
	l := w.list()
	if l.Complete || !slices.Equal(l.Missing, []string{"zone " + zoneC}) || len(l.Instances) != 1 || l.Instances[0].Name != first.Name {
		t.Errorf("list = %+v, want one instance, and that zone c is missing", l)
	}
	if _, err := w.Get(t.Context(), second); provider.KindOf(err) != provider.KindUnavailable {
		t.Errorf("Get in a zone that is silent: %v, want that nothing is known", err)
	}
	w.wantKind("Delete in a zone that is silent", w.Delete(t.Context(), second, identity("b"), provider.DeleteOptions{}), provider.KindUnavailable)
	w.fake.SetUnreachable(zoneC, false)
	if l := w.list(); !l.Complete || len(l.Instances) != 2 {
		t.Errorf("list = %+v, want both", l)
	}
}

// A filter that somebody ignores must not give us strangers' machines.
func TestLabelsAreLookedAtAgain(t *testing.T) {
	w := newWorld(t)
	w.running(request("a"))
	for name, labels := range map[string]map[string]string{
		"other-hub":    {"shoal-managed-by": "shoal-agent", "shoal-hub-uid": "other", "shoal-member-uid": "member", "shoal-home-uid": "home"},
		"other-member": {"shoal-managed-by": "shoal-agent", "shoal-hub-uid": "hub", "shoal-member-uid": "other", "shoal-home-uid": "home"},
		"other-home":   {"shoal-managed-by": "shoal-agent", "shoal-hub-uid": "hub", "shoal-member-uid": "member", "shoal-home-uid": "other"},
		"not-managed":  {"shoal-hub-uid": "hub", "shoal-member-uid": "member", "shoal-home-uid": "home"},
	} {
		w.foreign(zoneB, name, labels)
	}
	if l := w.list(); len(l.Instances) != 1 {
		t.Errorf("list = %+v, want ours alone", l.Instances)
	}
	deaf := rig(w, func(c *deafCompute) {})
	l, err := deaf.List(t.Context(), identity(""))
	if err != nil || len(l.Instances) != 1 || l.Instances[0].Identity != identity("a") {
		t.Errorf("list without a filter = %+v, %v; want ours alone", l.Instances, err)
	}
}

func TestListThatFailsTeachesNothing(t *testing.T) {
	w := newWorld(t)
	w.running(request("a"))
	w.fake.Inject(computefake.Fault{Method: "instances.aggregatedList", Status: 503, Reason: "backendError"})
	if l, err := w.List(t.Context(), identity("")); provider.KindOf(err) != provider.KindUnavailable {
		t.Errorf("List = %+v, %v; want an error", l, err)
	}
}

func TestListMayLagBehind(t *testing.T) {
	w := newWorld(t)
	w.fake.SetListLag(30 * time.Second)
	ref := w.running(request("a"))
	if l := w.list(); len(l.Instances) != 0 {
		t.Fatalf("list = %+v: the fake does not lag", l)
	}
	w.want(ref, provider.StateRunning)
	w.clock.Step(time.Minute)
	if l := w.list(); len(l.Instances) != 1 {
		t.Errorf("list = %+v, want the instance", l)
	}
}

func static(s *gcp.Settings) { s.Address = gcp.AddressStatic }

func TestStaticAddressLivesAsLongAsTheMachine(t *testing.T) {
	w := newWorld(t, with(static))
	ref := w.running(request("a"))
	all, err := w.client.ListAddresses(t.Context(), region)
	if err != nil || len(all) != 1 {
		t.Fatalf("addresses = %+v, %v; want one", all, err)
	}
	if host := w.want(ref, provider.StateRunning).Endpoints[0].Host; host != all[0].Address {
		t.Errorf("the machine is at %s, and %s is reserved for it", host, all[0].Address)
	}
	if l := w.list(); len(l.Instances) != 1 {
		t.Errorf("list = %+v, want the machine alone", l)
	}
	w.wantKind("Delete", w.Delete(t.Context(), ref, identity("a"), provider.DeleteOptions{}), "")
	w.clock.Step(time.Minute)
	// The machine is gone, its address is not: that is told in lists until it is.
	l := w.list()
	if len(l.Instances) != 1 || l.Instances[0].Name != ref.Name+"-ip" || l.Instances[0].Zone != zoneB || l.Instances[0].State != provider.StateFailed || l.Instances[0].Identity != identity("a") {
		t.Fatalf("list = %+v, want the address alone, under a name of its own", l)
	}
	w.wantKind("Delete of the rest", w.Delete(t.Context(), provider.Ref{Name: l.Instances[0].Name, Zone: l.Instances[0].Zone}, identity("a"), provider.DeleteOptions{}), "")
	if l := w.list(); len(l.Instances) != 0 || !l.Complete {
		t.Errorf("list = %+v, want nothing", l)
	}
	w.wantGone(ref)
}

// The entry says Ephemeral now, and said Static when the machine was made.
func TestStaticAddressIsReleasedWhateverTheSettingsSay(t *testing.T) {
	w := newWorld(t, with(static))
	ref := w.running(request("a"))
	later := rig(w, func(c *deafCompute) { c.settings.Address = gcp.AddressEphemeral })
	for range 3 {
		w.wantKind("Delete", later.Delete(t.Context(), ref, identity("a"), provider.DeleteOptions{}), "")
		w.clock.Step(time.Minute)
	}
	if all, err := w.client.ListAddresses(t.Context(), region); err != nil || len(all) != 0 {
		t.Errorf("addresses = %+v, %v; want none", all, err)
	}
}

func TestStrangersAddressesAreLeftAlone(t *testing.T) {
	w := newWorld(t, with(static))
	w.reserveForeign(request("a").Name + "-ip")
	_, err := w.Create(t.Context(), request("a"))
	w.wantKind("Create with a foreign address", err, provider.KindAlreadyExists)
	w.wantKind("Delete", w.Delete(t.Context(), provider.Ref{Name: request("a").Name, Zone: zoneB}, identity("a"), provider.DeleteOptions{}), "")
	if l := w.list(); len(l.Instances) != 0 {
		t.Errorf("list = %+v, want nothing", l)
	}
	if all, err := w.client.ListAddresses(t.Context(), region); err != nil || len(all) != 1 {
		t.Errorf("addresses = %+v, %v; want the stranger's", all, err)
	}
}

func TestStaticAddressQuota(t *testing.T) {
	w := newWorld(t, with(static))
	w.fake.SetQuota(project, region, computefake.MetricStaticAddresses, 0)
	_, err := w.Create(t.Context(), request("a"))
	w.wantKind("Create without an address", err, provider.KindQuotaExceeded)
	if n := w.calls("instances.insert"); n != 0 {
		t.Errorf("%d machines were asked for", n)
	}
}

// The reply to the reservation is lost: the next look finds it.
func TestLostReplyReservesNoSecondAddress(t *testing.T) {
	w := newWorld(t, with(static))
	w.fake.LoseReplies("addresses.insert", 1)
	_, err := w.Create(t.Context(), request("a"))
	w.wantKind("Create", err, provider.KindUnavailable)
	w.running(request("a"))
	if all, err := w.client.ListAddresses(t.Context(), region); err != nil || len(all) != 1 {
		t.Errorf("addresses = %+v, %v; want one", all, err)
	}
}

// An agent that was never given the right to look at addresses has none.
func TestEphemeralNeedsNoRightToAddresses(t *testing.T) {
	for _, method := range []string{"addresses.list", "addresses.get"} {
		for address, want := range map[gcp.AddressMode]provider.Kind{gcp.AddressEphemeral: "", gcp.AddressStatic: provider.KindUnauthorized} {
			w := newWorld(t, with(func(s *gcp.Settings) { s.Address = address }))
			w.fake.Inject(computefake.Fault{Method: method, Status: 403, Reason: "forbidden"})
			_, listErr := w.List(t.Context(), identity(""))
			deleteErr := w.Delete(t.Context(), provider.Ref{Name: "shoal-x", Zone: zoneB}, identity("a"), provider.DeleteOptions{})
			if got := provider.KindOf(errors.Join(listErr, deleteErr)); got != want {
				t.Errorf("%s with address %s: %v, %v; want %q", method, address, listErr, deleteErr, want)
			}
		}
	}
}
