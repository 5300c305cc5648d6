package ceiling_test

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/denied"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// careful is an owner who has written what is required, and nothing else.
func careful() ceiling.Policy {
	return ceiling.Policy{Providers: []string{"default"}, ClusterCIDRs: prefixes("10.244.0.0/16", "10.96.0.0/16", "172.30.0.5/32")}
}

// generous is an owner who has opened all that can be opened.
func generous() ceiling.Policy {
	p := careful()
	p.AllowedCIDRs = prefixes("0.0.0.0/0", "::/0", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
	p.Ports = []ceiling.PortRange{{First: 1, Last: 65535}}
	p.MaxProxies, p.MaxProxySets, p.MaxProbesPerSecond = math.MaxInt, math.MaxInt, 100_000
	p.CloudInit, p.CloudInitSecrets = true, []string{"startup"}
	p.NodeSelectorKeys = []string{"pool"}
	return p
}

func asked(change func(*v1alpha1.ProxySpec)) v1alpha1.ProxySpec {
	spec := v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: "default"}
	spec.Egress.Ports, spec.Egress.ConnectPorts = []int32{80}, []int32{443}
	spec.HealthCheck.Interval.Duration = 10 * time.Second
	change(&spec)
	return spec
}

func rules(found []ceiling.Violation) []ceiling.Rule {
	var r []ceiling.Rule
	for _, v := range found {
		r = append(r, v.Rule)
	}
	return r
}

