package leaseclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// ProxyError says that the proxy answered for itself where the target was asked: to CONNECT, or in place of a page over
// plain HTTP; or that it could not be reached, or did not answer. [Transport] makes an error of the proxy's answers so
// that no crawler takes a proxy's error page for the target's.
type ProxyError struct {
	// Status is the HTTP status, such as 407. Zero says that there was no answer.
	Status int
	// Name is Squid's name for it, such as ERR_CONNECT_FAIL; empty if the proxy gave none.
	Name string

	cause error
}

// Unwrap returns the error of the connection to the proxy, if it is one.
func (e *ProxyError) Unwrap() error { return e.cause }

// Error implements error.
func (e *ProxyError) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("the proxy does not answer: %v", e.cause)
	}
	text := fmt.Sprintf("the proxy answers %d %s", e.Status, http.StatusText(e.Status))
	if e.Name != "" {
		text += " (" + e.Name + ")"
	}
	return text
}

// Squid's names for what happens behind it, and the names of its refusals in Shoal's proxies.
const (
	squidDNS     = "ERR_DNS_FAIL"
	squidConnect = "ERR_CONNECT_FAIL"
	squidRead    = "ERR_READ_ERROR"
	squidEmpty   = "ERR_ZERO_SIZE_OBJECT"
	squidTimeout = "ERR_READ_TIMEOUT"
	shoalDenial  = "ERR_SHOAL_"
)

// aboutTarget says whether the proxy tells of the target's failure, not of its own.
func (e *ProxyError) aboutTarget() bool {
	switch e.Name {
	case squidDNS, squidConnect, squidRead, squidEmpty:
		return true
	default:
		return false
	}
}

// denied says whether the proxy's configuration refuses the request, as any other proxy of the fleet would.
func (e *ProxyError) denied() bool { return strings.HasPrefix(e.Name, shoalDenial) }

// headerSquidError is on every answer that Squid makes itself.
const headerSquidError = "X-Squid-Error"

// proxyFailure is an error of sending a request as a [ProxyError], if that is what it is: all that is ever dialled is the
// proxy, and a proxy that works answers to CONNECT and to plain requests whatever becomes of the target. answered says
// whether it has. Time that ran out is left as it is: a proxy may well have waited for the target.
func proxyFailure(err error, scheme string, answered bool) error {
	if _, already := errors.AsType[*ProxyError](err); already || errors.Is(err, context.Canceled) {
		return err
	}
	var operation *net.OpError
	dial := errors.As(err, &operation) && (operation.Op == "proxyconnect" || operation.Op == "dial")
	var network net.Error
	late := errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
	if dial || !late && (scheme == "http" || !answered) {
		return &ProxyError{cause: err}
	}
	return err
}

// proxyAnswer returns what a proxy says for itself, or nil if the answer is passed on from elsewhere.
func proxyAnswer(response *http.Response) *ProxyError {
	name, _, _ := strings.Cut(response.Header.Get(headerSquidError), " ")
	if name == "" && response.StatusCode != http.StatusProxyAuthRequired {
		return nil
	}
	return &ProxyError{Status: response.StatusCode, Name: name}
}

// Classify is the classifier that a [Transport] uses by default. It looks at the status and the headers, and makes of
//
//   - 429, and 403 with Retry-After: RATE_LIMITED, for as long as the target asked;
//   - the challenge headers of Cloudflare and AWS WAF, and a redirect to a captcha: CAPTCHA;
//   - 403: BLOCKED;
//   - 5xx: TARGET_ERROR;
//   - any other answer: OK, of one page. A 404 is a page; a 401 asks for a login, not for another address.
//
// Of errors it makes TIMEOUT where time ran out, PROXY_ERROR where the proxy could not be reached or failed, TARGET_ERROR
// where the target did, and nothing, nil, where the caller gave up.
//
// What a site answers to those that it does not like is often a page with status 200. Who knows its sites writes a
// classifier that knows them and falls back to this one. One that must look at the body reads it and puts a copy in
// its place.
func Classify(response *http.Response, err error) *leasev1.Outcome {
	if err != nil {
		return classifyError(response, err)
	}
	retryAfter, asked := retryAfterOf(response.Header.Get("Retry-After"), response.Header.Get("Date"))
	switch status := response.StatusCode; {
	case challenged(response):
		return &leasev1.Outcome{Kind: leasev1.Outcome_CAPTCHA}
	case status == http.StatusTooManyRequests, status == http.StatusForbidden && asked:
		outcome := &leasev1.Outcome{Kind: leasev1.Outcome_RATE_LIMITED}
		if retryAfter > 0 {
			outcome.RetryAfter = durationpb.New(retryAfter)
		}
		return outcome
	case status == http.StatusForbidden:
		return &leasev1.Outcome{Kind: leasev1.Outcome_BLOCKED}
	case status >= http.StatusInternalServerError:
		return &leasev1.Outcome{Kind: leasev1.Outcome_TARGET_ERROR}
	default:
		return &leasev1.Outcome{Kind: leasev1.Outcome_OK, Pages: 1}
	}
}

func classifyError(response *http.Response, err error) *leasev1.Outcome {
	var network net.Error
	answer, isAnswer := errors.AsType[*ProxyError](err)
	_, badCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	kind := leasev1.Outcome_TARGET_ERROR
	switch {
	case errors.Is(err, context.Canceled):
		return nil
	case isAnswer && answer.Name == squidTimeout:
		kind = leasev1.Outcome_TIMEOUT
	case isAnswer && !answer.aboutTarget():
		kind = leasev1.Outcome_PROXY_ERROR
	case isAnswer, badCertificate:
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		kind = leasev1.Outcome_TIMEOUT
	}
	return &leasev1.Outcome{Kind: kind}
}

// challenged says whether an answer is a proof of humanity that is asked for.
func challenged(response *http.Response) bool {
	header := response.Header
	switch {
	case strings.EqualFold(header.Get("Cf-Mitigated"), "challenge"):
		return true
	case strings.EqualFold(header.Get("X-Amzn-Waf-Action"), "captcha"), strings.EqualFold(header.Get("X-Amzn-Waf-Action"), "challenge"):
		return true
	case response.StatusCode >= 300 && response.StatusCode < 400:
		to := strings.ToLower(header.Get("Location"))
		return strings.Contains(to, "captcha") || strings.Contains(to, "/sorry/")
	default:
		return false
	}
}

// retryAfterOf reads Retry-After, in seconds or as a date. A date counts from the answer's own Date: clocks differ.
func retryAfterOf(value, date string) (d time.Duration, asked bool) {
	if value == "" {
		return 0, false
	}
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		return time.Duration(max(0, seconds)) * time.Second, true
	}
	until, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(date)
	if err != nil {
		now = time.Now()
	}
	return max(0, until.Sub(now)).Round(time.Second), true
}

// elsewhere says whether a request that went this way may go better through another proxy.
func elsewhere(outcome *leasev1.Outcome, err error) bool {
	if answer, ok := errors.AsType[*ProxyError](err); ok && answer.denied() {
		return false
	}
	switch outcome.GetKind() {
	case leasev1.Outcome_BLOCKED, leasev1.Outcome_CAPTCHA, leasev1.Outcome_RATE_LIMITED, leasev1.Outcome_PROXY_ERROR, leasev1.Outcome_TIMEOUT:
		return true
	default:
		return false
	}
}
