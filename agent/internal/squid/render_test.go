package squid_test

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
	"pgregory.net/rapid"

	"github.com/shoal-dev/shoal/agent/internal/denied"
	"github.com/shoal-dev/shoal/agent/internal/squid"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrPorts(texts ...string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range texts {
		out = append(out, netip.MustParseAddrPort(s))
	}
	return out
}

// base is a usual configuration, changed by each test.
func base(change func(*squid.Config)) squid.Config {
	c := squid.Config{
		Port:         3128,
		ProxyUID:     "3f6c1a2e-9b1d-4c57-8f7e-0d2b5a1c9e44",
		PlainPorts:   []uint16{80},
		ConnectPorts: []uint16{443},
		ClusterCIDRs: prefixes("10.42.0.0/16", "10.43.0.0/16", "192.168.7.10/32", "fd42::/56"),
		EchoTargets:  addrPorts("198.18.4.2:443"),
	}
	if change != nil {
		change(&c)
	}
	return c
}

// goldens are the rendered variants; all of them are compared with a file and parsed by a real Squid.
var goldens = map[string]squid.Config{
	"Usual": base(nil),
	"NoCluster": base(func(c *squid.Config) {
		c.ClusterCIDRs = nil
	}),
	"NoEcho": base(func(c *squid.Config) {
		c.EchoTargets = nil
	}),
	"AllowedRange": base(func(c *squid.Config) {
		c.AllowedCIDRs = prefixes("172.18.0.0/16", "192.168.7.128/25")
	}),
	"NothingPrivateIsDenied": base(func(c *squid.Config) {
		c.ClusterCIDRs = nil
		c.AllowedCIDRs = prefixes("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
			"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "fc00::/7")
	}),
	"EchoOnAPortOfItsOwn": base(func(c *squid.Config) {
		c.ConnectPorts = []uint16{443, 8443}
		c.EchoTargets = addrPorts("10.9.9.9:9443", "[fd00::9]:9443", "203.0.114.9:443", "10.9.9.9:443")
	}),
	"EchoInsideOfAnAllowedRange": base(func(c *squid.Config) {
		c.AllowedCIDRs = prefixes("10.9.0.0/16")
		c.EchoTargets = addrPorts("10.9.9.9:443")
	}),
	"ManyRanges": base(func(c *squid.Config) {
		for i := range 20 {
			c.AllowedCIDRs = append(c.AllowedCIDRs, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 100, byte(i), 1}), 32))
		}
	}),
	"SharedByProxies": base(func(c *squid.Config) {
		c.ProxyUID, c.ProxyUIDFile = "", "/etc/shoal/identity/proxy-uid"
		c.AuthHelper, c.KeysDir = "/opt/shoal-auth", "/run/keys"
		c.PlainPorts = nil
		c.ShutdownLifetime, c.MaxFileDescriptors = 5*time.Second, 65536
	}),
	"OnLoopback": squid.OnLoopback(base(func(c *squid.Config) {
		c.EchoTargets = addrPorts("127.0.0.1:443")
	})),
}

