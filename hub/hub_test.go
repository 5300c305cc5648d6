package hub_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub"
	"github.com/shoal-dev/shoal/hub/internal/apiserver"
	"github.com/shoal-dev/shoal/hub/internal/identity"
)

var server apiserver.Server

func TestMain(m *testing.M) { apiserver.Main(m, &server) }

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// running is a hub under test.
type running struct {
	t                            *testing.T
	log                          *logBuffer
	agents, leases, echo, health string
	stop                         context.CancelFunc
	done                         chan error
}

func startHub(t *testing.T, namespace string, change func(*hub.Config)) *running {
	t.Helper()
	listen := func(address *string) hub.Listen {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		*address = listener.Addr().String()
		return hub.Listen{Listener: listener}
	}
	r := &running{t: t, log: new(logBuffer), done: make(chan error, 1)}
	config := hub.Config{
		RestConfig: server.Config, Namespace: namespace, Names: []string{"127.0.0.1", "hub.example"},
		Agents: listen(&r.agents), Leases: listen(&r.leases), Echo: listen(&r.echo), Health: listen(&r.health),
		Logger:           slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		SeveralInProcess: true,
	}
	if change != nil {
		change(&config)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(t.Context())
	go func() { r.done <- hub.Run(ctx, config) }()
	t.Cleanup(func() { r.stop() })
	return r
}

// get returns the status and the body of a GET, or 0 if nobody answers.
func get(t *testing.T, url string, roots *x509.CertPool, header http.Header) (int, string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for key, values := range header {
		req.Header[key] = values
	}
	resp, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// eventually polls until check has nothing to say.
func eventually(t *testing.T, what string, check func() string) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	late := time.After(30 * time.Second)
	for {
		problem := check()
		if problem == "" {
			return
		}
		select {
		case <-ticker.C:
		case <-late:
			t.Fatalf("%s: %s", what, problem)
		}
	}
}

func (r *running) awaitReady() {
	r.t.Helper()
	eventually(r.t, "the hub becomes ready", func() string {
		select {
		case err := <-r.done:
			r.t.Fatalf("the hub has ended: %v\n%s", err, r.log)
		default:
		}
		if status, body := get(r.t, "http://"+r.health+"/readyz", nil, nil); status != http.StatusOK {
			return body
		}
		return ""
	})
}

func (r *running) stopNow() {
	r.t.Helper()
	r.stop()
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Errorf("the hub stopped with %v", err)
		}
	case <-time.After(30 * time.Second):
		r.t.Fatal("the hub does not stop")
	}
	for name, address := range map[string]string{"agents": r.agents, "leases": r.leases, "echo": r.echo, "health": r.health} {
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			_ = conn.Close()
			r.t.Errorf("the listener for %s is still open", name)
		}
	}
}

