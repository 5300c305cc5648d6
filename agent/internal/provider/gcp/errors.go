package gcp

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/provider"
)

// reasons give the kind of an HTTP error by its reason, which says more than the status: 403 is a refusal, a used-up quota
// and a rate limit.
var reasons = map[string]provider.Kind{
	"rateLimitExceeded":              provider.KindThrottled,
	"userRateLimitExceeded":          provider.KindThrottled,
	"quotaExceeded":                  provider.KindQuotaExceeded,
	"forbidden":                      provider.KindUnauthorized,
	"accessNotConfigured":            provider.KindUnauthorized,
	"insufficientPermissions":        provider.KindUnauthorized,
	"invalid":                        provider.KindInvalidSpec,
	"badRequest":                     provider.KindInvalidSpec,
	"resourceNotReady":               provider.KindUnavailable,
	"resourceInUseByAnotherResource": provider.KindUnavailable,
	"conditionNotMet":                provider.KindUnavailable,
}

// codes give the kind of an operation's failure. What is not here is KindUnavailable.
var codes = map[string]provider.Kind{
	"ZONE_RESOURCE_POOL_EXHAUSTED":              provider.KindCapacityExhausted,
	"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": provider.KindCapacityExhausted,
	"insufficientCapacity":                      provider.KindCapacityExhausted,
	// What a Spot machine is told that is taken back while it is being made.
	"UNSUPPORTED_OPERATION":                provider.KindCapacityExhausted,
	"IP_SPACE_EXHAUSTED":                   provider.KindCapacityExhausted,
	"IP_SPACE_EXHAUSTED_WITH_DETAILS":      provider.KindCapacityExhausted,
	"QUOTA_EXCEEDED":                       provider.KindQuotaExceeded,
	"RATE_LIMIT_EXCEEDED":                  provider.KindThrottled,
	"RESOURCE_OPERATION_RATE_EXCEEDED":     provider.KindThrottled,
	"CONCURRENT_OPERATIONS_QUOTA_EXCEEDED": provider.KindThrottled,
	"RESOURCE_NOT_READY":                   provider.KindUnavailable,
	"RESOURCE_NOT_FOUND":                   provider.KindInvalidSpec,
	"INVALID_USAGE":                        provider.KindInvalidSpec,
	"INVALID_FIELD_VALUE":                  provider.KindInvalidSpec,
	"VPC_NOT_FOUND":                        provider.KindInvalidSpec,
	"SUBNET_NOT_FOUND":                     provider.KindInvalidSpec,
	"PERMISSIONS_ERROR":                    provider.KindUnauthorized,
}

// translate gives an error of a call its kind. It and failure are the only places that know Compute Engine's.
func (p *Provider) translate(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &provider.Error{Kind: provider.KindUnavailable, Op: op, Err: err}
	var name *computeclient.NameError
	if errors.As(err, &name) {
		e.Kind = provider.KindInvalidSpec
		return e
	}
	var answer *computeclient.Error
	if !errors.As(err, &answer) {
		return e
	}
	if kind, known := reasons[answer.Reason]; known {
		e.Kind = kind
	} else {
		switch answer.Status {
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			e.Kind = provider.KindInvalidSpec
		case http.StatusUnauthorized:
			e.Kind = provider.KindUnauthorized
		case http.StatusTooManyRequests:
			e.Kind = provider.KindThrottled
		}
	}
	switch e.Kind { //nolint:exhaustive // no other kind holds for more than one instance
	case provider.KindThrottled:
		e.RetryAfter, e.Scope = answer.RetryAfter, "project "+p.o.Settings.Project
	case provider.KindQuotaExceeded:
		// Which quota it is stands only in the text.
		e.Scope = "region " + p.o.Region
	}
	return e
}

// failure says why an operation failed. The first code that is known decides; the text has all of them.
func (p *Provider) failure(zone string, o computeclient.Operation) error {
	e := &provider.Error{Kind: provider.KindUnavailable, Op: "operation " + o.Name}
	var texts []string
	known := false
	for _, f := range o.Failures {
		texts = append(texts, f.Code+": "+f.Message)
		if kind, ok := codes[f.Code]; ok && !known {
			known, e.Kind, e.Scope = true, kind, p.scope(zone, kind, f)
		}
	}
	if len(texts) == 0 {
		// 409 among them: somebody has deleted the machine while it was being made.
		texts = append(texts, fmt.Sprintf("%d: %s", o.HTTPStatus, o.HTTPMessage))
	}
	e.Err = errors.New(strings.Join(texts, "; "))
	return e
}

// scope says what else would fail now for the same reason.
func (p *Provider) scope(zone string, kind provider.Kind, f computeclient.Failure) string {
	switch {
	case strings.HasPrefix(f.Code, "IP_SPACE_EXHAUSTED"):
		return "region " + p.o.Region + " addresses of the subnetwork"
	case kind == provider.KindCapacityExhausted && zone != "":
		return "zone " + zone
	case kind == provider.KindQuotaExceeded:
		return p.quotaScope(f.Quota)
	case f.Code == "RESOURCE_OPERATION_RATE_EXCEEDED":
		return "" // It is about this one machine.
	case kind == provider.KindThrottled:
		return "project " + p.o.Settings.Project
	default:
		return ""
	}
}

// quotaScope names the quota and what it is of: one region, or all of the project.
func (p *Provider) quotaScope(q *computeclient.Quota) string {
	if q == nil {
		return "region " + p.o.Region
	}
	metric := strings.ToUpper(strings.ReplaceAll(path.Base(q.Metric), "-", "_"))
	if strings.HasSuffix(metric, "_ALL_REGIONS") || strings.Contains(strings.ToUpper(q.Limit), "ALL-REGIONS") {
		return "project " + p.o.Settings.Project + " " + metric
	}
	region := q.Region
	if region == "" {
		region = p.o.Region
	}
	return "region " + region + " " + metric
}
