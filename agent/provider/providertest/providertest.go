package providertest

import (
	"fmt"
	"testing"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Subject is a provider under test, empty at first, and hands to do what a provider's world does by itself. Hands that
// are nil are for what cannot happen with the provider: the tests that need them are skipped.
type Subject struct {
	// Provider is the provider under test. Where it is [provider.Zoned] instances are asked for in the zones it offers, and
	// where it is [provider.Marker] they are marked.
	Provider provider.Provider
	// Settings are what instances are asked for with; port 3128 where it names none.
	Settings v1alpha1.ProxySettings
	// Owner makes a Proxy that can own an instance, and gives its identity.
	Owner func(t *testing.T, name string) (provider.Owner, provider.Identity)
	// Settle makes an instance that was asked for be seen; nil where it is from the beginning.
	Settle func(t *testing.T, name string)
	// Start makes a created instance run.
	Start func(t *testing.T, name string)
	// Finish makes an instance whose deletion was asked for be gone. It does nothing where that happens by itself.
	Finish func(t *testing.T, name string)
	// Foreign puts something that is not ours under an instance's name.
	Foreign func(t *testing.T, zone, name string)
	// Fail makes an instance break, never to run again.
	Fail func(t *testing.T, name string)
	// Vanish removes an instance behind the provider's back.
	Vanish func(t *testing.T, name string)
	// Preempt makes the provider take a running instance back.
	Preempt func(t *testing.T, name string)
	// Refuse makes the next request be taken, and then come to nothing by an error of a kind.
	Refuse func(t *testing.T, kind provider.Kind)
	// LoseReply makes the next request have its effect and be answered by nothing.
	LoseReply func(t *testing.T)
	// Dark puts zones out of sight, and no others.
	Dark func(t *testing.T, zones ...string)
	// Busy says whether the world sees an instance marked as leased.
	Busy func(t *testing.T, name string) bool
	// HostPort is the port to ask for; 0 where the provider exposes none.
	HostPort int32
	// Network is the network of the endpoints.
	Network v1alpha1.Network
}

// Run runs the suite. Each test gets a subject of its own.
func Run(t *testing.T, fresh func(t *testing.T) Subject) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Subject){
		"AnotherHubsInstanceIsTheProxys":  anotherHubsInstanceIsTheProxys,
		"CreateIsIdempotent":              createIsIdempotent,
		"CreatedBelongsToOwner":           createdBelongsToOwner,
		"DeleteOfNothingSucceeds":         deleteOfNothingSucceeds,
		"DeleteUntilNotFound":             deleteUntilNotFound,
		"EmptyIsNotFound":                 emptyIsNotFound,
		"FailedIsThereUntilDeleted":       failedIsThereUntilDeleted,
		"ForeignIsNeitherTakenNorRemoved": foreignIsNeitherTakenNorRemoved,
		"ListTellsOwnOnly":                listTellsOwnOnly,
		"LostReplyIsAskedForAgain":        lostReplyIsAskedForAgain,
		"MarkIsIdempotent":                markIsIdempotent,
		"MarkOfNothingIsNotFound":         markOfNothingIsNotFound,
		"NameCanBeUsedAgain":              nameCanBeUsedAgain,
		"PreemptedSaysSo":                 preemptedSaysSo,
		"RefusedSaysWhy":                  refusedSaysWhy,
		"RefusedIsTriedAgain":             refusedIsTriedAgain,
		"RunningHasEndpoint":              runningHasEndpoint,
		"SoonerOrLaterSeen":               soonerOrLaterSeen,
		"UnreachableZoneIsNotEmpty":       unreachableZoneIsNotEmpty,
		"VanishedIsNotFound":              vanishedIsNotFound,
		"ZonesAreSteadyAndSpread":         zonesAreSteadyAndSpread,
	} {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

// hash is the hash of the spec that instances are asked for with, where a test does not care.
const hash = "0123456789abcdef"

// attempt is a request, and all that has been learnt by making it.
type attempt struct {
	provider.Request
	ref provider.Ref
}

// attempt makes the n-th request for an instance of a Proxy.
func (s Subject) attempt(t *testing.T, owner provider.Owner, id provider.Identity, hash string, n int) attempt {
	t.Helper()
	settings := s.Settings
	if settings.Port == 0 {
		settings.Port = 3128
	}
	r := provider.Request{
		Name: provider.InstanceName(id.ProxyUID, hash), Identity: id, Owner: owner, SpecHash: hash,
		Settings: settings, HostPort: s.HostPort, Config: "http_port 3128\n",
	}
	if zoned, ok := s.Provider.(provider.Zoned); ok {
		zones, err := zoned.Zones(settings, id.ProxyUID)
		if err != nil || len(zones) == 0 {
			t.Fatalf("Zones = %v, %v; want some", zones, err)
		}
		r.Zone = zones[0]
	}
	r.RequestID = requestID(r, n)
	return attempt{r, provider.Ref{Name: r.Name, Zone: r.Zone}}
}

// requestID is a UUID of its own for every instance, zone and attempt, and the same whenever it is asked for.
func requestID(r provider.Request, n int) string {
	name := provider.InstanceName(r.Identity.ProxyUID, fmt.Sprint(r.SpecHash, r.Zone, r.Identity.HubUID, n))
	digits := fmt.Sprintf("%x", name[len("shoal-"):])
	return fmt.Sprintf("%s-%s-4%s-8%s-%s", digits[:8], digits[8:12], digits[12:15], digits[15:18], digits[18:30])
}

// created gives an instance that was asked for and can be seen.
func (s Subject) created(t *testing.T, name string) attempt {
	t.Helper()
	owner, id := s.Owner(t, name)
	a := s.attempt(t, owner, id, hash, 1)
	if err := s.create(t, &a); err != nil {
		t.Fatalf("Create: %v", err)
	}
	s.settle(t, a)
	return a
}

// create makes a request, and keeps what the answer says.
func (s Subject) create(t *testing.T, a *attempt) error {
	t.Helper()
	receipt, err := s.Provider.Create(t.Context(), a.Request)
	if err == nil {
		a.ref.Operation = receipt.Operation
	}
	return err
}

func (s Subject) settle(t *testing.T, a attempt) {
	t.Helper()
	if s.Settle != nil {
		s.Settle(t, a.Name)
	}
}

func (s Subject) get(t *testing.T, a attempt) provider.Instance {
	t.Helper()
	got, err := s.Provider.Get(t.Context(), a.ref)
	wantKind(t, "Get", err, "")
	return got
}

func (s Subject) gone(t *testing.T, a attempt) {
	t.Helper()
	_, err := s.Provider.Get(t.Context(), a.ref)
	wantKind(t, "Get of what is gone", err, provider.KindNotFound)
}

func (s Subject) delete(t *testing.T, a attempt, o provider.DeleteOptions) {
	t.Helper()
	wantKind(t, "Delete", s.Provider.Delete(t.Context(), a.ref, a.Identity, o), "")
}

// list gives the instances of an identity, and wants all to have been seen.
func (s Subject) list(t *testing.T, id provider.Identity) []provider.Instance {
	t.Helper()
	list, err := s.Provider.List(t.Context(), provider.Identity{HubUID: id.HubUID, MemberUID: id.MemberUID, HomeClusterUID: id.HomeClusterUID})
	if err != nil || !list.Complete || len(list.Missing) != 0 {
		t.Fatalf("List: complete %v, missing %v, %v; want all", list.Complete, list.Missing, err)
	}
	return list.Instances
}

func wantKind(t *testing.T, what string, err error, want provider.Kind) {
	t.Helper()
	if got := provider.KindOf(err); got != want {
		t.Fatalf("%s: kind %q (%v), want %q", what, got, err, want)
	}
}

// needs skips a test where the subject's world has no such hand.
func needs(t *testing.T, there bool, what string) {
	t.Helper()
	if !there {
		t.Skipf("%s cannot happen with this provider", what)
	}
}
