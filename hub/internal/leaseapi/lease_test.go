package leaseapi_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// TestNetworks checks the addresses that a lease is given by, for each way to reach a proxy.
func TestNetworks(t *testing.T) {
	tests := map[string]struct {
		reason  string
		network string
		server  string
		host    string
		exit    string
	}{
		"Unset":    {"the first that the proxy has", "", "http://198.51.100.7:21000", "198.51.100.7", "203.0.113.9"},
		"HostPort": {"an IPv4 node address", "HostPort", "http://198.51.100.7:21000", "198.51.100.7", "203.0.113.9"},
		"PodIP":    {"IPv6 goes into brackets in URLs, and nowhere else", "PodIP", "http://[2001:db8:1::1]:3128", "2001:db8:1::1", "203.0.113.9"},
		"VM":       {"and an endpoint with TLS is said to be one", "VM", "https://proxy.example:443", "proxy.example", "203.0.113.9"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, dials{})
			h.news(t, 1, 1)
			p := newsProxy(0)
			p.Endpoints = append(p.Endpoints, lease.Endpoint{Network: "VM", Host: "proxy.example", Port: 443, TLS: true})
			h.do(t, lease.UpsertProxy{Proxy: p})
			l := must(t, h.protocols()["REST"], newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Network: test.network}, &leasev1.AcquireResponse{}).Leases[0]
			scheme, address := test.server[:len("http")], test.server[len("http://"):]
			if test.server[4] == 's' {
				scheme, address = "https", test.server[len("https://"):]
			}
			if l.Server != test.server || l.Host != test.host || l.Exit != test.exit ||
				l.ProxyUrl != scheme+"://"+l.LeaseId+":"+l.Password+"@"+address || l.Playwright.Server != test.server {
				t.Errorf("got server %s host %s url %s (%s)", l.Server, l.Host, l.ProxyUrl, test.reason)
			}
		})
	}
}

// TestWithoutExit: an exit that was not measured yet is empty, not invented.
func TestWithoutExit(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 0, 1)
	p := newsProxy(0)
	p.Exits = []netip.Addr{}
	h.do(t, lease.UpsertProxy{Proxy: p})
	l := must(t, h.protocols()["REST"], newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{}).Leases[0]
	if l.Exit != "" || len(l.Exits) != 0 {
		t.Errorf("exit = %q of %q, want none", l.Exit, l.Exits)
	}
}

// TestCount checks that each lease of one call is on a proxy of its own, and that a repeated call shows those that live.
func TestCount(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 4, 2)
	rest := h.protocols()["REST"]
	request := &leasev1.AcquireRequest{Fleet: "crawl/news", Count: proto.Int32(3), RequestId: "three"}
	leases := must(t, rest, newsToken, request, &leasev1.AcquireResponse{}).Leases
	var proxies []string
	for _, l := range leases {
		proxies = append(proxies, l.ProxyId)
	}
	slices.Sort(proxies)
	if len(slices.Compact(proxies)) != 3 {
		t.Fatalf("the leases are on %q, want three proxies", proxies)
	}
	must(t, rest, newsToken, &leasev1.ReleaseRequest{LeaseId: leases[1].LeaseId}, &leasev1.ReleaseResponse{})
	again := must(t, rest, newsToken, request, &leasev1.AcquireResponse{}).Leases
	if len(again) != 2 || again[0].LeaseId != leases[0].LeaseId || again[1].LeaseId != leases[2].LeaseId {
		t.Errorf("got %d leases, want the two that live: an ended one has no use and no credentials", len(again))
	}
}

