package leaseapi_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/proto/credential"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// must makes a call that has to succeed.
func must[R proto.Message](t *testing.T, p protocol, token string, request proto.Message, response R) R {
	t.Helper()
	if problem := p.call(t, token, request, response); problem != nil {
		t.Fatalf("%T: %s %s %v", request, problem.Code, problem.Message, problem.Refusal)
	}
	return response
}

// TestStory tells the life of a lease over every protocol.
func TestStory(t *testing.T) {
	h := newHub(t, dials{})
	for name := range h.protocols() {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, dials{})
			h.news(t, 1, 2)
			story(t, h, h.protocols()[name])
		})
	}
}

func story(t *testing.T, h *hub, p protocol) {
	acquired := must(t, p, newsToken, &leasev1.AcquireRequest{
		Fleet: "crawl/news", Target: "WWW.Example.com", Ttl: durationpb.New(5 * time.Minute), RequestId: "r-1",
	}, &leasev1.AcquireResponse{})
	if len(acquired.Leases) != 1 {
		t.Fatalf("got %d leases, want 1", len(acquired.Leases))
	}
	l := acquired.Leases[0]
	checkLease(t, h, l)

	again := must(t, p, newsToken, &leasev1.AcquireRequest{
		Fleet: "crawl/news", Target: "WWW.Example.com", Ttl: durationpb.New(5 * time.Minute), RequestId: "r-1",
	}, &leasev1.AcquireResponse{})
	if diff := cmp.Diff(acquired, again, protocmp.Transform()); diff != "" {
		t.Errorf("the same requestId got something else: %s", diff)
	}
	got := must(t, p, newsToken, &leasev1.GetLeaseRequest{LeaseId: l.LeaseId}, &leasev1.GetLeaseResponse{})
	if diff := cmp.Diff(l, got.Lease, protocmp.Transform()); diff != "" {
		t.Errorf("GetLease shows another lease than Acquire: %s", diff)
	}

	h.clock.Step(2 * time.Minute)
	h.do(t, lease.Touch{ID: "east"})
	renewed := must(t, p, newsToken, &leasev1.RenewRequest{LeaseId: l.LeaseId}, &leasev1.RenewResponse{})
	if diff := cmp.Diff(&leasev1.RenewResponse{
		LeaseId: l.LeaseId, TtlSeconds: 300, RenewAfterSeconds: 150, Exit: "203.0.113.9", Exits: []string{"203.0.113.9", "2001:db8:9:1::/64"},
		ExpiresAt: timestamppb.New(start.Add(7 * time.Minute)),
	}, renewed, protocmp.Transform()); diff != "" {
		t.Errorf("Renew: %s", diff)
	}

	reported := must(t, p, newsToken, &leasev1.ReportRequest{
		LeaseId: l.LeaseId, Outcome: &leasev1.Outcome{Kind: leasev1.Outcome_BLOCKED},
	}, &leasev1.ReportResponse{})
	if reported.GetCooldown().AsDuration() != 5*time.Minute {
		t.Errorf("cooldown = %v, want the base of 5m", reported.GetCooldown())
	}
	refused := p.call(t, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "shop.example.com"}, &leasev1.AcquireResponse{})
	if refused == nil || refused.Refusal.GetReason() != leasev1.Refusal_COOLING_DOWN || refused.RetryAfter != "300" {
		t.Fatalf("got %+v, want COOLING_DOWN and Retry-After 300", refused)
	}

	// The proxy gets another exit and begins to drain: Renew is where a holder learns it.
	changed := newsProxy(0)
	changed.Exits = changed.Exits[1:]
	h.do(t, lease.UpsertProxy{Proxy: changed}, lease.Drain{UID: uid(0), Deadline: start.Add(20 * time.Minute)})
	renewed = must(t, p, newsToken, &leasev1.RenewRequest{LeaseId: l.LeaseId, Ttl: durationpb.New(30 * time.Minute)}, &leasev1.RenewResponse{})
	if !renewed.Draining || !renewed.ExitChanged || renewed.Exit != "2001:db8:9:1::/64" || renewed.TtlSeconds != 18*60 {
		t.Errorf("got %v, want draining, exitChanged, the new exit, and no more than the 18m to the deadline", renewed)
	}
	page := must(t, p, newsToken, &leasev1.ListProxiesRequest{Fleet: "crawl/news"}, &leasev1.ListProxiesResponse{})
	checkPage(t, page)

	must(t, p, newsToken, &leasev1.ReleaseRequest{LeaseId: l.LeaseId, Outcome: &leasev1.Outcome{Kind: leasev1.Outcome_OK, Pages: 7}}, &leasev1.ReleaseResponse{})
	must(t, p, newsToken, &leasev1.ReleaseRequest{LeaseId: l.LeaseId}, &leasev1.ReleaseResponse{})
	for _, request := range []proto.Message{&leasev1.GetLeaseRequest{LeaseId: l.LeaseId}, &leasev1.RenewRequest{LeaseId: l.LeaseId}} {
		problem := p.call(t, newsToken, request, &leasev1.GetLeaseResponse{})
		if problem == nil || problem.Refusal.GetReason() != leasev1.Refusal_LEASE_EXPIRED || problem.Code != "failed_precondition" {
			t.Errorf("%T after Release: %+v, want LEASE_EXPIRED", request, problem)
		}
	}
}

