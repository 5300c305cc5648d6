// Package journaltest is the suite that every keeper.Journal passes. A journal that outlives its process passes it with
// Open opening the same store anew.
package journaltest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Open opens the store of one test. Called again, it opens the same store as a restarted process would, after the
// journal opened before was closed or given up.
type Open func(tb testing.TB) keeper.Journal

// Run runs the suite. It calls fresh once for each test, for a store of its own.
func Run(t *testing.T, fresh func(tb testing.TB) Open) {
	t.Helper()
	tests := map[string]func(*testing.T, Open){
		"EmptyLoadsNothing":       emptyLoadsNothing,
		"LoadsEveryKindInOrder":   loadsEveryKindInOrder,
		"AppendsAfterLoad":        appendsAfterLoad,
		"LoadStopsAtAnError":      loadStopsAtAnError,
		"LoadStopsWithItsContext": loadStopsWithItsContext,
		"KeepsNoHoldOfTheBatch":   keepsNoHoldOfTheBatch,
		"RebuildsAnEngine":        rebuildsAnEngine,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

func emptyLoadsNothing(t *testing.T, open Open) {
	if got := load(t, open(t)); len(got) != 0 {
		t.Errorf("a new journal holds %d records", len(got))
	}
}

func loadsEveryKindInOrder(t *testing.T, open Open) {
	want := Kinds()
	journal := open(t)
	load(t, journal)
	for i := range want {
		mustAppend(t, journal, want[i:i+1]...)
	}
	mustAppend(t, journal, want...)
	compare(t, append(append([]lease.Record{}, want...), want...), load(t, open(t)))
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
	mustAppend(t, open(t), Kinds()...)
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
}

func loadStopsWithItsContext(t *testing.T, open Open) {
	mustAppend(t, open(t), Kinds()...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := open(t).Load(ctx, func(lease.Record) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Load with a cancelled context returned %v", err)
	}
}

func keepsNoHoldOfTheBatch(t *testing.T, open Open) {
	want := Kinds()
	batch := append([]lease.Record{}, want...)
	journal := open(t)
	mustAppend(t, journal, batch...)
	clear(batch) // the keeper uses the slice again
	compare(t, want, load(t, open(t)))
}

// rebuildsAnEngine checks that what an engine wrote makes the same engine.
func rebuildsAnEngine(t *testing.T, open Open) {
	journal := open(t)
	ids := &lease.CountingIDs{}
	engine := lease.New(lease.Options{IDs: ids, Epoch: 1, HistoryComplete: true})
	step := func(cmd lease.Command) lease.Result {
		t.Helper()
		out, err := engine.Step(start, cmd)
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Records) > 0 {
			mustAppend(t, journal, out.Records...)
		}
		return out.Result
	}
	step(lease.SetFleet{Fleet: lease.Fleet{ID: "crawl/news", Policy: lease.Policy{MaxLeasesPerProxy: 1}}})
	step(lease.UpsertProxy{Proxy: lease.Proxy{
		UID: "px-1", Fleet: "crawl/news", Member: "east", Ready: true, Exits: []netip.Addr{netip.MustParseAddr("203.0.113.1")},
		Endpoints: []lease.Endpoint{{Network: "VM", Host: "203.0.113.1", Port: 3128}},
	}})
	target := lease.MustParseTarget("www.example.com")
	granted := step(lease.Acquire{Principal: "anna", Fleet: "crawl/news", Target: target, RequestID: "r1"}).(lease.Granted).Leases[0]
	step(lease.Report{Principal: "anna", ID: granted.ID, Observations: []lease.Observation{{Outcome: lease.Blocked}}})

	again := lease.New(lease.Options{IDs: ids, Epoch: 2, HistoryComplete: true})
	for _, rec := range load(t, open(t)) {
		if err := again.Apply(rec); err != nil {
			t.Fatal(err)
		}
	}
	for name, cmd := range map[string]lease.Command{
		"Get":      lease.Get{Principal: "anna", ID: granted.ID},
		"Repeated": lease.Acquire{Principal: "anna", Fleet: "crawl/news", Target: target, RequestID: "r1"},
		"List":     lease.List{Fleet: "crawl/news", Target: target},
		"Stats":    lease.ReadStats{Fleet: "crawl/news"},
	} {
		want, errWant := engine.Step(start, cmd)
		got, errGot := again.Step(start, cmd)
		if errWant != nil || errGot != nil {
			t.Fatalf("%s: %v, then %v", name, errWant, errGot)
		}
		if diff := cmp.Diff(want.Result, got.Result, options...); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
	}
}

// start is when the suite's records begin.
var start = time.Date(2026, 1, 1, 12, 0, 0, 123456789, time.UTC)

// Kinds returns a record of each kind with every field set.
func Kinds() []lease.Record {
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	exit := lease.ExitOf(netip.MustParseAddr("2001:db8:0:7::1"))
	return []lease.Record{
		&lease.FleetSet{At: at(0), Fleet: lease.Fleet{ID: "crawl/news", Created: at(-9), Policy: lease.Policy{
			MaxLeasesPerProxy: 5, MaxLeasesPerPrincipal: 7, DefaultTTL: time.Minute, MaxTTL: time.Hour, MaxLifetime: 2 * time.Hour,
			ReuseDelay: time.Second, Cooldown: lease.Cooldown{Base: time.Minute, Factor: 1.5, Max: time.Hour},
		}}},
		&lease.MemberSeen{At: at(1), ID: "east", Suspect: true, Seen: at(1)},
		&lease.ProxySet{At: at(2), Proxy: lease.Proxy{
			UID: "px-1", Fleet: "crawl/news", Member: "east", Name: "news-1", Region: "us-east1", Country: "US",
			Labels:    map[string]string{"tier": "datacenter"},
			Endpoints: []lease.Endpoint{{Network: "HostPort", Host: "198.51.100.7", Port: 21007, TLS: true}, {Network: "PodIP", Host: "10.0.0.1", Port: 3128}},
			Exits:     []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8:0:7::1")},
			Ready:     true, Saturated: true, Draining: true, DrainDeadline: at(900), LastSeen: at(2), LastReady: at(1),
		}},
		&lease.LeasesGranted{
			At: at(3), Principal: "anna", Fleet: "crawl/news", Target: lease.MustParseTarget("bücher.example"), Network: "PodIP", Exclusive: true,
			TTL: time.Minute, Expires: at(63), LifetimeEnd: at(3600),
			Leases:    []lease.GrantedLease{{ID: "lse_1", Token: lease.FencingToken{Epoch: 1, Sequence: 2}, Proxy: "px-1", Slots: 5}},
			RequestID: "r 1", Fingerprint: [32]byte{1, 2, 3}, SessionKey: "cart/\x00ö", SessionUntil: at(7200),
		},
		&lease.Extended{At: at(4), ID: "lse_1", Expires: at(64)},
		&lease.ExitCooled{At: at(5), Exit: exit, Target: "example.com", Until: at(605), Banned: true, Strikes: 3, Rest: 10 * time.Minute},
		&lease.TargetPaused{At: at(6), Fleet: "crawl/news", Target: "example.com", Until: at(66)},
		&lease.Finished{At: at(7), ID: "lse_1", State: lease.StateReleased, HeldUntil: at(17)},
		&lease.ProxyRemoved{At: at(8), UID: "px-1"},
		&lease.FleetRemoved{At: at(9), ID: "crawl/news"},
		&lease.SnapshotBegun{At: at(10), Sequence: 300},
		&lease.Kept{
			At: at(11), ID: "lse_1", Token: lease.FencingToken{Epoch: 1, Sequence: 2}, Principal: "anna", Fleet: "crawl/news", Proxy: "px-1",
			Target: lease.MustParseTarget("bücher.example"), Network: "PodIP", Exclusive: true, Slots: 5, TTL: time.Minute, Granted: at(3),
			Expires: at(63), LifetimeEnd: at(3600), State: lease.StateReleased, HeldUntil: at(73), ExitsChanged: true, SessionKey: "cart/\x00ö",
			RequestID: "r 1", Fingerprint: [32]byte{1, 2, 3}, Forgotten: true,
			GoneProxy: &lease.Proxy{UID: "px-1", Fleet: "crawl/news", Member: "east", Labels: map[string]string{"a": "b", "c": "d"}, LastSeen: at(2)},
			GoneFleet: &lease.Policy{MaxLeasesPerProxy: 5, Cooldown: lease.Cooldown{Factor: 1.5}},
		},
		&lease.SessionKept{At: at(12), Principal: "anna", Fleet: "crawl/news", Key: "cart", Proxy: "px-1", Until: at(7200)},
		&lease.ProxyPlaced{At: at(13), UID: "px-1", LastUsed: at(7), OnSite: 3},
		&lease.TargetHalted{At: at(14), Target: "example.com", Until: at(74), Why: "they asked us to"},
		&lease.TargetResumed{At: at(15), Target: "example.com"},
		&lease.RevocationSet{At: at(16), Principal: "anna", Proxy: "px-1", Until: at(3600), Why: "lost her laptop"},
		&lease.RevocationLifted{At: at(17), Principal: "anna", Proxy: "px-1"},
		&lease.CooldownCleared{At: at(18), Exit: exit, Target: "example.com"},
	}
}

// options compare types whose insides are private by value.
var options = []cmp.Option{
	cmp.Comparer(func(a, b lease.Target) bool { return a == b }),
	cmp.Comparer(func(a, b lease.Exit) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
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
		if diff := cmp.Diff(want[i], got[i], options...); diff != "" {
			t.Errorf("record %s (-appended +loaded):\n%s", fmt.Sprintf("%d, %T", i, want[i]), diff)
		}
	}
}