// TestSession checks that a session stays on its proxy, and says so when it had to move.
func TestSession(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 3, 2)
	rest := h.protocols()["REST"]
	request := &leasev1.AcquireRequest{Fleet: "crawl/news", SessionKey: "cart-1", AllowMove: true}
	first := must(t, rest, newsToken, request, &leasev1.AcquireResponse{}).Leases[0]
	second := must(t, rest, newsToken, request, &leasev1.AcquireResponse{}).Leases[0]
	if first.ProxyId != second.ProxyId || second.Moved {
		t.Errorf("the session went from %s to %s", first.ProxyId, second.ProxyId)
	}
	h.do(t, lease.RemoveProxy{UID: lease.ProxyUID(first.ProxyId)})
	third := must(t, rest, newsToken, request, &leasev1.AcquireResponse{}).Leases[0]
	if third.ProxyId == first.ProxyId || !third.Moved {
		t.Errorf("got proxy %s moved %v, want another one and moved", third.ProxyId, third.Moved)
	}
}

// TestReleaseOfTheForgotten: releasing twice is fine, however long ago the first time was.
func TestReleaseOfTheForgotten(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 1, 1)
	rest := h.protocols()["REST"]
	l := must(t, rest, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{}).Leases[0]
	h.clock.Step(24 * time.Hour)
	must(t, rest, newsToken, &leasev1.ReleaseRequest{LeaseId: l.LeaseId}, &leasev1.ReleaseResponse{})
}

// TestLostFleet: a token that lost a fleet keeps no lease of it alive and sees no password of it.
func TestLostFleet(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 1, 1)
	granted, err := h.keeper.Acquire(t.Context(), lease.Acquire{Principal: "token:weather", Fleet: "crawl/news"})
	if err != nil {
		t.Fatal(err)
	}
	id := string(granted.Leases[0].ID)
	rest := h.protocols()["REST"]
	for _, request := range []proto.Message{&leasev1.GetLeaseRequest{LeaseId: id}, &leasev1.RenewRequest{LeaseId: id}} {
		got := rest.call(t, weatherToken, request, &leasev1.GetLeaseResponse{})
		if got == nil || got.Refusal.GetReason() != leasev1.Refusal_UNKNOWN_FLEET {
			t.Errorf("%T: got %+v, want UNKNOWN_FLEET", request, got)
		}
	}
	must(t, rest, weatherToken, &leasev1.ReleaseRequest{LeaseId: id}, &leasev1.ReleaseResponse{})
}

// TestPages pages through a fleet while it changes: nothing that stays is skipped or shown twice.
func TestPages(t *testing.T) {
	for name, selector := range map[string]*leasev1.Selector{"All": nil, "Selected": {Labels: map[string]string{"tier": "fast"}, Country: "us"}} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, dials{})
			h.news(t, 20, 1)
			want, step := 20, 1
			if selector != nil {
				want, step = 10, 2
			}
			rest := h.protocols()["REST"]
			request := &leasev1.ListProxiesRequest{Fleet: "crawl/news", Selector: selector, PageSize: 3}
			var got []string
			for {
				page := must(t, rest, newsToken, request, &leasev1.ListProxiesResponse{})
				if int(page.Total) != want {
					t.Errorf("total = %d, want %d on every page", page.Total, want)
				}
				for _, p := range page.Proxies {
					got = append(got, p.ProxyId)
				}
				if page.NextPageToken == "" {
					break
				}
				// The proxy that the next page would follow disappears.
				h.do(t, lease.RemoveProxy{UID: lease.ProxyUID(got[len(got)-1])})
				request.PageToken = page.NextPageToken
			}
			for i, id := range got {
				if id != string(uid(i*step)) {
					t.Fatalf("proxy %d is %s, want %s", i, id, uid(i*step))
				}
			}
			if len(got) != want {
				t.Errorf("got %d proxies, want %d", len(got), want)
			}
			request.Selector = &leasev1.Selector{Region: "us-east1"}
			if problem := rest.call(t, newsToken, request, &leasev1.ListProxiesResponse{}); problem == nil || problem.Refusal.GetFields()[0].GetField() != "pageToken" {
				t.Errorf("got %+v, want the token of another list refused", problem)
			}
		})
	}
}
