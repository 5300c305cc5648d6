// Package denied is the one list of addresses that no proxy connects to: those that can never be allowed, and the
// private ones that can be allowed in part. Whoever renders a denial, or decides whether something may be allowed, reads
// it here.
//
// The package is pure and its answers are copies.
package denied

import (
	"net/netip"
	"slices"
)

// Rule names a kind of address that no fleet can be allowed to reach.
type Rule string

// The rules, in the order in which they are looked for.
const (
	// RuleMetadata covers cloud metadata services and IPv4 link-local addresses, where most of them live.
	RuleMetadata Rule = "Metadata"
	// RuleCluster covers the member's own pod, service and node ranges. They are its owner's to write: [Never] has none.
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

// Text says what the rule covers, for people.
func (r Rule) Text() string { return ruleTexts[r] }

// Range is a range and the rule that denies it.
type Range struct {
	Rule   Rule
	Prefix netip.Prefix
}

var never = []Range{
	{RuleMetadata, netip.MustParsePrefix("169.254.0.0/16")},
	// Metadata services outside of link-local: AWS and GCE over IPv6, Alibaba, Oracle, and Azure's on a public address.
	{RuleMetadata, netip.MustParsePrefix("fd00:ec2::254/128")},
	{RuleMetadata, netip.MustParsePrefix("fd20:ce::254/128")},
	{RuleMetadata, netip.MustParsePrefix("100.100.100.200/32")},
	{RuleMetadata, netip.MustParsePrefix("192.0.0.192/32")},
	{RuleMetadata, netip.MustParsePrefix("168.63.129.16/32")},
	{RuleLoopback, netip.MustParsePrefix("127.0.0.0/8")},
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

var private = []netip.Prefix{
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

// Never gives the ranges that can never be allowed.
func Never() []Range { return slices.Clone(never) }

// Private gives the ranges that are denied unless a part of them is allowed.
func Private() []netip.Prefix { return slices.Clone(private) }

// Conflict finds the range that keeps p from being allowed. A single address inside of a range that is much wider does
// not make the wide one unusable: it stays denied beside what is allowed around it.
//
// IPv4 dressed as IPv6 has to be undressed before ([Plain]).
func Conflict(p netip.Prefix) (Range, bool) {
	for _, n := range never {
		inside := n.Prefix.IsSingleIP() && p.Bits() < n.Prefix.Bits() && p.Bits() > 0
		if n.Prefix.Overlaps(p) && !inside {
			return n, true
		}
	}
	return Range{}, false
}

// mapped is where IPv6 keeps IPv4 addresses in another dress.
var mapped = netip.MustParsePrefix("::ffff:0:0/96")

// Plain gives the range in its one form: without bits beyond its length, and as IPv4 where it is IPv4 dressed as IPv6
// (::ffff:10.0.0.0/104). It is false for a range of IPv6 that has all of those in it and more, which no single form has.
func Plain(p netip.Prefix) (netip.Prefix, bool) {
	switch {
	case !p.IsValid():
		return netip.Prefix{}, false
	case p.Addr().Is4In6() && p.Bits() >= mapped.Bits():
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped.Bits()).Masked(), true
	case p.Addr().Is6() && p.Overlaps(mapped):
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}