// checkLease checks every field of a lease on the first proxy of crawl/news.
func checkLease(t *testing.T, h *hub, l *leasev1.Lease) {
	t.Helper()
	proxyURL := "http://" + l.LeaseId + ":" + l.Password + "@198.51.100.7:21000"
	want := &leasev1.Lease{
		Token: "12-1", TtlSeconds: 300, RenewAfterSeconds: 150, ExpiresAt: timestamppb.New(start.Add(5 * time.Minute)),
		Fleet: "crawl/news", Target: "www.example.com", ProxyId: string(uid(0)), Region: "us-east1", Country: "US",
		Network: "HostPort", Exit: "203.0.113.9", Exits: []string{"203.0.113.9", "2001:db8:9:1::/64"},
		LeaseId: l.LeaseId, ProxyUrl: proxyURL, Server: "http://198.51.100.7:21000", Host: "198.51.100.7", Port: 21000,
		Username: l.LeaseId, Password: l.Password,
		ProxyAuthorization: "Basic " + base64.StdEncoding.EncodeToString([]byte(l.LeaseId+":"+l.Password)),
		Playwright:         &leasev1.Playwright{Server: "http://198.51.100.7:21000", Username: l.LeaseId, Password: l.Password},
		Env: map[string]string{
			"HTTP_PROXY": proxyURL, "http_proxy": proxyURL, "HTTPS_PROXY": proxyURL, "https_proxy": proxyURL,
			"NO_PROXY": "localhost,127.0.0.1,::1,.svc,.cluster.local", "no_proxy": "localhost,127.0.0.1,::1,.svc,.cluster.local",
		},
	}
	if diff := cmp.Diff(want, l, protocmp.Transform()); diff != "" {
		t.Errorf("lease: %s", diff)
	}
	checkCredential(t, h, l)
	// What a Go client makes of the URL must be what the proxy expects.
	parsed, err := url.Parse(l.ProxyUrl)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := parsed.User.Password()
	if parsed.Host != "198.51.100.7:21000" || parsed.User.Username() != l.LeaseId || password != l.Password {
		t.Errorf("the proxy URL reads as %s, %s", parsed.Host, parsed.User.Username())
	}
}

// checkCredential does what a proxy does with a password.
func checkCredential(t *testing.T, h *hub, l *leasev1.Lease) {
	t.Helper()
	claims, err := credential.Verify(h.keys, credential.DenyList{}, credential.ProxyUID(l.ProxyId), l.Password, start)
	if err != nil {
		t.Fatalf("the proxy refuses the password: %v", err)
	}
	if claims.Principal != "token:news" || claims.NotAfter.Before(start.Add(time.Hour)) || claims.NotAfter.After(start.Add(time.Hour+time.Minute)) {
		t.Errorf("the password is for %s until %s, want token:news for the maxLifetime of 1h and at most a window more", claims.Principal, claims.NotAfter)
	}
	if _, err := credential.Verify(h.keys, credential.DenyList{}, credential.ProxyUID(uid(99)), l.Password, start); err == nil {
		t.Error("another proxy takes the password")
	}
}

