package authhelper_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/agent/internal/authhelper"
	"github.com/shoal-dev/shoal/proto/credential"
)

// kubeletVolume is a directory that is updated as kubelet updates a mounted ConfigMap: every version is a directory
// of its own, and one symlink is swapped.
type kubeletVolume struct {
	t       *testing.T
	dir     string
	version int
}

func (v *kubeletVolume) swap(files map[string][]byte) {
	v.t.Helper()
	v.version++
	name := "..version_" + string(rune('a'+v.version))
	if err := os.Mkdir(filepath.Join(v.dir, name), 0o700); err != nil {
		v.t.Fatal(err)
	}
	for file, data := range files {
		write(v.t, filepath.Join(v.dir, name, file), data)
		link := filepath.Join(v.dir, file)
		if _, err := os.Lstat(link); errors.Is(err, os.ErrNotExist) {
			if err := os.Symlink(filepath.Join("..data", file), link); err != nil {
				v.t.Fatal(err)
			}
		}
	}
	next := filepath.Join(v.dir, "..data_tmp")
	if err := os.Symlink(name, next); err != nil {
		v.t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(v.dir, "..data")); err != nil {
		v.t.Fatal(err)
	}
}

func TestKeyDirFollowsChanges(t *testing.T) {
	old, next := newSigner(t, "old", credential.UseLease), newSigner(t, "next", credential.UseLease)
	oldFile, bothFile, nextFile := keyFile(t, nil, old), keyFile(t, nil, old, next), keyFile(t, nil, next)
	oldPass, nextPass := password(t, old, proxyUID, "p"), password(t, next, proxyUID, "p")

	volume := &kubeletVolume{t: t, dir: t.TempDir()}
	volume.swap(map[string][]byte{"hub.json": oldFile})
	now := epoch
	var log bytes.Buffer
	dir, err := authhelper.OpenKeyDir(volume.dir, &log, now)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, oldWorks, nextWorks bool, logLines int) {
		t.Helper()
		keys, deny := dir.Current(now)
		for pass, works := range map[string]bool{oldPass: oldWorks, nextPass: nextWorks} {
			if _, err := credential.Verify(keys, deny, proxyUID, pass, epoch); (err == nil) != works {
				t.Errorf("%s: works %v, want %v (old %v): %v", when, err == nil, works, pass == oldPass, err)
			}
		}
		if got := strings.Count(log.String(), "\n"); got != logLines {
			t.Errorf("%s: %d lines logged, want %d:\n%s", when, got, logLines, log.String())
		}
	}

	expect("at start", true, false, 0)
	volume.swap(map[string][]byte{"hub.json": bothFile})
	now = now.Add(time.Second - 1)
	expect("within the second of the last look", true, false, 0)
	now = now.Add(1)
	expect("when the next look is due", true, true, 1)
	now = now.Add(time.Second)
	expect("unchanged", true, true, 1)

	volume.swap(map[string][]byte{"hub.json": []byte("{")})
	now = now.Add(time.Second)
	expect("a broken update keeps the keys and says so", true, true, 2)
	now = now.Add(time.Second)
	expect("once", true, true, 2)

	volume.swap(map[string][]byte{"hub.json": nextFile})
	now = now.Add(time.Second)
	expect("a good update after a broken one", false, true, 3)

	if err := os.Rename(volume.dir, volume.dir+".away"); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Second)
	expect("the directory vanished", false, true, 4)
	now = now.Add(time.Second)
	expect("and is still gone", false, true, 4)
	if err := os.Rename(volume.dir+".away", volume.dir); err != nil {
		t.Fatal(err)
	}

	volume.swap(map[string][]byte{"hub.json": oldFile})
	now = now.Add(-time.Hour)
	expect("the clock stepped back", true, false, 5)
}

// On a VM the files are plain: one written and renamed beside the others counts as well.
func TestKeyDirFollowsPlainFiles(t *testing.T) {
	hub, probe := newSigner(t, "hub", credential.UseLease), newSigner(t, "probe", credential.UseProbe)
	path := t.TempDir()
	write(t, filepath.Join(path, "hub.json"), keyFile(t, nil, hub))
	dir, err := authhelper.OpenKeyDir(path, &bytes.Buffer{}, epoch)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(path, "probe.json"), keyFile(t, nil, probe))
	if keys, _ := dir.Current(epoch.Add(time.Second)); len(keys.Keys()) != 2 {
		t.Errorf("%d keys after a file was added, want 2", len(keys.Keys()))
	}
	if err := os.Remove(filepath.Join(path, "hub.json")); err != nil {
		t.Fatal(err)
	}
	if keys, _ := dir.Current(epoch.Add(2 * time.Second)); len(keys.Keys()) != 1 {
		t.Errorf("%d keys after a file was removed, want 1", len(keys.Keys()))
	}
}
