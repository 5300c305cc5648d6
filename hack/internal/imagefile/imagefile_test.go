package imagefile

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func makeLayer(t *testing.T) *Layer {
	t.Helper()
	w, err := CreateLayer(filepath.Join(t.TempDir(), "l.tar"))
	if err != nil {
		t.Fatal(err)
	}
	w.File("a/b/file", []byte("text"), 0o644)
	w.Symlink("a/link", "b/file")
	w.Remove("c/gone")
	w.Empty("d")
	w.Tree(fstest.MapFS{"usr/bin/run": {Data: []byte("#!")}, "etc/conf": {Data: []byte("x")}}, func(name string) bool { return name == "usr/bin/run" })
	layer, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

func TestLayer(t *testing.T) {
	layer := makeLayer(t)
	again := makeLayer(t)
	if layer.hash != again.hash {
		t.Error("the same calls gave different bytes")
	}
	f, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make(map[string]int64)
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := got[h.Name]; twice {
			t.Errorf("%s is there twice", h.Name)
		}
		got[h.Name] = h.Mode
	}
	for name, mode := range map[string]int64{
		"a/": 0o755, "a/b/": 0o755, "a/b/file": 0o644, "a/link": 0o777,
		"c/.wh.gone": 0o644, "d/.wh..wh..opq": 0o644, "usr/bin/run": 0o755, "etc/conf": 0o644,
	} {
		if have, ok := got[name]; !ok || have != mode {
			t.Errorf("%s: mode %o, there: %v; want %o", name, have, ok, mode)
		}
	}
}

func TestArchive(t *testing.T) {
	layer := makeLayer(t)
	one := Image{
		Tags: []string{"shoal.dev/one:a", "shoal.dev/one:b"}, Layers: []*Layer{layer},
		Entrypoint: []string{"/x"}, User: "13:13", Labels: map[string]string{"l": "v"},
	}
	two := Image{Tags: []string{"registry.k8s.io/pause:3"}, Layers: []*Layer{layer}}
	path := filepath.Join(t.TempDir(), "i.tar")
	if err := WriteArchive(path, one, two); err != nil {
		t.Fatal(err)
	}
	opener := func() (io.ReadCloser, error) { return os.Open(path) }
	manifest, err := tarball.LoadManifest(opener)
	if err != nil {
		t.Fatal(err)
	}
	tags := 0
	for _, image := range manifest {
		tags += len(image.RepoTags)
	}
	if len(manifest) != 2 || tags != 3 {
		t.Fatalf("%d images with %d tags: %+v", len(manifest), tags, manifest)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(content, []byte(".wh..wh..opq")); n != 1 {
		t.Errorf("a shared layer is stored %d times", n)
	}
	id, err := one.ID()
	if err != nil {
		t.Fatal(err)
	}
	one.Tags = nil
	if other, err := one.ID(); err != nil || other != id {
		t.Errorf("the tags changed the image's identity (%v)", err)
	}
	one.Labels = map[string]string{"l": "w"}
	if other, err := one.ID(); err != nil || other == id {
		t.Errorf("a label did not change the image's identity (%v)", err)
	}
}