func checkPage(t *testing.T, page *leasev1.ListProxiesResponse) {
	t.Helper()
	want := &leasev1.ListProxiesResponse{Total: 1, Proxies: []*leasev1.Proxy{{
		ProxyId: string(uid(0)), Name: "px-0", Fleet: "crawl/news", Member: "east", Region: "us-east1", Country: "US",
		Labels: map[string]string{"tier": "fast"},
		Endpoints: []*leasev1.Endpoint{
			{Network: "HostPort", Host: "198.51.100.7", Port: 21000},
			{Network: "PodIP", Host: "2001:db8:1::1", Port: 3128},
		},
		Exits: []string{"2001:db8:9:1::/64"}, Ready: true, Draining: true, Leased: 1, Slots: 2,
	}}}
	if diff := cmp.Diff(want, page, protocmp.Transform()); diff != "" {
		t.Errorf("ListProxies: %s", diff)
	}
}

// TestRefusals checks that a refusal is the same on every protocol, but for the status, which only HTTP has.
func TestRefusals(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 1, 1)
	h.do(t, lease.SetFleet{Fleet: lease.Fleet{ID: "crawl/empty", Policy: lease.Policy{MaxLeasesPerProxy: 1}}})
	rest := h.protocols()["REST"]
	held := must(t, rest, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com", RequestId: "used"}, &leasev1.AcquireResponse{}).Leases[0]
	must(t, rest, newsToken, &leasev1.ReportRequest{
		LeaseId: held.LeaseId, Target: "limited.example", Outcome: &leasev1.Outcome{Kind: leasev1.Outcome_RATE_LIMITED, RetryAfter: durationpb.New(41 * time.Second)},
	}, &leasev1.ReportResponse{})

	tests := map[string]struct {
		reason     string
		token      string
		request    proto.Message
		code       string
		status     int
		why        leasev1.Refusal_Reason
		retryAfter string
		fields     []string
	}{
		"Busy": {
			"the only slot is taken, and the hub knows until when", newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"},
			"resource_exhausted", 429, leasev1.Refusal_NO_CAPACITY, "600", nil,
		},
		"Exclusive": {
			"a second exclusive lease on a fleet of one", newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Exclusive: true},
			"resource_exhausted", 429, leasev1.Refusal_NO_CAPACITY, "600", nil,
		},
		"Cooling": {
			"the target asked for 41s", newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "limited.example"},
			"resource_exhausted", 429, leasev1.Refusal_COOLING_DOWN, "41", nil,
		},
		"NoMatch": {
			"no proxy is in that region", newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Selector: &leasev1.Selector{Region: "mars"}},
			"not_found", 404, leasev1.Refusal_NO_MATCH, "5", nil,
		},
		"NoNetwork": {
			"no proxy is a VM", newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Network: "VM"},
			"not_found", 404, leasev1.Refusal_NO_MATCH, "5", nil,
		},
		"NoSuchFleet": {
			"the token allows it, but it does not exist", newsToken, &leasev1.AcquireRequest{Fleet: "crawl/gone"},
			"not_found", 404, leasev1.Refusal_UNKNOWN_FLEET, "", nil,
		},
		"OthersFleet": {
			"it exists, but is not the token's", weatherToken, &leasev1.AcquireRequest{Fleet: "crawl/news"},
			"not_found", 404, leasev1.Refusal_UNKNOWN_FLEET, "", nil,
		},
		"OthersProxies": {
			"addresses of others' proxies are not shown", weatherToken, &leasev1.ListProxiesRequest{Fleet: "crawl/news"},
			"not_found", 404, leasev1.Refusal_UNKNOWN_FLEET, "", nil,
		},
		"NotHolder": {
			"a lease shows its password only to its holder", otherToken, &leasev1.GetLeaseRequest{LeaseId: held.LeaseId},
			"failed_precondition", 410, leasev1.Refusal_LEASE_EXPIRED, "", nil,
		},
		"OutcomeOfOthers": {
			"nobody speaks for the lease of another", otherToken, &leasev1.ReleaseRequest{LeaseId: held.LeaseId, Outcome: &leasev1.Outcome{Kind: leasev1.Outcome_BLOCKED}},
			"failed_precondition", 410, leasev1.Refusal_LEASE_EXPIRED, "", nil,
		},
		"UnknownLease": {
			"it may have ended long ago", newsToken, &leasev1.RenewRequest{LeaseId: "lse_unknown"},
			"failed_precondition", 410, leasev1.Refusal_LEASE_EXPIRED, "", nil,
		},
		"OutcomeOfUnknownLease": {
			"releasing it would be fine, but the outcome would be lost", newsToken,
			&leasev1.ReleaseRequest{LeaseId: "lse_unknown", Outcome: &leasev1.Outcome{Kind: leasev1.Outcome_OK}},
			"failed_precondition", 410, leasev1.Refusal_LEASE_EXPIRED, "", nil,
		},
		"RequestIDReused": {
			"the same id for something else", newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", RequestId: "used"},
			"already_exists", 409, leasev1.Refusal_REQUEST_ID_REUSED, "",
			[]string{"requestId"},
		},
		"ZeroTTL": {
			"zero is not the default", newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Ttl: durationpb.New(0)},
			"invalid_argument", 400, leasev1.Refusal_INVALID_REQUEST, "",
			[]string{"ttl"},
		},
		"LongTTL": {
			"beyond maxTTL", newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Ttl: durationpb.New(31 * time.Minute)},
			"invalid_argument", 400, leasev1.Refusal_INVALID_REQUEST, "",
			[]string{"ttl"},
		},
		"ZeroCount": {
			"zero is not one", newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Count: proto.Int32(0)},
			"invalid_argument", 400, leasev1.Refusal_INVALID_REQUEST, "",
			[]string{"count"},
		},
		"HugeCount": {
			"one call cannot take everything", newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Count: proto.Int32(101)},
			"invalid_argument", 400, leasev1.Refusal_INVALID_REQUEST, "",
			[]string{"count"},
		},
		"MinCount": {
			"fewest is more than most", newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", MinCount: proto.Int32(2)},
			"invalid_argument", 400, leasev1.Refusal_INVALID_REQUEST, "",
			[]string{"minCount"},
		},
		"SeveralFields": {
			"all mistakes are told at once", newsToken, &leasev1.AcquireRequest{
				Fleet: "news", Target: "https://example.com/", Network: "Edge", RequestId: "a b", SessionKey: "a b",
				Selector: &leasev1.Selector{Country: "Germany", Exit: "nowhere", Labels: map[string]string{"tier": "a b"}},
			},
			"invalid_argument", 400, leasev1.Refusal_INVALID_REQUEST, "",
			[]string{"fleet", "network", "requestId", "selector.country", "selector.exit", "selector.labels.tier", "sessionKey", "target"},
		},
		"BadID": {
			"ids have few characters, so a bad one is a mistake", newsToken, &leasev1.GetLeaseRequest{LeaseId: "lse_a.b"},
			"invalid_argument", 400, leasev1.Refusal_INVALID_REQUEST, "",
			[]string{"leaseId"},
		},
		"NoOutcome": {
			"a report without an outcome says nothing", newsToken, &leasev1.ReportRequest{LeaseId: held.LeaseId},
			"invalid_argument", 400, leasev1.Refusal_INVALID_REQUEST, "",
			[]string{"outcome.kind"},
		},
		"OutcomeFromTheFuture": {
			"a number that this version does not know", newsToken, &leasev1.ReportRequest{LeaseId: held.LeaseId, Outcome: &leasev1.Outcome{Kind: 99}},
			"invalid_argument", 400, leasev1.Refusal_INVALID_REQUEST, "",
			[]string{"outcome.kind"},
		},
		"PagesOfABan": {
			"only ok has pages", newsToken, &leasev1.ReportRequest{LeaseId: held.LeaseId, Outcome: &leasev1.Outcome{Kind: leasev1.Outcome_BLOCKED, Pages: 3}},
			"invalid_argument", 400, leasev1.Refusal_INVALID_REQUEST, "",
			[]string{"outcome.pages"},
		},
		"PageSize": {
			"lists are bounded", newsToken, &leasev1.ListProxiesRequest{Fleet: "crawl/news", PageSize: 1001},
			"invalid_argument", 400, leasev1.Refusal_INVALID_REQUEST, "",
			[]string{"pageSize"},
		},
		"PageToken": {
			"it is none of ours", newsToken, &leasev1.ListProxiesRequest{Fleet: "crawl/news", PageToken: "2"},
			"invalid_argument", 400, leasev1.Refusal_INVALID_REQUEST, "",
			[]string{"pageToken"},
		},
		"NoToken": {
			"nobody leases without a token", "", &leasev1.AcquireRequest{Fleet: "crawl/news"},
			"unauthenticated", 401, leasev1.Refusal_UNAUTHENTICATED, "", nil,
		},
		"UnknownToken": {
			"or with any", "guessed", &leasev1.AcquireRequest{Fleet: "crawl/news"},
			"unauthenticated", 401, leasev1.Refusal_UNAUTHENTICATED, "", nil,
		},
		"TokenStoreDown": {
			"that is not the caller's fault", brokenToken, &leasev1.AcquireRequest{Fleet: "crawl/news"},
			"unavailable", 503, leasev1.Refusal_UNAVAILABLE, "5", nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var first *problem
			for protocolName, p := range h.protocols() {
				got := p.call(t, test.token, test.request, &leasev1.AcquireResponse{})
				if got == nil {
					t.Fatalf("%s was granted: %s", protocolName, test.reason)
				}
				var fields []string
				for _, field := range got.Refusal.GetFields() {
					fields = append(fields, field.Field)
				}
				sorted := cmpopts.SortSlices(func(a, b string) bool { return a < b })
				if got.Code != test.code || got.Refusal.GetReason() != test.why || got.RetryAfter != test.retryAfter ||
					!cmp.Equal(test.fields, fields, sorted, cmpopts.EquateEmpty()) {
					t.Errorf("%s: got %s %v Retry-After %q fields %q, want %s %v %q %q (%s)", protocolName,
						got.Code, got.Refusal.GetReason(), got.RetryAfter, fields, test.code, test.why, test.retryAfter, test.fields, test.reason)
				}
				if _, isREST := p.(restProtocol); isREST && got.status != test.status {
					t.Errorf("status = %d, want %d", got.status, test.status)
				}
				if (got.Challenge != "") != (test.why == leasev1.Refusal_UNAUTHENTICATED) {
					t.Errorf("%s: WWW-Authenticate = %q", protocolName, got.Challenge)
				}
				if first == nil {
					first = got
				}
				if diff := cmp.Diff(first, got, protocmp.Transform(), cmpopts.IgnoreUnexported(problem{})); diff != "" {
					t.Errorf("%s tells it otherwise: %s", protocolName, diff)
				}
			}
			t.Log(first.Message)
		})
	}
}

