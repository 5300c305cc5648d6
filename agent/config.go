package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/enroll"
)

// Settings is the agent's configuration file: what the owner of the cluster says. The hub cannot change it.
type Settings struct {
	// Member says which member the agent speaks for.
	Member MemberSettings `yaml:"member"`
	// Hub says where the hub is.
	Hub HubSettings `yaml:"hub"`
	// Providers are the entries that fleets may name.
	Providers []ProviderSettings `yaml:"providers"`
	// Ceiling bounds what a hub may ask for.
	Ceiling CeilingSettings `yaml:"ceiling"`
	// Probe says what proxies are probed with.
	Probe ProbeSettings `yaml:"probe"`
}

// MemberSettings says which member the agent speaks for.
type MemberSettings struct {
	// Name is the MemberCluster's name on the hub.
	Name string `yaml:"name"`
	// Region is where the member is, for placement and leases.
	Region string `yaml:"region,omitempty"`
	// Country is the ISO 3166 code of the country it leaves from.
	Country string `yaml:"country,omitempty"`
}

// HubSettings says where the hub is.
type HubSettings struct {
	// URL is https://host:port of the hub's listener for agents.
	URL string `yaml:"url"`
	// CAPin is "sha256:" and the hash of the public key of the hub's certificate authority.
	CAPin string `yaml:"caPin"`
}

// Exposure says how crawlers reach a pod.
type Exposure string

// The exposures.
const (
	// ExposurePodIP is for crawlers on a network that routes to pods.
	ExposurePodIP Exposure = "PodIP"
	// ExposureHostPort gives each proxy a port of its own on its node.
	ExposureHostPort Exposure = "HostPort"
)

// ProviderSettings is an entry that fleets may name.
type ProviderSettings struct {
	// Name is what a fleet's template writes as provider.
	Name string `yaml:"name"`
	// Type is the kind of provider: kubernetes.
	Type string `yaml:"type"`
	// Kubernetes configures a provider of type kubernetes.
	Kubernetes *KubernetesSettings `yaml:"kubernetes,omitempty"`
}

// KubernetesSettings configures a provider that runs pods beside the agent.
type KubernetesSettings struct {
	// Image is the proxy image.
	Image string `yaml:"image"`
	// ImagePullPolicy is Kubernetes' own; unset means Kubernetes' default.
	ImagePullPolicy string `yaml:"imagePullPolicy,omitempty"`
	// Exposure says how crawlers reach the pods.
	Exposure Exposure `yaml:"exposure"`
	// HostPortRange is first-last, with exposure HostPort. It must not overlap the cluster's node ports.
	HostPortRange string `yaml:"hostPortRange,omitempty"`
	// NodeSelector chooses nodes by label.
	NodeSelector map[string]string `yaml:"nodeSelector,omitempty"`

	first, last int32
}

// HostPorts gives the first and the last port of the range; both are 0 with exposure PodIP.
func (k *KubernetesSettings) HostPorts() (first, last int32) { return k.first, k.last }

