package lease

import (
	"errors"
	"strings"
	"testing"
)

// TestParseTarget is the table of what targets become.
func TestParseTarget(t *testing.T) {
	cases := map[string]struct{ text, host, key string }{
		"Plain":            {"www.example.com", "www.example.com", "example.com"},
		"UpperCase":        {"WWW.Example.COM", "www.example.com", "example.com"},
		"FinalDot":         {"example.com.", "example.com", "example.com"},
		"TwoPartSuffix":    {"shop.example.co.uk", "shop.example.co.uk", "example.co.uk"},
		"BareSuffix":       {"co.uk", "co.uk", "co.uk"},
		"PrivateSuffix":    {"a.b.github.io", "a.b.github.io", "b.github.io"},
		"OneLabel":         {"localhost", "localhost", "localhost"},
		"UnknownSuffix":    {"a.b.internal", "a.b.internal", "b.internal"},
		"Umlaut":           {"Bücher.example", "xn--bcher-kva.example", "xn--bcher-kva.example"},
		"Sharp":            {"straße.de", "xn--strae-oqa.de", "xn--strae-oqa.de"},
		"Cyrillic":         {"пример.рф", "xn--e1afmkfd.xn--p1ai", "xn--e1afmkfd.xn--p1ai"},
		"FullWidth":        {"ｅｘａｍｐｌｅ．ｃｏｍ", "example.com", "example.com"},
		"Underscore":       {"my_host.example.com", "my_host.example.com", "example.com"},
		"IPv4":             {"203.0.113.9", "203.0.113.9", "203.0.113.9"},
		"IPv6":             {"2001:DB8::1", "2001:db8::1", "2001:db8::1"},
		"BracketedIPv6":    {"[2001:db8::1]", "2001:db8::1", "2001:db8::1"},
		"MappedIPv4":       {"::ffff:203.0.113.9", "203.0.113.9", "203.0.113.9"},
		"NoTarget":         {"", "", ""},
		"FullWidthAddress": {"１０．０．０．１", "10.0.0.1", "10.0.0.1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseTarget(c.text)
			if err != nil || got.Host() != c.host || got.Key() != c.key {
				t.Errorf("%q is %q of %q, %v; want %q of %q", c.text, got.Host(), got.Key(), err, c.host, c.key)
			}
		})
	}
}

// TestParseTargetRefuses is the table of what is no target, and what to write
// instead.
func TestParseTargetRefuses(t *testing.T) {
	cases := map[string]struct{ text, advice string }{
		"URL":         {"https://example.com/a", "write its host only"},
		"Path":        {"example.com/a", "write its host only"},
		"Credentials": {"user@example.com", "write its host only"},
		"Port":        {"example.com:443", "write the host without it"},
		"IPv6Port":    {"[2001:db8::1]:443", "write the host without it"},
		"Zone":        {"fe80::1%eth0", "write the address without it"},
		"Space":       {"exam ple.com", "is not a host name"},
		"EmptyLabel":  {"a..example.com", "is not a host name"},
		"OnlyDots":    {"..", "is not a host name"},
		"Dash":        {"-a.example.com", "is not a host name"},
		"LongLabel":   {strings.Repeat("a", 64) + ".com", "is not a host name"},
		"LongHost":    {strings.Repeat("a.", 127) + "com", "is not a host name"},
		"Wildcard":    {"*.example.com", "is not a host name"},
		"NotUTF8":     {"exa\xffmple.com", "is not a host name"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseTarget(c.text)
			var refusal *Refusal
			if !errors.As(err, &refusal) || refusal.Reason != InvalidRequest || refusal.Field != "target" {
				t.Fatalf("%q is %q, %v", c.text, got, err)
			}
			if !strings.Contains(refusal.Message, c.advice) || len(refusal.Message) > 300 {
				t.Errorf("message %q does not advise %q", refusal.Message, c.advice)
			}
		})
	}
}

// FuzzParseTarget checks that whatever is accepted is normal: it is accepted
// again as it is, and its key is a part of it.
func FuzzParseTarget(f *testing.F) {
	for _, text := range []string{
		"www.Example.com.", "bücher.example", "[2001:db8::1]", "a..b", "xn--bcher-kva.example", "co.uk", "１０．０．０．１", "exa\xff.com", "a:1",
		"xn--a", "0x7f.1", "ß.de", "\u200d.com", "日本語.jp",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		target, err := ParseTarget(text)
		if err != nil {
			if target != (Target{}) {
				t.Fatalf("%q is refused and yet %q", text, target)
			}
			return
		}
		again, err := ParseTarget(target.Host())
		if err != nil || again != target {
			t.Fatalf("%q is %q, and that is %q, %v", text, target, again, err)
		}
		if !strings.HasSuffix(target.Host(), target.Key()) || strings.ToLower(target.Host()) != target.Host() {
			t.Fatalf("%q is %q of %q", text, target.Host(), target.Key())
		}
		for i := range len(target.Host()) {
			if c := target.Host()[i]; c <= ' ' || c >= 0x7f {
				t.Fatalf("%q is %q, which is not ASCII", text, target.Host())
			}
		}
	})
}