func readIdentity(t *testing.T, c client.Client, namespace string) *identity.Hub {
	t.Helper()
	id, err := identity.ReadHub(t.Context(), c, namespace, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestRunServesEverythingAndKeepsItsIdentity(t *testing.T) {
	c, namespace := server.Client, server.Namespace(t, "hub-")
	fleet := &v1alpha1.ProxyFleet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "news"}}
	fleet.Spec.Template = &v1alpha1.ProxyTemplate{Spec: v1alpha1.ProxyTemplateSpec{Provider: "default"}}
	if err := c.Create(t.Context(), fleet); err != nil {
		t.Fatal(err)
	}
	token, text, err := identity.NewAPIToken(time.Now(), "tester", []string{namespace + "/*"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), token.Secret(namespace)); err != nil {
		t.Fatal(err)
	}

	first := startHub(t, namespace, nil)
	first.awaitReady()
	id := readIdentity(t, c, namespace)
	roots := id.Authority().Pool()

	if status, body := get(t, "https://"+first.echo+"/", roots, nil); status != http.StatusOK || strings.TrimSpace(body) != `{"remote":"127.0.0.1"}` {
		t.Errorf("echo answers %d %s", status, body)
	}
	list := "https://" + first.leases + "/v1/proxies?fleet=" + namespace + "/news"
	if status, body := get(t, list, roots, nil); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s, want 401", status, body)
	}
	bearer := http.Header{"Authorization": {"Bearer " + text.Reveal()}}
	eventually(t, "the fleet's proxies are listed", func() string {
		status, body := get(t, list, roots, bearer)
		var page struct{ Total int }
		if status != http.StatusOK || json.Unmarshal([]byte(body), &page) != nil || page.Total != 0 {
			return fmt.Sprint(status, " ", body)
		}
		return ""
	})
	eventually(t, "the fleet has a status", func() string {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(fleet), fleet); err != nil {
			return err.Error()
		}
		if apimeta.FindStatusCondition(fleet.Status.Conditions, v1alpha1.ConditionAccepted) == nil {
			return fmt.Sprintf("%+v", fleet.Status)
		}
		return ""
	})
	if status, body := get(t, "http://"+first.health+"/metrics", nil, nil); status != http.StatusOK || !strings.Contains(body, "controller_runtime_") {
		t.Errorf("metrics: %d, %d bytes", status, len(body))
	}
	if err := c.Delete(t.Context(), token.Secret(namespace)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a revoked token is refused", func() string {
		if status, body := get(t, list, roots, bearer); status != http.StatusUnauthorized {
			return fmt.Sprint(status, " ", body)
		}
		return ""
	})
	first.stopNow()

	second := startHub(t, namespace, nil)
	second.awaitReady()
	if status, body := get(t, "https://"+second.echo+"/", roots, nil); status != http.StatusOK {
		t.Errorf("after a restart the hub is not the one it was: %d %s", status, body)
	}
	second.stopNow()

	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: identity.HubSecretName}, secret); err != nil {
		t.Fatal(err)
	}
	log := first.log.String() + second.log.String()
	parts := strings.Split(text.Reveal(), "_")
	hidden := []string{parts[len(parts)-1], string(token.Secret("").Data["hash"])}
	for _, key := range []string{"ca.key", "lease.key"} {
		block, _ := pem.Decode(secret.Data[key])
		hidden = append(hidden, string(block.Bytes), strings.Split(string(secret.Data[key]), "\n")[1])
	}
	for _, text := range hidden {
		if strings.Contains(log, text) {
			t.Error("the log shows a secret")
		}
	}
}

func TestRunEndsWhenItsIdentityIsDamaged(t *testing.T) {
	c, namespace := server.Client, server.Namespace(t, "hub-")
	damaged := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: identity.HubSecretName},
		Data:       map[string][]byte{"hub-uid": []byte("x")},
	}
	if err := c.Create(t.Context(), damaged); err != nil {
		t.Fatal(err)
	}
	r := startHub(t, namespace, nil)
	select {
	case err := <-r.done:
		if !errors.Is(err, identity.ErrDamaged) || !strings.Contains(err.Error(), "restore it from the backup") {
			t.Errorf("Run = %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the hub runs with a damaged identity")
	}
	r.done <- nil
	r.stopNow()
}

func TestOnlyTheLeaderWorks(t *testing.T) {
	namespace := server.Namespace(t, "hub-")
	elect := func(c *hub.Config) { c.LeaderElection = true }
	first := startHub(t, namespace, elect)
	first.awaitReady()
	second := startHub(t, namespace, elect)
	eventually(t, "the second hub is alive", func() string {
		if status, body := get(t, "http://"+second.health+"/healthz", nil, nil); status != http.StatusOK {
			return body
		}
		return ""
	})
	if status, _ := get(t, "http://"+second.health+"/readyz", nil, nil); status != http.StatusServiceUnavailable {
		t.Errorf("the second hub's readiness is %d while the first works", status)
	}
	begin := time.Now()
	first.stopNow()
	second.awaitReady()
	t.Logf("graceful takeover took %v", time.Since(begin).Round(time.Millisecond))
	second.stopNow()
}

