package squid_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/agent/internal/squid"
	"github.com/shoal-dev/shoal/proto/credential"
)

// squidUser is the user that Debian's squid runs as, in the image as well; Squid started by root would change to it.
const squidUser = 13

// running is a Squid in the foreground, on loopback.
type running struct {
	addr string
	log  <-chan string // access log lines
}

// logLine is what the tests read of an access log line.
type logLine struct {
	User      string `json:"user"`
	Principal string `json:"principal"`
	Method    string `json:"method"`
	Status    int    `json:"status"`
}

// startSquid runs the real program with a rendered configuration and returns once it accepts connections.
func startSquid(t *testing.T, dir string, c squid.Config) running {
	t.Helper()
	text, err := squid.Render(c)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "squid.conf")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	cmd := exec.CommandContext(ctx, squidProgram(t), "-N", "-f", path)
	cmd.Dir = "/"
	stdout, stdoutW := pipe(t)
	stderr, stderrW := pipe(t)
	cmd.Stdout, cmd.Stderr = stdoutW, stderrW
	if os.Getuid() == 0 {
		// As in the image. Squid opens /dev/stdout by name, so the pipes must belong to the user that it runs as.
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: squidUser, Gid: squidUser}}
		for _, f := range []*os.File{stdoutW, stderrW} {
			if err := f.Chown(squidUser, squidUser); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdoutW.Close()
	stderrW.Close()
	var drained chan struct{} // closed once all that Squid said has been looked at
	t.Cleanup(func() {
		// SIGINT ends Squid at once; SIGTERM would wait for its shutdown lifetime.
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("stopping squid: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("squid ended with %v", err)
		}
		cancel()
		if drained != nil {
			<-drained
		}
	})

	messages, said := lines(stderr), []string(nil)
	for line := range messages {
		said = append(said, line)
		if strings.Contains(line, "Accepting HTTP Socket connections") {
			done := make(chan struct{})
			go func() {
				defer close(done)
				for line := range messages {
					if strings.Contains(line, "ERROR") || strings.Contains(line, "FATAL") || strings.Contains(line, "from-helper annotation") {
						t.Errorf("squid says: %s", line)
					}
				}
			}()
			drained = done
			return running{addr: fmt.Sprintf("127.0.0.1:%d", c.Port), log: lines(stdout)}
		}
	}
	t.Fatalf("squid did not begin to listen; it said:\n%s", strings.Join(said, "\n"))
	return running{}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

func lines(r io.Reader) <-chan string {
	out := make(chan string, 1024)
	go func() {
		defer close(out)
		for s := bufio.NewScanner(r); s.Scan(); {
			out <- s.Text()
		}
	}()
	return out
}

// nextLog returns the next access log line.
func (r running) nextLog(t *testing.T) logLine {
	t.Helper()
	select {
	case text := <-r.log:
		var line logLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("log line %q: %v", text, err)
		}
		return line
	case <-time.After(10 * time.Second):
		t.Fatal("no log line")
	}
	return logLine{}
}

// reply is how Squid answered a CONNECT.
type reply struct {
	status int
	err    string // the first word of X-Squid-Error
	conn   net.Conn
}

func basic(user, pass string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+pass))
}

// connect asks for a tunnel. An empty authorization sends none.
func (r running) connect(t *testing.T, target, authorization string) reply {
	t.Helper()
	conn, err := net.DialTimeout("tcp", r.addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	request := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if authorization != "" {
		request += "Proxy-Authorization: " + authorization + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatalf("CONNECT %s: %v", target, err)
	}
	resp.Body.Close()
	name, _, _ := strings.Cut(resp.Header.Get("X-Squid-Error"), " ")
	return reply{status: resp.StatusCode, err: name, conn: conn}
}

// freePort returns a port that nobody listens on.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// buildHelper compiles shoal-auth as the image does.
func buildHelper(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "shoal-auth")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/shoal-dev/shoal/agent/cmd/shoal-auth")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building shoal-auth: %v\n%s", err, out)
	}
	return path
}

// worldReadable returns a directory that the squid user can read.
func worldReadable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "shoal-squid-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newSigner(t *testing.T, name string, use credential.Use) *credential.Signer {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	s, err := credential.NewSigner(credential.SignerOptions{Key: ed25519.NewKeyFromSeed(seed[:]), Use: use, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

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
	hub, probe, stranger := newSigner(t, "hub", credential.UseLease), newSigner(t, "probe", credential.UseProbe), newSigner(t, "stranger", credential.UseLease)
	keys, err := credential.Marshal([]credential.Key{hub.PublicKey(), probe.PublicKey()}, []credential.Denial{{Principal: "sa:gone"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(keysDir, "keys.json"), keys, 0o644); err != nil {
		t.Fatal(err)
	}

	headers := make(chan http.Header, 1)
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header
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

	proxy := startSquid(t, dir, squid.OnLoopback(squid.Config{
		Port:         freePort(t),
		ProxyUID:     string(uid),
		PlainPorts:   []uint16{80, plainAddr.Port()},
		ConnectPorts: []uint16{443, secureAddr.Port()},
		ClusterCIDRs: prefixes("127.42.0.0/16"),
		EchoTargets:  []netip.AddrPort{echoAddr, netip.MustParseAddrPort("10.9.9.9:443")},
		AuthHelper:   buildHelper(t, dir),
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
			"so does the agent's own", secureAddr.String(), basic("probe", token(probe, now, uid, "probe:east")), 200, "",
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
		<-headers
		page(t, resp)
		if resp.TLS == nil || resp.TLS.Version < tls.VersionTLS12 {
			t.Error("the page did not come over TLS from its server")
		}
	})
	t.Run("PlainPageIsAnonymous", func(t *testing.T) {
		resp := fetch(t, proxyURL, plain, plain.URL)
		seen := <-headers
		page(t, resp)
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
}
