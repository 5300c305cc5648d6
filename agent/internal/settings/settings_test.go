package settings

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/shoal-dev/shoal/agent/internal/provider/kubernetes"
)

const goodSettings = `
member: {name: east, region: us-east1, country: US}
hub: {url: "https://198.51.100.7:8443", caPin: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
providers:
- name: default
  type: kubernetes
  kubernetes: {image: shoal-proxy:1, exposure: HostPort, hostPortRange: 21000-21999}
- name: machines
  type: gcp
  gcp: {project: my-project, proxyImage: "registry.example/shoal-proxy:1"}
ceiling:
  clusterCIDRs: [10.244.0.0/16, 10.96.0.0/16]
  allowedCIDRs: [172.30.0.0/16]
  ports: [80, 443, 8000-8999]
probe:
  targets: ["198.51.100.7:443"]
`

func TestRead(t *testing.T) {
	s, err := Read([]byte(goodSettings))
	if err != nil {
		t.Fatal(err)
	}
	if first, last := s.Providers[0].Kubernetes.HostPorts(); first != 21000 || last != 21999 {
		t.Errorf("host ports are %d to %d, want 21000 to 21999", first, last)
	}
	policy := s.Ceiling.Policy([]string{"default"})
	if got := policy.ClusterCIDRs; len(got) != 2 || got[0].String() != "10.244.0.0/16" {
		t.Errorf("cluster ranges are %v", got)
	}
	if got := policy.Ports; len(got) != 3 || got[1].String() != "443" || got[2].String() != "8000-8999" {
		t.Errorf("ports are %v", got)
	}
	if got := s.Probe.Echoes(); len(got) != 1 || got[0].String() != "198.51.100.7:443" {
		t.Errorf("probe targets are %v", got)
	}
	if s.Providers[1].GCP.Project != "my-project" {
		t.Errorf("the gcp entry is %+v", s.Providers[1].GCP)
	}
}

