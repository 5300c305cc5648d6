package disk

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/keeper/journaltest"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

var _ keeper.Compactor = (*Journal)(nil)

var quiet = slog.New(slog.DiscardHandler)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func options(dir string) Options { return Options{Dir: dir, Owner: "hub-1", Now: now, New: true} }

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

// TestEveryRecordHasAnEncoding looks at the source of package lease, so that
// a new type of record is not forgotten here or in the suite.
func TestEveryRecordHasAnEncoding(t *testing.T) {
	tested := map[string]bool{}
	for _, rec := range journaltest.Kinds() {
		if kindOf(rec) == 0 {
			t.Errorf("%T has no encoding", rec)
		}
		if got := kinds[kindOf(rec)]; got == nil || reflect.TypeOf(got()) != reflect.TypeOf(rec) {
			t.Errorf("%T is not what its kind makes", rec)
		}
		v := reflect.ValueOf(rec).Elem()
		tested[v.Type().Name()] = true
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("the suite's %s does not set %s: a lost field would not be seen", v.Type().Name(), v.Type().Field(i).Name)
			}
		}
	}
	files, err := filepath.Glob("../../lease/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no source of package lease: %v", err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			method, ok := decl.(*ast.FuncDecl)
			if !ok || method.Recv == nil || method.Name.Name != "When" {
				continue
			}
			of := method.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name
			if !tested[of] {
				t.Errorf("lease.%s is a record, and neither encoded here nor in journaltest.Kinds", of)
			}
		}
	}
	if len(tested) != len(kinds) {
		t.Errorf("%d types in the suite, %d kinds", len(tested), len(kinds))
	}
}

// TestDecodeRefuses changes each byte of records, and cuts them anywhere.
func TestDecodeRefuses(t *testing.T) {
	for _, rec := range journaltest.Kinds() {
		good, err := encode(nil, rec)
		if err != nil {
			t.Fatal(err)
		}
		for i := range good {
			bad := append([]byte{}, good...)
			bad[i] ^= 0x10
			if got, err := decode(bad); err == nil {
				t.Fatalf("%T with byte %d changed is read as %v", rec, i, got)
			}
			if got, err := decode(good[:i]); err == nil {
				t.Fatalf("%T cut after %d bytes is read as %v", rec, i, got)
			}
		}
	}
}

// TestDecodeNewer reads records of hubs to come: right sums, unknown contents.
func TestDecodeNewer(t *testing.T) {
	for name, head := range map[string][2]byte{"Version": {format + 1, byte(kindExtended)}, "Kind": {format, 250}} {
		t.Run(name, func(t *testing.T) {
			if _, err := decode(seal([]byte{head[0], head[1], 0})); !errors.Is(err, errNewer) {
				t.Errorf("got %v", err)
			}
		})
	}
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
		j.Compact(t.Context(), paused(1000, 4000))
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
	half, err := encode(nil, paused(20, 21)[0])
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
	j.Compact(t.Context(), nil) // the generation is used again
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

// TestBytesPerRecord says what records cost; the figures are in
// docs/operations/journal.md.
func TestBytesPerRecord(t *testing.T) {
	for _, rec := range journaltest.Kinds() {
		data, err := encode(nil, rec)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%T: %d bytes", rec, len(data))
		if len(data) > 512 {
			t.Errorf("%T takes %d bytes", rec, len(data))
		}
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
