package probe_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/agent/internal/probe"
)

// TestOwnersCredentials: a proxy that someone else runs and that refuses what crawlers are given is of no use to them,
// while one of ours has only not heard of a key yet.
func TestOwnersCredentials(t *testing.T) {
	echo := newEcho(t, remote)
	prober := newProber(t, func(o *probe.ProberOptions) { o.Roots = always(echo.roots()) })
	wrong := func(time.Time) (string, string, error) { return "lse_1", "wrong", nil }
	for external, want := range map[bool]probe.Class{true: probe.ClassOwnerRefused, false: probe.ClassAuthFailed} {
		got := prober.Probe(t.Context(), probe.Proxy{UID: "p", Endpoint: listen(t, tunnel), Credential: wrong, External: external}, echo.target())
		if got.Class != want {
			t.Errorf("external %v: %s (%s)", external, got.Class, got.Detail)
		}
	}
	if probe.ClassOwnerRefused.Blame() != probe.BlameProxy {
		t.Error("it stays Ready with credentials that are refused")
	}
}

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
