package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
	"github.com/shoal-dev/shoal/test/harness"
)

// says fails for every part that the text does not hold.
func says(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("this should say %q: %s", part, text)
		}
	}
}

// tellBadFleets applies fleets that cannot be.
func tellBadFleets(t *testing.T, s *story) {
	for name, test := range map[string]struct {
		spec string
		says []string
	}{
		"NegativeReplicas": {
			"{replicas: -1, template: {spec: {provider: default}}}",
			[]string{"spec.replicas", "greater than or equal to 0"},
		},
		"TemplateAndExternal": {
			"{template: {spec: {provider: default}}, external: {endpoints: [{host: proxy.example.com, port: 3128}]}}",
			[]string{"set exactly one of template", "and external"},
		},
		"TwoCloudInitForms": {
			"{template: {spec: {provider: default, cloudInit: {inline: a, startupScript: b}}}}",
			[]string{"set exactly one of inline, secretRef and startupScript"},
		},
		"UnknownField": {"{replica: 3, template: {spec: {provider: default}}}", []string{"spec.replica"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.Hub.Apply(t.Context(), s.manifest("bad", test.spec))
			if err == nil {
				t.Fatal("the API server took it")
			}
			says(t, harness.Said(err), test.says...)
			if _, err := s.fleet(t.Context(), "bad"); !apierrors.IsNotFound(err) {
				t.Errorf("a fleet that was refused is there: %v", err)
			}
		})
	}
	t.Run("ProviderThatNobodyOffers", func(t *testing.T) {
		s.apply(t, "bad", "{replicas: 2, template: {spec: {provider: gpu}}}")
		var fleet *v1alpha1.ProxyFleet
		harness.Eventually(t, 30*time.Second, "the fleet says that nobody offers its provider", func(ctx context.Context) (err error) {
			if fleet, err = s.fleet(ctx, "bad"); err != nil {
				return err
			}
			c := find(fleet.Status.Conditions, v1alpha1.ConditionAccepted)
			if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonUnknownProvider || fleet.Status.ObservedGeneration != fleet.Generation {
				return fmt.Errorf("it says %q", said(fleet.Status.Conditions))
			}
			return nil
		})
		says(t, find(fleet.Status.Conditions, v1alpha1.ConditionAccepted).Message,
			`"gpu"`, "east offers default", "west offers default", "spec.template.spec.provider")
		var placements v1alpha1.ProxyPlacementList
		if err := s.Hub.Client.List(t.Context(), &placements, client.MatchingLabels{v1alpha1.LabelFleet: "bad"}); err != nil {
			t.Fatal(err)
		}
		if n := len(placements.Items); n != 0 {
			t.Errorf("%d placements were made of a fleet that is not accepted", n)
		}
		// What its message says to do helps.
		s.apply(t, "bad", `{replicas: 0, template: {spec: {provider: default}}}`)
		harness.Eventually(t, 30*time.Second, "with a provider that is offered it is accepted", func(ctx context.Context) error {
			fleet, err := s.fleet(ctx, "bad")
			if err != nil {
				return err
			}
			if c := find(fleet.Status.Conditions, v1alpha1.ConditionAccepted); c.Status != metav1.ConditionTrue || c.ObservedGeneration != fleet.Generation {
				return fmt.Errorf("it says %q", said(fleet.Status.Conditions))
			}
			return nil
		})
		if _, err := s.Hub.Kubectl(t.Context(), "-n", namespace, "delete", "proxyfleet", "bad", "--timeout=30s"); err != nil {
			t.Error(err)
		}
	})
}

