package ceiling

import (
	"net/netip"
	"slices"

	"github.com/shoal-dev/shoal/agent/internal/denied"
)

// checkCIDR refuses a range that meets what is never open, or that the owner does not open. What is compared is the
// range's one form, so that no spelling hides an address.
func checkCIDR(p Policy, s string, f *findings) {
	asked, err := netip.ParsePrefix(s)
	if err != nil {
		f.refuse(RuleAllowedCIDRs, "egress.allowedCIDRs has %q, which is no CIDR; write 10.20.0.0/16, or 10.20.0.7/32 for one address", s)
		return
	}
	plain, ok := denied.Plain(asked)
	if !ok {
		f.refuse(RuleReserved, "egress.allowedCIDRs has %s, which has all of IPv4 in it in another spelling; write IPv4 ranges as such", s)
		return
	}
	if never, conflict := denied.Conflict(plain); conflict {
		rule := RuleReserved
		if never.Rule == denied.RuleMetadata {
			rule = RuleMetadata
		}
		f.refuse(rule, "egress.allowedCIDRs has %s, which overlaps %s, %s; it can never be allowed", s, never.Prefix, never.Rule.Text())
		return
	}
	for _, c := range p.ClusterCIDRs {
		if own, ok := denied.Plain(c); !ok || own.Overlaps(plain) {
			f.refuse(RuleClusterCIDRs, "egress.allowedCIDRs has %s, which overlaps this member's own range %s; it can never be allowed", s, c)
			return
		}
	}
	within := func(c netip.Prefix) bool {
		c, ok := denied.Plain(c)
		return ok && c.Bits() <= plain.Bits() && c.Contains(plain.Addr())
	}
	if !slices.ContainsFunc(p.AllowedCIDRs, within) {
		f.refuse(RuleAllowedCIDRs, "egress.allowedCIDRs has %s, and this member allows %s; ask for a part of that, or have its owner widen it", s, list(p.AllowedCIDRs))
	}
}
