package probe_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/internal/probe"
)

// echoServer is an echo target on loopback. It counts full and resumed handshakes.
type echoServer struct {
	*httptest.Server
	full, resumed atomic.Int64
}

func newEcho(t testing.TB, answer http.HandlerFunc) *echoServer {
	t.Helper()
	e := &echoServer{}
	e.Server = httptest.NewUnstartedServer(answer)
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	e.TLS = &tls.Config{VerifyConnection: func(s tls.ConnectionState) error {
		if s.DidResume {
			e.resumed.Add(1)
		} else {
			e.full.Add(1)
		}
		return nil
	}}
	e.StartTLS()
	t.Cleanup(e.Close)
	return e
}

func (e *echoServer) target() probe.Echo {
	return probe.Echo{ID: "echo", Addr: netip.MustParseAddrPort(e.Listener.Addr().String()), ServerName: "example.com"}
}

func (e *echoServer) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(e.Certificate())
	return pool
}

func always(pool *x509.CertPool) func() *x509.CertPool { return func() *x509.CertPool { return pool } }

func remote(w http.ResponseWriter, r *http.Request) {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	fmt.Fprintf(w, `{"remote":%q}`, host)
}

// listen serves each connection to a loopback port with f and returns the address.
func listen(t testing.TB, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				f(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// tunnel is a forward proxy that wants the credential lse_1:secret.
func tunnel(conn net.Conn) {
	tunnelWith(base64.StdEncoding.EncodeToString([]byte("lse_1:secret")))(conn)
}

// tunnelWith is one that wants a credential.
func tunnelWith(basic string) func(net.Conn) {
	return func(conn net.Conn) { forward(conn, basic) }
}

func forward(conn net.Conn, basic string) {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	if req.Method != http.MethodConnect || req.Header.Get("Proxy-Authorization") != "Basic "+basic {
		io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nX-Squid-Error: ERR_CACHE_ACCESS_DENIED 0\r\nContent-Length: 0\r\n\r\n")
		return
	}
	out, err := net.Dial("tcp", req.Host)
	if err != nil {
		io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\nX-Squid-Error: ERR_CONNECT_FAIL 111\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer out.Close()
	io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		io.Copy(out, conn)
		out.Close()
	}()
	io.Copy(conn, out)
}

// answers is a proxy that answers every request with the same text.
func answers(text string) func(net.Conn) {
	return func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			io.WriteString(conn, text)
		}
	}
}

// silent accepts and never answers.
func silent(conn net.Conn) { io.Copy(io.Discard, conn) }

func credential(time.Time) (string, string, error) { return "lse_1", "secret", nil }