func TestGolden(t *testing.T) {
	for name, c := range goldens {
		t.Run(name, func(t *testing.T) {
			got, err := squid.Render(c)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".conf")
			if *rewrite {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v; run the test with -rewrite", err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// squidProgram returns the path of a real Squid.
func squidProgram(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"squid", "/usr/sbin/squid"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("squid is not installed; this test needs the real program: apt-get install squid (Debian's package has it)")
	return ""
}

// Squid's exit code is not enough: it is 0 for a missing error directory, and for rules that it ignores.
func TestSquidParsesEveryVariant(t *testing.T) {
	program := squidProgram(t)
	for name, c := range goldens {
		t.Run(name, func(t *testing.T) {
			text, err := squid.Render(c)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "squid.conf")
			// The helper must exist for Squid to accept the line; any program will do here.
			text = []byte(strings.ReplaceAll(string(text), "program /", "program /bin/true /"))
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), program, "-k", "parse", "-f", path).CombinedOutput()
			if err != nil {
				t.Errorf("squid -k parse: %v", err)
			}
			for line := range strings.Lines(string(out)) {
				bad := strings.Contains(line, "FATAL") || strings.Contains(line, "ERROR") ||
					strings.Contains(line, "WARNING") && !strings.Contains(line, "HTTP requires the use of Via")
				if bad && !strings.Contains(line, "Processing:") {
					t.Errorf("squid says: %s", line)
				}
			}
		})
	}
}

func TestRenderRefusesFields(t *testing.T) {
	for name, tc := range map[string]struct {
		field  string
		change func(*squid.Config)
	}{
		"NoPort":             {"Port", func(c *squid.Config) { c.Port = 0 }},
		"NoUID":              {"ProxyUID", func(c *squid.Config) { c.ProxyUID = "" }},
		"TwoUIDs":            {"ProxyUID", func(c *squid.Config) { c.ProxyUIDFile = "/x" }},
		"UIDWithADirective":  {"ProxyUID", func(c *squid.Config) { c.ProxyUID = "x\nhttp_access allow all" }},
		"UIDWithASpace":      {"ProxyUID", func(c *squid.Config) { c.ProxyUID = "x --keys" }},
		"RelativeHelper":     {"AuthHelper", func(c *squid.Config) { c.AuthHelper = "shoal-auth" }},
		"KeysWithASpace":     {"KeysDir", func(c *squid.Config) { c.KeysDir = "/a b" }},
		"NoConnectPorts":     {"ConnectPorts", func(c *squid.Config) { c.ConnectPorts = nil }},
		"ConnectPortZero":    {"ConnectPorts", func(c *squid.Config) { c.ConnectPorts = []uint16{443, 0} }},
		"PlainPortZero":      {"PlainPorts", func(c *squid.Config) { c.PlainPorts = []uint16{0} }},
		"EndlessShutdown":    {"ShutdownLifetime", func(c *squid.Config) { c.ShutdownLifetime = 1500 * time.Millisecond }},
		"TooFewDescriptors":  {"MaxFileDescriptors", func(c *squid.Config) { c.MaxFileDescriptors = 1 }},
		"HostBitsInAllowed":  {"AllowedCIDRs", func(c *squid.Config) { c.AllowedCIDRs = prefixes("10.1.2.3/16") }},
		"InvalidAllowed":     {"AllowedCIDRs", func(c *squid.Config) { c.AllowedCIDRs = []netip.Prefix{{}} }},
		"MappedAcrossBorder": {"AllowedCIDRs", func(c *squid.Config) { c.AllowedCIDRs = prefixes("::ffff:0:0/95") }},
		"ClusterIsAll":       {"ClusterCIDRs", func(c *squid.Config) { c.ClusterCIDRs = prefixes("0.0.0.0/0") }},
		"EchoWithoutPort":    {"EchoTargets", func(c *squid.Config) { c.EchoTargets = addrPorts("10.9.9.9:0") }},
		"EchoWithZone":       {"EchoTargets", func(c *squid.Config) { c.EchoTargets = addrPorts("[fd00::1%eth0]:443") }},
		"NoEchoAddress":      {"EchoTargets", func(c *squid.Config) { c.EchoTargets = []netip.AddrPort{{}} }},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := squid.Render(base(tc.change))
			var got *squid.FieldError
			if !errors.As(err, &got) || got.Field != tc.field {
				t.Errorf("error %v, want one of field %s", err, tc.field)
			}
			if text != nil {
				t.Error("text beside the error")
			}
		})
	}
}

