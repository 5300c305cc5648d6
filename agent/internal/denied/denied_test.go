package denied_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/shoal-dev/shoal/agent/internal/denied"
)

func TestConflict(t *testing.T) {
	for asked, want := range map[string]denied.Rule{
		"169.254.169.254/32":     denied.RuleMetadata,
		"169.0.0.0/8":            denied.RuleMetadata,
		"0.0.0.0/0":              denied.RuleMetadata,
		"168.63.129.16/32":       denied.RuleMetadata,
		"fd00:ec2::254/128":      denied.RuleMetadata,
		"127.0.0.1/32":           denied.RuleLoopback,
		"::1/128":                denied.RuleLoopback,
		"fe80::1/128":            denied.RuleLinkLocal,
		"239.1.2.3/32":           denied.RuleMulticast,
		"0.0.0.0/8":              denied.RuleReserved,
		"64:ff9b::a9fe:a9fe/128": denied.RuleTranslated,
		"10.0.0.0/8":             "",
		"100.64.0.0/10":          "", // one metadata address in it stays closed beside it
		"fd00::/8":               "",
		"8.8.8.8/32":             "",
	} {
		got, conflict := denied.Conflict(netip.MustParsePrefix(asked))
		if got.Rule != want || conflict != (want != "") {
			t.Errorf("%s conflicts with %v %q, want %q", asked, got.Prefix, got.Rule, want)
		}
	}
}

func TestPlain(t *testing.T) {
	for written, want := range map[string]string{
		"10.1.2.3/8":           "10.0.0.0/8",
		"::ffff:10.0.0.0/104":  "10.0.0.0/8",
		"::ffff:a9fe:a9fe/128": "169.254.169.254/32",
		"fd00:1::5/32":         "fd00:1::/32",
		"::ffff:0:0/96":        "0.0.0.0/0",
		"::ffff:10.0.0.0/90":   "",
		"::/0":                 "",
		"::/64":                "",
	} {
		got, ok := denied.Plain(netip.MustParsePrefix(written))
		if ok != (want != "") || (ok && got.String() != want) {
			t.Errorf("Plain(%s) = %v, %v, want %q", written, got, ok, want)
		}
	}
	if _, ok := denied.Plain(netip.Prefix{}); ok {
		t.Error("no range at all has a form")
	}
}

// What is open after a conflict has been looked for holds no address of the lists but the single ones inside of it.
func TestNothingHidesAnAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom(denied.Never()).Draw(t, "never")
		addr := n.Prefix.Addr()
		if addr.Is4() && rapid.Bool().Draw(t, "dressed") {
			four := addr.As4()
			var sixteen [16]byte
			sixteen[10], sixteen[11] = 0xff, 0xff
			binary.BigEndian.PutUint32(sixteen[12:], binary.BigEndian.Uint32(four[:]))
			addr = netip.AddrFrom16(sixteen)
		}
		bits := rapid.IntRange(0, addr.BitLen()).Draw(t, "bits")
		plain, ok := denied.Plain(netip.PrefixFrom(addr, bits))
		if !ok {
			return
		}
		_, conflict := denied.Conflict(plain)
		if single := n.Prefix.IsSingleIP() && plain.Bits() < n.Prefix.Bits(); !conflict && !single {
			t.Fatalf("%v, as %v, holds %v and conflicts with nothing", netip.PrefixFrom(addr, bits), plain, n.Prefix)
		}
	})
}

func TestListsAreCopies(t *testing.T) {
	denied.Never()[0].Prefix = netip.MustParsePrefix("192.0.2.1/32")
	denied.Private()[0] = netip.MustParsePrefix("192.0.2.1/32")
	if !slices.ContainsFunc(denied.Never(), func(r denied.Range) bool { return r.Prefix.String() == "169.254.0.0/16" }) {
		t.Error("a caller has changed the list that everybody reads")
	}
	if denied.Private()[0].String() != "10.0.0.0/8" {
		t.Error("a caller has changed the list that everybody reads")
	}
}
