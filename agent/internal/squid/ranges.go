package squid

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Rule names a kind of address that no fleet can be allowed to reach.
type Rule string

// The rules, in the order in which they are looked for.
const (
	// RuleMetadata covers cloud metadata services and IPv4 link-local addresses, where most of them live.
	RuleMetadata Rule = "Metadata"
	// RuleCluster covers the member's own pod, service and node ranges.
	RuleCluster Rule = "Cluster"
	// RuleLoopback covers the proxy itself.
	RuleLoopback Rule = "Loopback"
	// RuleLinkLocal covers IPv6 addresses that are valid on one link or site only.
	RuleLinkLocal Rule = "LinkLocal"
	// RuleMulticast covers group addresses.
	RuleMulticast Rule = "Multicast"
	// RuleReserved covers addresses that belong to no host.
	RuleReserved Rule = "Reserved"
	// RuleTranslated covers IPv6 addresses that stand for an IPv4 address and would lead around the IPv4 lists.
	RuleTranslated Rule = "Translated"
)

var ruleTexts = map[Rule]string{
	RuleMetadata:   "a cloud metadata service",
	RuleCluster:    "a range of this member's own cluster",
	RuleLoopback:   "the proxy's own loopback",
	RuleLinkLocal:  "a link-local or site-local range",
	RuleMulticast:  "a multicast range",
	RuleReserved:   "a reserved range",
	RuleTranslated: "a range of IPv6 addresses that stand for IPv4 ones",
}

// RuleError says that something was asked to be allowed that never can be.
type RuleError struct {
	// Field is the field of [Config] that asks.
	Field string
	// Asked is the range asked for; a single address for an echo target.
	Asked netip.Prefix
	// Rule is what forbids it.
	Rule Rule
	// Denied is the forbidden range that it meets.
	Denied netip.Prefix
}

// Error names the field, the range, the rule and the way out.
func (e *RuleError) Error() string {
	way := "take it out, or narrow it to what lies outside"
	if e.Field == "EchoTargets" {
		way = "serve the echo from an address outside of it"
	}
	return fmt.Sprintf("%s: %v meets %v, %s, which can never be allowed (rule %s); %s",
		e.Field, e.Asked, e.Denied, ruleTexts[e.Rule], e.Rule, way)
}

// neverRange is an entry of the never list.
type neverRange struct {
	rule   Rule
	prefix netip.Prefix
}

var neverRanges = []neverRange{
	{RuleMetadata, netip.MustParsePrefix("169.254.0.0/16")},
	// Metadata services outside of link-local: AWS and GCE over IPv6, Alibaba, Oracle, and Azure's on a public address.
	{RuleMetadata, netip.MustParsePrefix("fd00:ec2::254/128")},
	{RuleMetadata, netip.MustParsePrefix("fd20:ce::254/128")},
	{RuleMetadata, netip.MustParsePrefix("100.100.100.200/32")},
	{RuleMetadata, netip.MustParsePrefix("192.0.0.192/32")},
	{RuleMetadata, netip.MustParsePrefix("168.63.129.16/32")},
	{RuleLoopback, loopback4},
	{RuleLoopback, netip.MustParsePrefix("::1/128")},
	{RuleLinkLocal, netip.MustParsePrefix("fe80::/10")},
	{RuleLinkLocal, netip.MustParsePrefix("fec0::/10")},
	{RuleMulticast, netip.MustParsePrefix("224.0.0.0/4")},
	{RuleMulticast, netip.MustParsePrefix("ff00::/8")},
	{RuleReserved, netip.MustParsePrefix("0.0.0.0/8")},
	{RuleReserved, netip.MustParsePrefix("240.0.0.0/4")},
	{RuleReserved, netip.MustParsePrefix("::/128")},
	{RuleReserved, netip.MustParsePrefix("100::/64")},
	{RuleTranslated, netip.MustParsePrefix("64:ff9b::/96")},
	{RuleTranslated, netip.MustParsePrefix("64:ff9b:1::/48")},
	{RuleTranslated, netip.MustParsePrefix("2001::/32")},
	{RuleTranslated, netip.MustParsePrefix("2002::/16")},
}

var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

// privateRanges are denied unless a fleet is allowed a part of them.
var privateRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("fc00::/7"),
}

// ranges is what the template denies, and the echo targets cut out of it.
type ranges struct {
	never, cluster, private []netip.Prefix
	// echo is the address of every echo target.
	echo []netip.Prefix
	// echoOnly are those that only probes may reach: they would be denied if they were no targets.
	echoOnly []netip.Prefix
}

