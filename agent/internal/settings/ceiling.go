package settings

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
)

// Ceiling bounds what a hub may ask for.
type Ceiling struct {
	// ClusterCIDRs are the member's own ranges, required: a cluster's pods, services and nodes, or the networks of a region.
	// No proxy ever connects there. They are written here and not read from the cluster, because each change of them
	// replaces every proxy.
	ClusterCIDRs []string `yaml:"clusterCIDRs"`
	// AllowedCIDRs are the private ranges a fleet may open.
	AllowedCIDRs []string `yaml:"allowedCIDRs,omitempty"`
	// NoExternal keeps the member from probing proxies that someone else runs.
	NoExternal bool `yaml:"noExternal,omitempty"`
	// Ports are the ports and ranges of ports a fleet may open, such as "443" and "8000-8999". Empty means all but those of
	// mail.
	Ports []string `yaml:"ports,omitempty"`
	// MaxProxies is how many proxies the member hosts at most; 0 means 10,000.
	MaxProxies int `yaml:"maxProxies,omitempty"`
	// MaxProxySets is how many placements the member takes at most, of all fleets and their revisions; 0 means 1,000.
	MaxProxySets int `yaml:"maxProxySets,omitempty"`
	// MaxProbesPerSecond is how many probes a second the health checks of all proxies may add up to; 0 means 500.
	MaxProbesPerSecond int `yaml:"maxProbesPerSecond,omitempty"`
	// CloudInit says whether virtual machines may be given scripts to run as root.
	CloudInit bool `yaml:"cloudInit,omitempty"`
	// CloudInitSecrets are the Secrets in the agent's namespace that a fleet's cloudInit.secretRef may name. The agent needs
	// the right to read each.
	CloudInitSecrets []string `yaml:"cloudInitSecrets,omitempty"`
	// NodeSelectorKeys are the labels of nodes that a fleet may choose by. Empty means region, zone and architecture.
	NodeSelectorKeys []string `yaml:"nodeSelectorKeys,omitempty"`

	ports            []ceiling.PortRange
	cluster, allowed []netip.Prefix
}

// Policy gives the ceiling of a member that offers these entries.
func (c *Ceiling) Policy(providers []string) ceiling.Policy {
	return ceiling.Policy{
		Providers:          providers,
		ClusterCIDRs:       c.cluster,
		AllowedCIDRs:       c.allowed,
		NoExternal:         c.NoExternal,
		Ports:              c.ports,
		MaxProxies:         c.MaxProxies,
		MaxProxySets:       c.MaxProxySets,
		MaxProbesPerSecond: c.MaxProbesPerSecond,
		CloudInit:          c.CloudInit,
		CloudInitSecrets:   c.CloudInitSecrets,
		NodeSelectorKeys:   c.NodeSelectorKeys,
	}
}

// checkCeiling checks the ceiling that is written in a block, of what is named.
func (d *document) checkCeiling(block string, c *Ceiling, of string) {
	refuse := d.under(block)
	if len(c.ClusterCIDRs) == 0 {
		refuse("clusterCIDRs", "it is required: without it proxies could reach into %s; write its own ranges, such as [10.244.0.0/16, 10.96.0.0/16]", of)
	}
	c.cluster = d.prefixes(join(block, "clusterCIDRs"), c.ClusterCIDRs)
	c.allowed = d.prefixes(join(block, "allowedCIDRs"), c.AllowedCIDRs)
	for i, w := range c.Ports {
		p, err := ceiling.ParsePortRange(w)
		if err != nil {
			refuse(fmt.Sprintf("ports[%d]", i), "%v", err)
			continue
		}
		c.ports = append(c.ports, p)
	}
	for _, n := range []struct {
		field, what string
		number      int
	}{
		{"maxProxies", "proxies", c.MaxProxies},
		{"maxProxySets", "placements", c.MaxProxySets},
		{"maxProbesPerSecond", "probes", c.MaxProbesPerSecond},
	} {
		if n.number < 0 {
			refuse(n.field, "%d is no number of %s; write 0 for the default, or more", n.number, n.what)
		}
	}
	for i, name := range c.CloudInitSecrets {
		if ceiling.IsOwnSecret(name) {
			refuse(fmt.Sprintf("cloudInitSecrets[%d]", i), "Secret %q is the agent's own and is never put into a machine; name one whose name does not begin with shoal-", name)
		}
	}
}

func (d *document) prefixes(field string, written []string) []netip.Prefix {
	var parsed []netip.Prefix
	for i, w := range written {
		p, err := netip.ParsePrefix(w)
		if err != nil || p != p.Masked() {
			d.refuse(fmt.Sprintf("%s[%d]", field, i), "%q is no CIDR; write a network such as 10.20.0.0/16, or 10.20.0.7/32 for one address", w)
			continue
		}
		parsed = append(parsed, p)
	}
	return parsed
}

// within gives the range that a target is in.
func within(target netip.AddrPort, ranges []netip.Prefix) (netip.Prefix, bool) {
	i := slices.IndexFunc(ranges, func(r netip.Prefix) bool { return r.Contains(target.Addr()) })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return ranges[i], true
}
