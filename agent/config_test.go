package agent

import (
	"strings"
	"testing"
)

const goodSettings = `
member: {name: east, region: us-east1, country: US}
hub: {url: "https://198.51.100.7:8443", caPin: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
providers:
- name: default
  type: kubernetes
  kubernetes: {image: shoal-proxy:1, exposure: HostPort, hostPortRange: 21000-21999}
ceiling:
  clusterCIDRs: [10.244.0.0/16, 10.96.0.0/16]
  allowedCIDRs: [172.30.0.0/16]
  ports: [80, 443, 8000-8999]
probe:
  targets: ["198.51.100.7:443"]
`

func TestReadSettings(t *testing.T) {
	s, err := ReadSettings([]byte(goodSettings))
	if err != nil {
		t.Fatal(err)
	}
	if first, last := s.Providers[0].Kubernetes.HostPorts(); first != 21000 || last != 21999 {
		t.Errorf("host ports are %d to %d, want 21000 to 21999", first, last)
	}
	if got := s.Ceiling.Cluster(); len(got) != 2 || got[0].String() != "10.244.0.0/16" {
		t.Errorf("cluster ranges are %v", got)
	}
	if got := s.Ceiling.ports; len(got) != 3 || got[1].String() != "443" || got[2].String() != "8000-8999" {
		t.Errorf("ports are %v", got)
	}
	if got := s.Probe.Echoes(); len(got) != 1 || got[0].String() != "198.51.100.7:443" {
		t.Errorf("probe targets are %v", got)
	}
}

func TestReadSettingsRefuses(t *testing.T) {
	cases := map[string]struct {
		reason   string
		old, new string
		says     []string
	}{
		"UnknownKey":        {reason: "a typo must not be taken for silence", old: "  allowedCIDRs:", new: "  alowedCIDRs:", says: []string{"line 10", "alowedCIDRs"}},
		"UnknownType":       {reason: "no such provider", old: "type: kubernetes", new: "type: azure", says: []string{"providers[0].type", "azure", "write kubernetes"}},
		"DuplicateName":     {reason: "two entries of one name", old: "ceiling:\n", new: "- {name: default, type: kubernetes, kubernetes: {image: x, exposure: PodIP}}\nceiling:\n", says: []string{"providers[1].name", "choose another"}},
		"NoBlock":           {reason: "type without its block", old: "  kubernetes: {image: shoal-proxy:1, exposure: HostPort, hostPortRange: 21000-21999}\n", new: "", says: []string{"providers[0].kubernetes", "needs this block"}},
		"NoImage":           {reason: "nothing to run", old: "image: shoal-proxy:1, ", new: "", says: []string{"image", "reference of the proxy image"}},
		"NoExposure":        {reason: "nobody could reach it", old: "exposure: HostPort", new: "exposure: Public", says: []string{"Public", "HostPort", "PodIP"}},
		"RangeBackwards":    {reason: "last before first", old: "21000-21999", new: "21999-21000", says: []string{"21000-21999"}},
		"RangeForPods":      {reason: "a range without host ports", old: "exposure: HostPort", new: "exposure: PodIP", says: []string{"leave it out"}},
		"NoClusterCIDRs":    {reason: "proxies could reach into the cluster", old: "  clusterCIDRs: [10.244.0.0/16, 10.96.0.0/16]\n", new: "", says: []string{"ceiling.clusterCIDRs", "required", "10.244.0.0/16"}},
		"BadCIDR":           {reason: "host bits are set", old: "10.96.0.0/16", new: "10.96.0.1/16", says: []string{"ceiling.clusterCIDRs[1]", "10.96.0.1/16"}},
		"NoTargets":         {reason: "nothing would become Ready", old: `targets: ["198.51.100.7:443"]`, new: "targets: []", says: []string{"probe.targets", "Ready"}},
		"TargetByName":      {reason: "a name would need a resolver", old: `"198.51.100.7:443"]`, new: `"hub:443"]`, says: []string{"probe.targets[0]", "no name"}},
		"TargetInside":      {reason: "no proxy could ever reach it", old: `"198.51.100.7:443"]`, new: `"10.244.3.1:443"]`, says: []string{"probe.targets", "ceiling.clusterCIDRs", "10.244.0.0/16"}},
		"NoPin":             {reason: "the hub could be anybody", old: `sha256:0123`, new: "0123", says: []string{"hub.caPin", "shoalctl member join-token"}},
		"PlainHub":          {reason: "no TLS", old: "https://", new: "http://", says: []string{"hub.url", "https://host:port"}},
		"NoMember":          {reason: "whom does it speak for", old: "name: east, ", new: "", says: []string{"member.name"}},
		"BadCountry":        {reason: "not a code", old: "country: US", new: "country: usa", says: []string{"member.country", "DE"}},
		"NegativeMaximum":   {reason: "no such number", old: "ceiling:\n", new: "ceiling:\n  maxProxies: -1\n", says: []string{"ceiling.maxProxies", "0 for the default"}},
		"NoPorts":           {reason: "a range backwards", old: "ceiling:\n", new: "ceiling:\n  ports: [443, 9000-8000]\n", says: []string{"ceiling.ports[1]", "9000-8000", "8000-8999"}},
		"OwnSecret":         {reason: "the agent's key would be in a machine's metadata", old: "ceiling:\n", new: "ceiling:\n  cloudInitSecrets: [startup, shoal-agent-identity]\n", says: []string{"ceiling.cloudInitSecrets[1]", "shoal-agent-identity"}},
		"TwoDocuments":      {reason: "the second would be ignored", old: "probe:\n", new: "---\nprobe:\n", says: []string{"more than one document"}},
		"EveryMistakeNamed": {reason: "mended in one go", old: "member: {name: east, region: us-east1, country: US}\nhub: {url: \"https://", new: "member: {}\nhub: {url: \"", says: []string{"member.name", "hub.url"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(goodSettings, c.old) {
				t.Fatalf("the good file has no %q", c.old)
			}
			_, err := ReadSettings([]byte(strings.Replace(goodSettings, c.old, c.new, 1)))
			if err == nil {
				t.Fatalf("%s: it was taken", c.reason)
			}
			for _, want := range c.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: want %q in: %v", c.reason, want, err)
				}
			}
		})
	}
	if _, err := ReadSettings(nil); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty file: %v", err)
	}
}
