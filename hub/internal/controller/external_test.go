package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// outside makes a fleet one of proxies that someone else runs, at port 3128 of the hosts. The Secret's name may be empty.
func outside(secret string, hosts ...string) func(*v1alpha1.ProxyFleet) {
	return func(f *v1alpha1.ProxyFleet) {
		f.Spec.Template, f.Spec.Replicas = nil, nil
		f.Spec.External = &v1alpha1.ExternalProxies{}
		for _, host := range hosts {
			f.Spec.External.Endpoints = append(f.Spec.External.Endpoints, v1alpha1.ExternalEndpoint{Host: host, Port: 3128})
		}
		if secret != "" {
			f.Spec.External.CredentialsSecretRef = &v1alpha1.CredentialsSecretRef{Name: secret}
		}
	}
}

func hosts(n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("192.0.2.%d", 10+i))
	}
	return list
}

// secret makes a Secret, or changes what it holds.
func (w *world) secret(name string, data map[string]string) {
	w.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	err := server.Client.Get(w.t.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, s)
	s.Data = map[string][]byte{}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	if err != nil {
		err = server.Client.Create(w.t.Context(), s)
	} else {
		err = server.Client.Update(w.t.Context(), s)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.clock.Step(10 * time.Second) // the hub reads a Secret again after a while only
	for _, m := range w.sims {
		w.inventory.Heard(m.name, w.clock.Now())
	}
}

// onePlace fails if two members probe one endpoint.
func (w *world) onePlace() {
	w.t.Helper()
	seen := map[string]string{}
	for _, m := range w.sims {
		for _, host := range m.probed() {
			if other := seen[host]; other != "" {
				w.t.Fatalf("%s is probed by %s and %s", host, other, m.name)
			}
			seen[host] = m.name
		}
	}
}

func (w *world) probed() map[string][]string {
	all := map[string][]string{}
	for _, m := range w.sims {
		all[strings.TrimSuffix(m.name, "-"+w.ns)] = m.probed()
	}
	return all
}

func TestOutsideIsSpreadAndLeased(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.check = w.onePlace
	w.secret("owner", map[string]string{"username": "fish", "password": "p@ss: w/rd"})
	w.fleet("bought", 0, outside("owner", hosts(7)...), func(f *v1alpha1.ProxyFleet) {
		f.Spec.External.Labels = map[string]string{"tier": "home", "vendor": "acme"}
		f.Spec.External.Endpoints[0].Labels = map[string]string{"tier": "mobile"}
		f.Spec.External.Endpoints[0].Country = "PT"
	})
	w.turns()
	if a, b := len(w.sims[0].probed()), len(w.sims[1].probed()); a+b != 7 || a < 3 || b < 3 {
		t.Fatalf("not spread: %v", w.probed())
	}
	st := w.get("bought").Status
	if st.Ready != 7 || st.Slots != 35 {
		t.Errorf("status: %+v", st)
	}
	for _, kind := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionAvailable} {
		if c := w.condition("bought", kind); c.Status != metav1.ConditionTrue {
			t.Errorf("%s: %+v", kind, c)
		}
	}
	for _, m := range w.sims {
		if len(m.secrets) != 1 || !slices.Contains(slices.Collect(mapValues(m.secrets)), "fish:p@ss: w/rd") {
			t.Errorf("%s was sent %v", m.name, m.secrets)
		}
	}

	// What a lease says of the proxy is the fleet's word, whatever the member reports.
	l := w.acquire("bought")
	if l.Endpoint.Network != "External" || l.Endpoint.Port != 3128 || !slices.Contains(hosts(7), l.Endpoint.Host) {
		t.Errorf("endpoint %+v", l.Endpoint)
	}
	page, err := w.keeper.Do(t.Context(), lease.List{
		Fleet: lease.FleetID(w.ns + "/bought"), Selector: lease.Selector{Labels: map[string]string{"tier": "mobile", "vendor": "acme"}, Country: "PT"},
		PageSize: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	if found := page.(lease.Page).Proxies; len(found) != 1 || found[0].Proxy.Endpoints[0].Host != "192.0.2.10" {
		t.Errorf("by label and country: %+v", found)
	}
	if c, ok := w.owners.Lookup(types.NamespacedName{Namespace: w.ns, Name: "bought"}, l.Endpoint.Host, 3128); !ok || c.Username != "fish" {
		t.Errorf("credentials of the lease's proxy: known %v", ok)
	}
}

func mapValues(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}

// TestOutsideStays checks that endpoints stay where they are, whatever comes and goes around them.
func TestOutsideStays(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.check = w.onePlace
	w.fleet("bought", 0, outside("", hosts(6)...))
	w.turns()
	before, uids := w.probed(), w.uids()

	// A third member gets what is new, and nothing that has a place.
	w.join("south")
	w.turns()
	if diff := cmp.Diff(before["east"], w.probed()["east"]); diff != "" {
		t.Errorf("endpoints moved: %s", diff)
	}
	w.change("bought", outside("", hosts(8)...))
	w.turns()
	if got := w.probed()["south"]; len(got) != 2 {
		t.Errorf("the new member got %v", got)
	}
	for uid := range uids {
		if !w.uids()[uid] {
			t.Errorf("%s was replaced", uid)
		}
	}
	// A removed one goes from its member, and no other.
	w.change("bought", outside("", hosts(8)[1:]...))
	w.turns()
	all := slices.Concat(w.probed()["east"], w.probed()["west"], w.probed()["south"])
	slices.Sort(all)
	want := hosts(8)[1:]
	slices.Sort(want)
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("probed: %s", diff)
	}
	if st := w.get("bought").Status; st.Ready != 7 || st.Replicas != 7 || st.Draining != 0 {
		t.Errorf("status: %+v", st)
	}
}

// TestOutsideDrains removes a leased endpoint: its lease is told and lives to its end, and nothing is granted on it.
func TestOutsideDrains(t *testing.T) {
	w := newWorld(t, "east")
	one := int32(1)
	w.secret("owner", map[string]string{"username": "fish", "password": "secret"})
	w.fleet("bought", 0, outside("owner", hosts(2)...), func(f *v1alpha1.ProxyFleet) { f.Spec.Leasing.MaxLeasesPerProxy = &one })
	w.turns()
	l := w.acquire("bought")
	left := slices.DeleteFunc(hosts(2), func(h string) bool { return h == l.Endpoint.Host })
	w.change("bought", func(f *v1alpha1.ProxyFleet) {
		outside("owner", left...)(f)
		f.Spec.Leasing.MaxLeasesPerProxy = &one
	})
	w.turns()
	if got := w.sims[0].probed(); len(got) != 2 {
		t.Fatalf("the leased proxy did not wait: %v", got)
	}
	found, err := w.keeper.Do(t.Context(), lease.Get{Principal: "crawler", ID: l.ID})
	if err != nil || !found.(lease.Found).Lease.Draining || found.(lease.Found).Lease.Endpoint.Host != l.Endpoint.Host {
		t.Fatalf("the lease: %+v, %v", found, err)
	}
	fleet := types.NamespacedName{Namespace: w.ns, Name: "bought"}
	if c, ok := w.owners.Lookup(fleet, l.Endpoint.Host, 3128); !ok || c.Password != "secret" {
		t.Error("the credentials of a proxy in drain are not known any more")
	}
	w.release(l)
	w.turns()
	if got := w.sims[0].probed(); !slices.Equal(got, left) {
		t.Errorf("after the release: %v", got)
	}
	if _, ok := w.owners.Lookup(fleet, l.Endpoint.Host, 3128); ok {
		t.Error("the credentials of a proxy that is gone are kept")
	}
	// It comes back as another proxy.
	w.change("bought", func(f *v1alpha1.ProxyFleet) { outside("owner", hosts(2)...)(f) })
	w.turns()
	if got := w.sims[0].probed(); !slices.Equal(got, hosts(2)) {
		t.Errorf("after its return: %v", got)
	}
}

// TestOutsideMovesFromALostMember waits before it does, and lets nothing be probed twice for long.
func TestOutsideMovesFromALostMember(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.fleet("bought", 0, outside("", hosts(4)...))
	w.turns()
	east, west := w.sims[0], w.sims[1]
	before := east.probed()
	west.silent = true
	w.pass(100 * time.Second)
	w.turns()
	if got := east.probed(); !slices.Equal(got, before) {
		t.Fatalf("moved too early: %v", got)
	}
	w.pass(40 * time.Second)
	w.turns()
	if got := east.probed(); len(got) != 4 {
		t.Fatalf("not moved: %v", got)
	}
	if st := w.get("bought").Status; st.Ready != 4 {
		t.Errorf("status: %+v", st)
	}
	for range 20 {
		if l := w.acquire("bought"); !slices.Contains(slices.Collect(mapKeys(east.proxies)), string(l.Proxy)) {
			t.Fatalf("leased on the lost member: %+v", l)
		}
	}
	// It comes back, and lets go.
	west.connect(w.hub)
	w.pass(time.Minute)
	w.turns()
	w.onePlace()
	if got := west.probed(); len(got) != 0 {
		t.Errorf("west still probes %v", got)
	}
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// TestOutsideLeavesAMember takes a member out of the fleet: its endpoints drain there first.
func TestOutsideLeavesAMember(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.check = w.onePlace
	w.fleet("bought", 0, outside("", hosts(4)...))
	w.turns()
	var held []lease.Lease
	for range 20 {
		held = append(held, w.acquire("bought"))
	}
	w.change("bought", func(f *v1alpha1.ProxyFleet) {
		zero := int32(0)
		f.Spec.Placement.Members = []v1alpha1.MemberShare{{Name: w.sims[1].name, Weight: &zero}}
	})
	w.turns()
	if got := w.sims[1].probed(); len(got) != 2 {
		t.Fatalf("leased proxies did not wait: %v", got)
	}
	for _, l := range held {
		w.release(l)
	}
	w.turns()
	if got := w.sims[0].probed(); len(got) != 4 {
		t.Errorf("after the releases: %v", w.probed())
	}
	if n := len(w.placementList()); n != 1 {
		t.Errorf("%d placements are left", n)
	}
}

// TestOutsideCredentials changes them, and breaks them: nothing is replaced, and nothing is half-applied.
func TestOutsideCredentials(t *testing.T) {
	w := newWorld(t, "east")
	east := w.sims[0]
	fleet := types.NamespacedName{Namespace: w.ns, Name: "bought"}
	w.secret("owner", map[string]string{"username": "fish", "password": "one"})
	w.fleet("bought", 0, outside("owner", hosts(2)...), func(f *v1alpha1.ProxyFleet) {
		f.Spec.External.Endpoints[1].CredentialsSecretRef = &v1alpha1.CredentialsSecretRef{Name: "other"}
	})
	w.turns()
	if c := w.condition("bought", v1alpha1.ConditionAccepted); c.Reason != v1alpha1.ReasonCredentialsMissing || !strings.Contains(c.Message, "other") {
		t.Errorf("accepted: %+v", c)
	}
	if got := east.probed(); len(got) != 0 {
		t.Errorf("half-applied: %v", got)
	}
	w.secret("other", map[string]string{"username": "crab", "password": ""})
	w.turns()
	uids := w.uids()
	if len(uids) != 2 {
		t.Fatalf("after the Secret came: %v", w.probed())
	}
	lookup := func(host string) string {
		c, ok := w.owners.Lookup(fleet, host, 3128)
		if !ok {
			return "unknown"
		}
		return c.Username + ":" + c.Password
	}
	if a, b := lookup("192.0.2.10"), lookup("192.0.2.11"); a != "fish:one" || b != "crab:" {
		t.Errorf("looked up %q and %q", a, b)
	}

	w.secret("owner", map[string]string{"username": "fish", "password": "two"})
	w.turns()
	if lookup("192.0.2.10") != "fish:two" || !slices.Contains(slices.Collect(mapValues(east.secrets)), "fish:two") {
		t.Errorf("the change did not arrive: %q", lookup("192.0.2.10"))
	}
	if diff := cmp.Diff(uids, w.uids()); diff != "" {
		t.Errorf("proxies were replaced: %s", diff)
	}

	for name, bad := range map[string]struct {
		data   map[string]string
		reason string
		says   string
	}{
		"a": {map[string]string{"username": "fish"}, v1alpha1.ReasonCredentialsMissing, "has no key password"},
		"b": {map[string]string{"username": "fi:sh", "password": "x"}, v1alpha1.ReasonCredentialsInvalid, "colon"},
		"c": {map[string]string{"username": "", "password": "x"}, v1alpha1.ReasonCredentialsInvalid, "empty user name"},
		"d": {map[string]string{"username": "fish", "password": "x\n"}, v1alpha1.ReasonCredentialsInvalid, "ends with a newline"},
	} {
		w.secret("owner", bad.data)
		w.change("bought", func(f *v1alpha1.ProxyFleet) { f.Spec.External.Labels = map[string]string{"try": name} })
		w.turns()
		c := w.condition("bought", v1alpha1.ConditionAccepted)
		if c.Reason != bad.reason || !strings.Contains(c.Message, bad.says) || strings.Contains(c.Message, "fi:sh") {
			t.Errorf("accepted: %+v", c)
		}
		if lookup("192.0.2.10") != "fish:two" {
			t.Errorf("what worked was forgotten: %q", lookup("192.0.2.10"))
		}
		if l := w.placementList()[0].Spec.External.Endpoints[0].Labels; len(l) != 0 {
			t.Errorf("half-applied: labels %v", l)
		}
	}
	if diff := cmp.Diff(uids, w.uids()); diff != "" {
		t.Errorf("proxies were replaced: %s", diff)
	}
	// No object of the hub holds a password.
	for _, pp := range w.placementList() {
		if text := fmt.Sprintf("%+v", pp); strings.Contains(text, "two") || strings.Contains(text, "fish") {
			t.Errorf("a placement holds credentials: %s", text)
		}
	}
}

// TestOutsideRestart restarts the hub: members are told whole, and what cannot be read is not taken from them.
func TestOutsideRestart(t *testing.T) {
	w := newWorld(t, "east")
	w.secret("owner", map[string]string{"username": "fish", "password": "one"})
	w.fleet("bought", 0, outside("owner", hosts(2)...))
	w.turns()
	uids := w.uids()
	items, _, _ := w.dispatcher.Desired(w.sims[0].name)
	w.restart()
	again, _, ready := w.dispatcher.Desired(w.sims[0].name)
	if diff := cmp.Diff(items, again); diff != "" || !ready || len(again) != 1 || len(again[0].Credentials) != 1 {
		t.Errorf("desired after the restart: ready %v, %s", ready, diff)
	}
	if err := server.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "owner"}}); err != nil {
		t.Fatal(err)
	}
	w.restart()
	without, _, _ := w.dispatcher.Desired(w.sims[0].name)
	if len(without) != 1 || len(without[0].Credentials) != 0 || without[0].Hash == items[0].Hash || string(without[0].Spec) != string(items[0].Spec) {
		t.Errorf("desired without the Secret: %+v", without)
	}
	w.sims[0].connect(w.hub)
	w.turns()
	if diff := cmp.Diff(uids, w.uids()); diff != "" {
		t.Errorf("proxies changed: %s", diff)
	}
	if c := w.condition("bought", v1alpha1.ConditionAccepted); c.Reason != v1alpha1.ReasonCredentialsMissing {
		t.Errorf("accepted: %+v", c)
	}
}

// TestFromTemplateToOutsideAndBack changes what a fleet is made of: the old ones drain, the new ones come.
func TestFromTemplateToOutsideAndBack(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.check = w.onePlace
	w.fleet("news", 4)
	w.turns()
	w.change("news", outside("", hosts(3)...))
	w.turns()
	if st := w.get("news").Status; st.Ready != 3 || st.Updated != 3 || st.Draining != 0 || len(w.uids()) != 3 {
		t.Errorf("to outside: %+v", st)
	}
	w.change("news", func(f *v1alpha1.ProxyFleet) {
		four := int32(4)
		f.Spec.External, f.Spec.Replicas = nil, &four
		f.Spec.Template = &v1alpha1.ProxyTemplate{Spec: v1alpha1.ProxyTemplateSpec{Provider: "default"}}
	})
	w.turns()
	if st := w.get("news").Status; st.Ready != 4 || st.Updated != 4 || st.Draining != 0 || len(w.uids()) != 4 {
		t.Errorf("and back: %+v", st)
	}
	for _, pp := range w.placementList() {
		if pp.Spec.External != nil {
			t.Errorf("placement %s is left", pp.Name)
		}
	}
}