// What a hostile hub could ask of an owner who has allowed nothing beyond what is required.
func TestHostileHub(t *testing.T) {
	secret := func(name string) func(*v1alpha1.ProxySpec) {
		return func(s *v1alpha1.ProxySpec) {
			s.CloudInit = &v1alpha1.CloudInit{SecretRef: &v1alpha1.SecretKeyRef{Name: name, Key: "seed"}}
		}
	}
	nodes := func(labels ...string) func(*v1alpha1.ProxySpec) {
		return func(s *v1alpha1.ProxySpec) {
			s.Placement = &v1alpha1.InstancePlacement{NodeSelector: map[string]string{}}
			for _, l := range labels {
				s.Placement.NodeSelector[l] = "x"
			}
		}
	}
	for name, c := range map[string]struct {
		reason   string
		ask      func(*v1alpha1.ProxySpec)
		ahead    ceiling.Ahead
		careful  []ceiling.Rule
		generous []ceiling.Rule
	}{
		"Nothing":        {"an ordinary request passes", func(*v1alpha1.ProxySpec) {}, ceiling.Ahead{}, nil, nil},
		"RootByInline":   {"cloud-init runs as root", func(s *v1alpha1.ProxySpec) { s.CloudInit = &v1alpha1.CloudInit{Inline: "#cloud-config\nruncmd: [sh]"} }, ceiling.Ahead{}, []ceiling.Rule{ceiling.RuleCloudInit}, nil},
		"RootByScript":   {"so does a startup script", func(s *v1alpha1.ProxySpec) { s.CloudInit = &v1alpha1.CloudInit{StartupScript: "sh"} }, ceiling.Ahead{}, []ceiling.Rule{ceiling.RuleCloudInit}, nil},
		"AgentsKey":      {"it would be readable in the machine's metadata", secret("shoal-agent-probe-key"), ceiling.Ahead{}, []ceiling.Rule{ceiling.RuleCloudInit, ceiling.RuleCloudInitSecrets}, []ceiling.Rule{ceiling.RuleCloudInitSecrets}},
		"AgentsIdentity": {"with it anybody speaks for the member", secret("shoal-agent-identity"), ceiling.Ahead{}, []ceiling.Rule{ceiling.RuleCloudInit, ceiling.RuleCloudInitSecrets}, []ceiling.Rule{ceiling.RuleCloudInitSecrets}},
		"AnySecret":      {"only what the owner lists", secret("database"), ceiling.Ahead{}, []ceiling.Rule{ceiling.RuleCloudInit, ceiling.RuleCloudInitSecrets}, []ceiling.Rule{ceiling.RuleCloudInitSecrets}},
		"ListedSecret":   {"the owner has listed it", secret("startup"), ceiling.Ahead{}, []ceiling.Rule{ceiling.RuleCloudInit, ceiling.RuleCloudInitSecrets}, nil},
		"OneNode":        {"all proxies on the node that somebody needs", nodes("kubernetes.io/hostname"), ceiling.Ahead{}, []ceiling.Rule{ceiling.RuleNodeSelectorKeys}, []ceiling.Rule{ceiling.RuleNodeSelectorKeys}},
		"ControlPlane":   {"beside the cluster's own keys", nodes("node-role.kubernetes.io/control-plane"), ceiling.Ahead{}, []ceiling.Rule{ceiling.RuleNodeSelectorKeys}, []ceiling.Rule{ceiling.RuleNodeSelectorKeys}},
		"OwnersPool":     {"the owner has listed that label", nodes("pool"), ceiling.Ahead{}, []ceiling.Rule{ceiling.RuleNodeSelectorKeys}, nil},
		"Zone":           {"where a node is may be chosen", nodes("topology.kubernetes.io/zone"), ceiling.Ahead{}, nil, []ceiling.Rule{ceiling.RuleNodeSelectorKeys}},
		"Mail":           {"a spammer's proxy", func(s *v1alpha1.ProxySpec) { s.Egress.ConnectPorts = []int32{443, 25, 587} }, ceiling.Ahead{}, []ceiling.Rule{ceiling.RulePorts, ceiling.RulePorts}, nil},
		"PlainMail":      {"the same by plain HTTP", func(s *v1alpha1.ProxySpec) { s.Egress.Ports = []int32{25} }, ceiling.Ahead{}, []ceiling.Rule{ceiling.RulePorts}, nil},
		"NoPort":         {"it would wrap around to another", func(s *v1alpha1.ProxySpec) { s.Egress.ConnectPorts = []int32{65536 + 25, -1, 0} }, ceiling.Ahead{}, []ceiling.Rule{ceiling.RulePorts, ceiling.RulePorts, ceiling.RulePorts}, []ceiling.Rule{ceiling.RulePorts, ceiling.RulePorts, ceiling.RulePorts}},
		"ForeignEntry":   {"another region's, or none's", func(s *v1alpha1.ProxySpec) { s.Provider = "gce-eu" }, ceiling.Ahead{}, []ceiling.Rule{ceiling.RuleProviders}, []ceiling.Rule{ceiling.RuleProviders}},
		"ProxyFlood":     {"more than an agent is built for", func(*v1alpha1.ProxySpec) {}, ceiling.Ahead{Proxies: ceiling.DefaultMaxProxies}, []ceiling.Rule{ceiling.RuleMaxProxies}, nil},
		"ProbeFlood":     {"thousands, each probed every second", func(s *v1alpha1.ProxySpec) { s.HealthCheck.Interval.Duration = time.Second }, ceiling.Ahead{Proxies: 500, ProbesPerSecond: 500}, []ceiling.Rule{ceiling.RuleMaxProbes}, nil},
		"ProbeStorm":     {"the schema lets no such interval through", func(s *v1alpha1.ProxySpec) { s.HealthCheck.Interval.Duration = time.Nanosecond }, ceiling.Ahead{}, []ceiling.Rule{ceiling.RuleMaxProbes}, []ceiling.Rule{ceiling.RuleMaxProbes}},
		"ManyAtEase":     {"5,000 that are probed every 10 s", func(*v1alpha1.ProxySpec) {}, ceiling.Ahead{Proxies: 4999, ProbesPerSecond: 499.9}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.careful, rules(ceiling.Check(careful(), asked(c.ask), c.ahead))); diff != "" {
				t.Errorf("%s, a careful owner (-want +got):\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(c.generous, rules(ceiling.Check(generous(), asked(c.ask), c.ahead))); diff != "" {
				t.Errorf("%s, a generous owner (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// Metadata and the member's own ranges stay closed whatever the owner opens, in every spelling.
func TestNeverAllowed(t *testing.T) {
	for asked, want := range map[string]ceiling.Rule{
		"169.254.169.254/32":           ceiling.RuleMetadata,
		"169.254.0.0/17":               ceiling.RuleMetadata,
		"169.254.169.253/31":           ceiling.RuleMetadata,
		"160.0.0.0/4":                  ceiling.RuleMetadata,
		"0.0.0.0/0":                    ceiling.RuleMetadata,
		"::ffff:169.254.169.254/128":   ceiling.RuleMetadata,
		"::ffff:a9fe:a9fe/128":         ceiling.RuleMetadata,
		"::FFFF:A9FE:0/112":            ceiling.RuleMetadata,
		"0:0:0:0:0:ffff:a9fe:a9fe/128": ceiling.RuleMetadata,
		"::ffff:0:0/96":                ceiling.RuleMetadata,
		"::/0":                         ceiling.RuleReserved,
		"::/80":                        ceiling.RuleReserved,
		"::ffff:0:0/95":                ceiling.RuleReserved,
		"fd00:ec2::254/128":            ceiling.RuleMetadata,
		"fd20:ce::254/128":             ceiling.RuleMetadata,
		"168.63.129.16/32":             ceiling.RuleMetadata,
		"100.100.100.200/32":           ceiling.RuleMetadata,
		"192.0.0.192/32":               ceiling.RuleMetadata,
		"64:ff9b::a9fe:a9fe/128":       ceiling.RuleReserved,
		"64:ff9b:1::/48":               ceiling.RuleReserved,
		"2002:a9fe:a9fe::/48":          ceiling.RuleReserved,
		"2001:0:a9fe:a9fe::/64":        ceiling.RuleReserved,
		"fe80::/10":                    ceiling.RuleReserved,
		"127.0.0.1/32":                 ceiling.RuleReserved,
		"::1/128":                      ceiling.RuleReserved,
		"0.0.0.0/32":                   ceiling.RuleReserved,
		"239.255.255.250/32":           ceiling.RuleReserved,
		"10.244.0.0/16":                ceiling.RuleClusterCIDRs,
		"10.244.255.255/32":            ceiling.RuleClusterCIDRs,
		"10.0.0.0/8":                   ceiling.RuleClusterCIDRs,
		"10.96.0.1/32":                 ceiling.RuleClusterCIDRs,
		"::ffff:10.96.0.1/128":         ceiling.RuleClusterCIDRs,
		"::ffff:10.0.0.0/104":          ceiling.RuleClusterCIDRs,
		"172.30.0.5/32":                ceiling.RuleClusterCIDRs,
		"169.254.169.254":              ceiling.RuleAllowedCIDRs, // no CIDR
		"0xa9fea9fe/32":                ceiling.RuleAllowedCIDRs,
		"2852039166/32":                ceiling.RuleAllowedCIDRs,
		"169.254.43518/32":             ceiling.RuleAllowedCIDRs,
		"fe80::1%eth0/128":             ceiling.RuleAllowedCIDRs,
	} {
		spec := v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: "default"}
		spec.Egress.AllowedCIDRs = []string{"192.168.9.0/24", asked}
		if got := rules(ceiling.Check(generous(), spec, ceiling.Ahead{})); len(got) != 1 || got[0] != want {
			t.Errorf("%s breaks %v, want %s", asked, got, want)
		}
	}
}

// No range that passes holds an address that is never open, but for single ones that stay closed beside it.
func TestWhatPassesIsWithin(t *testing.T) {
	policy := careful()
	policy.AllowedCIDRs = prefixes("10.0.0.0/8", "192.168.0.0/16", "fd00:7::/32")
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]string{
			"10.1.2.3", "10.244.7.7", "192.168.1.1", "169.254.169.254", "8.8.8.8", "::ffff:10.9.8.7", "::ffff:169.254.1.1", "fd00:7::1", "fd00:ec2::254", "::",
		}).Draw(t, "base")
		addr := netip.MustParseAddr(base)
		p := netip.PrefixFrom(addr, rapid.IntRange(0, addr.BitLen()).Draw(t, "bits"))
		spec := v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: "default"}
		spec.Egress.AllowedCIDRs = []string{p.String()}
		if len(ceiling.Check(policy, spec, ceiling.Ahead{})) > 0 {
			return
		}
		plain, ok := denied.Plain(p)
		if !ok {
			t.Fatalf("%v passes and has no form", p)
		}
		if !slices.ContainsFunc(policy.AllowedCIDRs, func(a netip.Prefix) bool { return a.Bits() <= plain.Bits() && a.Contains(plain.Addr()) }) {
			t.Fatalf("%v passes and is in nothing that is allowed", p)
		}
		for _, own := range policy.ClusterCIDRs {
			if own.Overlaps(plain) {
				t.Fatalf("%v passes and meets the member's own %v", p, own)
			}
		}
		if n, conflict := denied.Conflict(plain); conflict {
			t.Fatalf("%v passes and meets %v", p, n.Prefix)
		}
	})
}

