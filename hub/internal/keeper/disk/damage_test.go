package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// seal adds the checksum.
func seal(body []byte) []byte {
	return binary.BigEndian.AppendUint32(body, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

// copyDir copies the files of a journal that is in use: what a process that
// ended now would leave.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// openAndLoad is a hub's start.
func openAndLoad(t *testing.T, opts Options) ([]lease.Record, error) {
	t.Helper()
	j, err := Open(opts)
	if err != nil {
		return nil, err
	}
	defer mustClose(t, j)
	var records []lease.Record
	err = j.Load(t.Context(), func(rec lease.Record) error { records = append(records, rec); return nil })
	return records, err
}

// filled is how many records fill appends: some blocks of the log (32 KiB).
const filled = 3000

func fill(t *testing.T, j *Journal) {
	t.Helper()
	for i := 0; i < filled; i += 30 {
		mustAppend(t, j, paused(i, i+30)...)
	}
}

// TestDamage starts on directories that something happened to. Each is
// refused, and the message names the directory and says what to do.
func TestDamage(t *testing.T) {
	tests := map[string]struct {
		// flushed says that the records are in a table, not in the log.
		flushed bool
		damage  func(t *testing.T, dir string, opts *Options)
		says    string
	}{
		"FlippedByteInTheLog": {damage: func(t *testing.T, dir string, _ *Options) {
			rewrite(t, onlyFile(t, dir, "*.log"), func(b []byte) []byte { b[used(b)/4] ^= 1; return b })
		}, says: "start with an empty one"},
		"FlippedByteInItsLastBlock": {damage: func(t *testing.T, dir string, _ *Options) {
			rewrite(t, onlyFile(t, dir, "*.log"), func(b []byte) []byte { b[used(b)-8000] ^= 1; return b })
		}, says: "start with an empty one"},
		// Which of two ways it is found in depends on where the log's blocks begin, and so on which appends were synced together.
		"FlippedByteInTheLastAppendButOne": {damage: func(t *testing.T, dir string, _ *Options) {
			rewrite(t, onlyFile(t, dir, "*.log"), func(b []byte) []byte {
				b[bytes.LastIndex(b, logKey(filled-40))] ^= 1
				return b
			})
		}, says: "start with an empty one"},
		"FlippedByteInATable": {flushed: true, damage: func(t *testing.T, dir string, _ *Options) {
			rewrite(t, onlyFile(t, dir, "*.sst"), func(b []byte) []byte { b[len(b)/4] ^= 1; return b })
		}, says: "start with an empty one"},
		"TruncatedTable": {flushed: true, damage: func(t *testing.T, dir string, _ *Options) {
			rewrite(t, onlyFile(t, dir, "*.sst"), func(b []byte) []byte { return b[:len(b)/2] })
		}, says: "start with an empty one"},
		"MissingTable": {flushed: true, damage: func(t *testing.T, dir string, _ *Options) {
			if err := os.Remove(onlyFile(t, dir, "*.sst")); err != nil {
				t.Fatal(err)
			}
		}, says: "start with an empty one"},
		"TruncatedManifest": {flushed: true, damage: func(t *testing.T, dir string, _ *Options) {
			rewrite(t, onlyFile(t, dir, "MANIFEST-*"), func(b []byte) []byte { return b[:10] })
		}, says: "start with an empty one"},
		"MissingRecord": {damage: func(t *testing.T, dir string, opts *Options) {
			change(t, *opts, func(j *Journal) error { return j.db.Delete(logKey(5), pebble.Sync) })
		}, says: "start with an empty one"},
		"RecordOfANewerHub": {damage: func(t *testing.T, dir string, opts *Options) {
			change(t, *opts, func(j *Journal) error {
				return j.db.Set(logKey(5), append([]byte{0}, seal([]byte{9, 9, 9})...), pebble.Sync)
			})
		}, says: "newer hub"},
		"ForeignFile": {damage: func(t *testing.T, dir string, _ *Options) {
			if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, says: "notes.txt"},
		"AnotherHubs": {damage: func(_ *testing.T, _ string, opts *Options) { opts.Owner = "hub-2" }, says: "belongs to hub hub-1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			original := options(t.TempDir())
			j := mustOpen(t, original)
			fill(t, j)
			if test.flushed {
				if err := j.db.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			opts := options(copyDir(t, original.Dir))
			mustClose(t, j)
			if records, err := openAndLoad(t, opts); err != nil || len(records) != filled {
				t.Fatalf("undamaged it gives %d records and %v", len(records), err)
			}
			opts = options(copyDir(t, original.Dir))
			if !test.flushed { // Close and the start above have written tables
				j = mustOpen(t, options(t.TempDir()))
				fill(t, j)
				opts = options(copyDir(t, j.dir))
				mustClose(t, j)
			}
			test.damage(t, opts.Dir, &opts)
			records, err := openAndLoad(t, opts)
			if err == nil {
				t.Fatalf("it starts, with %d of %d records", len(records), filled)
			}
			if !strings.Contains(err.Error(), opts.Dir) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the message does not help: %v", err)
			}
			t.Log(err)
		})
	}
}

// change opens the journal and does something to its store.
func change(t *testing.T, opts Options, what func(*Journal) error) {
	t.Helper()
	j := mustOpen(t, opts)
	if err := what(j); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
}

// TestTornTail cuts the log in its last record, as a machine that loses power
// while it writes does: what was synced before is there, and nothing else.
func TestTornTail(t *testing.T) {
	j := mustOpen(t, options(t.TempDir()))
	mustAppend(t, j, paused(0, 50)...)
	before, err := os.ReadFile(onlyFile(t, j.dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, j, paused(50, 60)...)
	dir := copyDir(t, j.dir)
	mustClose(t, j)
	file := onlyFile(t, dir, "*.log")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	from := used(before)
	to := used(whole)
	if to <= from {
		t.Fatalf("the second batch is not in the log: %d, then %d bytes", from, to)
	}
	for _, cut := range []int{from, from + 3, (from + to) / 2, to - 1} {
		at := copyDir(t, dir)
		if err := os.WriteFile(filepath.Join(at, filepath.Base(file)), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		records, err := openAndLoad(t, options(at))
		if err != nil {
			t.Errorf("cut after %d of %d bytes: %v", cut, to, err)
			continue
		}
		if diff := cmp.Diff(paused(0, 50), records); diff != "" {
			t.Errorf("cut after %d of %d bytes: %s", cut, to, diff)
		}
	}
}

// used is the length of a log without the zeros that were allocated ahead.
func used(log []byte) int { return len(bytes.TrimRight(log, "\x00")) }

// TestSecondUser opens a journal that is open.
func TestSecondUser(t *testing.T) {
	j := mustOpen(t, options(t.TempDir()))
	defer mustClose(t, j)
	_, err := Open(options(j.dir))
	if err == nil || !strings.Contains(err.Error(), "another hub may be using it") {
		t.Fatalf("got %v", err)
	}
	mustAppend(t, j, paused(0, 1)...) // the first one goes on
}

// TestForeignStore opens a store that another program made.
func TestForeignStore(t *testing.T) {
	dir := t.TempDir()
	db, err := pebble.Open(dir, &pebble.Options{Logger: logger{quiet}})
	if err == nil {
		err = errors.Join(db.Set([]byte("k"), []byte("v"), pebble.Sync), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(options(dir)); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("got %v", err)
	}
}