// tellBadProxies applies Proxies on a member that cannot be, and changes one in a way that is none.
func tellBadProxies(t *testing.T, s *story) {
	m := s.Members[0]
	for name, test := range map[string]struct {
		spec string
		says []string
	}{
		"ManagedWithoutProvider":  {"{mode: Managed}", []string{"set provider with mode Managed, and only then"}},
		"ExternalWithoutEndpoint": {"{mode: External}", []string{"set endpoint with mode External, and only then"}},
		"TwoCloudInitForms": {
			"{provider: default, cloudInit: {inline: a, secretRef: {name: s, key: k}}}",
			[]string{"set exactly one of inline, secretRef and startupScript"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := m.Apply(t.Context(), fmt.Sprintf(
				"apiVersion: shoal.dev/v1alpha1\nkind: Proxy\nmetadata: {name: bad, namespace: %s}\nspec: %s\n", harness.Namespace, test.spec))
			if err == nil {
				t.Fatal("the API server took it")
			}
			says(t, harness.Said(err), test.says...)
			err = m.Client.Get(t.Context(), client.ObjectKey{Namespace: harness.Namespace, Name: "bad"}, &v1alpha1.Proxy{})
			if !apierrors.IsNotFound(err) {
				t.Errorf("a Proxy that was refused is there: %v", err)
			}
		})
	}
	t.Run("ModeChanged", func(t *testing.T) {
		uid := ""
		for found := range s.proxyUIDs(t, s.fleetUID(t, "solo")) {
			uid = found
		}
		before, m, err := s.findProxy(t.Context(), uid)
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Kubectl(t.Context(), "-n", harness.Namespace, "patch", "proxy", before.Name, "--type", "merge", "--patch",
			`{"spec": {"mode": "External", "provider": null, "endpoint": {"host": "192.0.2.7", "port": 3128}}}`)
		if err == nil {
			t.Fatal("the API server took it")
		}
		says(t, harness.Said(err), "mode never changes; make another Proxy")
		after, _, err := s.findProxy(t.Context(), uid)
		if err != nil || after.Generation != before.Generation {
			t.Errorf("the Proxy has generation %d after the refused change, %d before (%v)", after.Generation, before.Generation, err)
		}
	})
}