func TestRenderRefusesForbiddenRanges(t *testing.T) {
	allow := func(texts ...string) func(*squid.Config) {
		return func(c *squid.Config) { c.AllowedCIDRs = prefixes(texts...) }
	}
	echo := func(texts ...string) func(*squid.Config) {
		return func(c *squid.Config) { c.EchoTargets = addrPorts(texts...) }
	}
	for name, tc := range map[string]struct {
		field  string
		rule   denied.Rule
		change func(*squid.Config)
	}{
		"Metadata":             {"AllowedCIDRs", denied.RuleMetadata, allow("169.254.169.254/32")},
		"AroundMetadata":       {"AllowedCIDRs", denied.RuleMetadata, allow("169.0.0.0/8")},
		"Everything":           {"AllowedCIDRs", denied.RuleMetadata, allow("0.0.0.0/0")},
		"EverythingOfIPv6":     {"AllowedCIDRs", denied.RuleMetadata, allow("::/0")},
		"MetadataOverIPv6":     {"AllowedCIDRs", denied.RuleMetadata, allow("fd00:ec2::254/128")},
		"MetadataMapped":       {"AllowedCIDRs", denied.RuleMetadata, allow("::ffff:169.254.0.0/112")},
		"PodRange":             {"AllowedCIDRs", denied.RuleCluster, allow("10.42.3.0/24")},
		"AroundThePodRange":    {"AllowedCIDRs", denied.RuleCluster, allow("10.0.0.0/8")},
		"NodeAddress":          {"AllowedCIDRs", denied.RuleCluster, allow("192.168.7.0/24")},
		"SecondOfTwo":          {"AllowedCIDRs", denied.RuleCluster, allow("172.18.0.0/16", "fd42::/64")},
		"Loopback":             {"AllowedCIDRs", denied.RuleLoopback, allow("127.0.0.1/32")},
		"LinkLocal":            {"AllowedCIDRs", denied.RuleLinkLocal, allow("fe80::/64")},
		"Multicast":            {"AllowedCIDRs", denied.RuleMulticast, allow("239.0.0.0/8")},
		"Reserved":             {"AllowedCIDRs", denied.RuleReserved, allow("240.0.0.0/8")},
		"Translated":           {"AllowedCIDRs", denied.RuleTranslated, allow("64:ff9b::a00:1/128")},
		"EchoAtMetadata":       {"EchoTargets", denied.RuleMetadata, echo("169.254.169.254:443")},
		"EchoInOwnCluster":     {"EchoTargets", denied.RuleCluster, echo("198.18.4.2:443", "10.43.0.10:443")},
		"EchoOnOwnNode":        {"EchoTargets", denied.RuleCluster, echo("192.168.7.10:443")},
		"EchoMappedToLoopback": {"EchoTargets", denied.RuleLoopback, echo("[::ffff:127.0.0.1]:443")},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := squid.Render(base(tc.change))
			var got *squid.RuleError
			if !errors.As(err, &got) || got.Field != tc.field || got.Rule != tc.rule {
				t.Fatalf("error %v, want one of field %s and rule %s", err, tc.field, tc.rule)
			}
			if !strings.Contains(err.Error(), got.Asked.String()) || !strings.Contains(err.Error(), string(tc.rule)) {
				t.Errorf("the message does not name range and rule: %v", err)
			}
			if text != nil {
				t.Error("text beside the error")
			}
		})
	}
}

// A wide private range may be allowed although a cloud's metadata service is inside: it stays denied by its own rule.
func TestMetadataInsideOfAnAllowedRangeStaysDenied(t *testing.T) {
	text, err := squid.Render(base(func(c *squid.Config) { c.AllowedCIDRs = prefixes("100.64.0.0/10") }))
	if err != nil {
		t.Fatal(err)
	}
	if denied := denials(t, text); !denied.Contains(netip.MustParseAddr("100.100.100.200")) || denied.Contains(netip.MustParseAddr("100.100.100.201")) {
		t.Error("100.64.0.0/10 is allowed: all of it but 100.100.100.200 must be open")
	}
}

// denials reads the denied addresses back out of a rendered configuration, checking that no rule allows by address.
func denials(t interface{ Fatalf(string, ...any) }, text []byte) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch {
		case len(words) > 3 && words[0] == "acl" && slices.Contains([]string{"dst_never", "dst_cluster", "dst_private"}, words[1]):
			for _, w := range words[3:] {
				b.AddPrefix(netip.MustParsePrefix(w))
			}
		case len(words) > 2 && words[0] == "http_access" && words[1] == "allow" && words[2] != "all":
			t.Fatalf("an allow rule: %s", line)
		}
	}
	set, err := b.IPSet()
	if err != nil {
		t.Fatalf("denied ranges: %v", err)
	}
	return set
}

