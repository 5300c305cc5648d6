package debian

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"
)

func TestAtLeast(t *testing.T) {
	cases := map[string]struct {
		reason, version string
		want, fails     bool
	}{
		"Equal":  {"the floor itself passes", "6.13-2+deb13u1", true, false},
		"Newer":  {"a higher major passes whatever its minor", "7.0-1", true, false},
		"Higher": {"numbers are compared as numbers", "6.14-1", true, false},
		"Older":  {"6.9 is older than 6.13", "6.9-1", false, false},
		"Epoch":  {"an epoch is no part of the version", "1:5.7-2+deb12u6", false, false},
		"Unread": {"what cannot be read is an error, not a pass", "unknown", false, true},
		"Empty":  {"nothing is an error, not a pass", "", false, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := AtLeast(tc.version, 6, 13)
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("%s: AtLeast(%q) = %v, %v", tc.reason, tc.version, got, err)
			}
		})
	}
}

func TestPackageVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "root.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	status := "Package: squid-common\nVersion: 9\n\nPackage: squid\nStatus: install ok installed\nVersion: 6.13-2\n\nPackage: tar\nVersion: 1\n"
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "./var/lib/dpkg/status", Size: int64(len(status)), Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(status)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := PackageVersion(path, "squid"); err != nil || got != "6.13-2" {
		t.Errorf("PackageVersion(squid) = %q, %v", got, err)
	}
	if got, err := PackageVersion(path, "bash"); err == nil {
		t.Errorf("a package that is not there has version %q", got)
	}
	if _, err := ReadFile(path, "etc/passwd"); err == nil {
		t.Error("a file that is not there was read")
	}
}
