// Package apiserver gives tests a real API server: kube-apiserver and etcd, with the kinds of hub and member installed
// and no controller running. Only tests import it.
package apiserver

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

	shoal "github.com/shoal-dev/shoal/api"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Server is a running API server.
type Server struct {
	// Config reaches it as an administrator.
	Config *rest.Config
	// Client has no cache.
	Client client.WithWatch
	// Scheme knows the hub's kinds and Kubernetes' own.
	Scheme *runtime.Scheme

	environment *envtest.Environment
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
	if err := s.start(); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, s.environment.Stop()) }()
	return m.Run(), nil
}

// Start runs a server for one test, where the others of its package need none.
func Start(t *testing.T) *Server {
	t.Helper()
	s := &Server{}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start leaves nothing running when it fails.
func (s *Server) start() error {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return errors.New("this test needs a kube-apiserver: run `make test`, or export KUBEBUILDER_ASSETS=$(hack/envtest-assets)")
	}
	s.Scheme = runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s.Scheme), v1alpha1.AddHubToScheme(s.Scheme)); err != nil {
		return err
	}
	hub, err := definitions(shoal.HubCRDs)
	if err != nil {
		return err
	}
	member, err := definitions(shoal.MemberCRDs)
	if err != nil {
		return err
	}
	s.environment = &envtest.Environment{CRDs: append(hub, member...), Scheme: s.Scheme}
	if s.Config, err = s.environment.Start(); err != nil {
		return errors.Join(fmt.Errorf("start the API server: %w", err), s.environment.Stop())
	}
	if s.Client, err = client.NewWithWatch(s.Config, client.Options{Scheme: s.Scheme}); err != nil {
		return errors.Join(err, s.environment.Stop())
	}
	return nil
}

func definitions(files fs.FS) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var found []*apiextensionsv1.CustomResourceDefinition
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
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

// Namespace makes a namespace of the test's own, whose name begins with prefix.
func (s *Server) Namespace(t *testing.T, prefix string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	if err := s.Client.Create(context.Background(), ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}