// tellBadLeases calls the lease API with what it cannot take. Each answer says what to write instead, and no lease is
// held afterwards.
func tellBadLeases(t *testing.T, s *story) {
	held := s.acquire(t, `{"fleet":"crawl/solo","ttl":"60s"}`)[0]
	defer s.release(t, held)
	const leases, acquire = "/v1/leases", leasev1connect.LeaseServiceAcquireProcedure
	big := fmt.Sprintf(`{"fleet":"crawl/solo","sessionKey":%q}`, strings.Repeat("x", 70<<10))
	for name, test := range map[string]struct {
		path, body string
		status     int
		reason     string
		field      string
		says       []string
	}{
		"UnknownFleet": {
			leases, `{"fleet":"crawl/nobody"}`, http.StatusNotFound, "UNKNOWN_FLEET", "", []string{`"crawl/nobody"`, "write namespace/name"},
		},
		"FleetWithoutNamespace": {
			leases, `{"fleet":"solo"}`, http.StatusBadRequest, "INVALID_REQUEST", "fleet", []string{"write namespace/name", "crawl/news"},
		},
		"TTLOfZero":     {leases, `{"fleet":"crawl/solo","ttl":"0s"}`, http.StatusBadRequest, "INVALID_REQUEST", "ttl", []string{"leave it out", "or write 1s to 30m"}},
		"TTLBeyondMax":  {leases, `{"fleet":"crawl/solo","ttl":"1801s"}`, http.StatusBadRequest, "INVALID_REQUEST", "ttl", []string{"30m", "maxTTL", "write less and renew"}},
		"TTLNoDuration": {leases, `{"fleet":"crawl/solo","ttl":600}`, http.StatusBadRequest, "INVALID_REQUEST", "ttl", []string{`write seconds as a string`, `"600s"`}},
		"CountOfZero":   {leases, `{"fleet":"crawl/solo","count":0}`, http.StatusBadRequest, "INVALID_REQUEST", "count", []string{"leave it out for 1, or write 1 to"}},
		"GarbageJSON":   {leases, `{"fleet":`, http.StatusBadRequest, "INVALID_REQUEST", "", []string{"not JSON"}},
		"NotEvenText":   {leases, "\xff\xfe", http.StatusBadRequest, "INVALID_REQUEST", "", []string{"UTF-8"}},
		"OversizedBody": {leases, big, http.StatusRequestEntityTooLarge, "INVALID_REQUEST", "", []string{"64 KiB", "send less"}},
		"UnknownField":  {leases, `{"fleet":"crawl/solo","tll":"60s"}`, http.StatusBadRequest, "INVALID_REQUEST", "tll", []string{"tll is unknown", "takes", "ttl"}},
		"UnknownNetwork": {
			leases, `{"fleet":"crawl/solo","network":"Carrier"}`, http.StatusBadRequest, "INVALID_REQUEST", "network", []string{"write PodIP, HostPort, VM or External"},
		},
		"UnknownEnum": {
			leases + "/" + held.LeaseID + ":report", `{"outcome":{"kind":"BANNED"}}`, http.StatusBadRequest, "INVALID_REQUEST", "outcome.kind",
			[]string{"BANNED", "write one of OK, BLOCKED, CAPTCHA"},
		},
		"ConnectTTLOfZero":    {acquire, `{"fleet":"crawl/solo","ttl":"0s"}`, http.StatusBadRequest, "", "", []string{"or write 1s to 30m"}},
		"ConnectGarbage":      {acquire, `{"fleet":`, http.StatusBadRequest, "", "", []string{"not JSON"}},
		"ConnectUnknownField": {acquire, `{"fleet":"crawl/solo","tll":"60s"}`, http.StatusBadRequest, "", "", []string{"tll is unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			reply, err := s.crawler.Curl(t.Context(), http.MethodPost, test.path, test.body, "--header", "Content-Type: application/json")
			if err != nil {
				t.Fatal(err)
			}
			var refusal harness.Refusal
			if err := reply.JSON(&refusal); err != nil {
				t.Fatal(err)
			}
			if reply.Status != test.status || refusal.Reason != test.reason {
				t.Errorf("want %d %s: %s", test.status, test.reason, reply)
			}
			says(t, refusal.Message, test.says...)
			if test.field != "" && (len(refusal.Fields) != 1 || refusal.Fields[0].Field != test.field) {
				t.Errorf("fields are %+v, not the one %s", refusal.Fields, test.field)
			}
		})
	}
	t.Run("UnknownToken", func(t *testing.T) {
		reply, err := s.Crawler("shoal_0123456789_0123456789").Curl(t.Context(), http.MethodPost, leases, `{"fleet":"crawl/solo"}`)
		if err != nil {
			t.Fatal(err)
		}
		if reply.Status != http.StatusUnauthorized {
			t.Errorf("want 401: %s", reply)
		}
		says(t, reply.Body, "shoalctl token create", "UNAUTHENTICATED")
	})
	t.Run("NothingHalfApplied", func(t *testing.T) {
		reply, err := s.crawler.Curl(t.Context(), http.MethodGet, "/v1/proxies?fleet=crawl/solo", "")
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Proxies []struct {
				ProxyID       string `json:"proxyId"`
				Ready         bool   `json:"ready"`
				Leased, Slots int
			} `json:"proxies"`
			Total int `json:"total"`
		}
		if err := reply.JSON(&list); err != nil {
			t.Fatal(err)
		}
		if len(list.Proxies) != 1 || list.Total != 1 {
			t.Fatalf("solo has %d proxies, total %d: %s", len(list.Proxies), list.Total, reply)
		}
		if p := list.Proxies[0]; p.ProxyID != held.ProxyID || !p.Ready || p.Leased != 1 || p.Slots != 3 {
			t.Errorf("want the one lease that is held, of 3 slots: %s", reply)
		}
	})
}
