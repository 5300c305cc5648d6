package uplink

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1/agentv1connect"
)

func askedToWait(t *testing.T, d time.Duration) error {
	t.Helper()
	detail, err := connectproto.NewErrorDetail(durationpb.New(d))
	if err != nil {
		t.Fatal(err)
	}
	return connect.NewError(connect.CodeResourceExhausted, "wait").WithDetail(detail)
}

// listener is a hub on loopback, with TLS of its own.
type listener struct {
	server *http.Server
	done   chan error
}

// certificate returns one for 127.0.0.1 and the pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hub"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// serve serves the hub at the address, which may be that of one before.
func (h *fakeHub) serve(t *testing.T, address string, c tls.Certificate) (l *listener, actual string) {
	t.Helper()
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := connect.NewServer()
	agentv1connect.RegisterAgentServiceHandler(server, h)
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	l = &listener{
		server: &http.Server{
			Handler:   mux,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS13},
		},
		done: make(chan error, 1),
	}
	go func() { l.done <- l.server.ServeTLS(tcp, "", "") }()
	return l, tcp.Addr().String()
}

// kill closes all connections, as the end of a process does.
func (l *listener) kill() {
	_ = l.server.Close()
	<-l.done
}

// TestDialer keeps a session over real TLS while the hub's process goes and another comes.
func TestDialer(t *testing.T) {
	c, pool := certificate(t)
	first := newFakeHub()
	first.desire(spec("s1", "a"))
	l, address := first.serve(t, "127.0.0.1:0", c)
	dialer, err := NewDialer("https://"+address, func() *tls.Config { return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13} })
	if err != nil {
		t.Fatal(err)
	}
	applier, outbox := newFakeApplier(), NewOutbox()
	outbox.Put(report("p1", true))
	outbox.MarkReady()
	_, stop := run(t, Options{Dial: dialer.Dial, Applier: applier, Outbox: outbox})
	applier.await(t, "what is desired", func() bool { return applier.keeps() == "[s1=a]" })
	first.await(t, "reports", func() bool { return first.reported() == "[p1=true]" })
	l.kill()
	first.kill()
	outbox.Put(report("p2", true))
	second := newFakeHub()
	second.desire(spec("s2", "b"))
	l, _ = second.serve(t, address, c)
	defer func() {
		l.kill()
		second.kill()
	}()
	applier.await(t, "what is desired", func() bool { return applier.keeps() == "[s2=b]" })
	second.await(t, "reports", func() bool { return second.reported() == "[p1=true p2=true]" })
	stop()
}

// TestDialerURL refuses what cannot be dialled.
func TestDialerURL(t *testing.T) {
	for _, url := range []string{"", "hub:8443", "http://hub:8443", "https://", "https://%zz"} {
		if _, err := NewDialer(url, func() *tls.Config { return nil }); err == nil {
			t.Errorf("%q was taken", url)
		}
	}
}

// hole is a TCP proxy that can stop forwarding without closing anything.
type hole struct {
	closed atomic.Bool
	wg     sync.WaitGroup
	mu     sync.Mutex
	conns  []net.Conn
}

func newHole(t *testing.T, to string) (h *hole, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h = &hole{}
	h.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			h.mu.Lock()
			h.conns = append(h.conns, in, out)
			h.mu.Unlock()
			h.wg.Go(func() { h.forward(in, out) })
			h.wg.Go(func() { h.forward(out, in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		h.mu.Lock()
		for _, c := range h.conns {
			_ = c.Close()
		}
		h.mu.Unlock()
		h.wg.Wait()
	})
	return h, l.Addr().String()
}

// forward copies. While the hole is closed it takes and forgets, and what has lost bytes forwards no more.
func (h *hole) forward(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for lost := false; ; {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if lost = lost || h.closed.Load(); !lost {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

// TestBlackhole cuts the network without a word. The agent notices by the heartbeats that do not come, and has a new
// session once the network is back.
func TestBlackhole(t *testing.T) {
	c, pool := certificate(t)
	h := newFakeHub()
	h.cfg.HeartbeatInterval = 100 * time.Millisecond
	l, address := h.serve(t, "127.0.0.1:0", c)
	defer func() {
		l.kill()
		h.kill()
	}()
	hole, address := newHole(t, address)
	dialer, err := NewDialer("https://"+address, func() *tls.Config { return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13} })
	if err != nil {
		t.Fatal(err)
	}
	outbox := NewOutbox()
	outbox.MarkReady()
	_, stop := run(t, Options{Dial: dialer.Dial, Applier: newFakeApplier(), Outbox: outbox})
	h.await(t, "a session", func() bool { return h.resynced == 1 })
	hole.closed.Store(true)
	// What the hub says when it gives up does not arrive either.
	h.await(t, "the hub to notice", func() bool { return h.ended == 1 })
	hole.closed.Store(false)
	h.await(t, "another session", func() bool { return h.resynced == 2 })
	stop()
}