func TestPorts(t *testing.T) {
	p := careful()
	p.Ports = []ceiling.PortRange{{First: 443, Last: 443}, {First: 8000, Last: 8999}}
	for port, ok := range map[int32]bool{443: true, 444: false, 7999: false, 8000: true, 8999: true, 9000: false, 25: false} {
		spec := asked(func(s *v1alpha1.ProxySpec) { s.Egress.Ports, s.Egress.ConnectPorts = nil, []int32{port} })
		found := ceiling.Check(p, spec, ceiling.Ahead{})
		if (len(found) == 0) != ok {
			t.Errorf("port %d: %v", port, found)
		}
		if !ok && !strings.Contains(found[0].Message, "443, 8000-8999") {
			t.Errorf("port %d: %q does not say what is allowed", port, found[0].Message)
		}
	}
	for written, want := range map[string]string{"443": "443", " 8000 - 8999 ": "8000-8999", "7-7": "7", "0": "", "65536": "", "9-8": "", "http": "", "1-": "", "-1": "", "": ""} {
		r, err := ceiling.ParsePortRange(written)
		if (err == nil) != (want != "") || (err == nil && r.String() != want) {
			t.Errorf("ParsePortRange(%q) = %v, %v, want %q", written, r, err, want)
		}
	}
}

