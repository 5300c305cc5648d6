package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/enroll"
	"github.com/shoal-dev/shoal/agent/internal/mirror"
	"github.com/shoal-dev/shoal/agent/internal/uplink"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// locked is a buffer that several goroutines write to.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// eavesdrop relays to a proxy, and notes the user names and passwords that come by.
func eavesdrop(t *testing.T, to int32) (port int32, heard func() []string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	var mu sync.Mutex
	var found []string
	relay := func(near net.Conn) {
		defer near.Close()
		far, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", to))
		if err != nil {
			return
		}
		defer far.Close()
		var read bytes.Buffer
		request, err := http.ReadRequest(bufio.NewReader(io.TeeReader(near, &read)))
		if err != nil {
			return
		}
		mu.Lock()
		found = append(found, strings.TrimPrefix(request.Header.Get("Proxy-Authorization"), "Basic "))
		mu.Unlock()
		_, _ = far.Write(read.Bytes())
		go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
		_, _ = io.Copy(near, far)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go relay(conn)
		}
	}()
	return int32(listener.Addr().(*net.TCPAddr).Port), func() []string { //nolint:gosec,forcetypeassert // a port of TCP
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), found...)
	}
}

// TestSecretsStayWhereTheyAre leads a proxy through its whole life, from the agent's registration to the proxy's end, at
// the highest log level, and searches all that somebody may read for what only few may know.
func TestSecretsStayWhereTheyAre(t *testing.T) {
	const token = "shoal-join.c2VjcmV0LW9mLXRoZS1qb2luLXRva2Vu"
	a := newAuthority(t)
	ns := a.enrolled("east")
	store := enroll.NewSecretStore(server.Client, ns)
	former, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	former.Bundle = []byte("damaged, so that it registers again")
	if err := store.Save(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port, heard := eavesdrop(t, startProxy(t, ns, startEcho(t, a)))

	var log locked
	logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.Level(math.MinInt), AddSource: true}))
	klog.SetSlogLogger(logger)
	t.Cleanup(klog.ClearLogger)
	registry := prometheus.NewRegistry()
	stop := start(t, Config{
		Settings: settingsOf(t, a, "east", startHub(t, a).address), JoinTokenFile: file, Namespace: ns, RestConfig: server.Config, Version: "test",
		HealthAddress: "0", MetricsAddress: "0", LeaderElection: true, Logger: logger, Registerer: registry,
	})
	copies, err := mirror.New(mirror.Options{Member: "east", Client: server.Client, Reader: server.Client, Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	spec := fmt.Appendf(nil, `{"placementUID":"p-1","fleetUID":"f-1","revision":"r1","replicas":1,"template":{"spec":{"provider":"default","port":%d,"healthCheck":{"interval":"1s"}}}}`, port)
	if err := copies.Apply(t.Context(), uplink.Item{UID: "p-1", Generation: 1, Hash: "h", Spec: spec}); err != nil {
		t.Fatal(err)
	}
	pods := until(t, ns, &corev1.PodList{}, "a pod", func(l *corev1.PodList) bool { return len(l.Items) == 1 })
	run(t, &pods.Items[0])
	proxies := until(t, ns, &v1alpha1.ProxyList{}, "ready", allReady(1))
	read := readable(t, ns)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	read["metrics"] = fmt.Sprint(families)
	// The end of its life.
	if err := copies.Delete(t.Context(), "p-1"); err != nil {
		t.Fatal(err)
	}
	// Nobody collects a set's proxies here but the test.
	if err := server.Client.DeleteAllOf(t.Context(), &v1alpha1.Proxy{}, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	until(t, ns, &corev1.PodList{}, "the pod goes", func(l *corev1.PodList) bool {
		return len(l.Items) == 0 || l.Items[0].DeletionTimestamp != nil
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for what, text := range readable(t, ns) {
		read[what] += text
	}
	read["log"] = log.String()

	secrets := map[string]string{"join token": token}
	now, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(now.Key, former.Key) {
		t.Fatal("the agent did not register again, so no token was used")
	}
	for what, key := range map[string][]byte{"former key": former.Key, "key": now.Key} {
		for i, line := range strings.Split(strings.TrimSpace(string(key)), "\n") {
			if !strings.HasPrefix(line, "-----") {
				secrets[fmt.Sprintf("%s, line %d", what, i)] = line
			}
		}
	}
	probeKey := &corev1.Secret{}
	if err := server.Client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: probeKeySecret}, probeKey); err != nil {
		t.Fatal(err)
	}
	seed := probeKey.Data[probeKeySeed]
	secrets["probe key"], secrets["probe key in hex"], secrets["probe key as it is"] = base64.RawStdEncoding.EncodeToString(seed), hex.EncodeToString(seed), string(seed)
	passwords := heard()
	if len(passwords) == 0 {
		t.Fatal("no probe came by, so no password was used")
	}
	for i, header := range passwords {
		pair, err := base64.StdEncoding.DecodeString(header)
		_, password, ok := strings.Cut(string(pair), ":")
		if err != nil || !ok || len(password) < 20 {
			t.Fatalf("%q is no user name and password", header)
		}
		secrets[fmt.Sprintf("password %d", i)], secrets[fmt.Sprintf("header %d", i)] = password, header
	}
	for where, text := range read {
		for what, secret := range secrets {
			for form, needle := range map[string]string{"": secret, " in base64": base64.RawStdEncoding.EncodeToString([]byte(secret))} {
				if strings.Contains(text, needle) {
					t.Errorf("%s holds the %s%s", where, what, form)
				}
			}
		}
	}
	// A search of nothing finds nothing.
	for where, word := range map[string]string{
		"log": `"msg":"probed"`, "metrics": "shoal_agent_probes_total", "proxies": string(proxies.Items[0].UID), "pods": pods.Items[0].Name,
		"config maps": mirror.KeysConfigMap, "events": "Ready", "leases": leaderElectionID, "proxy sets": "p-1",
	} {
		if !strings.Contains(read[where], word) {
			t.Errorf("%s does not hold %q: nothing was searched", where, word)
		}
	}
}

// readable is all in a namespace that is no Secret.
func readable(t *testing.T, ns string) map[string]string {
	t.Helper()
	read := map[string]string{}
	for what, list := range map[string]client.ObjectList{
		"proxies": &v1alpha1.ProxyList{}, "proxy sets": &v1alpha1.ProxySetList{}, "pods": &corev1.PodList{}, "config maps": &corev1.ConfigMapList{},
		"events": &eventsv1.EventList{}, "leases": &coordinationv1.LeaseList{},
	} {
		if err := server.Client.List(context.Background(), list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		read[what] = string(text)
	}
	return read
}
