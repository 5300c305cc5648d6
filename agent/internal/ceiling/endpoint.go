package ceiling

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/shoal-dev/shoal/agent/internal/denied"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// checkEndpoint bounds where a proxy that someone else runs may be: without a bound a hub could learn from the probes what
// listens in the member's own network. A name is looked up at each probe only, and what it stands for then is asked of
// Dial.
func checkEndpoint(p Policy, spec v1alpha1.ProxySpec, f *findings) {
	if spec.Mode != v1alpha1.ModeExternal {
		return
	}
	if p.NoExternal {
		f.refuse(RuleExternal, "this member probes no proxies that someone else runs; choose others with placement.memberSelector, or have its owner unset the rule")
		return
	}
	if spec.Endpoint == nil {
		return
	}
	if addr, err := netip.ParseAddr(spec.Endpoint.Host); err == nil {
		if v := p.Dial(addr); v != nil {
			f.refuse(v.Rule, "endpoint.host is %s", v.Message)
		}
	}
}

// Dial says why the agent may not connect to the address of a proxy that someone else runs; nil if it may. Private
// addresses are open where the owner allows fleets to open them, the member's own ranges and metadata never.
func (p Policy) Dial(addr netip.Addr) *Violation {
	no := func(rule Rule, format string, args ...any) *Violation {
		return &Violation{Rule: rule, Message: fmt.Sprintf(format, args...)}
	}
	addr = addr.WithZone("")
	plain, ok := denied.Plain(netip.PrefixFrom(addr, addr.BitLen()))
	if !ok {
		return no(RuleReserved, "%s, which is no address of a host", addr)
	}
	if never, conflict := denied.Conflict(plain); conflict {
		rule := RuleReserved
		if never.Rule == denied.RuleMetadata {
			rule = RuleMetadata
		}
		return no(rule, "%s, in %s, %s; no proxy can be there", addr, never.Prefix, never.Rule.Text())
	}
	within := func(c netip.Prefix) bool {
		c, ok := denied.Plain(c)
		return ok && c.Contains(plain.Addr())
	}
	if i := slices.IndexFunc(p.ClusterCIDRs, within); i >= 0 {
		return no(RuleClusterCIDRs, "%s, in this member's own range %s; no proxy that someone else runs can be there", addr, p.ClusterCIDRs[i])
	}
	if slices.ContainsFunc(denied.Private(), within) && !slices.ContainsFunc(p.AllowedCIDRs, within) {
		return no(RuleAllowedCIDRs, "%s, a private address, and this member allows %s; have its owner widen that, or choose members that do", addr, list(p.AllowedCIDRs))
	}
	return nil
}

// Error lets a violation be the reason of a failed probe.
func (v *Violation) Error() string { return string(v.Rule) + ": " + v.Message }
