package leaseapi_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

func TestAuthorization(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 5, 100)
	tests := map[string]struct {
		reason string
		values []string
		status int
		says   string
	}{
		"Bearer":       {"as documented", []string{"Bearer " + newsToken}, 200, "lse_"},
		"LowerCase":    {"schemes have no case", []string{"bearer " + newsToken}, 200, "lse_"},
		"Spaces":       {"a space too many", []string{"Bearer  " + newsToken}, 200, "lse_"},
		"None":         {"nothing", nil, 401, "no bearer token"},
		"Empty":        {"an unset variable in a script", []string{"Bearer "}, 401, "bearer token is empty"},
		"OnlyScheme":   {"an unset variable in a script", []string{"Bearer"}, 401, "bearer token is empty"},
		"OnlyToken":    {"the scheme is forgotten", []string{newsToken}, 401, "not of the Bearer scheme"},
		"Basic":        {"the proxy's scheme, not the hub's", []string{"Basic bHNlOnB3"}, 401, "not of the Bearer scheme"},
		"Unknown":      {"guessed", []string{"Bearer guess"}, 401, "unknown, expired or revoked"},
		"Twice":        {"which of them?", []string{"Bearer " + newsToken, "Bearer " + otherToken}, 401, "more than one Authorization header"},
		"TwoTokens":    {"a list is no token", []string{"Bearer " + newsToken + " " + otherToken}, 401, "malformed"},
		"Enormous":     {"no token is that long", []string{"Bearer " + strings.Repeat("x", 17<<10)}, 401, "malformed"},
		"StoreOutage":  {"not the caller's fault", []string{"Bearer " + brokenToken}, 503, "cannot look up bearer tokens"},
		"OthersFleet":  {"a token is bound to fleets", []string{"Bearer " + weatherToken}, 404, "UNKNOWN_FLEET"},
		"AnotherToken": {"two may share a fleet", []string{"Bearer " + otherToken}, 200, "lse_"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for path, header := range map[string]http.Header{
				"/v1/leases": {}, leasev1connect.LeaseServiceAcquireProcedure: {"Content-Type": {"application/json"}},
			} {
				header["Authorization"] = test.values
				answer, text := h.send(t, h.http1, "POST", path, "", header, []byte(`{"fleet":"crawl/news"}`))
				says := test.says
				if path != "/v1/leases" && test.status == 404 {
					says = "Refusal" // Connect has the reason in a detail
				}
				if answer.StatusCode != test.status || !strings.Contains(string(text), says) {
					t.Errorf("%s: got %d %s, want %d and %q (%s)", path, answer.StatusCode, text, test.status, says, test.reason)
				}
				if challenge := answer.Header.Get("WWW-Authenticate"); (challenge == `Bearer realm="shoal"`) != (test.status == 401) {
					t.Errorf("%s: WWW-Authenticate = %q", path, challenge)
				}
			}
		})
	}
	if !strings.Contains(h.log.String(), "cannot look up bearer tokens") {
		t.Error("the outage of the token store is not in the log")
	}
}

// TestStrangersAreNotRead: a caller without a token must not make the hub read, decompress or decode anything.
func TestStrangersAreNotRead(t *testing.T) {
	h := newHub(t, dials{})
	for path, header := range map[string]http.Header{
		"/v1/leases": {}, leasev1connect.LeaseServiceAcquireProcedure: {"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}},
	} {
		answer, text := h.send(t, h.http1, "POST", path, "", header, bytes.Repeat([]byte("x"), 1000))
		if answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: got %d %s, want 401 before anything is said about the body", path, answer.StatusCode, text)
		}
	}
}
