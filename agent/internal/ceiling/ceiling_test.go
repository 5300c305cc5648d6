package ceiling_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func prefixes(s ...string) []netip.Prefix {
	var p []netip.Prefix
	for _, one := range s {
		p = append(p, netip.MustParsePrefix(one))
	}
	return p
}

func TestCheck(t *testing.T) {
	policy := ceiling.Policy{
		Providers:    []string{"default", "spare"},
		ClusterCIDRs: prefixes("10.244.0.0/16", "172.30.0.5/32"),
		AllowedCIDRs: prefixes("172.30.0.0/16", "10.0.0.0/8"),
		MaxProxies:   3,
	}
	managed := func(change func(*v1alpha1.ProxySpec)) v1alpha1.ProxySpec {
		spec := v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: "default"}
		if change != nil {
			change(&spec)
		}
		return spec
	}
	allow := func(cidrs ...string) v1alpha1.ProxySpec {
		return managed(func(s *v1alpha1.ProxySpec) { s.Egress.AllowedCIDRs = cidrs })
	}
	cases := map[string]struct {
		reason string
		spec   v1alpha1.ProxySpec
		index  int
		rules  []ceiling.Rule
		says   string
	}{
		"Within":          {reason: "nothing is asked beyond the policy", spec: allow("172.30.0.9/32")},
		"UnknownProvider": {reason: "the file is the list of what there is", spec: managed(func(s *v1alpha1.ProxySpec) { s.Provider = "gold" }), rules: []ceiling.Rule{ceiling.RuleProviders}, says: "default, spare"},
		"External":        {reason: "an external proxy needs no provider", spec: v1alpha1.ProxySpec{Mode: v1alpha1.ModeExternal}},
		"Full":            {reason: "the fourth of three", spec: managed(nil), index: 3, rules: []ceiling.Rule{ceiling.RuleMaxProxies}, says: "at most 3"},
		"LastOne":         {reason: "the third of three", spec: managed(nil), index: 2},
		"CloudInit":       {reason: "scripts run as root", spec: managed(func(s *v1alpha1.ProxySpec) { s.CloudInit = &v1alpha1.CloudInit{Inline: "x"} }), rules: []ceiling.Rule{ceiling.RuleCloudInit}, says: "leave cloudInit out"},
		"Metadata":        {reason: "credentials are served there", spec: allow("169.254.169.254/32"), rules: []ceiling.Rule{ceiling.RuleMetadata}, says: "never"},
		"MetadataInside":  {reason: "a wide range hides it", spec: allow("0.0.0.0/0"), rules: []ceiling.Rule{ceiling.RuleMetadata}, says: "169.254.0.0/16"},
		"MetadataDressed": {reason: "an IPv4 address written as IPv6", spec: allow("::ffff:169.254.169.254/128"), rules: []ceiling.Rule{ceiling.RuleMetadata}, says: "never"},
		"ClusterPart":     {reason: "a part of the pod range", spec: allow("10.244.3.0/24"), rules: []ceiling.Rule{ceiling.RuleClusterCIDRs}, says: "10.244.0.0/16"},
		"ClusterAround":   {reason: "a range around the pod range", spec: allow("10.0.0.0/8"), rules: []ceiling.Rule{ceiling.RuleClusterCIDRs}, says: "own range"},
		"OwnNode":         {reason: "a node of the member", spec: allow("172.30.0.0/24"), rules: []ceiling.Rule{ceiling.RuleClusterCIDRs}, says: "172.30.0.5/32"},
		"TooWide":         {reason: "wider than the policy", spec: allow("172.16.0.0/12"), rules: []ceiling.Rule{ceiling.RuleClusterCIDRs}, says: "172.30.0.5/32"},
		"Elsewhere":       {reason: "private, and not in the policy", spec: allow("192.168.7.0/24"), rules: []ceiling.Rule{ceiling.RuleAllowedCIDRs}, says: "172.30.0.0/16, 10.0.0.0/8"},
		"NoCIDR":          {reason: "an address without length", spec: allow("10.1.2.3"), rules: []ceiling.Rule{ceiling.RuleAllowedCIDRs}, says: "10.20.0.7/32"},
		"Several": {
			reason: "every rule that is broken is named",
			spec: managed(func(s *v1alpha1.ProxySpec) {
				s.Provider, s.CloudInit, s.Egress.AllowedCIDRs = "gold", &v1alpha1.CloudInit{}, []string{"192.168.0.0/16"}
			}),
			index: 9,
			rules: []ceiling.Rule{ceiling.RuleProviders, ceiling.RuleMaxProxies, ceiling.RuleCloudInit, ceiling.RuleAllowedCIDRs},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var rules []ceiling.Rule
			var messages []string
			for _, v := range ceiling.Check(policy, c.spec, ceiling.Ahead{Proxies: c.index}) {
				rules = append(rules, v.Rule)
				messages = append(messages, v.Message)
			}
			if diff := cmp.Diff(c.rules, rules); diff != "" {
				t.Errorf("%s: rules (-want +got):\n%s", c.reason, diff)
			}
			if said := strings.Join(messages, "\n"); !strings.Contains(said, c.says) {
				t.Errorf("%s: want a message that says %q, got %q", c.reason, c.says, said)
			}
		})
	}
}

func TestNothingIsAllowedByDefault(t *testing.T) {
	policy := ceiling.Policy{Providers: []string{"default"}, ClusterCIDRs: prefixes("10.244.0.0/16")}
	spec := v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: "default"}
	spec.Egress.AllowedCIDRs = []string{"192.168.1.1/32"}
	got := ceiling.Check(policy, spec, ceiling.Ahead{})
	if len(got) != 1 || got[0].Rule != ceiling.RuleAllowedCIDRs || !strings.Contains(got[0].Message, "none") {
		t.Errorf("an empty policy must allow no private range, got %v", got)
	}
}
