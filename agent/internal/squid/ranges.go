package squid

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/shoal-dev/shoal/agent/internal/denied"
)

// RuleError says that something was asked to be allowed that never can be.
type RuleError struct {
	// Field is the field of [Config] that asks.
	Field string
	// Asked is the range asked for; a single address for an echo target.
	Asked netip.Prefix
	// Rule is what forbids it.
	Rule denied.Rule
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
		e.Field, e.Asked, e.Denied, e.Rule.Text(), e.Rule, way)
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
		r.never = append(r.never, n.Prefix)
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
	open, err := subtract(denied.Private(), allowed)
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

// neverRanges are the ranges that are denied whatever else is allowed.
func (c Config) neverRanges() []denied.Range {
	return slices.DeleteFunc(denied.Never(), func(n denied.Range) bool {
		return c.onLoopback && n.Rule == denied.RuleLoopback && n.Prefix.Addr().Is4()
	})
}

// forbid returns a *RuleError if p meets a range that can never be allowed.
func (c Config) forbid(field string, p netip.Prefix, cluster []netip.Prefix) error {
	n, conflict := denied.Conflict(p)
	if conflict && slices.Contains(c.neverRanges(), n) {
		return &RuleError{Field: field, Asked: p, Rule: n.Rule, Denied: n.Prefix}
	}
	for _, own := range cluster {
		if own.Overlaps(p) {
			return &RuleError{Field: field, Asked: p, Rule: denied.RuleCluster, Denied: own}
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
