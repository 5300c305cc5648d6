package lease

import (
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// maxTargetBytes is the longest host name DNS allows.
const maxTargetBytes = 253

// Target is a host that crawlers fetch from, normalised: lower case, ASCII
// (IDNA), no port, no final dot. Bans and cooldowns go by its key, the
// registrable domain, because sites count across their host names. The zero
// Target means "no target in particular". Targets are comparable, and they
// are made by [ParseTarget] only, outside the engine's goroutine.
type Target struct {
	host string
	key  string
}

// hostProfile maps what people type (upper case, full-width letters) and
// then checks it as strictly as a resolver would. Underscores occur in real
// host names, so the STD3 rules are replaced by a check of our own.
var hostProfile = idna.New(
	idna.MapForLookup(),
	idna.BidiRule(),
	idna.Transitional(false),
	idna.StrictDomainName(false),
)

// ParseTarget reads a host name or an address. An empty text is the zero
// Target. Anything else that is not a host is refused with [InvalidRequest].
func ParseTarget(text string) (Target, error) {
	if text == "" {
		return Target{}, nil
	}
	if strings.Contains(text, "://") || strings.ContainsAny(text, "/?#@") {
		return Target{}, invalidTarget(text, "is a URL; write its host only, such as www.example.com")
	}
	if addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")); err == nil {
		if addr.Zone() != "" {
			return Target{}, invalidTarget(text, "has a zone; write the address without it")
		}
		host := addr.Unmap().String()
		return Target{host: host, key: host}, nil
	}
	if strings.Contains(text, ":") {
		return Target{}, invalidTarget(text, "has a port; write the host without it, such as www.example.com")
	}
	host, err := hostProfile.ToASCII(text)
	if err != nil || !utf8.ValidString(text) {
		return Target{}, invalidTarget(text, "is not a host name; write one such as www.example.com")
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if !isHost(host) {
		return Target{}, invalidTarget(text, "is not a host name; write one such as www.example.com")
	}
	if addr, err := netip.ParseAddr(host); err == nil { // full-width digits
		return Target{host: addr.String(), key: addr.String()}, nil
	}
	return Target{host: host, key: registrable(host)}, nil
}

// MustParseTarget is ParseTarget for texts known to be right, as in tests. It
// panics on any other.
func MustParseTarget(text string) Target {
	target, err := ParseTarget(text)
	if err != nil {
		panic(err)
	}
	return target
}

// RestoreTarget returns the target that once had this host and key. It is for
// journals: the list of public suffixes may have changed since.
func RestoreTarget(host, key string) Target { return Target{host: host, key: key} }

// Host returns the normalised host, or "" for the zero Target.
func (t Target) Host() string { return t.host }

// Key returns what bans and cooldowns go by: the registrable domain, or the
// host itself where it has none (an address, a bare public suffix, a name of
// one label).
func (t Target) Key() string { return t.key }

// IsZero tells "no target in particular".
func (t Target) IsZero() bool { return t.key == "" }

// String returns the host.
func (t Target) String() string { return t.host }

// registrable returns the part of a host that somebody can register: one
// label more than its public suffix.
func registrable(host string) string {
	key, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return host
	}
	return key
}

// isHost checks lengths and characters of a host in ASCII.
func isHost(host string) bool {
	if host == "" || len(host) > maxTargetBytes {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			switch {
			case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
			default:
				return false
			}
		}
	}
	return true
}

func invalidTarget(text, advice string) *Refusal {
	return &Refusal{Reason: InvalidRequest, Field: "target", Message: quote("target", text) + " " + advice}
}
