package leaseapi

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// checks collects what is wrong with a request. What the engine knows better (ttl, counts, pages) it is left to say.
type checks struct {
	fields []*leasev1.FieldViolation
}

func (c *checks) add(field, format string, args ...any) {
	c.fields = append(c.fields, &leasev1.FieldViolation{Field: field, Message: fmt.Sprintf(format, args...)})
}

// err returns the refusal, or nil if nothing is wrong.
func (c *checks) err() error {
	if len(c.fields) == 0 {
		return nil
	}
	return invalidRequest(c.fields)
}

var countryText = regexp.MustCompile(`^[A-Za-z]{2}$`)

// notID tells characters that no id has. Each call names an id, so no regular expression is asked.
func notID(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
}

// isDNS tells what is surely a label of DNS, without a regular expression; names with dots are left to Kubernetes' own.
func isDNS(label string) bool {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(label, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' })
}

// networks are the ways to reach a proxy that Acquire can ask for.
var networks = []lease.Network{"PodIP", "HostPort", "VM", networkExternal}

// maxName bounds names of regions and members: what DNS, and so Kubernetes, allows.
const maxName = 253

func (c *checks) fleet(name string) lease.FleetID {
	namespace, fleet, ok := strings.Cut(name, "/")
	switch {
	case name == "":
		c.add("fleet", "fleet is missing; write namespace/name, such as crawl/news")
	case ok && isDNS(namespace) && isDNS(fleet):
	case !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(fleet)) > 0:
		c.add("fleet", "fleet %q is not a fleet's name; write namespace/name, such as crawl/news", cut(name))
	}
	return lease.FleetID(name)
}

func (c *checks) leaseID(id string) lease.ID {
	switch {
	case id == "":
		c.add("leaseId", "leaseId is missing; write the one that Acquire returned")
	case len(id) > lease.MaxKeyBytes || strings.ContainsFunc(id, notID):
		c.add("leaseId", "leaseId %q is not a lease's id; write the one that Acquire returned, made of A-Z a-z 0-9 _ -", cut(id))
	}
	return lease.ID(id)
}

func (c *checks) target(text string) lease.Target {
	target, err := lease.ParseTarget(text)
	c.refusal(err, "target")
	return target
}

// refusal takes over what a parser of the engine says about one field.
func (c *checks) refusal(err error, field string) {
	var refusal *lease.Refusal
	switch {
	case err == nil:
	case errors.As(err, &refusal):
		c.add(field, "%s", refusal.Message)
	default:
		c.add(field, "%s cannot be read", field)
	}
}

func (c *checks) requestID(id string) lease.RequestID {
	switch {
	case len(id) > lease.MaxKeyBytes:
		c.add("requestId", "requestId has %d characters; write at most %d", len(id), lease.MaxKeyBytes)
	case id != "" && strings.ContainsFunc(id, notID):
		c.add("requestId", "requestId %q has other characters than A-Z a-z 0-9 _ -; a UUID is a good one", cut(id))
	}
	return lease.RequestID(id)
}

func (c *checks) sessionKey(key string) string {
	switch {
	case len(key) > lease.MaxKeyBytes:
		c.add("sessionKey", "sessionKey has %d bytes; write at most %d", len(key), lease.MaxKeyBytes)
	case strings.ContainsFunc(key, notVisible):
		c.add("sessionKey", "sessionKey %q has spaces or characters beyond ASCII; write visible ASCII, such as cart-4711", cut(key))
	}
	return key
}

func (c *checks) network(name string) lease.Network {
	if name == "" {
		return ""
	}
	for _, network := range networks {
		if lease.Network(name) == network {
			return network
		}
	}
	c.add("network", "network %q is unknown; write PodIP, HostPort, VM or External, or leave it out for the first that the proxy has", cut(name))
	return ""
}

func (c *checks) selector(selector *leasev1.Selector) lease.Selector {
	if selector == nil {
		return lease.Selector{}
	}
	if n := len(selector.GetLabels()); n > lease.MaxLabels {
		c.add("selector.labels", "selector.labels has %d labels; write at most %d", n, lease.MaxLabels)
		return lease.Selector{}
	}
	for _, key := range slices.Sorted(maps.Keys(selector.GetLabels())) {
		value := selector.GetLabels()[key]
		if len(validation.IsQualifiedName(key)) > 0 {
			c.add("selector.labels", "selector.labels has the key %q, which no label can have; write one such as tier or example.com/tier", cut(key))
		} else if len(validation.IsValidLabelValue(value)) > 0 {
			c.add("selector.labels."+key, "selector.labels.%s is %q, which no label can be; write at most 63 of A-Z a-z 0-9 _ . -", key, cut(value))
		}
	}
	c.name("selector.region", selector.GetRegion())
	c.name("selector.member", selector.GetMember())
	if country := selector.GetCountry(); country != "" && !countryText.MatchString(country) {
		c.add("selector.country", "selector.country is %q; write an ISO 3166 code of two letters, such as DE", cut(country))
	}
	result := lease.Selector{
		Labels: selector.GetLabels(), Region: selector.GetRegion(), Country: selector.GetCountry(), Member: lease.MemberID(selector.GetMember()),
	}
	if text := selector.GetExit(); text != "" {
		exit, err := lease.ParseExit(text)
		c.refusal(err, "selector.exit")
		result.Exit = exit
	}
	return result
}

