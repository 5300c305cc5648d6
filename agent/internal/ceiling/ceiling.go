// Package ceiling decides what a hub may ask of a member. Its owner writes the policy into the agent's own
// configuration, which no hub can change; a request above it is refused proxy by proxy, with the rule named.
//
// The package is pure: it imports the API's types and nothing of Kubernetes, and it neither reads nor writes anything.
package ceiling

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Rule names a rule of the policy as its owner writes it.
type Rule string

// The rules.
const (
	// RuleClusterCIDRs keeps the member's own ranges closed. It cannot be turned off.
	RuleClusterCIDRs Rule = "ceiling.clusterCIDRs"
	// RuleMetadata keeps link-local addresses closed, where clouds serve credentials. It cannot be turned off.
	RuleMetadata Rule = "metadata"
	// RuleAllowedCIDRs bounds what egress.allowedCIDRs may open.
	RuleAllowedCIDRs Rule = "ceiling.allowedCIDRs"
	// RuleMaxProxies bounds the number of proxies.
	RuleMaxProxies Rule = "ceiling.maxProxies"
	// RuleCloudInit says whether virtual machines may be given scripts to run as root.
	RuleCloudInit Rule = "ceiling.cloudInit"
	// RuleProviders is the list of provider entries.
	RuleProviders Rule = "providers"
)

// Policy is what the member's owner allows.
type Policy struct {
	// Providers are the names of the provider entries.
	Providers []string
	// ClusterCIDRs are the member's pod, service and node ranges.
	ClusterCIDRs []netip.Prefix
	// AllowedCIDRs are the private ranges that a hub may open, in whole or in part. Empty allows none.
	AllowedCIDRs []netip.Prefix
	// MaxProxies is how many proxies the member hosts at most; 0 means no bound.
	MaxProxies int
	// CloudInit says whether virtual machines may be given scripts to run as root.
	CloudInit bool
}

// Violation is one way in which a request is above the ceiling.
type Violation struct {
	// Rule is the rule that refuses.
	Rule Rule
	// Message says what was asked, and what the hub's user or the member's owner can do.
	Message string
}

// metadata holds the link-local ranges: the addresses at which clouds serve credentials.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("fd00:ec2::254/128"),
}

// Check compares a Proxy's spec with the policy. Index counts the proxies of the member that were there before this
// one. The result is empty where the request is within the ceiling, and names every rule it breaks otherwise.
func Check(p Policy, spec v1alpha1.ProxySpec, index int) []Violation {
	var found []Violation
	refuse := func(rule Rule, format string, args ...any) {
		found = append(found, Violation{Rule: rule, Message: fmt.Sprintf(format, args...)})
	}
	if spec.Mode != v1alpha1.ModeExternal && !slices.Contains(p.Providers, spec.Provider) {
		refuse(RuleProviders, "provider %q is not in this member's provider file; it offers %s", spec.Provider, list(p.Providers))
	}
	if p.MaxProxies > 0 && index >= p.MaxProxies {
		refuse(RuleMaxProxies, "this member hosts at most %d proxies and has them; place fewer here, or have its owner raise the number", p.MaxProxies)
	}
	if spec.CloudInit != nil && !p.CloudInit {
		refuse(RuleCloudInit, "this member takes no cloud-init, which runs as root; leave cloudInit out, or have its owner set the rule to true")
	}
	for _, s := range spec.Egress.AllowedCIDRs {
		checkCIDR(p, s, refuse)
	}
	return found
}

func checkCIDR(p Policy, s string, refuse func(Rule, string, ...any)) {
	asked, err := netip.ParsePrefix(s)
	if err != nil {
		refuse(RuleAllowedCIDRs, "egress.allowedCIDRs has %q, which is no CIDR; write 10.20.0.0/16, or 10.20.0.7/32 for one address", s)
		return
	}
	asked = plain(asked)
	for _, m := range metadata {
		if m.Overlaps(asked) {
			refuse(RuleMetadata, "egress.allowedCIDRs has %s, which overlaps the metadata range %s; it can never be allowed", s, m)
			return
		}
	}
	for _, c := range p.ClusterCIDRs {
		if plain(c).Overlaps(asked) {
			refuse(RuleClusterCIDRs, "egress.allowedCIDRs has %s, which overlaps this member's own range %s; it can never be allowed", s, c)
			return
		}
	}
	within := func(c netip.Prefix) bool {
		c = plain(c)
		return c.Bits() <= asked.Bits() && c.Contains(asked.Addr())
	}
	if !slices.ContainsFunc(p.AllowedCIDRs, within) {
		refuse(RuleAllowedCIDRs, "egress.allowedCIDRs has %s, and this member allows %s; ask for a part of that, or have its owner widen it", s, list(p.AllowedCIDRs))
	}
}

// plain writes an IPv4 range that is dressed as IPv6 (::ffff:10.0.0.0/104) as the IPv4 range it is, so that the dress
// hides nothing.
func plain(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked()
	}
	return p.Masked()
}

func list[T any](items []T) string {
	if len(items) == 0 {
		return "none"
	}
	words := make([]string, len(items))
	for i, item := range items {
		words[i] = fmt.Sprint(item)
	}
	return strings.Join(words, ", ")
}