// However many proxies there are and whatever their hub asks, the probes of those that pass add up to the bound at most.
func TestProbesAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := careful()
		p.MaxProbesPerSecond = rapid.IntRange(1, 1000).Draw(t, "rate")
		var ahead ceiling.Ahead
		total := 0.0
		for _, interval := range rapid.SliceOfN(rapid.Int64Range(-1000, int64(10*time.Second)), 1, 300).Draw(t, "intervals") {
			spec := asked(func(s *v1alpha1.ProxySpec) { s.HealthCheck.Interval.Duration = time.Duration(interval) })
			refused := len(ceiling.Check(p, spec, ahead)) > 0
			ahead.Add(spec, refused)
			switch {
			case refused:
			case interval == 0:
				total += 0.1
			default:
				total += 1 / time.Duration(interval).Seconds()
			}
		}
		if total > float64(p.MaxProbesPerSecond)+1e-3 || total < 0 {
			t.Fatalf("those that pass are probed %f times a second, and %d are allowed", total, p.MaxProbesPerSecond)
		}
	})
}

func TestSets(t *testing.T) {
	p := careful()
	p.MaxProxies, p.MaxProxySets = 5, 3
	for _, c := range []struct {
		size, others int
		want         []ceiling.Rule
	}{
		{1000, 0, nil},
		{ceiling.MaxSpecBytes, 2, nil},
		{ceiling.MaxSpecBytes + 1, 2, []ceiling.Rule{ceiling.RuleSpecSize}},
		{1000, 3, []ceiling.Rule{ceiling.RuleMaxProxySets}},
		{math.MaxInt, math.MaxInt, []ceiling.Rule{ceiling.RuleSpecSize, ceiling.RuleMaxProxySets}},
	} {
		if diff := cmp.Diff(c.want, rules(ceiling.CheckSet(p, c.size, c.others))); diff != "" {
			t.Errorf("%d bytes beside %d others (-want +got):\n%s", c.size, c.others, diff)
		}
	}
	if got := rules(ceiling.CheckSet(careful(), 1, ceiling.DefaultMaxProxySets)); len(got) != 1 {
		t.Error("a policy that says nothing takes any number of placements")
	}
	for have, want := range map[int]int{0: 5, 4: 1, 5: 0, 9: 0} {
		if got := p.Room(have); got != want {
			t.Errorf("room beside %d is %d, want %d", have, got, want)
		}
	}
	if careful().Room(0) != ceiling.DefaultMaxProxies {
		t.Error("a policy that says nothing has no bound")
	}
	if v := p.Full(math.MaxInt32); v.Rule != ceiling.RuleMaxProxies || !strings.Contains(v.Message, "2147483647") || !strings.Contains(v.Message, "at most 5") {
		t.Errorf("a full member says %+v", v)
	}
}