// For any allowed ranges: exactly what was asked for is open, and never what must stay closed.
func TestDenialsAreExact(t *testing.T) {
	baseline, err := squid.Render(base(func(c *squid.Config) { c.EchoTargets = nil }))
	if err != nil {
		t.Fatal(err)
	}
	before := denials(t, baseline)
	rapid.Check(t, func(t *rapid.T) {
		drawAddr := rapid.Custom(func(t *rapid.T) netip.Addr {
			first := rapid.SampledFrom([]byte{10, 100, 127, 169, 172, 192, 198, 8}).Draw(t, "first")
			rest := rapid.SliceOfN(rapid.Byte(), 3, 3).Draw(t, "rest")
			return netip.AddrFrom4([4]byte{first, rest[0], rest[1], rest[2]})
		})
		drawPrefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
			return netip.PrefixFrom(drawAddr.Draw(t, "addr"), rapid.IntRange(8, 32).Draw(t, "bits")).Masked()
		})
		c := base(func(c *squid.Config) {
			c.EchoTargets = nil
			c.AllowedCIDRs = rapid.SliceOfN(drawPrefix, 0, 5).Draw(t, "allowed")
		})
		text, err := squid.Render(c)
		var rule *squid.RuleError
		if errors.As(err, &rule) {
			if !rule.Asked.Overlaps(rule.Denied) {
				t.Fatalf("refused without a reason: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		after := denials(t, text)
		for range 20 {
			addr := drawAddr.Draw(t, "target")
			asked := slices.ContainsFunc(c.AllowedCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })
			metadata := addr == netip.MustParseAddr("100.100.100.200") || addr == netip.MustParseAddr("192.0.0.192")
			if want := before.Contains(addr) && (!asked || metadata); after.Contains(addr) != want {
				t.Fatalf("%v is denied: %v, want %v", addr, !want, want)
			}
		}
	})
}

// The order of the input does not matter, and every field does.
func TestHash(t *testing.T) {
	hash := func(c squid.Config) string {
		t.Helper()
		h, err := squid.Hash(c)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	usual := hash(base(nil))
	same := base(func(c *squid.Config) {
		slices.Reverse(c.ClusterCIDRs)
		c.PlainPorts = []uint16{80, 80}
		c.AuthHelper, c.ShutdownLifetime = squid.DefaultAuthHelper, squid.DefaultShutdownLifetime
	})
	if got := hash(same); got != usual {
		t.Errorf("the same configuration in another order: %s, want %s", got, usual)
	}
	seen := map[string]string{usual: "usual"}
	for name, change := range map[string]func(*squid.Config){
		"Port":     func(c *squid.Config) { c.Port++ },
		"UID":      func(c *squid.Config) { c.ProxyUID = "other" },
		"Plain":    func(c *squid.Config) { c.PlainPorts = nil },
		"Connect":  func(c *squid.Config) { c.ConnectPorts = []uint16{443, 444} },
		"Cluster":  func(c *squid.Config) { c.ClusterCIDRs = nil },
		"Allowed":  func(c *squid.Config) { c.AllowedCIDRs = prefixes("10.1.0.0/16") },
		"Echo":     func(c *squid.Config) { c.EchoTargets = nil },
		"Helper":   func(c *squid.Config) { c.AuthHelper = "/x" },
		"Keys":     func(c *squid.Config) { c.KeysDir = "/x" },
		"Shutdown": func(c *squid.Config) { c.ShutdownLifetime = time.Second },
		"Files":    func(c *squid.Config) { c.MaxFileDescriptors = 1024 },
	} {
		h := hash(base(change))
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s have one hash", name, other)
		}
		seen[h] = name
	}
	if _, err := squid.Hash(squid.Config{}); err == nil {
		t.Error("a hash of what cannot be rendered")
	}
}
