package disk

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/keeper/journaltest"
	"github.com/shoal-dev/shoal/hub/internal/keeper/record"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

var _ keeper.Compactor = (*Journal)(nil)

var quiet = slog.New(slog.DiscardHandler)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func options(dir string) Options {
	return Options{Dir: dir, Owner: "hub-1", Now: now, New: true, Reserve: 1 << 20}
}

func mustOpen(tb testing.TB, opts Options) *Journal {
	tb.Helper()
	j, err := Open(opts)
	if err != nil {
		tb.Fatal(err)
	}
	return j
}

func mustClose(tb testing.TB, j *Journal) {
	tb.Helper()
	if err := j.Close(); err != nil {
		tb.Error(err)
	}
}

// TestJournal holds the disk journal to the contract of all journals.
func TestJournal(t *testing.T) {
	journaltest.Run(t, func(tb testing.TB) journaltest.Open {
		dir := filepath.Join(tb.TempDir(), "journal")
		var last *Journal
		tb.Cleanup(func() { mustClose(tb, last) })
		return func(tb testing.TB) keeper.Journal {
			if last != nil {
				mustClose(tb, last)
			}
			last = mustOpen(tb, options(dir))
			return last
		}
	})
}

func loaded(tb testing.TB, j *Journal) []lease.Record {
	tb.Helper()
	var records []lease.Record
	err := j.Load(tb.Context(), func(rec lease.Record) error { records = append(records, rec); return nil })
	if err != nil {
		tb.Fatal(err)
	}
	return records
}

func paused(from, to int) []lease.Record {
	var records []lease.Record
	for i := from; i < to; i++ {
		records = append(records, &lease.TargetPaused{At: now, Fleet: "a/b", Target: strings.Repeat("x", i%50), Until: now.Add(time.Duration(i))})
	}
	return records
}

func mustAppend(tb testing.TB, j *Journal, records ...lease.Record) {
	tb.Helper()
	if err := j.Append(tb.Context(), records); err != nil {
		tb.Fatal(err)
	}
}

// into returns a Condense that keeps these records, whatever the journal has.
func into(records []lease.Record) keeper.Condense {
	return func(_ func(func(lease.Record) error) error, emit func(lease.Record) error) error {
		for _, rec := range records {
			if err := emit(rec); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestCompact replaces the log, appends beside it, and starts again.
func TestCompact(t *testing.T) {
	opts := options(t.TempDir())
	opts.CompactAfter = 100
	j := mustOpen(t, opts)
	mustAppend(t, j, paused(0, 99)...)
	if j.CompactDue() {
		t.Error("due after 99 of 100")
	}
	for round := range 3 {
		mustAppend(t, j, paused(0, 5000)...)
		if !j.CompactDue() {
			t.Error("not due")
		}
		j.Compact(t.Context(), into(paused(1000, 4000)))
		if j.CompactDue() {
			t.Error("due while it is done")
		}
		mustAppend(t, j, paused(5000, 5010)...)
		mustClose(t, j)
		j = mustOpen(t, opts)
		want := append(paused(1000, 4000), paused(5000, 5010)...)
		if diff := cmp.Diff(want, loaded(t, j)); diff != "" {
			t.Fatalf("round %d: %s", round, diff)
		}
	}
	mustAppend(t, j, paused(0, 2000)...)
	if j.CompactDue() {
		t.Error("due with a log shorter than its snapshot")
	}
	mustClose(t, j)
}

// TestCompactInterrupted leaves a snapshot that was not finished.
func TestCompactInterrupted(t *testing.T) {
	dir := t.TempDir()
	j := mustOpen(t, options(dir))
	mustAppend(t, j, paused(0, 10)...)
	half, err := record.Encode(nil, paused(20, 21)[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := j.db.Set(snapshotKey(j.head.Generation+1, 0), half, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
	j = mustOpen(t, options(dir))
	defer mustClose(t, j)
	if diff := cmp.Diff(paused(0, 10), loaded(t, j)); diff != "" {
		t.Error(diff)
	}
	j.Compact(t.Context(), into(nil)) // the generation is used again
	j.compacting.Wait()
	if got := loaded(t, j); len(got) != 0 {
		t.Errorf("%d records of the interrupted snapshot are back", len(got))
	}
}

// TestHistory checks what a journal knows of its past.
func TestHistory(t *testing.T) {
	dir := t.TempDir()
	opts := options(dir)
	opts.New = false
	j := mustOpen(t, opts)
	if since, whole := j.Since(); !since.Equal(now) || whole || !j.Fresh() {
		t.Errorf("an empty directory of an old hub: since %s, whole %v, fresh %v", since, whole, j.Fresh())
	}
	id, epoch := j.ID(), j.Epoch()
	mustClose(t, j)

	opts.Now = now.Add(-time.Hour) // the clock was set back
	j = mustOpen(t, opts)
	if since, whole := j.Since(); !since.Equal(now) || whole || j.Fresh() || j.ID() != id {
		t.Errorf("opened again: since %s, whole %v, fresh %v, id %s", since, whole, j.Fresh(), j.ID())
	}
	if j.Epoch() <= epoch {
		t.Errorf("epoch %d after %d", j.Epoch(), epoch)
	}
	mustClose(t, j)

	j = mustOpen(t, options(t.TempDir()))
	if _, whole := j.Since(); !whole {
		t.Error("a new hub's new journal is not whole")
	}
	later := now.Add(time.Minute)
	if err := j.Interrupted(later); err != nil {
		t.Fatal(err)
	}
	mustClose(t, j)
	j = mustOpen(t, Options{Dir: j.dir, Owner: "hub-1", Now: later, New: true})
	defer mustClose(t, j)
	if since, whole := j.Since(); !since.Equal(later) || whole {
		t.Errorf("interrupted: since %s, whole %v", since, whole)
	}
}

// onlyFile returns the one file of the directory that the pattern fits.
func onlyFile(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	return files[len(files)-1]
}

func rewrite(t *testing.T, file string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, change(data), 0o600); err != nil {
		t.Fatal(err)
	}
}