func TestReadPods(t *testing.T) {
	s, err := Read([]byte(strings.Replace(goodSettings, "exposure: HostPort, hostPortRange: 21000-21999}", `exposure: PodIP, uniqueExit: true,
    resources: {requests: {cpu: 1}, limits: {memory: 1Gi}},
    tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 60}],
    imagePullSecrets: [registry], priorityClassName: proxies,
    podLabels: {example.com/egress: blue}, podAnnotations: {example.com/note: any text}}`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	want := kubernetes.PodSettings{
		UniqueExit:       true,
		Resources:        kubernetes.ResourceSettings{Requests: map[string]string{"cpu": "1"}, Limits: map[string]string{"memory": "1Gi"}},
		Tolerations:      []kubernetes.TolerationSettings{{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr.To(int64(60))}},
		ImagePullSecrets: []string{"registry"}, PriorityClassName: "proxies",
		PodLabels: map[string]string{"example.com/egress": "blue"}, PodAnnotations: map[string]string{"example.com/note": "any text"},
	}
	if diff := cmp.Diff(want, s.Providers[0].Kubernetes.PodSettings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestReadRefuses has one mistake, or several, in each case. Each is told with its line, of the file as it is written.
func TestReadRefuses(t *testing.T) {
	cases := map[string]struct {
		reason   string
		old, new string
		says     []string
	}{
		"UnknownKey":       {"a typo must not be taken for silence", "  allowedCIDRs:", "  alowedCIDRs:", []string{"line 13: ceiling.alowedCIDRs", "write one of clusterCIDRs, allowedCIDRs"}},
		"UnknownTop":       {"the same at the top", "hub: {", "hubs: {}\nhub: {", []string{"line 3: hubs", "write one of member, hub"}},
		"UnknownInGCP":     {"the same in a block of a provider", "{project: my-project, ", "{project: my-project, projects: x, ", []string{"line 10: providers[1].gcp.projects"}},
		"UnknownType":      {"no such provider", "type: kubernetes", "type: azure", []string{"line 6: providers[0].type", "azure", "write kubernetes or gcp"}},
		"KeyTwice":         {"which of the two was meant", "hub: {", "probe: {targets: []}\nhub: {", []string{"line 16: probe: it is written twice, first in line 3"}},
		"DuplicateName":    {"two entries of one name", "ceiling:\n", "- {name: default, type: kubernetes, kubernetes: {image: x, exposure: PodIP}}\nceiling:\n", []string{"line 11: providers[2].name", "line 5"}},
		"NoBlock":          {"type without its block", "  kubernetes: {image: shoal-proxy:1, exposure: HostPort, hostPortRange: 21000-21999}\n", "", []string{"line 5: providers[0].kubernetes", "needs this block"}},
		"OtherBlock":       {"a block that does not match its type", "  type: gcp\n", "  type: kubernetes\n", []string{"line 10: providers[1].gcp", "write type: gcp", "line 8: providers[1].kubernetes"}},
		"NoProject":        {"whose machines", "{project: my-project, ", "{", []string{"line 10: providers[1].gcp.project", "it is missing"}},
		"NoImage":          {"nothing to run", "image: shoal-proxy:1, ", "", []string{"line 7: providers[0].kubernetes.image", "reference of the proxy image"}},
		"BadQuantity":      {"a typo in a size", "exposure: HostPort", "resources: {limits: {memory: 1Gig}}, exposure: HostPort", []string{"line 7: providers[0].kubernetes.resources", "1Gig", "256Mi"}},
		"OurLabel":         {"labels tell whose a pod is", "exposure: HostPort", "podLabels: {shoal.dev/hub-uid: x}, exposure: HostPort", []string{"line 7: providers[0].kubernetes.podLabels", "shoal.dev/hub-uid", "choose another"}},
		"BadToleration":    {"a typo in an effect", "exposure: HostPort", "tolerations: [{key: a, effect: NoSchedul}], exposure: HostPort", []string{"line 7: providers[0].kubernetes.tolerations[0]", "NoSchedule"}},
		"NoExposure":       {"nobody could reach it", "exposure: HostPort", "exposure: Public", []string{"line 7", "Public", "HostPort", "PodIP"}},
		"RangeBackwards":   {"last before first", "21000-21999", "21999-21000", []string{"line 7", "21999-21000"}},
		"RangeForPods":     {"a range without host ports", "exposure: HostPort", "exposure: PodIP", []string{"line 7", "leave it out"}},
		"NoClusterCIDRs":   {"proxies could reach into the cluster", "  clusterCIDRs: [10.244.0.0/16, 10.96.0.0/16]\n", "", []string{"line 11: ceiling.clusterCIDRs", "required", "10.244.0.0/16"}},
		"BadCIDR":          {"host bits are set", "10.96.0.0/16", "10.96.0.1/16", []string{"line 12: ceiling.clusterCIDRs[1]", "10.96.0.1/16"}},
		"NoTargets":        {"nothing would become Ready", `targets: ["198.51.100.7:443"]`, "targets: []", []string{"line 16: probe.targets", "Ready"}},
		"TargetByName":     {"a name of one label is nobody's to look up", `"198.51.100.7:443"]`, `"hub:443"]`, []string{"line 16: probe.targets[0]", "echo.example.com:443"}},
		"TargetNamePort":   {"no fleet need open that port", `"198.51.100.7:443"]`, `"echo.example.com:8443"]`, []string{"line 16: probe.targets[0]", "443", "write the address"}},
		"TargetLocalName":  {"Squid refuses it", `"198.51.100.7:443"]`, `"echo.hub.svc:443"]`, []string{"line 16: probe.targets[0]", "local name"}},
		"TargetTwice":      {"one target is no quorum", `"198.51.100.7:443"]`, `"198.51.100.7:443", "198.51.100.7:443"]`, []string{"line 16: probe.targets[1]", "twice"}},
		"NotACertificate":  {"nobody would be trusted", `"198.51.100.7:443"]`, "\"198.51.100.7:443\"]\n  ca: hub.pem", []string{"line 17: probe.ca", "PEM"}},
		"NoAuthority":      {"a target's own certificate vouches for nobody", `"198.51.100.7:443"]`, "\"198.51.100.7:443\"]\n  ca: |\n    -----BEGIN CERTIFICATE-----\n    aGVsbG8=\n    -----END CERTIFICATE-----", []string{"line 17: probe.ca", "authority"}},
		"TargetInside":     {"no proxy could ever reach it", `"198.51.100.7:443"]`, `"10.244.3.1:443"]`, []string{"line 16: probe.targets[0]", "ceiling.clusterCIDRs", "10.244.0.0/16"}},
		"NoPin":            {"the hub could be anybody", `sha256:0123`, "0123", []string{"line 3: hub.caPin", "shoalctl member join-token"}},
		"PlainHub":         {"no TLS", "https://", "http://", []string{"line 3: hub.url", "https://host:port"}},
		"NoMember":         {"whom does it speak for", "name: east, ", "", []string{"line 2: member.name"}},
		"BadCountry":       {"not a code", "country: US", "country: usa", []string{"line 2: member.country", "DE"}},
		"NegativeMaximum":  {"no such number", "ceiling:\n", "ceiling:\n  maxProxies: -1\n", []string{"line 12: ceiling.maxProxies", "0 for the default"}},
		"NotANumber":       {"text for a number", "ceiling:\n", "ceiling:\n  maxProxies: many\n", []string{"line 12: ceiling.maxProxies", `"many" is no whole number`}},
		"NoPorts":          {"a range backwards", "8000-8999]", "9000-8000]", []string{"line 14: ceiling.ports[2]", "9000-8000"}},
		"OwnSecret":        {"the agent's key would be in a machine's metadata", "ceiling:\n", "ceiling:\n  cloudInitSecrets: [startup, shoal-agent-identity]\n", []string{"line 12: ceiling.cloudInitSecrets[1]", "shoal-agent-identity"}},
		"NotAList":         {"a word for a list", "allowedCIDRs: [172.30.0.0/16]", "allowedCIDRs: 172.30.0.0/16", []string{"line 13: ceiling.allowedCIDRs: it must be a list"}},
		"NotABlock":        {"a word for a block", "hub: {url: \"https://198.51.100.7:8443\", caPin:", "hub: x\nprobes: {", []string{"line 3: hub: it must be a block"}},
		"Alias":            {"nobody reads it the same way twice", "region: us-east1", "region: &r us-east1", []string{"line 2: member.region", "write it out"}},
		"TwoDocuments":     {"the second would be ignored", "probe:\n", "---\nprobe:\n", []string{"more than one document"}},
		"NoEntryForMember": {"it could host nothing", "  type: kubernetes\n  kubernetes: {image: shoal-proxy:1, exposure: HostPort, hostPortRange: 21000-21999}\n", "  type: gcp\n  gcp: {project: my-project, proxyImage: x}\n", []string{"line 4: providers", "member east", "remove the member block"}},
		"CeilingOfNobody":  {"it would bound nothing", "member: {name: east, region: us-east1, country: US}\n", "", []string{"line 10: ceiling", "no member"}},
		"EveryMistake":     {"mended in one go", "member: {name: east, region: us-east1, country: US}\nhub: {url: \"https://", "member: {}\nhub: {url: \"", []string{"line 2: member.name", "line 3: hub.url"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(goodSettings, c.old) {
				t.Fatalf("the good file has no %q", c.old)
			}
			_, err := Read([]byte(strings.Replace(goodSettings, c.old, c.new, 1)))
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
	if _, err := Read(nil); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty file: %v", err)
	}
}

// A target of the owner's own, by name, and who vouches for it.
func TestReadTargets(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(goodSettings, "  targets:")
	text += "  targets: [\"198.51.100.7:443\", \"echo.example.com:443\", \"[2001:db8::7]:443\"]\n  ca: |\n"
	for line := range strings.Lines(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))) {
		text += "    " + line
	}
	s, err := Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.Probe.Echoes(), s.Probe.Names()); got != "[198.51.100.7:443 [2001:db8::7]:443] [echo.example.com:443]" {
		t.Errorf("targets are %s", got)
	}
	if got := s.Probe.Authorities(); len(got) != 1 || !bytes.Equal(got[0].Raw, der) {
		t.Errorf("%d authorities", len(got))
	}
}

// TestReadTellsInOrder has mistakes all over a file, found by several checks. They come in the order of its lines.
func TestReadTellsInOrder(t *testing.T) {
	text := strings.NewReplacer("name: east", "nam: east", "10.96.0.0/16", "x", "type: gcp", "type: aws", "exposure: HostPort", "exposure: 3").Replace(goodSettings)
	_, err := Read([]byte(text))
	if err == nil {
		t.Fatal("it was taken")
	}
	last := 0
	lines := strings.Split(strings.TrimPrefix(err.Error(), "agent configuration: "), "\n")
	for _, line := range lines {
		var n int
		if _, scan := fmt.Sscanf(line, "line %d:", &n); scan != nil || n < last {
			t.Errorf("%q after line %d", line, last)
		}
		last = n
	}
	if len(lines) != 5 {
		t.Errorf("%d mistakes are told, want 5:\n%v", len(lines), err)
	}
}

const goodRegions = `
- member: gce-eu
  region: europe-west4
  country: NL
  zones: [europe-west4-a, europe-west4-b]
  clusterCIDRs: [10.128.0.0/9]
- member: gce-us
  region: us-east1
  zones: [us-east1-b]
  providers: {default: machines}
  clusterCIDRs: [10.128.0.0/9]
  maxProxies: 20
`

func TestReadRegions(t *testing.T) {
	s, err := Read([]byte(goodSettings))
	if err != nil {
		t.Fatal(err)
	}
	regions, err := ReadRegions([]byte(goodRegions), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(regions) != 2 || regions[0].Project() != "my-project" || regions[1].MaxProxies != 20 {
		t.Fatalf("regions are %+v", regions)
	}
	if _, ok := regions[0].Entries()["machines"]; !ok || len(regions[0].Entries()) != 1 {
		t.Errorf("without providers every gcp entry is offered, got %v", regions[0].Entries())
	}
	if _, ok := regions[1].Entries()["default"]; !ok || len(regions[1].Entries()) != 1 {
		t.Errorf("entries are %v, want one that fleets call default", regions[1].Entries())
	}
	for _, nothing := range []string{"", "# none yet\n", "[]"} {
		if got, err := ReadRegions([]byte(nothing), s); err != nil || len(got) != 0 {
			t.Errorf("%q has regions %v, %v", nothing, got, err)
		}
	}
}

func TestReadRegionsRefuses(t *testing.T) {
	other := "- name: others\n  type: gcp\n  gcp: {project: other-project, proxyImage: x}\nceiling:\n"
	cases := map[string]struct {
		old, new string
		settings string // in place of "ceiling:" in the settings
		says     []string
	}{
		"UnknownKey":     {old: "  maxProxies: 20", new: "  maxProxys: 20", says: []string{"line 12: [1].maxProxys", "maxProxies"}},
		"HomesName":      {old: "member: gce-eu", new: "member: east", says: []string{"line 2: [0].member", "own cluster"}},
		"MemberTwice":    {old: "member: gce-us", new: "member: gce-eu", says: []string{"line 7: [1].member", "line 2"}},
		"RegionTwice":    {old: "region: us-east1\n  zones: [us-east1-b]", new: "region: europe-west4\n  zones: [europe-west4-c]", says: []string{"line 8: [1].region", "one region is one member"}},
		"NoZones":        {old: "  zones: [us-east1-b]\n", new: "", says: []string{"line 7: [1].zones", "us-east1-b"}},
		"OthersZone":     {old: "europe-west4-b", new: "us-east1-b", says: []string{"line 5: [0].zones[1]", "no zone of europe-west4"}},
		"ZoneTwice":      {old: "europe-west4-b", new: "europe-west4-a", says: []string{"line 5: [0].zones[1]", "twice"}},
		"NoCIDRs":        {old: "  clusterCIDRs: [10.128.0.0/9]\n  maxProxies", new: "  maxProxies", says: []string{"line 7: [1].clusterCIDRs", "required"}},
		"TargetInside":   {old: "clusterCIDRs: [10.128.0.0/9]\n- member", new: "clusterCIDRs: [198.51.100.0/24]\n- member", says: []string{"line 6: [0].clusterCIDRs", "198.51.100.7:443"}},
		"NoSuchProvider": {old: "{default: machines}", new: "{default: machine}", says: []string{"line 10: [1].providers.default", "write one of machines"}},
		"PodsInARegion":  {old: "{default: machines}", new: "{pods: default}", says: []string{"line 10: [1].providers.pods", "no provider of type gcp"}},
		"TwoProjects":    {settings: other, says: []string{"line 2: [0].providers.others", "my-project", "other-project"}},
		"NotAList":       {old: "- member: gce-eu", new: "member: gce-eu\nregions:\n- member: x", says: []string{"line 2: it must be a list"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text := goodSettings
			if c.settings != "" {
				text = strings.Replace(text, "ceiling:\n", c.settings, 1)
			}
			s, err := Read([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(goodRegions, c.old) {
				t.Fatalf("the good file has no %q", c.old)
			}
			_, err = ReadRegions([]byte(strings.Replace(goodRegions, c.old, c.new, 1)), s)
			if err == nil {
				t.Fatal("it was taken")
			}
			for _, want := range c.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("want %q in: %v", want, err)
				}
			}
		})
	}
}

func TestReadCluster(t *testing.T) {
	s, err := Read([]byte(goodSettings))
	if err != nil {
		t.Fatal(err)
	}
	good := "member: lab\nregion: eu\ncountry: DE\nclusterCIDRs: [10.0.0.0/8]\nmaxProxies: 5\n"
	c, err := ReadCluster([]byte(good), s)
	if err != nil || c.Member != "lab" || c.MaxProxies != 5 {
		t.Fatalf("%+v, %v", c, err)
	}
	for bad, want := range map[string]string{
		"": "empty",
		"member: east\nclusterCIDRs: [10.0.0.0/8]": "line 1: member",
		"member: lab": "line 1: clusterCIDRs",
		"member: lab\nclusterCIDRs: [10.0.0.0/8]\nx: 1": "line 3: x",
	} {
		if _, err := ReadCluster([]byte(bad), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want %q in: %v", bad, want, err)
		}
	}
}
