package disk

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// fileKinds are all kinds of files that a journal's directory can hold, by what their names begin or end with.
var fileKinds = []string{".log", ".sst", "MANIFEST-", "OPTIONS-", "marker.format-version.", "marker.manifest.", "marker.log.", ballastName, "LOCK"}

func kindOfFile(name string) string {
	for _, kind := range fileKinds {
		if strings.HasPrefix(name, kind) || strings.HasSuffix(name, kind) {
			return kind
		}
	}
	return ""
}

// worn makes a journal that has lived: a snapshot, tables, and a log that goes on, over two starts. It returns a copy of
// its directory as a process that was killed leaves it, and the records that were acknowledged.
func worn(t *testing.T) (dir string, want []lease.Record) {
	t.Helper()
	opts := options(t.TempDir())
	j := mustOpen(t, opts)
	mustAppend(t, j, paused(0, 400)...)
	j.Compact(t.Context(), into(paused(100, 400)))
	j.compacting.Wait()
	mustAppend(t, j, paused(400, 800)...)
	if err := j.db.Flush(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
	j = mustOpen(t, opts)
	defer mustClose(t, j)
	for i := 800; i < 1100; i += 30 {
		mustAppend(t, j, paused(i, i+30)...)
	}
	return copyDir(t, opts.Dir), paused(100, 1100)
}

// TestEveryFile damages each file of a journal in every way that files are damaged. It starts with all that was
// acknowledged, or refuses and says what to do; it never starts with less.
func TestEveryFile(t *testing.T) {
	dir, want := worn(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		name := entry.Name()
		kind := kindOfFile(name)
		if kind == "" {
			t.Errorf("%s is of no kind that this test knows", name)
			continue
		}
		seen[kind] = true
		if kind == "MANIFEST-" && !strings.HasSuffix(onlyFile(t, dir, "marker.manifest.*"), name) {
			kind = "" // an older one: nothing needs it
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for what, damage := range damages(t, filepath.Join(dir, name), kind) {
				at := copyDir(t, dir)
				damage(filepath.Join(at, name))
				outcome(t, kind, what, at, want)
			}
		})
	}
	for _, kind := range fileKinds {
		if !seen[kind] {
			t.Errorf("there is no %s: its damage is not tested", kind)
		}
	}
}

// mustRefuse are the damages that no journal can live with, by kind of file.
var mustRefuse = map[string][]string{
	".log":             {"missing", "first byte", "a quarter", "in the middle"},
	".sst":             {"missing", "empty", "half of it"},
	"MANIFEST-":        {"missing", "empty"},
	"marker.manifest.": {"missing"},
}

// outcome starts on a damaged directory.
func outcome(t *testing.T, kind, what, dir string, want []lease.Record) {
	t.Helper()
	got, err := openAndLoad(t, options(dir))
	switch {
	case err != nil && !strings.Contains(err.Error(), dir):
		t.Errorf("%s: the message does not name the directory: %v", what, err)
	case err != nil && !strings.Contains(err.Error(), "start with an empty one"):
		t.Errorf("%s: the message does not say what to do: %v", what, err)
	case err == nil && slices.Contains(mustRefuse[kind], what):
		t.Errorf("%s: it starts, with %d of %d records", what, len(got), len(want))
	case err == nil && cmp.Diff(want, got) != "":
		t.Errorf("%s: it starts with %d records, and %d were acknowledged", what, len(got), len(want))
	}
}

// damages are the ways to damage a file of this kind, by name.
func damages(t *testing.T, file, kind string) map[string]func(string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(change func([]byte) []byte) func(string) {
		return func(path string) { rewrite(t, path, change) }
	}
	flip := func(at int) func(string) {
		return write(func(b []byte) []byte { b[at] ^= 0x20; return b })
	}
	ways := map[string]func(string){
		"missing": func(path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
		"zeros after it": write(func(b []byte) []byte { return append(b, make([]byte, 4096)...) }),
	}
	whole := len(data)
	if kind == ".log" {
		// The last append is left out: its damage looks like the torn end of a write. So does an end that is cut off.
		whole = bytes.LastIndex(data, logKey(logNumberOf(t, data)-30))
	} else if whole > 0 {
		ways["empty"] = write(func([]byte) []byte { return nil })
		ways["half of it"] = write(func(b []byte) []byte { return b[:len(b)/2] })
	}
	if whole <= 0 {
		return ways
	}
	ways["first byte"] = flip(0)
	ways["a quarter"] = flip(whole / 4)
	ways["in the middle"] = flip(whole / 2)
	ways["three quarters"] = flip(whole * 3 / 4)
	ways["last byte"] = flip(whole - 1)
	if kind == "MANIFEST-" || kind == ".sst" {
		for _, part := range []int{5, 11, 17, 23, 29} {
			ways["byte at "+string(rune('a'+part%26))] = flip(whole * part / 31)
		}
	}
	return ways
}

// logNumberOf finds the number of the last record in a log.
func logNumberOf(t *testing.T, data []byte) uint64 {
	t.Helper()
	for n := uint64(2000); n > 0; n-- {
		if bytes.Contains(data, logKey(n)) {
			return n
		}
	}
	t.Fatal("the log has no records")
	return 0
}
