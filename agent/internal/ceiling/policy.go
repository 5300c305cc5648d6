package ceiling

import "net/netip"

// Rule names a rule of the policy as its owner writes it.
type Rule string

// The rules. Those without "ceiling." are no setting and cannot be turned off.
const (
	// RuleClusterCIDRs keeps the member's own ranges closed. It cannot be turned off.
	RuleClusterCIDRs Rule = "ceiling.clusterCIDRs"
	// RuleMetadata keeps the addresses closed at which clouds serve credentials.
	RuleMetadata Rule = "metadata"
	// RuleReserved keeps addresses closed that are no other host's: loopback, link-local, multicast, and IPv6 that stands
	// for IPv4.
	RuleReserved Rule = "reserved"
	// RuleAllowedCIDRs bounds what egress.allowedCIDRs may open.
	RuleAllowedCIDRs Rule = "ceiling.allowedCIDRs"
	// RuleExternal says whether proxies that someone else runs may be probed from the member. Where they may be is bounded by
	// the rules on addresses.
	RuleExternal Rule = "ceiling.noExternal"
	// RulePorts bounds what egress.ports and egress.connectPorts may open.
	RulePorts Rule = "ceiling.ports"
	// RuleMaxProxies bounds the number of proxies.
	RuleMaxProxies Rule = "ceiling.maxProxies"
	// RuleMaxProxySets bounds the number of placements, and so of the objects that a hub can make in the member.
	RuleMaxProxySets Rule = "ceiling.maxProxySets"
	// RuleMaxProbes bounds how many probes a second the health checks of all proxies add up to.
	RuleMaxProbes Rule = "ceiling.maxProbesPerSecond"
	// RuleSpecSize bounds the size of one placement.
	RuleSpecSize Rule = "spec size"
	// RuleCloudInit says whether virtual machines may be given scripts to run as root.
	RuleCloudInit Rule = "ceiling.cloudInit"
	// RuleCloudInitSecrets lists the Secrets whose text may be put into a virtual machine's metadata.
	RuleCloudInitSecrets Rule = "ceiling.cloudInitSecrets"
	// RuleNodeSelectorKeys lists the labels of nodes that a fleet may choose by.
	RuleNodeSelectorKeys Rule = "ceiling.nodeSelectorKeys"
	// RuleProviders is the list of provider entries.
	RuleProviders Rule = "providers"
)

// What a policy without a number means.
const (
	// DefaultMaxProxies is twice as many as one agent is measured with.
	DefaultMaxProxies = 10_000
	// DefaultMaxProxySets leaves room for several hundred fleets in two revisions each.
	DefaultMaxProxySets = 1_000
	// DefaultMaxProbesPerSecond is what 5,000 proxies make that are probed every 10 s, and about one core's work.
	DefaultMaxProbesPerSecond = 500
	// MaxSpecBytes bounds one placement as it travels. The longest cloud-init is 64 KiB, which its writing as JSON may
	// make six times as long.
	MaxSpecBytes = 512 << 10
)

// Policy is what the member's owner allows.
type Policy struct {
	// Providers are the names of the provider entries.
	Providers []string
	// ClusterCIDRs are the member's pod, service and node ranges.
	ClusterCIDRs []netip.Prefix
	// AllowedCIDRs are the private ranges that a hub may open, in whole or in part. Empty allows none.
	AllowedCIDRs []netip.Prefix
	// NoExternal keeps the member from probing proxies that someone else runs.
	NoExternal bool
	// Ports are the ports that a hub may open. Empty means all but those of mail.
	Ports []PortRange
	// MaxProxies is how many proxies the member hosts at most; 0 means DefaultMaxProxies.
	MaxProxies int
	// MaxProxySets is how many placements the member takes at most; 0 means DefaultMaxProxySets.
	MaxProxySets int
	// MaxProbesPerSecond is how many probes a second all health checks may add up to; 0 means DefaultMaxProbesPerSecond.
	MaxProbesPerSecond int
	// CloudInit says whether virtual machines may be given scripts to run as root.
	CloudInit bool
	// CloudInitSecrets are the names of the Secrets in the agent's namespace that cloudInit.secretRef may name. Empty
	// allows none: what is in the machine's metadata is read by whoever may look at machines.
	CloudInitSecrets []string
	// NodeSelectorKeys are the labels of nodes that placement.nodeSelector may choose by. Empty means
	// DefaultNodeSelectorKeys.
	NodeSelectorKeys []string
}
