package hoststate

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestDiff(t *testing.T) {
	before := &Snapshot{
		Mounts: []string{"/a ext4", "/b tmpfs"}, Links: []string{"lo"}, Rules: []string{"x", "x"},
		Sysctls: map[string]string{"vm/overcommit_memory": "0", "kernel/panic": "0"},
	}
	cases := map[string]struct {
		reason string
		after  Snapshot
		want   []string
	}{
		"Same": {"nothing changed", *before, nil},
		"Added": {
			"each addition is told", Snapshot{Mounts: []string{"/a ext4", "/b tmpfs", "/b tmpfs"}, Links: []string{"br-x", "lo"}, Rules: before.Rules, Sysctls: before.Sysctls},
			[]string{"+ mount /b tmpfs", "+ link br-x"},
		},
		"Removed": {
			"one of two equal lines gone is a difference", Snapshot{Mounts: before.Mounts, Links: before.Links, Rules: []string{"x"}, Sysctls: before.Sysctls},
			[]string{"- firewall x"},
		},
		"Value": {
			"a setting is told with both values", Snapshot{Mounts: before.Mounts, Links: before.Links, Rules: before.Rules, Sysctls: map[string]string{"vm/overcommit_memory": "1", "kernel/panic": "0"}},
			[]string{"+ sysctl vm/overcommit_memory is 1, was 0"},
		},
		"NewSetting": {
			"a setting of a module that was loaded since has no former value", Snapshot{Mounts: before.Mounts, Links: before.Links, Rules: before.Rules, Sysctls: map[string]string{"vm/overcommit_memory": "0", "kernel/panic": "0", "net/new": "1"}},
			nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Diff(before, &tc.after); !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// The first snapshot of a boot is the one from before anything was touched.
func TestSaveOnceKeepsTheFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "before.json")
	if err := SaveOnce(t.Context(), path, ""); err != nil {
		t.Fatal(err)
	}
	first, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	first.Links = []string{"only-here"}
	if err := first.Save(path); err != nil {
		t.Fatal(err)
	}
	if err := SaveOnce(t.Context(), path, ""); err != nil {
		t.Fatal(err)
	}
	if kept, err := Load(path); err != nil || !slices.Equal(kept.Links, first.Links) {
		t.Errorf("the snapshot was replaced: %v, %v", kept, err)
	}
	first.BootID = "another boot"
	if err := first.Save(path); err != nil {
		t.Fatal(err)
	}
	if err := SaveOnce(t.Context(), path, ""); err != nil {
		t.Fatal(err)
	}
	if kept, err := Load(path); err != nil || kept.BootID == first.BootID {
		t.Errorf("a snapshot of another boot was kept: %v", err)
	}
}
