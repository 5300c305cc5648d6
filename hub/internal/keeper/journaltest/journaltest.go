package journaltest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Open opens the store of one test. Called again, it opens the same store as a restarted process would, after the
// journal opened before was closed or given up. The suite loads what it opens before it appends, as a keeper does.
type Open func(tb testing.TB) keeper.Journal

// Run runs the suite. It calls fresh once for each test, for a store of its own.
func Run(t *testing.T, fresh func(tb testing.TB) Open) {
	t.Helper()
	tests := map[string]func(*testing.T, Open){
		"EmptyLoadsNothing":         emptyLoadsNothing,
		"LoadsEveryKindInOrder":     loadsEveryKindInOrder,
		"KeepsAnyRecord":            keepsAnyRecord,
		"AppendsAfterLoad":          appendsAfterLoad,
		"LoadStopsAtAnError":        loadStopsAtAnError,
		"LoadStopsWithItsContext":   loadStopsWithItsContext,
		"KeepsNoHoldOfTheBatch":     keepsNoHoldOfTheBatch,
		"EmptyBatch":                emptyBatch,
		"LargeBatch":                largeBatch,
		"ManyBatches":               manyBatches,
		"RefusedBatchLeavesNothing": refusedBatchLeavesNothing,
		"CancelledBatchIsWhole":     cancelledBatchIsWhole,
		"EpochsGrow":                epochsGrow,
		"RoomAtFirst":               roomAtFirst,
		"RebuildsAnEngine":          rebuildsAnEngine,
		"Compacts":                  compacts,
		"CompactsAgainAndAgain":     compactsAgainAndAgain,
		"CompactedEngine":           compactedEngine,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

func emptyLoadsNothing(t *testing.T, open Open) {
	if got := load(t, open(t)); len(got) != 0 {
		t.Errorf("a new journal holds %d records", len(got))
	}
	if got := load(t, open(t)); len(got) != 0 {
		t.Errorf("opened again it holds %d records", len(got))
	}
}

func loadsEveryKindInOrder(t *testing.T, open Open) {
	want := Kinds()
	journal := opened(t, open)
	for i := range want {
		mustAppend(t, journal, want[i:i+1]...)
	}
	mustAppend(t, journal, want...)
	compare(t, append(append([]lease.Record{}, want...), want...), load(t, open(t)))
}

func keepsAnyRecord(t *testing.T, open Open) {
	want := Random(rand.New(rand.NewPCG(3, 4)), 500)
	journal := opened(t, open)
	for i := 0; i < len(want); i += 50 {
		mustAppend(t, journal, want[i:i+50]...)
	}
	compare(t, want, load(t, open(t)))
}

func appendsAfterLoad(t *testing.T, open Open) {
	want := Kinds()
	for i := range want {
		journal := open(t)
		if got := load(t, journal); len(got) != i {
			t.Fatalf("after %d appends it holds %d records", i, len(got))
		}
		mustAppend(t, journal, want[i])
	}
	compare(t, want, load(t, open(t)))
}

func loadStopsAtAnError(t *testing.T, open Open) {
	mustAppend(t, opened(t, open), Kinds()...)
	enough := errors.New("enough")
	calls := 0
	err := open(t).Load(t.Context(), func(lease.Record) error {
		if calls++; calls == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || calls != 3 {
		t.Errorf("Load returned %v after %d records, want the error of the third", err, calls)
	}
	compare(t, Kinds(), load(t, open(t)))
}

func loadStopsWithItsContext(t *testing.T, open Open) {
	journal := opened(t, open)
	for range 40 {
		mustAppend(t, journal, numbered(0, 100)...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := 0
	err := open(t).Load(ctx, func(lease.Record) error {
		if calls++; calls == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Load returned %v when its context was cancelled", err)
	}
	if calls == 4000 {
		t.Error("Load went on to the end")
	}
	err = open(t).Load(ctx, func(lease.Record) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Load with a cancelled context returned %v", err)
	}
}

func keepsNoHoldOfTheBatch(t *testing.T, open Open) {
	want := Kinds()
	batch := append([]lease.Record{}, want...)
	journal := opened(t, open)
	mustAppend(t, journal, batch...)
	clear(batch) // the keeper uses the slice again
	compare(t, want, load(t, open(t)))
}

func emptyBatch(t *testing.T, open Open) {
	journal := opened(t, open)
	mustAppend(t, journal)
	mustAppend(t, journal, numbered(0, 2)...)
	mustAppend(t, journal)
	compare(t, numbered(0, 2), load(t, open(t)))
}

// largeBatch appends what a keeper's fullest batch can be: 256 grants of 100 leases each, with long names.
func largeBatch(t *testing.T, open Open) {
	var want []lease.Record
	for i := range 256 {
		rec := &lease.LeasesGranted{At: start, Principal: "anna", Fleet: "crawl/news", RequestID: lease.RequestID(strings.Repeat("r", 128)), Expires: start}
		for j := range lease.MaxCount {
			rec.Leases = append(rec.Leases, lease.GrantedLease{
				ID: lease.ID(fmt.Sprintf("lse_%022d", i*lease.MaxCount+j)), Token: lease.FencingToken{Epoch: math.MaxUint64, Sequence: math.MaxUint64},
				Proxy: lease.ProxyUID(fmt.Sprintf("0f5e4c1a-7d3b-4a55-9a51-%012d", j)), Slots: 1,
			})
		}
		want = append(want, rec)
	}
	want = append(want, numbered(0, 20_000)...)
	journal := opened(t, open)
	mustAppend(t, journal, want...)
	mustAppend(t, journal, numbered(0, 1)...)
	compare(t, append(want, numbered(0, 1)...), load(t, open(t)))
}

func manyBatches(t *testing.T, open Open) {
	journal := opened(t, open)
	for i := range 300 {
		mustAppend(t, journal, numbered(i*3, i*3+3)...)
	}
	compare(t, numbered(0, 900), load(t, open(t)))
}

// refusedBatchLeavesNothing appends a batch that cannot be written: nothing of it may be there later.
func refusedBatchLeavesNothing(t *testing.T, open Open) {
	journal := opened(t, open)
	if _, memory := journal.(*keeper.Memory); memory {
		t.Skip("memory keeps anything")
	}
	mustAppend(t, journal, numbered(0, 5)...)
	if err := journal.Append(t.Context(), append(numbered(5, 10), Unknown{})); err == nil {
		t.Error("a record that no journal knows was appended")
	}
	journal = open(t)
	compare(t, numbered(0, 5), load(t, journal))
	mustAppend(t, journal, numbered(5, 7)...)
	compare(t, numbered(0, 7), load(t, open(t)))
}

// cancelledBatchIsWhole appends with a context that has ended: the batch is there if Append said so, and whole or not at
// all if it did not.
func cancelledBatchIsWhole(t *testing.T, open Open) {
	journal := opened(t, open)
	mustAppend(t, journal, numbered(0, 5)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := journal.Append(ctx, numbered(5, 1000))
	got := load(t, open(t))
	switch {
	case len(got) == 1000:
		compare(t, numbered(0, 1000), got)
	case err == nil:
		t.Errorf("Append returned nil and %d of 1000 records are there", len(got))
	default:
		compare(t, numbered(0, 5), got)
	}
}

// epochsGrow is for journals that count the starts of their hub.
func epochsGrow(t *testing.T, open Open) {
	epoch := uint64(0)
	for range 3 {
		counts, ok := open(t).(interface{ Epoch() uint64 })
		if !ok {
			t.Skip("this journal counts no epochs")
		}
		if next := counts.Epoch(); next <= epoch {
			t.Fatalf("epoch %d after %d", next, epoch)
		} else {
			epoch = next
		}
	}
}

// roomAtFirst is for journals that may run out of room.
func roomAtFirst(t *testing.T, open Open) {
	journal, ok := opened(t, open).(keeper.Limited)
	if !ok {
		t.Skip("this journal has no limit that it knows")
	}
	for range 2 {
		if room, why := journal.Room(); room != keeper.RoomForAll || why != "" {
			t.Fatalf("it has room %d: %q", room, why)
		}
		mustAppend(t, journal, numbered(0, 100)...)
	}
}

// numbered returns records that tell their place: from, from+1 and so on.
func numbered(from, to int) []lease.Record {
	records := make([]lease.Record, 0, to-from)
	for i := from; i < to; i++ {
		records = append(records, &lease.Extended{At: start.Add(time.Duration(i)), ID: lease.ID(fmt.Sprintf("lse_%d", i)), Expires: start.Add(time.Duration(i) * time.Second)})
	}
	return records
}

// Compare are the options of cmp for records: types whose insides are private
// are compared by value.
func Compare() []cmp.Option {
	return []cmp.Option{
		cmp.Comparer(func(a, b lease.Target) bool { return a == b }),
		cmp.Comparer(func(a, b lease.Exit) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }),
	}
}

// opened opens the store and reads what is there, as a keeper does before it appends.
func opened(t *testing.T, open Open) keeper.Journal {
	t.Helper()
	journal := open(t)
	load(t, journal)
	return journal
}

func load(t *testing.T, journal keeper.Journal) []lease.Record {
	t.Helper()
	var records []lease.Record
	err := journal.Load(t.Context(), func(rec lease.Record) error {
		records = append(records, rec)
		return nil
	})
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return records
}

func mustAppend(t *testing.T, journal keeper.Journal, batch ...lease.Record) {
	t.Helper()
	if err := journal.Append(t.Context(), batch); err != nil {
		t.Fatalf("Append: %v", err)
	}
}

func compare(t *testing.T, want, got []lease.Record) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%d records loaded, %d appended", len(got), len(want))
	}
	for i := range want {
		if diff := cmp.Diff(want[i], got[i], Compare()...); diff != "" {
			t.Fatalf("record %d, %T (-appended +loaded):\n%s", i, want[i], diff)
		}
	}
}
