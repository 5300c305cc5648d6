package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/apitest"
	"github.com/shoal-dev/shoal/agent/internal/clusters"
	"github.com/shoal-dev/shoal/agent/internal/mirror"
	"github.com/shoal-dev/shoal/agent/internal/uplink"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// lines is a log that can be waited for.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	grew chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grew != nil {
		close(l.grew)
		l.grew = nil
	}
	return l.text.Write(p)
}

func (l *lines) await(t *testing.T, words ...string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		l.mu.Lock()
		for line := range strings.Lines(l.text.String()) {
			found := true
			for _, w := range words {
				found = found && strings.Contains(line, w)
			}
			if found {
				l.mu.Unlock()
				return
			}
		}
		if l.grew == nil {
			l.grew = make(chan struct{})
		}
		grew := l.grew
		l.mu.Unlock()
		select {
		case <-grew:
		case <-timeout:
			l.mu.Lock()
			defer l.mu.Unlock()
			t.Fatalf("the log has no line with %q:\n%s", words, l.text.String())
		}
	}
}

func (l *lines) has(words string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), words)
}

// forwarder is a way to an API server that can be closed and opened.
type forwarder struct {
	t       *testing.T
	address string
	to      string

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
}

// addressOf is the host and port of an API server.
func addressOf(c *rest.Config) string {
	return strings.Trim(strings.TrimPrefix(c.Host, "https://"), "/")
}

func newForwarder(t *testing.T, to *rest.Config) *forwarder {
	f := &forwarder{t: t, address: freeAddress(t), to: addressOf(to)}
	t.Cleanup(f.close)
	return f
}

func (f *forwarder) open() {
	f.t.Helper()
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		f.t.Fatal(err)
	}
	f.mu.Lock()
	f.listener = listener
	f.mu.Unlock()
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", f.to)
			if err != nil {
				_ = near.Close()
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, near, far)
			f.mu.Unlock()
			go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
			go func() { _, _ = io.Copy(near, far); _ = near.Close() }()
		}
	}()
}

func (f *forwarder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener != nil {
		_ = f.listener.Close()
		f.listener = nil
	}
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

// kubeconfig reaches an API server by an address.
func kubeconfig(t *testing.T, to *rest.Config, address string) []byte {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://" + address, CertificateAuthorityData: to.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: to.CertData, ClientKeyData: to.KeyData}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	text, err := clientcmd.Write(*c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func kubeconfigSecret(ns, member, memberNamespace string, config []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "kubeconfig-" + member, Labels: map[string]string{v1alpha1.LabelComponent: v1alpha1.ComponentKubeconfig}},
		Data: map[string][]byte{
			clusters.KeyKubeconfig: config,
			clusters.KeyMember:     fmt.Appendf(nil, "member: %s\nnamespace: %s\nclusterCIDRs: [10.0.0.0/8]\n", member, memberNamespace),
		},
	}
}

// pods waits until a namespace of an API server has pods.
func pods(t *testing.T, c client.WithWatch, ns string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	list := &corev1.PodList{}
	for ctx.Err() == nil {
		if err := c.List(ctx, list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) == n {
			return
		}
		w, err := c.Watch(ctx, list, client.InNamespace(ns), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.ResultChan():
		case <-ctx.Done():
		}
		w.Stop()
	}
	t.Fatalf("%d pods, want %d", len(list.Items), n)
}

