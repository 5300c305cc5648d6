package leaseclient

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

func TestClassify(t *testing.T) {
	outcome := func(kind leasev1.Outcome_Kind) *leasev1.Outcome { return &leasev1.Outcome{Kind: kind} }
	limited := func(d time.Duration) *leasev1.Outcome {
		o := outcome(leasev1.Outcome_RATE_LIMITED)
		if d > 0 {
			o.RetryAfter = durationpb.New(d)
		}
		return o
	}
	ok := &leasev1.Outcome{Kind: leasev1.Outcome_OK, Pages: 1}
	dial := &net.OpError{Op: "proxyconnect", Net: "tcp", Err: errors.New("refused")}
	tests := map[string]struct {
		reason   string
		response *http.Response
		err      error
		want     *leasev1.Outcome
	}{
		"Page":            {"a page", page(200, ""), nil, ok},
		"NotFound":        {"a page that says no", page(404, ""), nil, ok},
		"Login":           {"asks for a login, not for another address", page(401, ""), nil, ok},
		"Redirect":        {"a page", page(302, "", "Location", "/home"), nil, ok},
		"Forbidden":       {"the usual ban", page(403, ""), nil, outcome(leasev1.Outcome_BLOCKED)},
		"ForbiddenAWhile": {"says when to come back", page(403, "", "Retry-After", "60"), nil, limited(time.Minute)},
		"TooMany":         {"for an unknown time", page(429, ""), nil, limited(0)},
		"TooManySeconds":  {"for a time", page(429, "", "Retry-After", "120"), nil, limited(2 * time.Minute)},
		"TooManyUntil": {
			"a date, by the target's clock",
			page(429, "", "Retry-After", "Sun, 01 Mar 2026 12:05:00 GMT", "Date", "Sun, 01 Mar 2026 12:00:00 GMT"), nil, limited(5 * time.Minute),
		},
		"TooManyPast":     {"a date that is over", page(429, "", "Retry-After", "Sun, 01 Mar 2026 11:00:00 GMT", "Date", "Sun, 01 Mar 2026 12:00:00 GMT"), nil, limited(0)},
		"TooManyNonsense": {"not a time", page(429, "", "Retry-After", "soon"), nil, limited(0)},
		"Cloudflare":      {"its header for a challenge", page(403, "", "Cf-Mitigated", "challenge"), nil, outcome(leasev1.Outcome_CAPTCHA)},
		"CloudflareOld":   {"with 503, as it was", page(503, "", "Cf-Mitigated", "challenge"), nil, outcome(leasev1.Outcome_CAPTCHA)},
		"AWS":             {"its WAF", page(405, "", "X-Amzn-Waf-Action", "captcha"), nil, outcome(leasev1.Outcome_CAPTCHA)},
		"ToCaptcha":       {"sent to a captcha", page(302, "", "Location", "https://example.com/Captcha?u=1"), nil, outcome(leasev1.Outcome_CAPTCHA)},
		"Broken":          {"the target's own trouble", page(500, ""), nil, outcome(leasev1.Outcome_TARGET_ERROR)},
		"Busy":            {"maintenance says when, which is not a limit of this exit", page(503, "", "Retry-After", "60"), nil, outcome(leasev1.Outcome_TARGET_ERROR)},

		"Canceled":      {"the caller gave up", nil, context.Canceled, nil},
		"Deadline":      {"the caller's time", nil, context.DeadlineExceeded, outcome(leasev1.Outcome_TIMEOUT)},
		"IOTimeout":     {"the connection's time", nil, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, outcome(leasev1.Outcome_TIMEOUT)},
		"SlowBody":      {"a page that does not end", page(200, ""), context.DeadlineExceeded, outcome(leasev1.Outcome_TIMEOUT)},
		"HalfBody":      {"a page that breaks off", page(200, ""), io.ErrUnexpectedEOF, outcome(leasev1.Outcome_TARGET_ERROR)},
		"Auth":          {"the proxy refuses the credentials", nil, &ProxyError{Status: 407, Name: "ERR_CACHE_ACCESS_DENIED"}, outcome(leasev1.Outcome_PROXY_ERROR)},
		"Overloaded":    {"the proxy has too much to do", nil, &ProxyError{Status: 503}, outcome(leasev1.Outcome_PROXY_ERROR)},
		"NoSuchName":    {"the target's name", nil, &ProxyError{Status: 502, Name: "ERR_DNS_FAIL"}, outcome(leasev1.Outcome_TARGET_ERROR)},
		"TargetDown":    {"the target does not listen", nil, &ProxyError{Status: 503, Name: "ERR_CONNECT_FAIL"}, outcome(leasev1.Outcome_TARGET_ERROR)},
		"TargetSlow":    {"the target does not answer the proxy", nil, &ProxyError{Status: 504, Name: "ERR_READ_TIMEOUT"}, outcome(leasev1.Outcome_TIMEOUT)},
		"ProxyDown":     {"nobody listens there", nil, proxyFailure(dial, "https", false), outcome(leasev1.Outcome_PROXY_ERROR)},
		"ProxyHangsUp":  {"no answer to CONNECT", nil, proxyFailure(io.EOF, "https", false), outcome(leasev1.Outcome_PROXY_ERROR)},
		"TunnelBreaks":  {"after CONNECT it is the target's", nil, proxyFailure(io.EOF, "https", true), outcome(leasev1.Outcome_TARGET_ERROR)},
		"PlainHangsUp":  {"over plain HTTP the proxy answers for the target", nil, proxyFailure(io.EOF, "http", false), outcome(leasev1.Outcome_PROXY_ERROR)},
		"PlainDeadline": {"it may have waited for the target", nil, proxyFailure(context.DeadlineExceeded, "http", false), outcome(leasev1.Outcome_TIMEOUT)},
		"Certificate":   {"of the target", nil, &tls.CertificateVerificationError{Err: errors.New("expired")}, outcome(leasev1.Outcome_TARGET_ERROR)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Classify(tc.response, tc.err), protocmp.Transform()); diff != "" {
				t.Errorf("%s: %s", tc.reason, diff)
			}
		})
	}
}
