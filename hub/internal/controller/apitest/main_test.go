package apitest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

var api client.Client

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return 1, fmt.Errorf("run `make test`, or export KUBEBUILDER_ASSETS=$(hack/envtest-assets)")
	}
	crds := filepath.Join("..", "..", "..", "..", "api", "crds")
	env := &envtest.Environment{
		CRDDirectoryPaths: []string{filepath.Join(crds, "hub"), filepath.Join(crds, "member")}, ErrorIfCRDPathMissing: true,
	}
	config, err := env.Start()
	if err != nil {
		return 1, fmt.Errorf("start the API server: %w", err)
	}
	defer env.Stop() // an error here changes nothing: the process ends
	if api, err = client.New(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return 1, err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "crawl"}}
	if err := api.Create(context.Background(), ns); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// object reads a manifest.
func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatalf("manifest: %v\n%s", err, manifest)
	}
	return u
}
