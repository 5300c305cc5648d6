package squid_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/internal/squid"
	"github.com/shoal-dev/shoal/proto/credential"
)

const (
	// echoName is in the certificate of every target.
	echoName = "echo.example.com"
	// labProxy is the UID that every Squid of the lab goes by.
	labProxy = credential.ProxyUID("3f6c1a2e-9b1d-4c57-8f7e-0d2b5a1c9e44")
)

// fewDescriptors is what one Squid has. It keeps a quarter for itself, and a tunnel takes two.
const fewDescriptors = 128

// lab is what the rows of the probe table share: Squids, each with something to break, and targets.
type lab struct {
	good     string
	dying    running
	small    string // has few file descriptors
	deaf     string // has a resolver that does not answer
	flapping *flapper
	roots    *x509.CertPool
	own      *credential.Signer
	stranger *credential.Signer
	expired  atomic.Bool // the credentials of row AuthFailed are
	pool     []*target
	held     []net.Conn

	mu  sync.Mutex // guards what follows
	has map[string]int
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{has: map[string]int{}, own: newSigner(t, "probe", credential.UseProbe), stranger: newSigner(t, "stranger", credential.UseProbe)}
	dir := worldReadable(t)
	keysDir := filepath.Join(dir, "keys")
	if err := os.Mkdir(keysDir, 0o755); err != nil {
		t.Fatal(err)
	}
	keys, err := credential.Marshal([]credential.Key{l.own.PublicKey()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(keysDir, "keys.json"), keys, 0o644); err != nil {
		t.Fatal(err)
	}
	certificate, roots := echoCertificate(t)
	l.roots = roots
	var addrs []netip.AddrPort
	for range 64 {
		target := newTarget(t, certificate)
		l.pool, addrs = append(l.pool, target), append(addrs, target.addr)
	}
	helper := buildHelper(t, dir)
	start := func(descriptors int, added ...string) running {
		return startSquid(t, dir, squid.OnLoopback(squid.Config{
			Port: freePort(t), ProxyUID: string(labProxy), ConnectPorts: []uint16{443}, EchoTargets: addrs,
			AuthHelper: helper, KeysDir: keysDir, MaxFileDescriptors: descriptors,
		}), added...)
	}
	l.good, l.dying = start(0).addr, start(0)
	l.small = start(fewDescriptors).addr
	l.deaf = start(0, "dns_nameservers 127.0.0.253", "dns_timeout 300 milliseconds", "dns_retransmit_interval 100 milliseconds").addr
	l.flapping = newFlapper(t, l.good)
	t.Cleanup(l.release)
	return l
}

// targets are the two of a row.
func (l *lab) targets(name string) (a, b *target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, ok := l.has[name]
	if !ok {
		i = len(l.has)
		l.has[name] = i
	}
	return l.pool[2*i], l.pool[2*i+1]
}

// credential is a probe's.
func (l *lab) credential(t *testing.T, r row, now time.Time) (user, pass string, err error) {
	signer := l.own
	if r.stranger || r.name == "AuthFailed" && l.expired.Load() {
		signer = l.stranger
	}
	token, err := signer.Sign(now, labProxy, "probe:east", time.Hour)
	return "probe", token.Password, err
}

// hold opens tunnels through a Squid, one after the other, until it has no file descriptor left for the next.
func (l *lab) hold(t *testing.T, proxy string) {
	token, err := l.own.Sign(time.Now(), labProxy, "probe:east", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := l.targets("Held")
	for range 128 {
		conn, err := net.DialTimeout("tcp", proxy, labPatience)
		if err != nil {
			t.Fatal(err)
		}
		l.held = append(l.held, conn)
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: %s\r\n\r\n", a.addr, a.addr, basic("lse_1", token.Password))
		if err := conn.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil || resp.StatusCode != http.StatusOK:
			t.Fatalf("tunnel %d: %v, %v", len(l.held), resp, err)
		}
		resp.Body.Close()
	}
	t.Fatalf("%d tunnels through a Squid of %d file descriptors", len(l.held), fewDescriptors)
}

func (l *lab) release() {
	for _, conn := range l.held {
		conn.Close()
	}
}

// target is an echo that can be broken, at one address all its life.
type target struct {
	addr        netip.AddrPort
	certificate tls.Certificate
	t           *testing.T

	mu       sync.Mutex // guards what follows
	mode     mode
	listener net.Listener
}

type mode int

const (
	modeUp mode = iota
	modeSlow
	modeNoTLS
	modeBlocks
)

func newTarget(t *testing.T, certificate tls.Certificate) *target {
	t.Helper()
	g := &target{certificate: certificate, t: t, addr: netip.MustParseAddrPort("127.0.0.1:0")}
	g.listen()
	g.addr = netip.MustParseAddrPort(g.listener.Addr().String())
	t.Cleanup(g.down)
	return g
}

func (g *target) echo(id probe.EchoID) probe.Echo {
	return probe.Echo{ID: id, Addr: g.addr, ServerName: echoName}
}

func (g *target) listen() {
	l, err := net.Listen("tcp", g.addr.String())
	if err != nil {
		g.t.Error(err)
		return
	}
	g.listener = l
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go g.serve(conn)
		}
	}()
}

func (g *target) down() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listener.Close()
}

func (g *target) up()     { g.become(modeUp) }
func (g *target) slow()   { g.become(modeSlow) }
func (g *target) noTLS()  { g.become(modeNoTLS) }
func (g *target) blocks() { g.become(modeBlocks) }

func (g *target) become(m mode) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mode = m
	g.listener.Close()
	g.listen()
}

func (g *target) serve(conn net.Conn) {
	defer conn.Close()
	g.mu.Lock()
	mode := g.mode
	g.mu.Unlock()
	if mode == modeNoTLS {
		io.WriteString(conn, "220 mail.example.com ESMTP\r\n")
		return
	}
	secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{g.certificate}})
	if _, err := http.ReadRequest(bufio.NewReader(secure)); err != nil {
		return
	}
	switch mode {
	case modeSlow:
		io.Copy(io.Discard, conn) // Until the other side has had enough.
	case modeBlocks:
		io.WriteString(secure, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n")
	default:
		const body = `{"remote":"203.0.113.9"}`
		fmt.Fprintf(secure, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
}

// flapper stands before a Squid and, while it is on, breaks every other connection off.
type flapper struct {
	addr  string
	on    atomic.Bool
	count atomic.Int64
}

func newFlapper(t *testing.T, behind string) *flapper {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f := &flapper{addr: l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(conn, behind)
		}
	}()
	return f
}

func (f *flapper) serve(conn net.Conn, behind string) {
	defer conn.Close()
	if f.on.Load() && f.count.Add(1)%2 == 0 {
		return
	}
	out, err := net.Dial("tcp", behind)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		io.Copy(out, conn)
		out.Close()
	}()
	io.Copy(conn, out)
}

// echoCertificate is the targets', and the authority that vouches for it.
func echoCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{echoName}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}
