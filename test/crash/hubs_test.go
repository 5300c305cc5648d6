package crash

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// hubs are the places where hubs run. On a disk journal there is one; on a server's there are two, of which the other
// takes over when the first is lost.
type hubs struct {
	lead, other *victim
	// elected says that both run and that they elect the one that leads. Otherwise the test starts the one that is to.
	elected bool
	// compacts is the line of the log at or near a compaction.
	compacts string
	roots    *x509.CertPool // of half hubs
}

// halfHubs are hubs without a cluster.
func halfHubs(t *testing.T, w *world, journal string) *hubs {
	t.Helper()
	h := &hubs{roots: x509.NewCertPool()}
	var args []string
	names := []string{"hub"}
	switch journal {
	case "disk":
		h.compacts = "the lease journal is being compacted"
		args = []string{"--journal", "disk", "--journal-dir", filepath.Join(w.dir, "journal")}
	case "valkey":
		h.compacts = "lease journal compacted"
		args = []string{"--journal", "valkey", "--journal-server", valkeyServer(t, w)}
		names = append(names, "other-hub")
	default:
		t.Fatalf("there is no journal %q; write disk or valkey", journal)
	}
	args = append(args, "--journal-compact-after", fmt.Sprint(compactAfter), "--proxies", fmt.Sprint(proxies), "--slots", fmt.Sprint(slots))
	for i, name := range names {
		v := newVictim(t, w, name, "halfhub", args...)
		v.args = append(v.args, h.certificate(t, w, v)...)
		if i == 0 {
			h.lead = v
		} else {
			h.other = v
		}
	}
	return h
}

// wholeHubs are real hubs in a real cluster.
func wholeHubs(t *testing.T, w *world, journal string) *hubs {
	t.Helper()
	h := &hubs{}
	args := []string{
		"--journal", journal, "--journal-compact-after", fmt.Sprint(compactAfter),
		"--kubeconfig", w.kubeconfig, "--namespace", hubNamespace, "--log-level", "debug",
	}
	switch journal {
	case "disk":
		h.compacts = "the lease journal is being compacted"
		args = append(args, "--journal-dir", filepath.Join(w.dir, "journal"))
	case "valkey":
		h.compacts, h.elected = "lease journal compacted", true
		args = append(args, "--journal-valkey-address", valkeyServer(t, w), "--leader-elect", "--leader-lease", leaderLease.String())
	default:
		t.Fatalf("there is no journal %q; write disk or valkey", journal)
	}
	hub := func(name string) *victim {
		v := newVictim(t, w, name, "shoal-hub", args...)
		v.args = append(v.args, "--san", v.ip, "--agents-address", v.ip+":"+agentsPort, "--echo-address", v.ip+":"+echoPort)
		return v
	}
	h.lead = hub("hub")
	if h.elected {
		h.other = hub("other-hub")
	}
	return h
}

// leaderLease is the shortest that a hub takes.
const leaderLease = 3 * time.Second

// certificate makes one for a half hub, and returns the flags that name it.
func (h *hubs) certificate(t *testing.T, w *world, v *victim) []string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: v.name}, IPAddresses: []net.IP{net.ParseIP(v.ip)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(w.dir, v.name+".crt"), filepath.Join(w.dir, v.name+".key")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	h.roots.AppendCertsFromPEM(certificate)
	for file, data := range map[string][]byte{
		certFile: certificate, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"--leases-cert-file", certFile, "--leases-key-file", keyFile}
}

// valkeyServer starts a server that is fit for a journal, and returns where it is.
func valkeyServer(t *testing.T, w *world) string {
	t.Helper()
	program := ""
	for _, name := range []string{"valkey-server", "redis-server"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
		}
	}
	if program == "" {
		t.Fatal("this test needs a Valkey or Redis server: apt-get install redis-server, or run hack/packages redis-server")
	}
	ip := ownAddress()
	cmd := exec.Command(program, "--bind", ip, "--port", valkeyPort, "--dir", w.dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction", "--logfile", filepath.Join(w.dir, "valkey.log"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // ends it before its files go
		_ = cmd.Wait()
	})
	return ip + ":" + valkeyPort
}

const valkeyPort = "6379"