// CeilingSettings bounds what a hub may ask for.
type CeilingSettings struct {
	// ClusterCIDRs are the cluster's pod, service and node ranges, required: no proxy ever connects there. They are written
	// here and not read from the cluster, because each change of them replaces every proxy.
	ClusterCIDRs []string `yaml:"clusterCIDRs"`
	// AllowedCIDRs are the private ranges a fleet may open.
	AllowedCIDRs []string `yaml:"allowedCIDRs,omitempty"`
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

// Cluster gives ClusterCIDRs, parsed.
func (c *CeilingSettings) Cluster() []netip.Prefix { return c.cluster }

// Allowed gives AllowedCIDRs, parsed.
func (c *CeilingSettings) Allowed() []netip.Prefix { return c.allowed }

// ProbeSettings says what proxies are probed with.
type ProbeSettings struct {
	// Targets are the addresses and ports of echo targets, the hub's own first. The agent opens each to its proxies.
	Targets []string `yaml:"targets"`
	// ServerName is the name in the targets' certificates; unset means each target's address.
	ServerName string `yaml:"serverName,omitempty"`

	targets []netip.AddrPort
}

// Echoes gives Targets, parsed.
func (p *ProbeSettings) Echoes() []netip.AddrPort { return p.targets }

var nameRE = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// ReadSettings reads and checks a configuration file. Its error names every mistake, with the line where the file has
// one, and says what to write instead.
func ReadSettings(file []byte) (*Settings, error) {
	s := new(Settings)
	d := yaml.NewDecoder(bytes.NewReader(file))
	d.KnownFields(true)
	if err := d.Decode(s); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return nil, fmt.Errorf("agent configuration: %w", err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("agent configuration: it has more than one document; write one")
	}
	c := &checker{}
	c.member(&s.Member)
	c.hub(&s.Hub)
	c.providers(s.Providers)
	c.ceiling(&s.Ceiling)
	c.probe(&s.Probe, s.Ceiling.cluster)
	if len(c.found) > 0 {
		return nil, fmt.Errorf("agent configuration: %w", errors.Join(c.found...))
	}
	return s, nil
}

// checker collects what is wrong, so that a person mends it in one go.
type checker struct{ found []error }

func (c *checker) refuse(field, format string, args ...any) {
	c.found = append(c.found, fmt.Errorf("%s: "+format, append([]any{field}, args...)...))
}

func (c *checker) member(m *MemberSettings) {
	if !nameRE.MatchString(m.Name) {
		c.refuse("member.name", "%q is no name of a member; write the one that `shoalctl member join-token` was called with", m.Name)
	}
	if m.Country != "" && !regexp.MustCompile(`^[A-Z]{2}$`).MatchString(m.Country) {
		c.refuse("member.country", "%q is no country; write two capital letters such as DE", m.Country)
	}
}

func (c *checker) hub(h *HubSettings) {
	if !strings.HasPrefix(h.URL, "https://") {
		c.refuse("hub.url", "%q is not the address of a hub; write https://host:port", h.URL)
	}
	if !enroll.IsPin(h.CAPin) {
		c.refuse("hub.caPin", "it pins nothing; write sha256: and 64 hexadecimal digits, as `shoalctl member join-token` prints them")
	}
}

func (c *checker) providers(entries []ProviderSettings) {
	if len(entries) == 0 {
		c.refuse("providers", "the list is empty; name at least one, such as {name: default, type: kubernetes, kubernetes: {…}}")
	}
	seen := map[string]bool{}
	for i := range entries {
		e := &entries[i]
		field := fmt.Sprintf("providers[%d]", i)
		switch {
		case !nameRE.MatchString(e.Name):
			c.refuse(field+".name", "%q is no name; write lower-case letters, digits and dashes, at most 63", e.Name)
		case seen[e.Name]:
			c.refuse(field+".name", "%q is taken by an entry above; choose another", e.Name)
		}
		seen[e.Name] = true
		switch e.Type {
		case "kubernetes":
			if e.Kubernetes == nil {
				c.refuse(field+".kubernetes", "an entry of type kubernetes needs this block, with image and exposure")
				continue
			}
			c.kubernetes(field+".kubernetes", e.Kubernetes)
		default:
			c.refuse(field+".type", "%q is no type of provider; write kubernetes", e.Type)
		}
	}
}

func (c *checker) kubernetes(field string, k *KubernetesSettings) {
	if k.Image == "" {
		c.refuse(field+".image", "it is missing; write the reference of the proxy image")
	}
	switch k.ImagePullPolicy {
	case "", "Always", "IfNotPresent", "Never":
	default:
		c.refuse(field+".imagePullPolicy", "%q is no policy; write Always, IfNotPresent or Never", k.ImagePullPolicy)
	}
	switch k.Exposure {
	case ExposurePodIP:
		if k.HostPortRange != "" {
			c.refuse(field+".hostPortRange", "it means nothing with exposure PodIP; leave it out, or set exposure: HostPort")
		}
	case ExposureHostPort:
		first, last, ok := portRange(k.HostPortRange)
		if !ok {
			c.refuse(field+".hostPortRange", "%q is no range of ports; write first-last between 1024 and 65535, such as 21000-21999", k.HostPortRange)
		}
		k.first, k.last = first, last
	default:
		c.refuse(field+".exposure", "%q is no exposure; write HostPort (crawlers reach nodes) or PodIP (crawlers reach pods)", k.Exposure)
	}
}

func portRange(s string) (first, last int32, ok bool) {
	a, b, found := strings.Cut(s, "-")
	low, errLow := strconv.ParseInt(strings.TrimSpace(a), 10, 32)
	high, errHigh := strconv.ParseInt(strings.TrimSpace(b), 10, 32)
	if !found || errLow != nil || errHigh != nil || low < 1024 || high > 65535 || low > high {
		return 0, 0, false
	}
	return int32(low), int32(high), true
}

func (c *checker) ceiling(s *CeilingSettings) {
	if len(s.ClusterCIDRs) == 0 {
		c.refuse("ceiling.clusterCIDRs", "it is required: without it proxies could reach into this cluster; write its pod and service ranges, such as [10.244.0.0/16, 10.96.0.0/16]")
	}
	s.cluster = c.prefixes("ceiling.clusterCIDRs", s.ClusterCIDRs)
	s.allowed = c.prefixes("ceiling.allowedCIDRs", s.AllowedCIDRs)
	for i, w := range s.Ports {
		p, err := ceiling.ParsePortRange(w)
		if err != nil {
			c.refuse(fmt.Sprintf("ceiling.ports[%d]", i), "%v", err)
			continue
		}
		s.ports = append(s.ports, p)
	}
	for _, n := range []struct {
		field, what string
		number      int
	}{
		{"ceiling.maxProxies", "proxies", s.MaxProxies},
		{"ceiling.maxProxySets", "placements", s.MaxProxySets},
		{"ceiling.maxProbesPerSecond", "probes", s.MaxProbesPerSecond},
	} {
		if n.number < 0 {
			c.refuse(n.field, "%d is no number of %s; write 0 for the default, or more", n.number, n.what)
		}
	}
	for i, name := range s.CloudInitSecrets {
		if ceiling.IsOwnSecret(name) {
			c.refuse(fmt.Sprintf("ceiling.cloudInitSecrets[%d]", i), "Secret %q is the agent's own and is never put into a machine; name one whose name does not begin with shoal-", name)
		}
	}
}

func (c *checker) prefixes(field string, written []string) []netip.Prefix {
	var parsed []netip.Prefix
	for i, w := range written {
		p, err := netip.ParsePrefix(w)
		if err != nil || p != p.Masked() {
			c.refuse(fmt.Sprintf("%s[%d]", field, i), "%q is no CIDR; write a network such as 10.20.0.0/16, or 10.20.0.7/32 for one address", w)
			continue
		}
		parsed = append(parsed, p)
	}
	return parsed
}

func (c *checker) probe(p *ProbeSettings, cluster []netip.Prefix) {
	if len(p.Targets) == 0 {
		c.refuse("probe.targets", "it is empty, and no proxy would ever become Ready; write the address and port of the hub's echo listener, such as [198.51.100.7:443]")
	}
	for i, w := range p.Targets {
		target, err := netip.ParseAddrPort(w)
		if err != nil || target.Port() == 0 {
			c.refuse(fmt.Sprintf("probe.targets[%d]", i), "%q is no address and port; write such as 198.51.100.7:443, no name", w)
			continue
		}
		address := target.Addr().Unmap()
		if i := slices.IndexFunc(cluster, func(own netip.Prefix) bool { return own.Contains(address) }); i >= 0 {
			c.refuse("probe.targets", "%s is in ceiling.clusterCIDRs (%s), where no proxy ever connects; name an address outside, or narrow that range", w, cluster[i])
			continue
		}
		p.targets = append(p.targets, netip.AddrPortFrom(address, target.Port()))
	}
}
