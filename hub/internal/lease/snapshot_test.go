package lease

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestSnapshot checks over random histories that a snapshot and the records
// after it make the engine that a replay of everything would, and that it goes
// on as that one does.
func TestSnapshot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, 1000*time.Hour)
		for range 4 {
			m.upsert(t)
		}
		var base []Record
		from := 0
		actions := m.actions()
		actions["snapshot"] = func(*rapid.T) { base, from = m.engine.Snapshot(), len(m.records) }
		actions[""] = func(t *rapid.T) {
			if rapid.IntRange(0, 9).Draw(t, "restart") > 0 {
				return
			}
			again := newModelEngine(1000 * time.Hour)
			if err := again.Replay(base); err != nil {
				t.Fatal(err)
			}
			if err := again.Replay(m.records[from:]); err != nil {
				t.Fatal(err)
			}
			if out := again.Tick(m.now); len(out.Records) > 0 {
				t.Fatalf("time after the replay gave %d records", len(out.Records))
			}
			if err := verify(again); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(dump(m.engine), dump(again)); diff != "" {
				t.Fatalf("the snapshot differs (-wrote +replayed):\n%s", diff)
			}
			again.opts.IDs = m.engine.opts.IDs
			m.engine = again
			m.waiters = nil // waiting is not durable
		}
		t.Repeat(actions)
	})
}

// replayed is what a transcript says of a replay; a snapshot is shorter.
var replayed = regexp.MustCompile(`\d+ records replayed`)

// TestTranscriptsOverSnapshots plays the transcripts with an engine that is
// made anew from a snapshot before each command: sessions, removed proxies
// and fleets, repeated requests and refusals come out the same. The counts of
// the guards are not durable, so they are carried over.
func TestTranscriptsOverSnapshots(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &stage{t: t, now: rigStart}
			got := s.playAll(string(text), s.fromSnapshot)
			same := func(text string) string { return replayed.ReplaceAllString(text, "records replayed") }
			if diff := cmp.Diff(same(string(text)), same(got)); diff != "" {
				t.Errorf("%s (-written +observed):\n%s", file, diff)
			}
		})
	}
}

// fromSnapshot makes the stage's engine anew.
func (s *stage) fromSnapshot() {
	if len(s.engine.waiters) > 0 {
		return // a restart answers them all
	}
	s.journal = append(s.journal, s.engine.Tick(s.now).Records...)
	records := s.engine.Snapshot()
	again := New(s.engine.opts)
	if err := again.Replay(records); err != nil {
		s.t.Fatal(err)
	}
	again.guard = s.engine.guard
	again.lastTicket = s.engine.lastTicket
	if out := again.Tick(s.now); len(out.Records) > 0 {
		s.t.Fatalf("time after the snapshot gave %d records", len(out.Records))
	}
	if diff := cmp.Diff(dump(s.engine), dump(again)); diff != "" {
		s.t.Fatalf("the snapshot differs (-wrote +replayed):\n%s", diff)
	}
	s.engine = again
	s.journal = records
}