func TestRunServesACertificateOfTheOwners(t *testing.T) {
	c, namespace := server.Client, server.Namespace(t, "hub-")
	owner, err := identity.NewAuthority("owner", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	own, err := owner.IssueServing(time.Now(), []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	certFile, keyFile := filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: own.Certificate[0]},
		keyFile:  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := startHub(t, namespace, func(c *hub.Config) { c.LeaseCertFile, c.LeaseKeyFile = certFile, keyFile })
	r.awaitReady()
	if status, body := get(t, "https://"+r.leases+"/v1/proxies", owner.Pool(), nil); status != http.StatusUnauthorized {
		t.Errorf("with the owner's roots: %d %s, want 401", status, body)
	}
	roots := readIdentity(t, c, namespace).Authority().Pool()
	if status, _ := get(t, "https://"+r.leases+"/v1/proxies", roots, nil); status != 0 {
		t.Errorf("with the hub's roots: %d, want no handshake", status)
	}
	if status, body := get(t, "https://"+r.echo+"/", roots, nil); status != http.StatusOK {
		t.Errorf("echo still has the hub's own: %d %s", status, body)
	}
	r.stopNow()
}

func onValkey(c *hub.Config, addresses ...string) {
	c.JournalType, c.Valkey.Addresses = hub.JournalValkey, addresses
}

func TestRunRefusesConfigurations(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	good := func() hub.Config {
		local := hub.Listen{Address: "127.0.0.1:0"}
		return hub.Config{RestConfig: &rest.Config{Host: "127.0.0.1:1"}, Namespace: "ns", Names: []string{"hub.example"}, Agents: local, Leases: local, Echo: local, Health: local}
	}
	cases := map[string]struct {
		reason string
		change func(*hub.Config)
		says   string
	}{
		"NoCluster":     {"there is nothing to work on", func(c *hub.Config) { c.RestConfig = nil }, "RestConfig"},
		"NoNamespace":   {"the identity must be somewhere", func(c *hub.Config) { c.Namespace = "" }, "--namespace"},
		"NoName":        {"no client could verify a certificate", func(c *hub.Config) { c.Names = nil }, "--san"},
		"URLAsName":     {"a certificate has names, not URLs", func(c *hub.Config) { c.Names = []string{"https://hub.example"} }, "without scheme or port"},
		"NameWithPort":  {"a certificate has names, not ports", func(c *hub.Config) { c.Names = []string{"hub.example:8443"} }, "without scheme or port"},
		"HalfAKeyPair":  {"one is of no use without the other", func(c *hub.Config) { c.LeaseCertFile = "x" }, "--leases-key-file"},
		"Journal":       {"there is no such journal", func(c *hub.Config) { c.JournalType = "paper" }, "write memory, disk or valkey"},
		"DiskNowhere":   {"a disk journal must be somewhere", func(c *hub.Config) { c.JournalType = hub.JournalDisk }, "--journal-dir"},
		"DirOfMemory":   {"the memory needs no directory", func(c *hub.Config) { c.JournalDir = "/x" }, "--journal=disk"},
		"CompactAfter":  {"a journal has no fewer than no records", func(c *hub.Config) { c.JournalCompactAfter = -1 }, "write 0 or more"},
		"ValkeyNowhere": {"a server must be somewhere", func(c *hub.Config) { c.JournalType = hub.JournalValkey }, "--journal-valkey-address"},
		"ValkeyUnused":  {"which journal is meant?", func(c *hub.Config) { c.Valkey.Addresses = []string{"v:1"} }, "--journal=valkey"},
		"ValkeyNoPort":  {"ports differ", func(c *hub.Config) { onValkey(c, "valkey.example") }, "host:port"},
		"ValkeySeveral": {"one of them would be a replica", func(c *hub.Config) { onValkey(c, "a:1", "b:1") }, "--journal-valkey-sentinel"},
		"ValkeyHalfKey": {"one is of no use without the other", func(c *hub.Config) { onValkey(c, "a:1"); c.Valkey.CertFile = "x" }, "--journal-valkey-key-file"},
		"ValkeyHasty":   {"every slow answer would end the hub", func(c *hub.Config) { onValkey(c, "a:1"); c.Valkey.Patience = 1 }, "--journal-valkey-patience"},
		"ValkeyPrefix":  {"braces say which part decides on the slot", func(c *hub.Config) { onValkey(c, "a:1"); c.Valkey.Prefix = "{a}" }, "--journal-valkey-prefix"},
		"AddressInUse":  {"somebody else has it", func(c *hub.Config) { c.Leases.Address = taken.Addr().String() }, "--leases-address"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			config := good()
			c.change(&config)
			if err := hub.Run(t.Context(), config); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v; want an error that says %q", c.reason, err, c.says)
			}
		})
	}
}
