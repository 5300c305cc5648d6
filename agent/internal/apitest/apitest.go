// Package apitest gives the tests of a package a real API server: kube-apiserver and etcd, with the member's kinds
// installed and no controller running but those that a test cranks by hand. Only tests import it.
package apitest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/shoal-dev/shoal/api"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Server is a running API server.
type Server struct {
	// Config reaches it as an administrator.
	Config *rest.Config
	// Client has no cache.
	Client client.WithWatch
	// Scheme knows the member's kinds and Kubernetes' own.
	Scheme *runtime.Scheme
}

// Main runs the tests of a package with a server, which is in *s from the first test on.
func Main(m *testing.M, s *Server) {
	code, err := run(m, s)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, s *Server) (code int, err error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return 1, errors.New("run `make test`, or export KUBEBUILDER_ASSETS=$(hack/envtest-assets)")
	}
	s.Scheme = runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s.Scheme), v1alpha1.AddMemberToScheme(s.Scheme)); err != nil {
		return 1, err
	}
	definitions, err := memberCRDs()
	if err != nil {
		return 1, err
	}
	environment := &envtest.Environment{CRDs: definitions, Scheme: s.Scheme}
	if s.Config, err = environment.Start(); err != nil {
		return 1, fmt.Errorf("start the API server: %w", err)
	}
	// Tests wait for the server, not for a limit of the client's own.
	s.Config.QPS = -1
	defer func() { err = errors.Join(err, environment.Stop()) }()
	if s.Client, err = client.NewWithWatch(s.Config, client.Options{Scheme: s.Scheme}); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// Start gives a test another API server, on which no kinds are installed.
func Start(t *testing.T) *Server {
	t.Helper()
	s := &Server{Scheme: runtime.NewScheme()}
	if err := errors.Join(clientgoscheme.AddToScheme(s.Scheme), v1alpha1.AddMemberToScheme(s.Scheme)); err != nil {
		t.Fatal(err)
	}
	environment := &envtest.Environment{Scheme: s.Scheme}
	var err error
	if s.Config, err = environment.Start(); err != nil {
		t.Fatalf("start the API server: %v", err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.Config.QPS = -1
	if s.Client, err = client.NewWithWatch(s.Config, client.Options{Scheme: s.Scheme}); err != nil {
		t.Fatal(err)
	}
	return s
}

// InstallKinds installs the member's kinds.
func (s *Server) InstallKinds(t *testing.T) {
	t.Helper()
	definitions, err := memberCRDs()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := envtest.InstallCRDs(s.Config, envtest.CRDInstallOptions{CRDs: definitions, Scheme: s.Scheme}); err != nil {
		t.Fatal(err)
	}
}

func memberCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var found []*apiextensionsv1.CustomResourceDefinition
	err := fs.WalkDir(api.MemberCRDs, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := api.MemberCRDs.ReadFile(path)
		if err != nil {
			return err
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, definition); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		found = append(found, definition)
		return nil
	})
	return found, err
}

// Namespace makes a namespace of the test's own, with labels in pairs.
func (s *Server) Namespace(t testing.TB, labels ...string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "member-", Labels: map[string]string{}}}
	for i := 0; i+1 < len(labels); i += 2 {
		ns.Labels[labels[i]] = labels[i+1]
	}
	if err := s.Client.Create(context.Background(), ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// End removes a pod that is being deleted, as its kubelet would at the end of its grace.
func (s *Server) End(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	err := s.Client.Delete(context.Background(), pod, client.GracePeriodSeconds(0))
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}