// TestClustersOfOneAgent runs an agent with three clusters of which one cannot be reached and one has no CRDs. The third is
// served meanwhile; the others are when what they lack appears. Then a kubeconfig is rotated, and a cluster removed while
// it is worked in.
func TestClustersOfOneAgent(t *testing.T) {
	a := newAuthority(t)
	bare := apitest.Start(t)
	ns := a.enrolled("lab-a")
	good := server.Namespace(t)
	far := server.Namespace(t)
	a.known(good, "lab-a")
	a.known(far, "lab-b")
	a.knownIn(bare.Client, "default", "lab-c")
	route := newForwarder(t, server.Config)
	direct := addressOf(server.Config)

	s, err := ReadSettings(fmt.Appendf(nil, `
hub: {url: "https://%s", caPin: "%s"}
providers: [{name: default, type: kubernetes, kubernetes: {image: "shoal-proxy:test", exposure: PodIP}}]
kubeconfigSecrets: true
probe: {targets: ["%s:443"]}
`, freeAddress(t), a.pin(), echoAddress))
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string]*corev1.Secret{
		"a": kubeconfigSecret(ns, "lab-a", good, kubeconfig(t, server.Config, direct)),
		"b": kubeconfigSecret(ns, "lab-b", far, kubeconfig(t, server.Config, route.address)),
		"c": kubeconfigSecret(ns, "lab-c", "default", kubeconfig(t, bare.Config, addressOf(bare.Config))),
	}
	for _, secret := range secrets {
		if err := server.Client.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	desire(t, good, "lab-a", "p-a", 2, "default", 3128)
	desire(t, far, "lab-b", "p-b", 2, "default", 3128)
	log := &lines{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.text.String())
		}
	})
	began := time.Now()
	start(t, Config{
		Settings: s, Namespace: ns, RestConfig: server.Config, Version: "test", HealthAddress: freeAddress(t), MetricsAddress: "0",
		LeaderElection: true, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	pods(t, server.Client, good, 2)
	t.Logf("the good cluster was served %v after the start", time.Since(began).Round(time.Millisecond))
	log.await(t, "member does not work", "lab-b", "reason=Unreachable")
	log.await(t, "member does not work", "lab-c", "reason=KindsMissing")

	// What was missing appears.
	bare.InstallKinds(t)
	desireOn(t, bare.Client, "default", "lab-c", "p-c", 2)
	pods(t, bare.Client, "default", 2)
	route.open()
	pods(t, server.Client, far, 2)

	// The way that b was reached by ends, and its kubeconfig has another.
	rotated := secrets["b"].DeepCopy()
	rotated.Data[clusters.KeyKubeconfig] = kubeconfig(t, server.Config, direct)
	if err := server.Client.Update(t.Context(), rotated); err != nil {
		t.Fatal(err)
	}
	route.close()
	desire(t, far, "lab-b", "p-b2", 1, "default", 3128)
	pods(t, server.Client, far, 3)

	// A version that cannot be used changes nothing.
	bad := rotated.DeepCopy()
	bad.Data[clusters.KeyMember] = []byte("member: lab-b\n")
	if err := server.Client.Update(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	log.await(t, "a kubeconfig Secret cannot be used", "clusterCIDRs")
	desire(t, far, "lab-b", "p-b3", 1, "default", 3128)
	pods(t, server.Client, far, 4)

	// A cluster is removed while it is worked in. The others go on, and it is left as it is.
	desire(t, good, "lab-a", "p-a2", 20, "default", 3128)
	if err := server.Client.Delete(t.Context(), secrets["a"]); err != nil {
		t.Fatal(err)
	}
	log.await(t, "a kubeconfig Secret is gone", "lab-a")
	desire(t, far, "lab-b", "p-b4", 1, "default", 3128)
	pods(t, server.Client, far, 5)

	for _, secret := range []string{string(server.Config.KeyData[40:80]), "PRIVATE KEY"} {
		if log.has(secret) {
			t.Error("the log shows a key")
		}
	}
}

// desireOn is desire on another API server.
func desireOn(t *testing.T, c client.Client, ns, member, placement string, replicas int) {
	t.Helper()
	m, err := mirror.New(mirror.Options{Member: member, Client: c, Reader: c, Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	spec := fmt.Appendf(nil, `{"placementUID":%q,"fleetUID":"f-1","revision":"r1","replicas":%d,"template":{"spec":{"provider":"default","port":3128}}}`, placement, replicas)
	if err := m.Apply(t.Context(), uplink.Item{UID: placement, Generation: 1, Hash: "h", Spec: spec}); err != nil {
		t.Fatal(err)
	}
}
