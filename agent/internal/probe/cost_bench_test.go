package probe_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/internal/probe/probetest"
	signing "github.com/shoal-dev/shoal/proto/credential"
)

func TestMain(m *testing.M) {
	probetest.Main()
	os.Exit(m.Run())
}

// Bars of the design for 500 proxies that are probed every 10 s.
const (
	costProxies  = 500
	costBar      = 10.0  // % of a core
	costRSSBar   = 100.0 // MiB
	costMeasured = 30 * time.Second
)

// BenchmarkProbeCost probes 500 proxies at the usual pace and prints what of a core that takes, and how much memory the
// process has in use. Proxies and target are another process. Credentials are signed as the agent signs them.
func BenchmarkProbeCost(b *testing.B) {
	certificate := evilCertificate(b, "echo.example.com")
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		b.Fatal(err)
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(chain)
	echo := probe.Echo{ID: "echo", Addr: netip.MustParseAddrPort("198.51.100.7:443"), ServerName: "echo.example.com"}
	world := probetest.Start(b, probetest.Setup{
		Proxies: costProxies, Certificate: chain, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), Target: echo.Target(),
	})

	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	signer, err := signing.NewSigner(signing.SignerOptions{Key: private, Use: signing.UseProbe, Window: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	prober, err := probe.NewProber(probe.ProberOptions{Roots: func() *x509.CertPool { return roots }, Clock: clock.RealClock{}})
	if err != nil {
		b.Fatal(err)
	}
	var probes, bad, ready atomic.Int64
	up := make(chan struct{})
	r, err := probe.NewRunner(probe.RunnerOptions{
		Probe: prober.Probe, Echoes: []probe.Echo{echo}, Clock: clock.RealClock{},
		OnVerdict: func(v probe.Verdict, p probe.Probe, changed bool) {
			probes.Add(1)
			if p.Class != probe.ClassOK {
				bad.Add(1)
			}
			if changed && v.State == probe.StateReady && len(v.Exits) == 1 && ready.Add(1) == costProxies {
				close(up)
			}
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	for i := range costProxies {
		uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		r.Upsert(probe.Proxy{UID: probe.UID(uid), Endpoint: world.Endpoint(i), Credential: func(now time.Time) (string, string, error) {
			token, err := signer.Sign(now, signing.ProxyUID(uid), "probe:east", 10*time.Minute)
			return "probe", token.Password, err
		}})
	}
	select {
	case <-up:
	case <-time.After(time.Minute):
		b.Fatalf("%d of %d proxies are ready after a minute", ready.Load(), costProxies)
	}
	// A round in which everybody finds a place.
	<-time.After(15 * time.Second)

	for b.Loop() {
		began, cpu, count, failed := time.Now(), probetest.CPU(b, os.Getpid()), probes.Load(), bad.Load()
		<-time.After(costMeasured)
		took, used, made := time.Since(began), probetest.CPU(b, os.Getpid())-cpu, probes.Load()-count
		percent := 100 * used.Seconds() / took.Seconds()
		rss, most := probetest.RSS(b, os.Getpid())
		mib := float64(rss) / (1 << 20)
		b.Logf("%d probes, %.1f a second, of %v CPU each; at most %.0f MiB", made, float64(made)/took.Seconds(), used/time.Duration(max(made, 1)), float64(most)/(1<<20))
		fmt.Fprintf(os.Stdout, "\nBENCH probe_cost %.2f %% %.2f\nBENCH probe_rss %.1f MiB %.2f\n", percent, percent/costBar, mib, mib/costRSSBar)
		if made < costProxies*int64(costMeasured/(10*time.Second))*9/10 || 100*(bad.Load()-failed) > made {
			b.Fatalf("%d probes in %v, and %d of them failed: this is not what was to be measured", made, took, bad.Load()-failed)
		}
	}
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