func newProber(t testing.TB, change func(*probe.ProberOptions)) *probe.Prober {
	t.Helper()
	o := probe.ProberOptions{Roots: x509.NewCertPool, Clock: clock.RealClock{}}
	if change != nil {
		change(&o)
	}
	p, err := probe.NewProber(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProbe(t *testing.T) {
	echo := newEcho(t, remote)
	answering := func(status int, body string) probe.Echo {
		e := newEcho(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		})
		return e.target()
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	proxy := listen(t, tunnel)
	otherName := echo.target()
	otherName.ServerName = "elsewhere.test"
	// A target that hangs after its handshake, and one that never begins it.
	release := make(chan struct{})
	slow := newEcho(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	mute := probe.Echo{ID: "mute", Addr: netip.MustParseAddrPort(listen(t, silent)), ServerName: "example.com"}
	gone := probe.Echo{ID: "gone", Addr: netip.MustParseAddrPort(closed.Addr().String()), ServerName: "example.com"}

	cases := map[string]struct {
		reason     string
		endpoint   string
		echo       probe.Echo
		credential func(time.Time) (string, string, error)
		connect    time.Duration // the prober's timeouts; zero for their defaults
		target     time.Duration
		want       probe.Class
		says       string
	}{
		"OK":               {reason: "the whole way", endpoint: proxy, echo: echo.target(), credential: credential, want: probe.ClassOK},
		"Refused":          {reason: "nobody listens", endpoint: closed.Addr().String(), echo: echo.target(), want: probe.ClassProxyDown, says: "refused"},
		"NoSuchEndpoint":   {reason: "an external proxy with a wrong address", endpoint: "proxy.invalid:0x", echo: echo.target(), want: probe.ClassProxyDown, says: "port"},
		"Stuck":            {reason: "accepts and says nothing", endpoint: listen(t, silent), echo: echo.target(), connect: 200 * time.Millisecond, want: probe.ClassProxyStuck, says: "the proxy's answer"},
		"Drops":            {reason: "accepts and closes", endpoint: listen(t, func(net.Conn) {}), echo: echo.target(), want: probe.ClassProxyDown},
		"NoProxy":          {reason: "another protocol", endpoint: listen(t, answers("220 mail.example.com ESMTP\r\n")), echo: echo.target(), want: probe.ClassUnexpected},
		"WebServer":        {reason: "200 with a body is no tunnel", endpoint: listen(t, answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")), echo: echo.target(), want: probe.ClassUnexpected, says: "with a body"},
		"EndlessHeader":    {reason: "memory is bounded", endpoint: listen(t, answers("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1<<20))), echo: echo.target(), want: probe.ClassUnexpected, says: "too long"},
		"WrongCredential":  {reason: "refused", endpoint: proxy, echo: echo.target(), credential: func(time.Time) (string, string, error) { return "lse_1", "wrong", nil }, want: probe.ClassAuthFailed, says: "407"},
		"NoCredential":     {reason: "refused", endpoint: proxy, echo: echo.target(), want: probe.ClassAuthFailed, says: "ERR_CACHE_ACCESS_DENIED"},
		"CredentialFails":  {reason: "the agent has no key", endpoint: proxy, echo: echo.target(), credential: func(time.Time) (string, string, error) { return "", "", errors.New("no key") }, want: probe.ClassAgentFault, says: "no key"},
		"TargetDown":       {reason: "the proxy says why", endpoint: proxy, echo: gone, credential: credential, want: probe.ClassConnectFail, says: "connection refused"},
		"TargetMute":       {reason: "no handshake", endpoint: proxy, echo: mute, credential: credential, target: 200 * time.Millisecond, want: probe.ClassTargetTLS, says: "TLS"},
		"TargetSlow":       {reason: "no answer", endpoint: proxy, echo: slow.target(), credential: credential, target: 2 * time.Second, want: probe.ClassTargetSlow},
		"OtherCertificate": {reason: "somebody between", endpoint: proxy, echo: otherName, credential: credential, want: probe.ClassTargetTLS, says: "certificate"},
		"Blocked":          {reason: "the target refuses the exit", endpoint: proxy, echo: answering(403, "no"), credential: credential, want: probe.ClassTargetBlocked, says: "403"},
		"NoEcho":           {reason: "another service", endpoint: proxy, echo: answering(200, "hello"), credential: credential, want: probe.ClassTargetAnswer, says: "remote"},
		"NoAddress":        {reason: "an echo without an address", endpoint: proxy, echo: answering(200, `{"remote":""}`), credential: credential, want: probe.ClassTargetAnswer},
		"EndlessBody":      {reason: "memory is bounded", endpoint: proxy, echo: answering(200, strings.Repeat("x", 1<<20)), credential: credential, want: probe.ClassTargetAnswer},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			prober := newProber(t, func(o *probe.ProberOptions) {
				// httptest's certificates are all the same.
				o.Roots = always(echo.roots())
				o.ConnectTimeout, o.TargetTimeout = tc.connect, tc.target
			})
			got := prober.Probe(t.Context(), probe.Proxy{UID: "p", Endpoint: tc.endpoint, Credential: tc.credential}, tc.echo)
			if got.Class != tc.want {
				t.Errorf("%s: %s (%+v, %s), want %s", tc.reason, got.Class, got.Observation, got.Detail, tc.want)
			}
			if !strings.Contains(got.Detail, tc.says) {
				t.Errorf("%s: detail %q does not mention %q", tc.reason, got.Detail, tc.says)
			}
			if strings.Contains(got.Detail, "secret") {
				t.Errorf("the detail holds the password: %q", got.Detail)
			}
			if ok := tc.want == probe.ClassOK; ok != (got.Exit == netip.MustParseAddr("127.0.0.1")) || ok && got.Detail != "" {
				t.Errorf("%s: exit %v, detail %q", tc.reason, got.Exit, got.Detail)
			}
			if got.UID != "p" || got.Echo != tc.echo.ID {
				t.Errorf("a result for %s and %s", got.UID, got.Echo)
			}
		})
	}
}

// The health check's timeout is over all stages, whichever they are; each stage's own bound is far.
func TestProbeTimeout(t *testing.T) {
	release := make(chan struct{})
	slow := newEcho(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	mute := probe.Echo{ID: "mute", Addr: netip.MustParseAddrPort(listen(t, silent)), ServerName: "example.com"}
	fine := newEcho(t, remote)
	cases := map[string]struct {
		reason   string
		endpoint string
		echo     probe.Echo
		limit    time.Duration
		want     probe.Class
	}{
		"Proxy":     {reason: "says nothing", endpoint: listen(t, silent), echo: fine.target(), limit: 200 * time.Millisecond, want: probe.ClassProxyStuck},
		"Handshake": {reason: "is never answered", endpoint: listen(t, tunnel), echo: mute, limit: 200 * time.Millisecond, want: probe.ClassTargetTLS},
		"Target":    {reason: "does not answer", endpoint: listen(t, tunnel), echo: slow.target(), limit: 2 * time.Second, want: probe.ClassTargetSlow},
		"InTime":    {reason: "is no failure", endpoint: listen(t, tunnel), echo: fine.target(), limit: time.Minute, want: probe.ClassOK},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prober := newProber(t, func(o *probe.ProberOptions) {
				o.Roots = always(fine.roots())
				o.DialTimeout, o.ConnectTimeout, o.TargetTimeout = time.Hour, time.Hour, time.Hour
			})
			proxy := probe.Proxy{UID: "p", Endpoint: tc.endpoint, Credential: credential, HealthCheck: probe.HealthCheck{Timeout: tc.limit}}
			got := prober.Probe(t.Context(), proxy, tc.echo)
			if got.Class != tc.want {
				t.Errorf("%s %s: %s (%+v, %s), want %s", name, tc.reason, got.Class, got.Observation, got.Detail, tc.want)
			}
			says := fmt.Sprintf("the whole probe may take %v", tc.limit)
			if late := tc.want != probe.ClassOK; strings.Contains(got.Detail, says) != late || late && got.Latency < tc.limit {
				t.Errorf("%s: it took %v, and the detail is %q", name, got.Latency, got.Detail)
			}
		})
	}
}

func TestProbeTimesItsStages(t *testing.T) {
	echo := newEcho(t, remote)
	prober := newProber(t, func(o *probe.ProberOptions) { o.Roots = always(echo.roots()) })
	got := prober.Probe(t.Context(), probe.Proxy{UID: "p", Endpoint: listen(t, tunnel), Credential: credential}, echo.target())
	for stage, d := range map[string]time.Duration{"dial": got.Dial, "connect": got.Connect, "TLS": got.TLS, "first byte": got.FirstByte} {
		if d <= 0 || d > got.Latency {
			t.Errorf("%s took %v of %v", stage, d, got.Latency)
		}
	}
}

// A handshake costs more than all the rest of a probe, so it is done in full once.
func TestProbeResumesTLS(t *testing.T) {
	echo := newEcho(t, remote)
	prober := newProber(t, func(o *probe.ProberOptions) { o.Roots = always(echo.roots()) })
	for i := range 5 {
		// Another proxy each time: the target is the same.
		got := prober.Probe(t.Context(), probe.Proxy{UID: "p", Endpoint: listen(t, tunnel), Credential: credential}, echo.target())
		if got.Class != probe.ClassOK {
			t.Fatalf("probe %d: %s, %s", i, got.Class, got.Detail)
		}
	}
	if full, resumed := echo.full.Load(), echo.resumed.Load(); full != 1 || resumed != 4 {
		t.Errorf("%d full handshakes and %d resumed, want 1 and 4", full, resumed)
	}
}

// Targets that go by one name, such as the replicas of one hub, have keys of their own for tickets: the sessions of one
// must not drive out those of another.
func TestProbeResumesEachTarget(t *testing.T) {
	echoes := []*echoServer{newEcho(t, remote), newEcho(t, remote)}
	prober := newProber(t, func(o *probe.ProberOptions) { o.Roots = always(echoes[0].roots()) })
	proxy := probe.Proxy{UID: "p", Endpoint: listen(t, tunnel), Credential: credential}
	for i := range 10 {
		target := echoes[i%2].target()
		target.ID = probe.EchoID(fmt.Sprint(i % 2))
		if got := prober.Probe(t.Context(), proxy, target); got.Class != probe.ClassOK {
			t.Fatalf("probe %d: %s, %s", i, got.Class, got.Detail)
		}
	}
	for i, e := range echoes {
		if full, resumed := e.full.Load(), e.resumed.Load(); full != 1 || resumed != 4 {
			t.Errorf("target %d: %d full handshakes and %d resumed, want 1 and 4", i, full, resumed)
		}
	}
}

// A hub replaces its certificate authority while agents run.
func TestProbeTrustsTheRootsOfTheMoment(t *testing.T) {
	echo := newEcho(t, remote)
	var roots *x509.CertPool
	prober := newProber(t, func(o *probe.ProberOptions) { o.Roots = func() *x509.CertPool { return roots } })
	proxy := probe.Proxy{UID: "p", Endpoint: listen(t, tunnel), Credential: credential}
	if got := prober.Probe(t.Context(), proxy, echo.target()); got.Class != probe.ClassAgentFault || echo.full.Load() != 0 {
		t.Errorf("before the hub is known: %s, %s", got.Class, got.Detail)
	}
	roots = x509.NewCertPool()
	if got := prober.Probe(t.Context(), proxy, echo.target()); got.Class != probe.ClassTargetTLS {
		t.Errorf("a target that nobody vouches for: %s, %s", got.Class, got.Detail)
	}
	roots = echo.roots()
	if got := prober.Probe(t.Context(), proxy, echo.target()); got.Class != probe.ClassOK {
		t.Errorf("a target of the new authority: %s, %s", got.Class, got.Detail)
	}
}

// A target that is given by name is the proxy's to resolve.
func TestProbeByName(t *testing.T) {
	echo := newEcho(t, remote)
	target := echo.target()
	target.Host = "echo.example.com:443"
	asked := make(chan string, 1)
	endpoint := listen(t, func(conn net.Conn) {
		if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			asked <- req.Host
		}
	})
	newProber(t, nil).Probe(t.Context(), probe.Proxy{UID: "p", Endpoint: endpoint}, target)
	if got := <-asked; got != target.Host {
		t.Errorf("the proxy was asked for %s, want %s", got, target.Host)
	}
}

// Whatever a proxy or a target sends back, the credential that it was sent is in nothing that a probe leaves behind:
// classes, details and observations go to logs and into status.
func TestProbeKeepsCredentialsToItself(t *testing.T) {
	const password = "hunter2-hunter2"
	basic := base64.StdEncoding.EncodeToString([]byte("lse_1:" + password))
	credential := func(time.Time) (string, string, error) { return "lse_1", password, nil }
	echo := newEcho(t, remote)
	evil := newEcho(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"remote":%q}`, password) })
	named := evilCertificate(t, password)
	reflects := func(format string) string { return listen(t, answers(strings.ReplaceAll(format, "$", basic))) }
	mitm := listen(t, func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
			tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{named}}).Handshake()
		}
	})
	after := func(text string) string {
		return listen(t, func(conn net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
				io.ReadFull(conn, make([]byte, 16))
				io.WriteString(conn, text)
			}
		})
	}
	endpoints := map[string]string{
		"Echoes everything":   listen(t, func(conn net.Conn) { io.Copy(conn, conn) }),
		"Status line":         reflects("HTTP/1.1 $ Proxy-Authorization: Basic $\r\n\r\n"),
		"Version":             reflects("$/1.1 200 OK\r\n\r\n"),
		"Reason":              reflects("HTTP/1.1 502 Basic $\r\n\r\n"),
		"Header line":         reflects("HTTP/1.1 200 OK\r\nBasic $\r\n\r\n"),
		"Header name":         reflects("HTTP/1.1 200 OK\r\nProxy Authorization Basic $: x\r\n\r\n"),
		"Length":              reflects("HTTP/1.1 407 No\r\nContent-Length: $\r\n\r\n"),
		"Transfer encoding":   reflects("HTTP/1.1 407 No\r\nTransfer-Encoding: $\r\n\r\n"),
		"Squid's error":       reflects("HTTP/1.1 503 No\r\nX-Squid-Error: ERR_$ 111\r\n\r\n"),
		"Squid's error 2":     reflects("HTTP/1.1 503 No\r\nX-Squid-Error: $\r\n\r\n"),
		"Another text":        reflects("$"),
		"Another certificate": mitm,
		"No TLS":              after(password + basic + "\r\n"),
		"Good":                listen(t, tunnelWith(basic)),
		"Down":                "127.0.0.1:1",
		"No such name":        "proxy.invalid:3128",
	}
	for name, endpoint := range endpoints {
		t.Run(name, func(t *testing.T) {
			prober := newProber(t, func(o *probe.ProberOptions) {
				o.Roots = always(echo.roots())
				o.ConnectTimeout, o.TargetTimeout = 5*time.Second, 5*time.Second
			})
			for _, target := range []probe.Echo{echo.target(), evil.target()} {
				got := prober.Probe(t.Context(), probe.Proxy{UID: "p", Endpoint: endpoint, Credential: credential}, target)
				judge, err := probe.NewJudge(probe.Settings{Targets: targets("echo")})
				if err != nil {
					t.Fatal(err)
				}
				verdict, _ := judge.Observe(time.Now(), got.Result, probe.Thresholds{})
				for _, text := range []string{fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", verdict)} {
					if strings.Contains(text, password) || strings.Contains(text, basic) || strings.Contains(text, basic[:12]) {
						t.Errorf("the credential is in %s", text)
					}
				}
				if len(got.Detail) > 400 {
					t.Errorf("a detail of %d bytes", len(got.Detail))
				}
			}
		})
	}
}

// evilCertificate is one for whatever name, by nobody.
func evilCertificate(t testing.TB, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Stopping the agent is no proxy's fault.
func TestProbeCancelled(t *testing.T) {
	echo := newEcho(t, remote)
	prober := newProber(t, func(o *probe.ProberOptions) { o.Roots = always(echo.roots()) })
	ctx, cancel := context.WithCancel(t.Context())
	endpoint := listen(t, func(conn net.Conn) {
		cancel()
		silent(conn)
	})
	if got := prober.Probe(ctx, probe.Proxy{UID: "p", Endpoint: endpoint}, echo.target()); got.Class != probe.ClassAgentFault {
		t.Errorf("%s, want %s", got.Class, probe.ClassAgentFault)
	}
}

func TestNewProberRefuses(t *testing.T) {
	for name, o := range map[string]probe.ProberOptions{
		"NoRoots": {Clock: clock.RealClock{}},
		"NoClock": {Roots: x509.NewCertPool},
	} {
		if _, err := probe.NewProber(o); err == nil {
			t.Errorf("%s: %+v was accepted", name, o)
		}
	}
}

func BenchmarkProbe(b *testing.B) {
	echo := newEcho(b, remote)
	prober := newProber(b, func(o *probe.ProberOptions) { o.Roots = always(echo.roots()) })
	proxy := probe.Proxy{UID: "p", Endpoint: listen(b, tunnel), Credential: credential}
	for b.Loop() {
		if got := prober.Probe(b.Context(), proxy, echo.target()); got.Class != probe.ClassOK {
			b.Fatalf("%s, %s", got.Class, got.Detail)
		}
	}
}
