package probe_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/shoal-dev/shoal/agent/internal/probe"
)

// TestAllow asks about the address that is dialled, whatever name led to it, and dials nothing that is refused.
func TestAllow(t *testing.T) {
	echo := newEcho(t, remote)
	dialled := make(chan struct{}, 8)
	proxy := listen(t, func(c net.Conn) {
		dialled <- struct{}{}
		tunnel(c)
	})
	_, port, err := net.SplitHostPort(proxy)
	if err != nil {
		t.Fatal(err)
	}
	prober := newProber(t, func(o *probe.ProberOptions) { o.Roots = always(echo.roots()) })
	for name, c := range map[string]struct {
		endpoint string
		refuse   error
		want     probe.Class
	}{
		"Allowed":       {proxy, nil, probe.ClassOK},
		"Refused":       {proxy, errors.New("ceiling.clusterCIDRs: not there"), probe.ClassProxyDown},
		"RefusedByName": {"localhost:" + port, errors.New("reserved: not there"), probe.ClassProxyDown},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []netip.Addr
			got := prober.Probe(t.Context(), probe.Proxy{UID: "p", Endpoint: c.endpoint, Credential: credential, Allow: func(a netip.Addr) error {
				asked = append(asked, a)
				return c.refuse
			}}, echo.target())
			if got.Class != c.want || c.refuse != nil && !strings.Contains(got.Detail, c.refuse.Error()) {
				t.Errorf("%s, %q", got.Class, got.Detail)
			}
			if len(asked) == 0 || !asked[0].IsLoopback() {
				t.Errorf("asked about %v", asked)
			}
			if c.refuse != nil && len(dialled) > 0 {
				t.Error("it was dialled all the same")
			}
			for len(dialled) > 0 {
				<-dialled
			}
		})
	}
}
