package controller

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

var (
	config *rest.Config
	scheme = runtime.NewScheme()
	api    client.Client
)

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
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddHubToScheme} {
		if err := add(scheme); err != nil {
			return 1, err
		}
	}
	env := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "api", "crds", "hub")},
		ErrorIfCRDPathMissing: true, Scheme: scheme,
	}
	if config, err = env.Start(); err != nil {
		return 1, fmt.Errorf("start the API server: %w", err)
	}
	defer env.Stop() // an error here changes nothing: the process ends
	if api, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// namespace makes a tenant of the test's own.
func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}
	if err := api.Create(context.Background(), ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}