func (c *checks) name(field, name string) {
	if len(name) > maxName || strings.ContainsFunc(name, notVisible) {
		c.add(field, "%s is %q; write a name of at most %d visible characters", field, cut(name), maxName)
	}
}

// duration keeps the difference between unset and zero.
func (c *checks) duration(field string, d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	if err := d.CheckValid(); err != nil {
		c.add(field, "%s is not a valid duration; write seconds, such as 600s", field)
		return nil
	}
	result := d.AsDuration()
	return &result
}

func optionalInt(n *int32) *int {
	if n == nil {
		return nil
	}
	result := int(*n)
	return &result
}

func acquireCommand(caller Caller, request *leasev1.AcquireRequest) (lease.Acquire, error) {
	var c checks
	cmd := lease.Acquire{
		Principal:  lease.Principal(caller.Principal),
		Fleet:      c.fleet(request.GetFleet()),
		Selector:   c.selector(request.GetSelector()),
		Target:     c.target(request.GetTarget()),
		TTL:        c.duration("ttl", request.GetTtl()),
		Count:      optionalInt(request.Count),
		MinCount:   optionalInt(request.MinCount),
		SessionKey: c.sessionKey(request.GetSessionKey()),
		AllowMove:  request.GetAllowMove(),
		Exclusive:  request.GetExclusive(),
		Network:    c.network(request.GetNetwork()),
		RequestID:  c.requestID(request.GetRequestId()),
	}
	if wait := c.duration("wait", request.GetWait()); wait != nil {
		cmd.Wait = *wait
	}
	return cmd, c.err()
}

func renewCommand(caller Caller, request *leasev1.RenewRequest) (lease.Renew, error) {
	var c checks
	cmd := lease.Renew{
		Principal: lease.Principal(caller.Principal),
		ID:        c.leaseID(request.GetLeaseId()),
		TTL:       c.duration("ttl", request.GetTtl()),
	}
	return cmd, c.err()
}

func releaseCommand(caller Caller, request *leasev1.ReleaseRequest) (lease.Release, error) {
	var c checks
	cmd := lease.Release{Principal: lease.Principal(caller.Principal), ID: c.leaseID(request.GetLeaseId())}
	if request.GetOutcome() != nil {
		observation := c.outcome(request.GetOutcome())
		cmd.Outcome = &observation
	}
	return cmd, c.err()
}

func reportCommand(caller Caller, request *leasev1.ReportRequest) (lease.Report, error) {
	var c checks
	cmd := lease.Report{Principal: lease.Principal(caller.Principal), ID: c.leaseID(request.GetLeaseId())}
	observation := c.outcome(request.GetOutcome())
	observation.Target = c.target(request.GetTarget())
	cmd.Observations = []lease.Observation{observation}
	return cmd, c.err()
}

func getCommand(caller Caller, request *leasev1.GetLeaseRequest) (lease.Get, error) {
	var c checks
	cmd := lease.Get{Principal: lease.Principal(caller.Principal), ID: c.leaseID(request.GetLeaseId())}
	return cmd, c.err()
}

var outcomes = map[leasev1.Outcome_Kind]lease.Outcome{
	leasev1.Outcome_OK:           lease.OK,
	leasev1.Outcome_BLOCKED:      lease.Blocked,
	leasev1.Outcome_CAPTCHA:      lease.Captcha,
	leasev1.Outcome_RATE_LIMITED: lease.RateLimited,
	leasev1.Outcome_TARGET_ERROR: lease.TargetError,
	leasev1.Outcome_PROXY_ERROR:  lease.ProxyError,
	leasev1.Outcome_TIMEOUT:      lease.Timeout,
}

func (c *checks) outcome(outcome *leasev1.Outcome) lease.Observation {
	kind, known := outcomes[outcome.GetKind()]
	if !known {
		said := "is missing"
		if outcome.GetKind() != leasev1.Outcome_KIND_UNSPECIFIED {
			said = fmt.Sprintf("is %d", outcome.GetKind())
		}
		c.add("outcome.kind", "outcome.kind %s; write one of %s", said, enumNames(outcome.GetKind().Descriptor()))
	}
	result := lease.Observation{Outcome: kind, Pages: int(outcome.GetPages())}
	if retryAfter := c.duration("outcome.retryAfter", outcome.GetRetryAfter()); retryAfter != nil {
		result.RetryAfter = *retryAfter
	}
	return result
}
