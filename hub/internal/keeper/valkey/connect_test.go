package valkey

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/keeper/valkey/valkeytest"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// live has a journal do all that a hub's does.
func live(t *testing.T, opts Options) {
	t.Helper()
	j := mustOpen(t, opts)
	mustAppend(t, j, paused(0, 3)...)
	j.Compact(t.Context(), func(load func(func(lease.Record) error) error, emit func(lease.Record) error) error {
		return load(emit)
	})
	mustAppend(t, j, paused(3, 6)...)
	j.compacting.Wait()
	if j.adopt(); j.head.generation != 1 {
		t.Error("the snapshot did not count")
	}
	if err := j.Rewrite(t.Context(), func(emit func(lease.Record) error) error {
		for _, rec := range paused(0, 6) {
			if err := emit(rec); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	awaitRoom(t, j, keeper.RoomForAll)
	if err := j.Interrupted(t.Context(), now); err != nil {
		t.Error(err)
	}
	sameRecords(t, paused(0, 6), loaded(t, mustOpen(t, opts)))
}

// TestRights gives the hub's user the rights that docs/operations/journal.md names, and no others.
func TestRights(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/operations/journal.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, _ := strings.Cut(string(page), "ACL SETUSER shoal on >PASSWORD")
	rule, _, found := strings.Cut(rule, "`")
	if !found {
		t.Fatal("the page names no rights")
	}
	server := valkeytest.Start(t)
	server.Must(append([]string{"ACL", "SETUSER", "shoal", "on", ">PASSWORD"}, strings.Fields(rule)...)...)
	opts := options(server, "shoal")
	opts.Server.Credentials = func() (string, string, error) { return "shoal", "PASSWORD", nil }
	live(t, opts)
	opts.Prefix = "another"
	if j, err := Open(t.Context(), opts); err == nil {
		mustClose(t, j)
		t.Error("it may use other keys")
	} else if code(err) != "NOPERM" || !strings.Contains(err.Error(), "docs/operations/journal.md") {
		t.Error(err)
	}
}

// TestTLS connects with certificates on both sides.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	ca, caKey := certificate(t, dir, "ca", nil, nil)
	certificate(t, dir, "server", ca, caKey)
	certificate(t, dir, "client", ca, caKey)
	file := func(name string) string { return filepath.Join(dir, name) }
	secure := freePort(t)
	server := valkeytest.Start(t, "tls-port", secure, "tls-cert-file", file("server.crt"), "tls-key-file", file("server.key"), "tls-ca-cert-file", file("ca.crt"))
	host, _, _ := net.SplitHostPort(server.TCP)
	pair, err := tls.LoadX509KeyPair(file("client.crt"), file("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	opts := options(server, "p")
	opts.Patience = 2 * time.Second
	opts.Server.Addresses = []string{net.JoinHostPort(host, secure)}
	opts.Server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "127.0.0.1"}
	live(t, opts)
	stranger := opts
	stranger.Server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}, ServerName: "127.0.0.1"}
	if j, err := Open(t.Context(), stranger); err == nil {
		mustClose(t, j)
		t.Error("it believes any certificate")
	}
}

// certificate writes a certificate and its key; without an issuer it is an authority.
func certificate(t *testing.T, dir, name string, issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: issuer == nil, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if issuer == nil {
		issuer, issuerKey = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, issuer, &key.PublicKey, issuerKey)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for suffix, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name+suffix), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return parsed, key
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestSentinel asks sentinels where the primary is, before and after it has changed.
func TestSentinel(t *testing.T) {
	t.Parallel()
	primary, replica := valkeytest.Start(t), valkeytest.Start(t)
	sentinel := valkeytest.StartSentinel(t, "prime", primary)
	opts := options(primary, "p")
	opts.Server = Server{Addresses: []string{"127.0.0.1:1", sentinel.TCP}, Sentinel: "prime"}
	opts.Patience = time.Minute
	h := startHub(t, opts)
	ids := []lease.ID{h.mustGrant("before")}
	replica.Follow(primary)
	sentinel.Failover("prime")
	ids = append(ids, h.mustGrant("during"))
	sentinel.Leads("prime", replica)
	primary.Demoted()
	ids = append(ids, h.mustGrant("after"))
	h.knows(ids...)
	h.over(nil)
	next := startHub(t, opts)
	next.knows(ids...)

	opts.Server.Sentinel, opts.Patience = "nobody", time.Second
	if j, err := Open(t.Context(), opts); err == nil || !strings.Contains(err.Error(), `no primary named "nobody"`) {
		t.Errorf("an unknown name: %v, %v", j, err)
	}
}
