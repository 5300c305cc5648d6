package valkey

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/keeper/journaltest"
	"github.com/shoal-dev/shoal/hub/internal/keeper/valkey/valkeytest"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

var (
	_ keeper.Compactor = (*Journal)(nil)
	_ keeper.Rewriter  = (*Journal)(nil)
	_ keeper.Limited   = (*Journal)(nil)
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func options(server *valkeytest.Server, prefix string) Options {
	return Options{Server: Server{Addresses: []string{server.Address}}, Prefix: prefix, Owner: "hub-1", Now: now, New: true}
}

func mustOpen(tb testing.TB, opts Options) *Journal {
	tb.Helper()
	j, err := Open(tb.Context(), opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { mustClose(tb, j) })
	return j
}

func mustClose(tb testing.TB, j *Journal) {
	tb.Helper()
	if err := j.Close(); err != nil {
		tb.Error(err)
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

// sameRecords compares what is loaded with what was appended.
func sameRecords(tb testing.TB, want, got []lease.Record) {
	tb.Helper()
	if diff := cmp.Diff(want, got, journaltest.Compare()...); diff != "" {
		tb.Fatalf("%d records, want %d: %s", len(got), len(want), diff)
	}
}

// log is what operators are told.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func logger() (*slog.Logger, *log) {
	l := new(log)
	return slog.New(slog.NewTextHandler(l, nil)), l
}

// TestJournal holds the journal to the contract of all journals, on a real server.
func TestJournal(t *testing.T) {
	server := valkeytest.Start(t)
	stores := 0
	journaltest.Run(t, func(tb testing.TB) journaltest.Open {
		stores++
		prefix := fmt.Sprint("store-", stores)
		var last *Journal
		tb.Cleanup(func() { mustClose(tb, last) })
		return func(tb testing.TB) keeper.Journal {
			tb.Helper()
			if last != nil {
				mustClose(tb, last)
			}
			var err error
			if last, err = Open(context.Background(), options(server, prefix)); err != nil {
				tb.Fatal(err)
			}
			return last
		}
	})
}

// TestDeposed has two hubs on one journal: the second takes the fence, and nothing of the first counts from then on.
func TestDeposed(t *testing.T) {
	server := valkeytest.Start(t)
	first := mustOpen(t, options(server, "p"))
	mustAppend(t, first, paused(0, 3)...)
	second := mustOpen(t, options(server, "p"))
	if second.Epoch() <= first.Epoch() || second.Before() != first.Epoch() {
		t.Errorf("epoch %d after %d, which it takes for %d", second.Epoch(), first.Epoch(), second.Before())
	}
	var deposed *Deposed
	if err := first.Append(t.Context(), paused(3, 6)); !errors.As(err, &deposed) || deposed.By != second.Epoch() {
		t.Fatalf("the first hub's append: %v", err)
	}
	if err := first.Rewrite(t.Context(), lease.New(lease.Options{IDs: &lease.CountingIDs{}}).SnapshotTo); !errors.As(err, &deposed) {
		t.Fatalf("the first hub rewrites: %v", err)
	}
	sameRecords(t, paused(0, 3), loaded(t, second))
	mustAppend(t, second, paused(6, 9)...)
	third := mustOpen(t, options(server, "p"))
	sameRecords(t, append(paused(0, 3), paused(6, 9)...), loaded(t, third))
}

// TestDeposedWhileCompacting takes the fence while the first hub writes a snapshot: it never counts.
func TestDeposedWhileCompacting(t *testing.T) {
	server := valkeytest.Start(t)
	logger, log := logger()
	opts := options(server, "p")
	opts.Logger = logger
	first := mustOpen(t, opts)
	mustAppend(t, first, paused(0, 30)...)
	took := make(chan struct{})
	first.Compact(t.Context(), func(load func(func(lease.Record) error) error, emit func(lease.Record) error) error {
		<-took
		return load(func(rec lease.Record) error { return nil })
	})
	second := mustOpen(t, options(server, "p"))
	close(took)
	first.compacting.Wait()
	if !strings.Contains(log.String(), "another hub has taken over") {
		t.Errorf("the first hub says %q", log)
	}
	sameRecords(t, paused(0, 30), loaded(t, second))
}

// TestCompact replaces the log again and again; the server keeps no more than it needs.
func TestCompact(t *testing.T) {
	server := valkeytest.Start(t)
	opts := options(server, "p")
	opts.CompactAfter = 100
	j := mustOpen(t, opts)
	mustAppend(t, j, paused(0, 99)...)
	if j.CompactDue() {
		t.Error("due after 99 of 100")
	}
	want := paused(0, 99)
	for round := range 3 {
		mustAppend(t, j, paused(0, 5000)...)
		if !j.CompactDue() {
			t.Fatal("not due")
		}
		kept := paused(1000, 4000)
		j.Compact(t.Context(), func(load func(func(lease.Record) error) error, emit func(lease.Record) error) error {
			var read []lease.Record
			if err := load(func(rec lease.Record) error { read = append(read, rec); return nil }); err != nil {
				return err
			}
			if diff := cmp.Diff(append(want, paused(0, 5000)...), read); diff != "" {
				t.Errorf("round %d, condensed: %s", round, diff)
			}
			for _, rec := range kept {
				if err := emit(rec); err != nil {
					return err
				}
			}
			return nil
		})
		if j.CompactDue() {
			t.Error("due while it is done")
		}
		mustAppend(t, j, paused(5000, 5010)...)
		j.compacting.Wait()
		mustAppend(t, j, paused(5010, 5020)...)
		want = append(kept, paused(5000, 5020)...)
		for key, most := range map[string]int64{j.keys.log: 2} {
			if n, err := server.Do("XLEN", key).AsInt64(); err != nil || n != most {
				t.Errorf("round %d: %s has %d entries (%v), want %d", round, key, n, err, most)
			}
		}
		if n, err := server.Do("DBSIZE").AsInt64(); err != nil || n != 3 {
			t.Errorf("round %d: the server has %d keys (%v): want header, log and one list", round, n, err)
		}
		sameRecords(t, want, loaded(t, j))
	}
	sameRecords(t, want, loaded(t, mustOpen(t, opts)))
}

// TestHistory checks what a journal knows of its past.
func TestHistory(t *testing.T) {
	server := valkeytest.Start(t)
	opts := options(server, "p")
	opts.New = false
	j := mustOpen(t, opts)
	if since, whole := j.Since(); !since.Equal(now) || whole || !j.Fresh() {
		t.Errorf("a new journal of an old hub: since %s, whole %v, fresh %v", since, whole, j.Fresh())
	}
	id, epoch := j.ID(), j.Epoch()

	opts.Now = now.Add(-time.Hour) // the clock was set back
	j = mustOpen(t, opts)
	if since, whole := j.Since(); !since.Equal(now) || whole || j.Fresh() || j.ID() != id || j.Replaced() {
		t.Errorf("opened again: since %s, whole %v, fresh %v, id %s, replaced %v", since, whole, j.Fresh(), j.ID(), j.Replaced())
	}
	if j.Epoch() <= epoch {
		t.Errorf("epoch %d after %d", j.Epoch(), epoch)
	}

	j = mustOpen(t, options(server, "q"))
	if _, whole := j.Since(); !whole {
		t.Error("a new hub's new journal is not whole")
	}
	later := now.Add(time.Minute)
	if err := j.Interrupted(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	j = mustOpen(t, options(server, "q"))
	if since, whole := j.Since(); !since.Equal(later) || whole {
		t.Errorf("interrupted: since %s, whole %v", since, whole)
	}
}

// TestRefuses opens journals on servers and keys that are not fit. Each message says what to do.
func TestRefuses(t *testing.T) {
	tests := map[string]struct {
		settings []string
		before   func(*testing.T, *valkeytest.Server)
		change   func(*Options)
		says     []string // nothing: it is accepted
	}{
		"NoLog":            {settings: []string{"appendonly", "no"}, says: []string{"appendonly", "--journal-valkey-unchecked"}},
		"NoLogAccepted":    {settings: []string{"appendonly", "no"}, change: func(o *Options) { o.Unchecked = true }},
		"EverySecond":      {settings: []string{"appendfsync", "everysec"}, says: []string{"appendfsync", "always", "--journal-valkey-everysec"}},
		"EverySecondKnown": {settings: []string{"appendfsync", "everysec"}, change: func(o *Options) { o.EverySecond = true }},
		"NeverSynced": {
			settings: []string{"appendfsync", "no"}, change: func(o *Options) { o.EverySecond = true }, says: []string{"appendfsync", "always"},
		},
		"Evicts": {settings: []string{"maxmemory-policy", "allkeys-lru"}, says: []string{"maxmemory-policy", "noeviction"}},
		"TellsNothing": {
			before: func(_ *testing.T, s *valkeytest.Server) { s.Must("ACL", "SETUSER", "default", "-config") }, says: []string{"CONFIG GET"},
		},
		"WantsAPassword": {settings: []string{"requirepass", "open sesame"}, says: []string{"--journal-valkey-password-file"}},
		"HasAPassword": {settings: []string{"requirepass", "open sesame"}, change: func(o *Options) {
			o.Server.Credentials = func() (string, string, error) { return "", "open sesame", nil }
		}},
		"WrongTypeOfHeader": {before: func(_ *testing.T, s *valkeytest.Server) { s.Must("SET", "{p}:journal:header", "x") }, says: []string{"string", "--journal-valkey-prefix"}},
		"WrongTypeOfLog":    {before: func(_ *testing.T, s *valkeytest.Server) { s.Must("SADD", "{p}:journal:log", "x") }, says: []string{"set", "--journal-valkey-prefix"}},
		"NoHeader":          {before: func(_ *testing.T, s *valkeytest.Server) { s.Must("XADD", "{p}:journal:log", "1-0", "r", "x") }, says: []string{"delete its keys"}},
		"AnotherHubs": {before: func(t *testing.T, s *valkeytest.Server) {
			opts := options(s, "p")
			opts.Owner = "hub-2"
			mustOpen(t, opts)
		}, says: []string{"hub-2", "hub-1", "--journal-valkey-prefix"}},
		"NewerLayout": {before: func(t *testing.T, s *valkeytest.Server) {
			mustOpen(t, options(s, "p"))
			s.Must("HSET", "{p}:journal:header", "layout", "9")
		}, says: []string{"newer hub"}},
		"MissingBatch": {before: func(t *testing.T, s *valkeytest.Server) {
			fillThree(t, s)
			s.Must("XDEL", "{p}:journal:log", "2-0")
		}, says: []string{"batch 3 comes where 2 should", "delete its keys"}},
		"MissingEnd": {before: func(t *testing.T, s *valkeytest.Server) {
			fillThree(t, s)
			s.Must("XDEL", "{p}:journal:log", "3-0")
		}, says: []string{"before batch 3", "delete its keys"}},
		"NoRecord": {before: func(t *testing.T, s *valkeytest.Server) {
			fillThree(t, s)
			s.Must("XADD", "{p}:journal:log", "4-0", "r", "\x0ahellohello")
			s.Must("HSET", "{p}:journal:header", "batch", "4")
		}, says: []string{"checksum", "delete its keys"}},
		"MissingSnapshot": {before: func(t *testing.T, s *valkeytest.Server) {
			fillThree(t, s)
			s.Must("HSET", "{p}:journal:header", "chunks", "1")
		}, says: []string{"snapshot", "delete its keys"}},
		"Nobody": {change: func(o *Options) { o.Server.Addresses = []string{"/nowhere/socket"}; o.Patience = 1 }, says: []string{"/nowhere/socket", "tried for"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := valkeytest.Start(t, test.settings...)
			if test.before != nil {
				test.before(t, server)
			}
			opts := options(server, "p")
			if test.change != nil {
				test.change(&opts)
			}
			j, err := Open(t.Context(), opts)
			if err == nil {
				err = errors.Join(j.Load(t.Context(), func(lease.Record) error { return nil }), j.Close())
			}
			if len(test.says) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("it starts")
			}
			for _, part := range test.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the message does not say %q: %v", part, err)
				}
			}
			if strings.Contains(err.Error(), "sesame") {
				t.Error("the message has the password in it")
			}
		})
	}
}

func fillThree(t *testing.T, s *valkeytest.Server) {
	t.Helper()
	j := mustOpen(t, options(s, "p"))
	for i := range 3 {
		mustAppend(t, j, paused(i, i+1)...)
	}
}
