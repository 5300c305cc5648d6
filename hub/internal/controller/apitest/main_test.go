package apitest

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/shoal-dev/shoal/hub/internal/apiserver"
)

var server apiserver.Server

func TestMain(m *testing.M) { apiserver.Main(m, &server) }

// object reads a manifest.
func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatalf("manifest: %v\n%s", err, manifest)
	}
	return u
}
