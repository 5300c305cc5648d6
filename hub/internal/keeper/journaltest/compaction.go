package journaltest

import (
	"errors"
	"testing"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// yields is how a Condense reads the records of a journal.
type yields = func(yield func(lease.Record) error) error

// thirds keeps every third record: enough to see what was condensed, and from where.
func thirds(load yields, emit func(lease.Record) error) error {
	n := 0
	return load(func(rec lease.Record) error {
		if n++; n%3 != 0 {
			return nil
		}
		return emit(rec)
	})
}

func everyThird(records []lease.Record) []lease.Record {
	var kept []lease.Record
	for i := 2; i < len(records); i += 3 {
		kept = append(kept, records[i])
	}
	return kept
}

// compactor opens the store, if its journal compacts, and loads it.
func compactor(t *testing.T, open Open) (keeper.Compactor, []lease.Record) {
	t.Helper()
	journal, ok := open(t).(keeper.Compactor)
	if !ok {
		t.Skip("this journal does not compact")
	}
	return journal, load(t, journal)
}

// either checks that the records are one of two lists, and tells whether they are the second. A snapshot may count or
// not when its process ends; it is there as a whole or not at all.
func either(t *testing.T, got, plain, condensed []lease.Record) bool {
	t.Helper()
	if len(got) == len(condensed) {
		compare(t, condensed, got)
		return true
	}
	compare(t, plain, got)
	return false
}

// compacts condenses records beside appends that go on.
func compacts(t *testing.T, open Open) {
	before, after := numbered(0, 4000), numbered(4000, 4100)
	journal, _ := compactor(t, open)
	for i := 0; i < len(before); i += 500 {
		mustAppend(t, journal, before[i:i+500]...)
	}
	appended := make(chan struct{})
	journal.Compact(t.Context(), func(load yields, emit func(lease.Record) error) error {
		<-appended // what comes after Compact is not condensed
		return thirds(load, emit)
	})
	if journal.CompactDue() {
		t.Error("it is due while it is done")
	}
	for i := range 50 {
		mustAppend(t, journal, after[i])
	}
	close(appended)
	for i := range 50 {
		mustAppend(t, journal, after[50+i])
	}
	got := load(t, open(t))
	if !either(t, got, append(append([]lease.Record{}, before...), after...), append(everyThird(before), after...)) {
		t.Log("the process ended before the snapshot counted")
	}
}

// compactsAgainAndAgain condenses what was condensed before, with failures between.
func compactsAgainAndAgain(t *testing.T, open Open) {
	failure := errors.New("no memory for it")
	var want []lease.Record
	for round := range 6 {
		journal, got := compactor(t, open)
		if round == 0 {
			want = got
		} else {
			compare(t, want, got)
		}
		more := numbered(round*1000, round*1000+700)
		mustAppend(t, journal, more...)
		want = append(want, more...)
		fails := round%3 == 2
		journal.Compact(t.Context(), func(load yields, emit func(lease.Record) error) error {
			if err := thirds(load, emit); err != nil || !fails {
				return err
			}
			return failure
		})
		condensed := everyThird(want)
		if fails {
			condensed = want
		}
		got = load(t, open(t))
		if either(t, got, want, condensed) {
			want = condensed
		}
	}
}

// compactedEngine runs an engine on a journal that condenses again and again by the engine's own snapshots: what is
// loaded in the end makes the engine that a journal without them would.
func compactedEngine(t *testing.T, open Open) {
	journal, _ := compactor(t, open)
	s := newScene(t)
	blank := func() *lease.Engine {
		return lease.New(lease.Options{IDs: &lease.CountingIDs{}, HistoryComplete: true})
	}
	for round := range 4 {
		s.play(t, round)
		for _, batch := range s.batches {
			mustAppend(t, journal, batch...)
		}
		s.batches = nil
		journal.Compact(t.Context(), keeper.Condenser(blank))
		s.play(t, 100+round)
		for _, batch := range s.batches {
			mustAppend(t, journal, batch...)
		}
		s.batches = nil
		next, records := compactor(t, open)
		again := blank()
		if err := again.Replay(records); err != nil {
			t.Fatal(err)
		}
		s.same(t, again)
		if t.Failed() {
			return
		}
		journal = next
	}
}
