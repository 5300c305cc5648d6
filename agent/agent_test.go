package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/enroll"
	"github.com/shoal-dev/shoal/agent/internal/mirror"
	"github.com/shoal-dev/shoal/agent/internal/uplink"
	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/proto/credential"
)

// patience bounds each wait of these tests. It is only ever used up by a failure.
const patience = 90 * time.Second

// until waits for a state of the namespace: it looks at what is there, and again at each change.
func until[L client.ObjectList](t testing.TB, ns string, list L, what string, reached func(L) bool) L {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		if err := server.Client.List(ctx, list, client.InNamespace(ns)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if reached(list) {
			return list
		}
		w, err := server.Client.Watch(ctx, list, client.InNamespace(ns), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-w.ResultChan():
		case <-ctx.Done():
		}
		w.Stop()
	}
	t.Fatalf("%s: not reached, but\n%+v", what, list)
	return list
}

func proxyUIDs(ns string) []credential.ProxyUID {
	list := &v1alpha1.ProxyList{}
	_ = server.Client.List(context.Background(), list, client.InNamespace(ns))
	var found []credential.ProxyUID
	for _, p := range list.Items {
		found = append(found, credential.ProxyUID(p.UID))
	}
	return found
}

func settingsOf(t testing.TB, a *authority, member, hub string) *Settings {
	t.Helper()
	s, err := ReadSettings([]byte(settingsText(a, member, hub)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// settingsText is what settingsOf reads.
func settingsText(a *authority, member, hub string) string {
	return fmt.Sprintf(`
member: {name: %s}
hub: {url: "https://%s", caPin: "%s"}
providers: [{name: default, type: kubernetes, kubernetes: {image: "shoal-proxy:test", exposure: PodIP}}]
ceiling: {clusterCIDRs: [10.244.0.0/16]}
probe: {targets: ["%s:443"]}
`, member, hub, a.pin(), echoAddress)
}

// freeAddress is an address on loopback that nobody listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func start(t testing.TB, c Config) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c) }()
	stopped := false
	stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func status(t *testing.T, url string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			continue // it does not listen yet
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		return answer.StatusCode, string(text)
	}
	t.Fatalf("%s does not answer", url)
	return 0, ""
}

// TestWorksOnWithoutTheHub runs the whole agent, killed and started anew, while the hub cannot be reached: what it was
// told is brought about, proves itself by a CONNECT through it, and is replaced when it dies.
func TestWorksOnWithoutTheHub(t *testing.T) {
	a := newAuthority(t)
	ns := a.enrolled("east")
	port := startProxy(t, ns, startEcho(t, a))
	c := Config{
		Settings: settingsOf(t, a, "east", freeAddress(t)), Namespace: ns, RestConfig: server.Config, Version: "test",
		HealthAddress: freeAddress(t), MetricsAddress: "0", LeaderElection: true, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	stop := start(t, c)

	copies, err := mirror.New(mirror.Options{Member: "east", Client: server.Client, Reader: server.Client, Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	spec := fmt.Appendf(nil, `{"placementUID":"p-1","fleetUID":"f-1","revision":"r1","replicas":2,"template":{"spec":{"provider":"default","port":%d}}}`, port)
	if err := copies.Apply(t.Context(), uplink.Item{UID: "p-1", Generation: 1, Hash: "h", Spec: spec}); err != nil {
		t.Fatal(err)
	}
	pods := until(t, ns, &corev1.PodList{}, "two pods", func(l *corev1.PodList) bool { return len(l.Items) == 2 })
	for i := range pods.Items {
		run(t, &pods.Items[i])
	}
	proxies := until(t, ns, &v1alpha1.ProxyList{}, "both ready", allReady(2))
	for _, p := range proxies.Items {
		if len(p.Status.Exits) != 1 || p.Status.Exits[0] != "203.0.113.9" {
			t.Errorf("%s: exits %v, want what the echo saw", p.Name, p.Status.Exits)
		}
	}
	if code, text := status(t, "http://"+c.HealthAddress+"/readyz"); code != http.StatusOK {
		t.Errorf("/readyz = %d %s", code, text)
	}
	if err := stop(); err != nil {
		t.Fatalf("the agent ended with %v", err)
	}

	// While no agent runs, one of the pods dies.
	server.End(t, &pods.Items[0])
	start(t, c)
	again := until(t, ns, &corev1.PodList{}, "another pod", func(l *corev1.PodList) bool {
		for _, p := range l.Items {
			if p.UID != pods.Items[0].UID && p.UID != pods.Items[1].UID {
				return true
			}
		}
		return false
	})
	if len(again.Items) != 2 {
		t.Errorf("%d pods, want 2", len(again.Items))
	}
	for i := range again.Items {
		if again.Items[i].Status.PodIP == "" {
			run(t, &again.Items[i])
		}
	}
	now := until(t, ns, &v1alpha1.ProxyList{}, "both ready again", allReady(2))
	for i := range now.Items {
		if now.Items[i].UID != proxies.Items[i].UID {
			t.Errorf("%s has become another Proxy", now.Items[i].Name)
		}
	}
}

func allReady(n int) func(*v1alpha1.ProxyList) bool {
	return func(l *v1alpha1.ProxyList) bool {
		ready := 0
		for _, p := range l.Items {
			if meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) {
				ready++
			}
		}
		return ready == n && len(l.Items) == n
	}
}

// run does what scheduler and kubelet do.
func run(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "127.0.0.1"
	if err := server.Client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// TestFirstStartWaits says that an agent which waits for the hub is alive, and not ready.
func TestFirstStartWaits(t *testing.T) {
	a := newAuthority(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("shoal-join.x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{
		Settings: settingsOf(t, a, "east", freeAddress(t)), JoinTokenFile: token, Namespace: server.Namespace(t), RestConfig: server.Config,
		HealthAddress: freeAddress(t), MetricsAddress: "0", Logger: slog.New(slog.DiscardHandler),
	}
	stop := start(t, c)
	if code, text := status(t, "http://"+c.HealthAddress+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz = %d %s", code, text)
	}
	if code, text := status(t, "http://"+c.HealthAddress+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "waits for the hub") {
		t.Errorf("/readyz = %d %s", code, text)
	}
	if err := stop(); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
}

// TestDamagedBundleIsReplaced spoils what the agent knows the hub by. It registers again, and goes on.
func TestDamagedBundleIsReplaced(t *testing.T) {
	a := newAuthority(t)
	for name, bundle := range map[string][]byte{"NotPEM": []byte("hello"), "Empty": {}} {
		t.Run(name, func(t *testing.T) {
			ns := a.enrolled("east")
			store := enroll.NewSecretStore(server.Client, ns)
			state, err := store.Load(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			state.Bundle = bundle
			if err := store.Save(t.Context(), state); err != nil {
				t.Fatal(err)
			}
			token := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(token, []byte("shoal-join.x\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			h := startHub(t, a)
			c := Config{
				Settings: settingsOf(t, a, "east", h.address), JoinTokenFile: token, Namespace: ns, RestConfig: server.Config,
				HealthAddress: freeAddress(t), MetricsAddress: "0", Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			}
			stop := start(t, c)
			until(t, ns, &corev1.ConfigMapList{}, "keys to probe with, which come after enrolment", func(l *corev1.ConfigMapList) bool {
				for _, m := range l.Items {
					if m.Name == mirror.KeysConfigMap && m.Data[mirror.AgentKeys] != "" {
						return true
					}
				}
				return false
			})
			if state, err = store.Load(t.Context()); err != nil || state.Agent != "east-01" {
				t.Errorf("saved for agent %q, %v; want what the hub has just answered", state.Agent, err)
			}
			if _, err := enroll.Pool(state.Bundle); err != nil {
				t.Error(err)
			}
			if n := h.registered.Load(); n != 1 {
				t.Errorf("registered %d times, want once", n)
			}
			if err := stop(); err != nil {
				t.Errorf("told to stop, it ended with %v", err)
			}
		})
	}
}

func TestFirstStartNeedsAToken(t *testing.T) {
	a := newAuthority(t)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file  string
		check func(error) bool
	}{
		"Unreadable": {filepath.Join(t.TempDir(), "missing"), func(err error) bool { return errors.Is(err, os.ErrNotExist) }},
		"Empty":      {empty, func(err error) bool { return err != nil && strings.Contains(err.Error(), "shoalctl member join-token") }},
		"None":       {"", func(err error) bool { return errors.Is(err, enroll.ErrNoToken) }},
	} {
		t.Run(name, func(t *testing.T) {
			err := Run(t.Context(), Config{
				Settings: settingsOf(t, a, "east", "127.0.0.1:1"), JoinTokenFile: c.file, Namespace: server.Namespace(t), RestConfig: server.Config,
				HealthAddress: "0", MetricsAddress: "0", Logger: slog.New(slog.DiscardHandler),
			})
			if !c.check(err) {
				t.Errorf("error = %v", err)
			}
		})
	}
}