// Every field that a hub can write is listed here with what bounds it. A new one has to be thought about: what could a
// hostile hub ask with it? No field chooses an image, a machine type, a service account or a network: those are the
// owner's, in the provider file.
func TestEveryFieldIsBounded(t *testing.T) {
	bounds := map[string]string{
		"metadata.labels":              "labels of the Proxy object only; keys of shoal.dev/ are left out",
		"provider":                     string(ceiling.RuleProviders),
		"placement.region":             "the entry's own regions",
		"placement.zone":               "the entry's own zones",
		"placement.nodeSelector":       string(ceiling.RuleNodeSelectorKeys),
		"port":                         "schema: 1024 to 65535 inside of the instance",
		"egress.ports":                 string(ceiling.RulePorts),
		"egress.connectPorts":          string(ceiling.RulePorts),
		"egress.allowedCIDRs":          string(ceiling.RuleAllowedCIDRs),
		"cloudInit.inline":             string(ceiling.RuleCloudInit),
		"cloudInit.secretRef.name":     string(ceiling.RuleCloudInitSecrets),
		"cloudInit.secretRef.key":      string(ceiling.RuleCloudInitSecrets),
		"cloudInit.startupScript":      string(ceiling.RuleCloudInit),
		"healthCheck.interval":         string(ceiling.RuleMaxProbes),
		"healthCheck.timeout":          "schema: a minute, and the probes under way are bounded",
		"healthCheck.failureThreshold": "schema: 100",
		"healthCheck.successThreshold": "schema: 100",
	}
	var found []string
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[v1alpha1.Duration]() {
			found = append(found, strings.TrimPrefix(path, "."))
			return
		}
		for i := range typ.NumField() {
			field := typ.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case field.Anonymous && name == "":
				walk(path, field.Type)
			case path == "" && name == "spec":
				walk(path, field.Type)
			default:
				walk(path+"."+name, field.Type)
			}
		}
	}
	walk("", reflect.TypeFor[v1alpha1.ProxyTemplate]())
	for _, field := range found {
		if bounds[field] == "" {
			t.Errorf("a hub can write %s, and nobody has said what bounds it", field)
		}
		for _, word := range []string{"image", "machine", "serviceAccount", "network", "host", "privileged", "command"} {
			if strings.Contains(strings.ToLower(field), strings.ToLower(word)) {
				t.Errorf("%s lets a hub choose what is the owner's", field)
			}
		}
	}
	if len(found) != len(bounds) {
		t.Errorf("%d fields and %d bounds:\n%s", len(found), len(bounds), fmt.Sprint(found))
	}
}
