package crash

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/test/harness"
)

const (
	hubNamespace = "shoal-system"
	fleetName    = "crawl/news"
)

// world is what outlives the hubs: the API server with the fleet, and the programs.
type world struct {
	// dir is the test's own; it is kept if the test fails.
	dir        string
	programs   string
	kubeconfig string
	client     client.Client
}

// newWorld builds the programs and, for whole hubs, starts an API server with the hub's kinds.
func newWorld(t *testing.T, whole bool) *world {
	t.Helper()
	if whole && os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Fatal("this test needs a kube-apiserver: run `make crash HUB=whole`, or export KUBEBUILDER_ASSETS=$(hack/envtest-assets)")
	}
	dir, err := os.MkdirTemp("", "shoal-crash-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{dir: dir, programs: filepath.Join(dir, "bin"), kubeconfig: filepath.Join(dir, "kubeconfig")}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs and history are in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	built := make(chan error, 1)
	if whole {
		go func() { built <- w.build(t.Context(), "./cmd/shoal-hub", "./cmd/shoalctl") }()
		w.startAPI(t)
	} else {
		built <- w.build(t.Context(), "./internal/halfhub")
	}
	if err := <-built; err != nil {
		t.Fatal(err)
	}
	return w
}

// build makes programs of the hub, with the race detector if this test has it.
func (w *world) build(ctx context.Context, packages ...string) error {
	args := []string{"build", "-o", w.programs + "/"}
	if raced {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir = "../../hub"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the hub: %w\n%s", err, out)
	}
	return nil
}

func (w *world) startAPI(t *testing.T) {
	t.Helper()
	environment := &envtest.Environment{
		CRDDirectoryPaths: []string{"../../api/crds/hub"}, ErrorIfCRDPathMissing: true, ControlPlaneStartTimeout: patience,
	}
	config, err := environment.Start()
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatalf("start the API server: %v", err)
	}
	admin, err := environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := admin.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.kubeconfig, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddHubToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	if w.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{hubNamespace, "crawl"} {
		if err := w.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
}

// createFleet makes the fleet that everybody leases from.
func (w *world) createFleet(t *testing.T, leasing v1alpha1.FleetLeasing, proxies int32) {
	t.Helper()
	fleet := &v1alpha1.ProxyFleet{ObjectMeta: metav1.ObjectMeta{Namespace: "crawl", Name: "news"}}
	fleet.Spec.Replicas = &proxies
	fleet.Spec.Template = &v1alpha1.ProxyTemplate{Spec: v1alpha1.ProxyTemplateSpec{Provider: "default"}}
	fleet.Spec.Leasing = leasing
	if err := w.client.Create(t.Context(), fleet); err != nil {
		t.Fatal(err)
	}
}

// roots trust the hub.
func (w *world) roots(t *testing.T) *x509.CertPool {
	t.Helper()
	secret := &corev1.Secret{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: hubNamespace, Name: "shoal-hub-identity"}, secret); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		t.Fatal("the hub's Secret has no certificate")
	}
	return pool
}

// ctl runs shoalctl and decodes the JSON that it prints.
func (w *world) ctl(t *testing.T, into any, args ...string) {
	t.Helper()
	args = append(args, "--kubeconfig", w.kubeconfig, "--hub-namespace", hubNamespace, "--output", "json")
	text, err := harness.Run(t.Context(), "", filepath.Join(w.programs, "shoalctl"), args...)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(into); err != nil {
		t.Fatalf("shoalctl printed %q: %v", text, err)
	}
}

// token makes an API token for the fleet.
func (w *world) token(t *testing.T, name string) string {
	t.Helper()
	var made struct{ Token string }
	w.ctl(t, &made, "token", "create", "--name", name, "--fleet", fleetName)
	return made.Token
}

// joinToken makes a token that a member joins with.
func (w *world) joinToken(t *testing.T, member, url string) string {
	t.Helper()
	var made []struct{ Token string }
	w.ctl(t, &made, "member", "join-token", member, "--hub-url", url, "--accept")
	return made[0].Token
}