func (c Config) ranges() (ranges, error) {
	var r ranges
	for _, n := range c.neverRanges() {
		r.never = append(r.never, n.prefix)
	}
	cluster, err := cleanPrefixes("ClusterCIDRs", c.ClusterCIDRs)
	if err != nil {
		return ranges{}, err
	}
	if i := slices.IndexFunc(cluster, func(p netip.Prefix) bool { return p.Bits() == 0 }); i >= 0 {
		return ranges{}, &FieldError{Field: "ClusterCIDRs", Problem: fmt.Sprintf("%v would deny everything; give the cluster's pod, service and node ranges", cluster[i])}
	}
	allowed, err := cleanPrefixes("AllowedCIDRs", c.AllowedCIDRs)
	if err != nil {
		return ranges{}, err
	}
	for _, p := range allowed {
		if err := c.forbid("AllowedCIDRs", p, cluster); err != nil {
			return ranges{}, err
		}
	}
	open, err := subtract(privateRanges, allowed)
	if err != nil {
		return ranges{}, err
	}
	for _, target := range c.EchoTargets {
		if !target.IsValid() || target.Port() == 0 || target.Addr().Zone() != "" {
			return ranges{}, &FieldError{Field: "EchoTargets", Problem: fmt.Sprintf("%v is no address with a port", target)}
		}
		addr := target.Addr().Unmap()
		p := netip.PrefixFrom(addr, addr.BitLen())
		if err := c.forbid("EchoTargets", p, cluster); err != nil {
			return ranges{}, err
		}
		r.echo = append(r.echo, p)
		if slices.ContainsFunc(open, p.Overlaps) {
			r.echoOnly = append(r.echoOnly, p)
		}
	}
	if r.cluster, err = subtract(cluster, nil); err != nil {
		return ranges{}, err
	}
	if r.private, err = subtract(open, r.echoOnly); err != nil {
		return ranges{}, err
	}
	// Sets are sorted and without repetition, whatever order the input had.
	if r.echo, err = subtract(r.echo, nil); err != nil {
		return ranges{}, err
	}
	if r.echoOnly, err = subtract(r.echoOnly, nil); err != nil {
		return ranges{}, err
	}
	return r, nil
}

func (c Config) neverRanges() []neverRange {
	if !c.onLoopback {
		return neverRanges
	}
	return slices.DeleteFunc(slices.Clone(neverRanges), func(n neverRange) bool { return n.prefix == loopback4 })
}

// forbid returns a *RuleError if p meets a range that can never be allowed.
func (c Config) forbid(field string, p netip.Prefix, cluster []netip.Prefix) error {
	for _, n := range c.neverRanges() {
		// A single metadata address inside of a wide private range does not make the range unusable: it is on a list
		// of its own and stays denied.
		if inside := n.prefix.IsSingleIP() && p.Bits() < n.prefix.Bits() && p.Bits() > 0; n.prefix.Overlaps(p) && !inside {
			return &RuleError{Field: field, Asked: p, Rule: n.rule, Denied: n.prefix}
		}
	}
	for _, own := range cluster {
		if own.Overlaps(p) {
			return &RuleError{Field: field, Asked: p, Rule: RuleCluster, Denied: own}
		}
	}
	return nil
}

// cleanPrefixes refuses what is no range as written, and turns IPv4-mapped ranges into IPv4 ones, as Squid does.
func cleanPrefixes(field string, prefixes []netip.Prefix) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		switch {
		case !p.IsValid():
			return nil, &FieldError{Field: field, Problem: "contains an invalid range; write one like 10.20.0.0/16"}
		case p != p.Masked():
			return nil, &FieldError{Field: field, Problem: fmt.Sprintf("%v has bits set beyond its length; write %v or a longer range", p, p.Masked())}
		case p.Addr().Is4In6() && p.Bits() < 96:
			return nil, &FieldError{Field: field, Problem: fmt.Sprintf("%v mixes IPv4 and IPv6; write the IPv4 range itself", p)}
		case p.Addr().Is4In6():
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		out = append(out, p)
	}
	return out, nil
}

// subtract returns the smallest sorted list of ranges that covers exactly what is in from and not in what.
func subtract(from, what []netip.Prefix) ([]netip.Prefix, error) {
	var b netipx.IPSetBuilder
	for _, p := range from {
		b.AddPrefix(p)
	}
	for _, p := range what {
		b.RemovePrefix(p)
	}
	set, err := b.IPSet()
	if err != nil {
		return nil, fmt.Errorf("computing the denied ranges: %w", err)
	}
	return set.Prefixes(), nil
}
