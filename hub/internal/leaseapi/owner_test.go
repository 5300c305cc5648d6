package leaseapi_test

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// owner knows the credentials of one owner's proxies, until they are taken away.
type owner struct{ username, password, known string }

func (o *owner) Lookup(fleet lease.FleetID, host string, port uint16) (username, password string, known bool) {
	if fleet != "crawl/news" || host != o.known || port != 8080 {
		return "", "", false
	}
	return o.username, o.password, true
}

// outside is a hub with one proxy, which someone else runs.
func outside(t *testing.T, o *owner) *hub {
	t.Helper()
	h := newHub(t, dials{owners: leaseapi.OwnersFunc(o.Lookup)})
	h.news(t, 0, 1)
	p := newsProxy(0)
	p.Endpoints = []lease.Endpoint{{Network: "External", Host: "proxy.example", Port: 8080}}
	h.do(t, lease.UpsertProxy{Proxy: p})
	return h
}

// TestOwnersCredentials checks that a lease on someone else's proxy is answered with the owner's credentials, whatever
// characters they have, and with those of now.
func TestOwnersCredentials(t *testing.T) {
	tests := map[string]struct{ username, password, url string }{
		"Plain":    {"fish", "hush", "http://fish:hush@proxy.example:8080"},
		"Reserved": {"fi@sh", `p@ss:w/rd?#[]%25 +&"'`, "http://fi%40sh:p%40ss%3Aw%2Frd%3F%23%5B%5D%2525%20%2B%26%22%27@proxy.example:8080"},
		"NotASCII": {"müll", "пароль", "http://m%C3%BCll:%D0%BF%D0%B0%D1%80%D0%BE%D0%BB%D1%8C@proxy.example:8080"},
		"KeyOnly":  {"apikey", "", "http://apikey:@proxy.example:8080"},
		// Nothing is made up for a proxy that asks for nothing.
		"None": {"", "", "http://proxy.example:8080"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := &owner{username: test.username, password: test.password, known: "proxy.example"}
			h := outside(t, o)
			rest := h.protocols()["REST"]
			l := must(t, rest, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Network: "External"}, &leasev1.AcquireResponse{}).Leases[0]
			got := []string{l.Username, l.Password, l.ProxyUrl, l.Server, l.Network, l.Playwright.Username, l.Playwright.Password, l.Env["HTTPS_PROXY"]}
			want := []string{
				test.username, test.password, test.url, "http://proxy.example:8080", "External", test.username, test.password, test.url,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			parsed, err := url.Parse(l.ProxyUrl)
			if err != nil {
				t.Fatal(err)
			}
			password, _ := parsed.User.Password()
			if parsed.User.Username() != test.username || password != test.password || parsed.Host != "proxy.example:8080" {
				t.Errorf("clients read %q as user %q, host %s", l.ProxyUrl, parsed.User.Username(), parsed.Host)
			}
			header, isBasic := strings.CutPrefix(l.ProxyAuthorization, "Basic ")
			text, err := base64.StdEncoding.DecodeString(header)
			if test.username == "" {
				if l.ProxyAuthorization != "" {
					t.Errorf("authorization %q for a proxy that asks for none", l.ProxyAuthorization)
				}
			} else if err != nil || !isBasic || string(text) != test.username+":"+test.password {
				t.Errorf("authorization %q", l.ProxyAuthorization)
			}

			// The owner changes them: nothing is kept with the lease.
			o.username, o.password = "other", "new"
			again := must(t, rest, newsToken, &leasev1.GetLeaseRequest{LeaseId: l.LeaseId}, &leasev1.GetLeaseResponse{}).Lease
			if again.Username != "other" || again.Password != "new" {
				t.Errorf("after the change: %q", again.Username)
			}
			must(t, rest, newsToken, &leasev1.RenewRequest{LeaseId: l.LeaseId}, &leasev1.RenewResponse{})
		})
	}
}

// TestOwnersCredentialsUnknown refuses while they are not known, and holds nothing for the caller meanwhile.
func TestOwnersCredentialsUnknown(t *testing.T) {
	o := &owner{username: "fish", password: "hush"}
	h := outside(t, o)
	for name, client := range h.protocols() {
		problem := client.call(t, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{})
		if problem == nil || problem.Refusal.GetReason() != leasev1.Refusal_UNAVAILABLE ||
			problem.Refusal.GetRetryAfter().AsDuration() <= 0 || !strings.Contains(problem.Message, "credentials") {
			t.Errorf("%s: %+v", name, problem)
		}
	}
	o.known = "proxy.example"
	l := must(t, h.protocols()["REST"], newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{}).Leases[0]
	o.known = ""
	problem := h.protocols()["REST"].call(t, newsToken, &leasev1.GetLeaseRequest{LeaseId: l.LeaseId}, &leasev1.GetLeaseResponse{})
	if problem == nil || problem.Refusal.GetReason() != leasev1.Refusal_UNAVAILABLE {
		t.Errorf("GetLease: %+v", problem)
	}
	if strings.Contains(h.log.String(), "hush") {
		t.Errorf("the log holds a password: %s", h.log)
	}
}
