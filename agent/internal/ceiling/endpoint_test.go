package ceiling_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// TestExternalEndpoints holds what a hub could use an agent for as a scanner: every address that is not the internet's,
// but for the private ones that the owner opens.
func TestExternalEndpoints(t *testing.T) {
	policy := ceiling.Policy{
		ClusterCIDRs: prefixes("10.244.0.0/16", "203.0.114.0/24", "fd00:10::/32"), AllowedCIDRs: prefixes("172.30.0.0/16", "10.0.0.0/8"),
	}
	closed := policy
	closed.NoExternal = true
	for name, c := range map[string]struct {
		policy ceiling.Policy
		host   string
		rule   ceiling.Rule
	}{
		"Public":             {policy, "8.8.8.8", ""},
		"PublicIPv6":         {policy, "2606:4700::1", ""},
		"Name":               {policy, "proxy.example.com", ""}, // its addresses are asked about when it is dialled
		"PrivateAllowed":     {policy, "172.30.1.2", ""},
		"PrivateInTen":       {policy, "10.1.2.3", ""},
		"Private":            {policy, "192.168.1.1", ceiling.RuleAllowedCIDRs},
		"PrivateIPv6":        {policy, "fd00:9::1", ceiling.RuleAllowedCIDRs},
		"CarrierGrade":       {policy, "100.64.0.1", ceiling.RuleAllowedCIDRs},
		"Cluster":            {policy, "10.244.3.4", ceiling.RuleClusterCIDRs}, // allowed for others does not open it
		"ClusterIPv6":        {policy, "fd00:10::7", ceiling.RuleClusterCIDRs},
		"ClusterDressed":     {policy, "::ffff:10.244.3.4", ceiling.RuleClusterCIDRs},
		"PublicNode":         {policy, "203.0.114.9", ceiling.RuleClusterCIDRs},
		"Metadata":           {policy, "169.254.169.254", ceiling.RuleMetadata},
		"MetadataDressed":    {policy, "::ffff:169.254.169.254", ceiling.RuleMetadata},
		"MetadataIPv6":       {policy, "fd00:ec2::254", ceiling.RuleMetadata},
		"MetadataOfOthers":   {policy, "100.100.100.200", ceiling.RuleMetadata},
		"MetadataTranslated": {policy, "64:ff9b::a9fe:a9fe", ceiling.RuleReserved},
		"Loopback":           {policy, "127.0.0.1", ceiling.RuleReserved},
		"LoopbackIPv6":       {policy, "::1", ceiling.RuleReserved},
		"Nothing":            {policy, "0.0.0.0", ceiling.RuleReserved},
		"LinkLocal":          {policy, "fe80::1", ceiling.RuleReserved},
		"Multicast":          {policy, "239.1.2.3", ceiling.RuleReserved},
		"NotHere":            {closed, "8.8.8.8", ceiling.RuleExternal},
		"NotHereByName":      {closed, "proxy.example.com", ceiling.RuleExternal},
	} {
		t.Run(name, func(t *testing.T) {
			spec := v1alpha1.ProxySpec{Mode: v1alpha1.ModeExternal, Endpoint: &v1alpha1.ProxyEndpoint{Host: c.host, Port: 22}}
			found := ceiling.Check(c.policy, spec, ceiling.Ahead{})
			if c.rule == "" {
				if len(found) != 0 {
					t.Fatalf("refused: %+v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Rule != c.rule || found[0].Message == "" {
				t.Fatalf("found %+v, want %s", found, c.rule)
			}
			// What a name turns out to stand for is held to the same.
			if addr, err := netip.ParseAddr(c.host); err == nil && c.rule != ceiling.RuleExternal {
				v := c.policy.Dial(addr)
				if v == nil || v.Rule != c.rule || !strings.Contains(v.Error(), string(c.rule)) {
					t.Errorf("dial: %+v", v)
				}
			}
		})
	}
}