// TestFleetsAreNotRevealed checks that a caller cannot tell another's fleet from one that does not exist.
func TestFleetsAreNotRevealed(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 1, 1)
	_, exists := h.send(t, h.http1, "POST", "/v1/leases", weatherToken, nil, []byte(`{"fleet":"crawl/news"}`))
	h.do(t, lease.RemoveFleet{ID: "crawl/news"})
	_, gone := h.send(t, h.http1, "POST", "/v1/leases", weatherToken, nil, []byte(`{"fleet":"crawl/news"}`))
	_, allowed := h.send(t, h.http1, "POST", "/v1/leases", newsToken, nil, []byte(`{"fleet":"crawl/news"}`))
	if string(exists) != string(gone) || string(gone) != string(allowed) {
		t.Errorf("the answers differ:\n%s%s%s", exists, gone, allowed)
	}
}

// TestErrorAsDocumented holds the one error that the documentation prints, byte by byte.
func TestErrorAsDocumented(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 1, 2)
	rest := h.protocols()["REST"]
	held := must(t, rest, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{}).Leases[0]
	must(t, rest, newsToken, &leasev1.ReportRequest{
		LeaseId: held.LeaseId, Target: "example.com", Outcome: &leasev1.Outcome{Kind: leasev1.Outcome_RATE_LIMITED, RetryAfter: durationpb.New(41 * time.Second)},
	}, &leasev1.ReportResponse{})
	response, body := h.send(t, h.http1, "POST", "/v1/leases", newsToken, nil, []byte(`{"fleet":"crawl/news","target":"example.com"}`))
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "41" {
		t.Errorf("status %d, Retry-After %q, want 429 and 41", response.StatusCode, response.Header.Get("Retry-After"))
	}
	var message string
	const before, after = `{"code":"resource_exhausted","message":"`, `","reason":"COOLING_DOWN","retryAfter":"41s","matching":1,"cooling":1}` + "\n"
	if len(body) > len(before)+len(after) {
		message = string(body[len(before) : len(body)-len(after)])
	}
	if string(body) != before+message+after || message == "" {
		t.Errorf("got %s", body)
	}
}
