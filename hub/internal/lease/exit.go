package lease

import (
	"net/netip"
	"strings"
)

// ipv6ExitBits is the part of an IPv6 address that a target holds against a
// client: hosts change the rest at will, so targets ban by /64.
const ipv6ExitBits = 64

// Exit is one address by which targets see a proxy: an IPv4 address, or the
// /64 of an IPv6 address. Cooldowns belong to exits, not to proxies. The zero
// Exit is not valid. Exits are comparable.
type Exit struct {
	prefix netip.Prefix
}

// ExitOf returns the exit to which an address belongs. An IPv4 address
// written as IPv6 is IPv4. The zero Addr gives the zero Exit.
func ExitOf(addr netip.Addr) Exit {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = ipv6ExitBits
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return Exit{}
	}
	return Exit{prefix: prefix}
}

// ParseExit reads an address ("203.0.113.9", "2001:db8::1") or the form that
// [Exit.String] writes ("2001:db8::/64").
func ParseExit(text string) (Exit, error) {
	host, _, slash := strings.Cut(text, "/")
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return Exit{}, &Refusal{
			Reason: InvalidRequest, Field: "exit",
			Message: quote("exit", text) + " is not an address; write an IPv4 or IPv6 address such as 203.0.113.9",
		}
	}
	exit := ExitOf(addr)
	if slash && exit.String() != text {
		return Exit{}, &Refusal{
			Reason: InvalidRequest, Field: "exit",
			Message: quote("exit", text) + " is not an exit; write one IPv4 address or one IPv6 /64, such as " + exit.String(),
		}
	}
	return exit, nil
}

// IsValid tells an exit from the zero Exit.
func (x Exit) IsValid() bool { return x.prefix.IsValid() }

// Prefix returns the addresses that the exit stands for.
func (x Exit) Prefix() netip.Prefix { return x.prefix }

// Contains tells whether the address belongs to the exit.
func (x Exit) Contains(addr netip.Addr) bool { return x.IsValid() && ExitOf(addr) == x }

// String writes "203.0.113.9" or "2001:db8::/64".
func (x Exit) String() string {
	switch {
	case !x.IsValid():
		return ""
	case x.prefix.IsSingleIP():
		return x.prefix.Addr().String()
	default:
		return x.prefix.String()
	}
}

// exitsOf returns the distinct valid exits of the addresses, in their order.
func exitsOf(addrs []netip.Addr) []Exit {
	exits := make([]Exit, 0, len(addrs))
next:
	for _, addr := range addrs {
		exit := ExitOf(addr)
		if !exit.IsValid() {
			continue
		}
		for _, known := range exits {
			if known == exit {
				continue next
			}
		}
		exits = append(exits, exit)
	}
	return exits
}
