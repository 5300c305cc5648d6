package squid_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/internal/squid"
	"github.com/shoal-dev/shoal/proto/credential"
)

// TestRealSquid runs the real Squid with the real auth program, as in the image: an unprivileged user, one process,
// nothing writable that it needs.
func TestRealSquid(t *testing.T) {
	const uid = credential.ProxyUID("3f6c1a2e-9b1d-4c57-8f7e-0d2b5a1c9e44")
	const odd = credential.Principal("sa:crawl/ü \"quoted\" ")
	dir := worldReadable(t)
	keysDir := filepath.Join(dir, "keys")
	if err := os.Mkdir(keysDir, 0o755); err != nil {
		t.Fatal(err)
	}
	hub, probeKey, stranger := newSigner(t, "hub", credential.UseLease), newSigner(t, "probe", credential.UseProbe), newSigner(t, "stranger", credential.UseLease)
	keys, err := credential.Marshal([]credential.Key{hub.PublicKey(), probeKey.PublicKey()}, []credential.Denial{{Principal: "sa:gone"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(keysDir, "keys.json"), keys, 0o644); err != nil {
		t.Fatal(err)
	}

	headers := make(chan http.Header, 1)
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case headers <- r.Header:
		default: // Nobody asked for them.
		}
		fmt.Fprint(w, "a page")
	})
	secure, plain := httptest.NewUnstartedServer(site), httptest.NewServer(site)
	// Most cases end their tunnel before a handshake, which is nothing to report.
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	defer plain.Close()
	secureAddr, plainAddr := netip.MustParseAddrPort(secure.Listener.Addr().String()), netip.MustParseAddrPort(plain.Listener.Addr().String())

	// An echo on a port of its own, at another address of the loopback.
	echo, err := net.Listen("tcp", "127.0.0.9:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	echoAddr := netip.MustParseAddrPort(echo.Addr().String())

	helper := buildHelper(t, dir)
	proxy := startSquid(t, dir, squid.OnLoopback(squid.Config{
		Port:         freePort(t),
		ProxyUID:     string(uid),
		PlainPorts:   []uint16{80, plainAddr.Port()},
		ConnectPorts: []uint16{443, secureAddr.Port()},
		ClusterCIDRs: prefixes("127.42.0.0/16"),
		EchoTargets:  []netip.AddrPort{echoAddr, netip.MustParseAddrPort("10.9.9.9:443")},
		AuthHelper:   helper,
		KeysDir:      keysDir,
	}))

	now := time.Now()
	token := func(s *credential.Signer, at time.Time, proxy credential.ProxyUID, principal credential.Principal) string {
		t.Helper()
		token, err := s.Sign(at, proxy, principal, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return token.Password
	}
	good := basic("lse_1", token(hub, now, uid, "sa:crawl/news"))

	cases := map[string]struct {
		reason        string
		target        string
		authorization string
		status        int
		err           string
		log           logLine
	}{
		"Lease": {
			"a leased credential opens a tunnel", secureAddr.String(), good, 200, "",
			logLine{User: "lse_1", Principal: "sa:crawl/news", Method: "CONNECT", Status: 200},
		},
		"Probe": {
			"so does the agent's own", secureAddr.String(), basic("probe", token(probeKey, now, uid, "probe:east")), 200, "",
			logLine{User: "probe", Principal: "probe:east", Method: "CONNECT", Status: 200},
		},
		"OddPrincipal": {
			"whatever the principal is, the log line is JSON", secureAddr.String(), basic("lse_odd", token(hub, now, uid, odd)), 200, "",
			logLine{User: "lse_odd", Principal: string(odd), Method: "CONNECT", Status: 200},
		},
		"EchoOnItsPort": {
			"the probe target's port is open towards it", echoAddr.String(), good, 200, "",
			logLine{User: "lse_1", Principal: "sa:crawl/news", Method: "CONNECT", Status: 200},
		},
		"NoCredentials":  {"nobody gets through without", secureAddr.String(), "", 407, "ERR_CACHE_ACCESS_DENIED", logLine{User: "-", Principal: "-"}},
		"WrongPassword":  {"a guess", secureAddr.String(), basic("lse_2", "hunter2"), 407, "ERR_CACHE_ACCESS_DENIED", logLine{User: "lse_2", Principal: "-"}},
		"OtherProxy":     {"a credential opens one proxy", secureAddr.String(), basic("lse_3", token(hub, now, "other", "p")), 407, "ERR_CACHE_ACCESS_DENIED", logLine{User: "lse_3", Principal: "-"}},
		"Expired":        {"an old credential", secureAddr.String(), basic("lse_4", token(hub, now.Add(-2*time.Hour), uid, "p")), 407, "ERR_CACHE_ACCESS_DENIED", logLine{User: "lse_4", Principal: "-"}},
		"UnknownKey":     {"another hub's credential", secureAddr.String(), basic("lse_5", token(stranger, now, uid, "p")), 407, "ERR_CACHE_ACCESS_DENIED", logLine{User: "lse_5", Principal: "-"}},
		"Revoked":        {"a denied principal", secureAddr.String(), basic("lse_6", token(hub, now, uid, "sa:gone")), 407, "ERR_CACHE_ACCESS_DENIED", logLine{User: "lse_6", Principal: "-"}},
		"UserIsNoLabel":  {"only lease ids are user names", secureAddr.String(), basic("a b", token(hub, now, uid, "p")), 407, "ERR_CACHE_ACCESS_DENIED", logLine{User: "a%20b", Principal: "-"}},
		"Metadata":       {"never", "169.254.169.254:443", good, 403, squid.ErrorDestination, logLine{}},
		"MetadataMapped": {"nor in another spelling", "[::ffff:169.254.169.254]:443", good, 403, squid.ErrorDestination, logLine{}},
		"MetadataNumber": {"nor as a number", "2852039166:443", good, 403, squid.ErrorDestination, logLine{}},
		"MetadataHex":    {"nor in hexadecimal", "0xa9fea9fe:443", good, 403, squid.ErrorDestination, logLine{}},
		"MetadataNAT64":  {"nor translated", "[64:ff9b::a9fe:a9fe]:443", good, 403, squid.ErrorDestination, logLine{}},
		"PrivateRange":   {"a private address that was not allowed", "10.1.2.3:443", good, 403, squid.ErrorDestination, logLine{}},
		"PrivateIPv6":    {"a private address that was not allowed", "[fd00::1]:443", good, 403, squid.ErrorDestination, logLine{}},
		"OwnCluster":     {"the member's own range, reachable or not", "127.42.0.1:443", good, 403, squid.ErrorDestination, logLine{}},
		"BesideTheEcho":  {"one address is cut out, not its neighbour", "10.9.9.8:443", good, 403, squid.ErrorDestination, logLine{}},
		"EchoOtherPort":  {"a private probe target is open on its own port only", fmt.Sprintf("10.9.9.9:%d", secureAddr.Port()), good, 403, squid.ErrorDestination, logLine{}},
		"EchoPortAbroad": {"the probe's port is open towards the probe target only", fmt.Sprintf("127.0.0.1:%d", echoAddr.Port()), good, 403, squid.ErrorRequest, logLine{}},
		"ServiceName":    {"cluster names are refused before any lookup", "kubernetes.default.svc:443", good, 403, squid.ErrorPolicy, logLine{}},
		"MetadataName":   {"cluster names are refused before any lookup", "metadata.google.internal:443", good, 403, squid.ErrorPolicy, logLine{}},
		"SingleLabel":    {"a name without a dot is local", "metadata:443", good, 403, squid.ErrorPolicy, logLine{}},
		"OtherPort":      {"only the ports that were asked for", "203.0.114.1:22", good, 403, squid.ErrorRequest, logLine{}},
		"PlainPort":      {"a port for plain HTTP is none for tunnels", plainAddr.String(), good, 403, squid.ErrorRequest, logLine{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := proxy.connect(t, tc.target, tc.authorization)
			if got.status != tc.status || got.err != tc.err {
				t.Errorf("%s: %d %s, want %d %s", tc.reason, got.status, got.err, tc.status, tc.err)
			}
			got.conn.Close()
			// A tunnel is logged when it ends. Refusals after authentication show the last accepted principal.
			line := proxy.nextLog(t)
			if want := tc.log; want != (logLine{}) {
				want.Method, want.Status = "CONNECT", tc.status
				if line != want {
					t.Errorf("%s: logged %+v, want %+v", tc.reason, line, want)
				}
			}
		})
	}

	proxyURL := &url.URL{Scheme: "http", Host: proxy.addr, User: url.UserPassword("lse_1", token(hub, now, uid, "sa:crawl/news"))}
	fetch := func(t *testing.T, u *url.URL, site *httptest.Server, target string) *http.Response {
		t.Helper()
		transport := site.Client().Transport.(*http.Transport).Clone()
		transport.Proxy = http.ProxyURL(u)
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Forwarded-For", "192.0.2.1")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	page := func(t *testing.T, resp *http.Response) {
		t.Helper()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK || string(body) != "a page" {
			t.Errorf("got %d %q", resp.StatusCode, body)
		}
	}

	t.Run("PageThroughTunnel", func(t *testing.T) {
		resp := fetch(t, proxyURL, secure, secure.URL)
		page(t, resp)
		if len(headers) == 0 {
			t.Fatal("the site was not asked")
		}
		<-headers
		if resp.TLS == nil || resp.TLS.Version < tls.VersionTLS12 {
			t.Error("the page did not come over TLS from its server")
		}
	})
	t.Run("PlainPageIsAnonymous", func(t *testing.T) {
		resp := fetch(t, proxyURL, plain, plain.URL)
		page(t, resp)
		if len(headers) == 0 {
			t.Fatal("the site was not asked")
		}
		seen := <-headers
		for _, name := range []string{"X-Forwarded-For", "Forwarded", "Via", "Proxy-Authorization", "Proxy-Connection"} {
			if seen.Get(name) != "" {
				t.Errorf("the site saw %s: %s", name, seen.Get(name))
			}
		}
		for _, name := range []string{"Via", "X-Cache", "X-Cache-Lookup", "Cache-Status"} {
			if resp.Header.Get(name) != "" {
				t.Errorf("the crawler saw %s: %s", name, resp.Header.Get(name))
			}
		}
	})
	t.Run("PlainPageNeedsCredentials", func(t *testing.T) {
		if resp := fetch(t, &url.URL{Scheme: "http", Host: proxy.addr}, plain, plain.URL); resp.StatusCode != http.StatusProxyAuthRequired {
			t.Errorf("status %d, want 407", resp.StatusCode)
		}
	})
	t.Run("ErrorNamesParse", func(t *testing.T) {
		resp := fetch(t, proxyURL, plain, "http://169.254.169.254/latest/meta-data/")
		if got := resp.Header.Get("X-Squid-Error"); !regexp.MustCompile(`^(\d{3}:)?(ERR_\w+) (\d+)$`).MatchString(got) {
			t.Errorf("X-Squid-Error is %q", got)
		}
	})
	t.Run("ManagerIsClosed", func(t *testing.T) {
		if resp := fetch(t, proxyURL, plain, fmt.Sprintf("http://%s/squid-internal-mgr/info", proxy.addr)); resp.StatusCode != http.StatusForbidden {
			t.Errorf("status %d, want 403", resp.StatusCode)
		}
	})

	// The agent's prober tells these apart by what this very Squid says.
	t.Run("ProbeClasses", func(t *testing.T) {
		roots := secure.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		prober, err := probe.NewProber(probe.ProberOptions{Roots: func() *x509.CertPool { return roots }, Clock: clock.RealClock{}})
		if err != nil {
			t.Fatal(err)
		}
		echoing := probe.Echo{ID: "echo", Addr: secureAddr, ServerName: "example.com"}
		closed := probe.Echo{ID: "closed", Addr: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.77"), secureAddr.Port()), ServerName: "example.com"}
		denied := probe.Echo{ID: "denied", Addr: netip.MustParseAddrPort("10.1.2.3:443"), ServerName: "example.com"}
		own := func(now time.Time) (string, string, error) {
			token, err := probeKey.Sign(now, uid, "probe:east", time.Hour)
			return "probe", token.Password, err
		}
		for name, tc := range map[string]struct {
			echo       probe.Echo
			credential func(time.Time) (string, string, error)
			want       probe.Class
		}{
			// This site is no echo, but it is reached.
			"Reached":    {echoing, own, probe.ClassTargetAnswer},
			"AuthFailed": {echoing, nil, probe.ClassAuthFailed},
			"TargetDown": {closed, own, probe.ClassConnectFail},
			"Denied":     {denied, own, probe.ClassPolicyDenied},
		} {
			got := prober.Probe(t.Context(), probe.Proxy{UID: probe.UID(uid), Endpoint: proxy.addr, Credential: tc.credential}, tc.echo)
			if got.Class != tc.want {
				t.Errorf("%s: %s (%s), want %s", name, got.Class, got.Detail, tc.want)
			}
		}
	})
}
