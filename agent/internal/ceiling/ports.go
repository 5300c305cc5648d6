package ceiling

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last int32 }

// String writes the range as its owner does.
func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// ParsePortRange reads "443" or "8000-8999".
func ParsePortRange(s string) (PortRange, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	low, errLow := strconv.ParseInt(strings.TrimSpace(first), 10, 32)
	high, errHigh := strconv.ParseInt(strings.TrimSpace(last), 10, 32)
	if errLow != nil || errHigh != nil || low < 1 || high > 65535 || low > high {
		return PortRange{}, fmt.Errorf("%q is no port and no range of ports; write such as 443, or 8000-8999", s)
	}
	return PortRange{First: int32(low), Last: int32(high)}, nil //nolint:gosec // 1 to 65535
}

// mail are the ports at which mail is handed over. Who lets strangers send there soon finds the addresses of the cluster
// on every list of spammers, so they are closed unless the owner opens them.
var mail = []int32{25, 465, 587}

func checkPorts(p Policy, field string, asked []int32, f *findings) {
	for _, port := range asked {
		switch {
		case port < 1 || port > 65535:
			f.refuse(RulePorts, "%s has %d, which is no port", field, port)
		case len(p.Ports) == 0 && slices.Contains(mail, port):
			f.refuse(RulePorts, "%s has %d, which is for mail, and this member opens none of those; leave it out, or have its owner list it", field, port)
		case len(p.Ports) > 0 && !slices.ContainsFunc(p.Ports, func(r PortRange) bool { return r.First <= port && port <= r.Last }):
			f.refuse(RulePorts, "%s has %d, and this member allows %s; leave it out, or have its owner list it", field, port, list(p.Ports))
		}
	}
}
