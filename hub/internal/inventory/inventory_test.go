package inventory

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	clocktesting "k8s.io/utils/clock/testing"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// bench is an inventory, a clock, and one member that keeps reporting the same proxies.
type bench struct {
	*Inventory
	clock *clocktesting.FakeClock
	epoch uint64
}

func newBench() *bench {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	return &bench{Inventory: New(Options{Clock: clock}), clock: clock}
}

func (b *bench) now() time.Time { return b.clock.Now() }

func (b *bench) connect(instance string) {
	b.epoch++
	b.Connected("east", Session{Epoch: b.epoch, Instance: instance}, b.now())
}

// sync connects and reports the proxies, all ready, of placement "pp".
func (b *bench) sync(uids ...string) {
	b.connect("one")
	b.observe(uids...)
	b.Resynced("east", b.now())
}

func (b *bench) observe(uids ...string) {
	for _, uid := range uids {
		b.ObserveProxy("east", uid, &agentv1.ProxyReport{PlacementUid: "pp", Name: uid, Ready: true}, b.now())
	}
}

// beat lets time pass with a heartbeat every 5 s.
func (b *bench) beat(d time.Duration) {
	for ; d > 0; d -= HeartbeatInterval {
		b.clock.Step(min(d, HeartbeatInterval))
		b.Heard("east", b.now())
	}
}

func (b *bench) uids() []string {
	var uids []string
	for _, p := range b.Proxies("pp") {
		text := p.UID
		if !p.Ready {
			text += " not ready"
		}
		uids = append(uids, text)
	}
	return uids
}

func TestLiveness(t *testing.T) {
	type step struct {
		do   func(b *bench)
		want State
	}
	silence := func(d time.Duration) func(*bench) { return func(b *bench) { b.clock.Step(d) } }
	sync := func(b *bench) { b.sync("a") }
	beat := func(d time.Duration) func(*bench) { return func(b *bench) { b.beat(d) } }
	tests := map[string][]step{
		"NeverHeard": {{silence(time.Hour), NeverHeard}},
		"FirstContact": {
			{func(b *bench) { b.connect("one") }, Syncing},
			{beat(20 * time.Second), Syncing},
			{func(b *bench) { b.Resynced("east", b.now()) }, Ready},
		},
		"HeartbeatsKeepItReady": {{sync, Ready}, {beat(10 * time.Minute), Ready}},
		// The bounds are the promise: 15 s and 45 s.
		"Silence": {
			{sync, Ready},
			{silence(SuspectAfter - time.Millisecond), Ready},
			{silence(time.Millisecond), Suspect},
			{silence(30*time.Second - time.Millisecond), Suspect},
			{silence(time.Millisecond), Unreachable},
		},
		// One frame proves little.
		"SuspectRecoversSlowly": {
			{sync, Ready},
			{silence(20 * time.Second), Suspect},
			{func(b *bench) { b.Heard("east", b.now()) }, Suspect},
			{beat(5 * time.Second), Suspect},
			{beat(5 * time.Second), Ready},
		},
		"AGapBeginsAnew": {
			{sync, Ready},
			{silence(20 * time.Second), Suspect},
			{func(b *bench) { b.Heard("east", b.now()) }, Suspect},
			{silence(16 * time.Second), Suspect},
			{func(b *bench) { b.Heard("east", b.now()) }, Suspect},
			{beat(5 * time.Second), Suspect},
			{beat(5 * time.Second), Ready},
		},
		// After a long loss only a complete report counts.
		"UnreachableNeedsAResync": {
			{sync, Ready},
			{silence(time.Minute), Unreachable},
			{beat(time.Minute), Suspect},
			{sync, Ready},
		},
		"QuickReconnectIsNoLoss": {
			{sync, Ready},
			{func(b *bench) { b.Disconnected("east", b.epoch, b.now()) }, Ready},
			{silence(10 * time.Second), Ready},
			{func(b *bench) { b.connect("one") }, Ready},
		},
		"DisconnectedForLong": {
			{sync, Ready},
			{func(b *bench) { b.Disconnected("east", b.epoch, b.now()) }, Ready},
			{silence(15 * time.Second), Suspect},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			for i, s := range steps {
				s.do(b)
				if have := b.Member("east").State; have != s.want {
					t.Fatalf("step %d: %s, want %s", i, have, s.want)
				}
			}
		})
	}
}

func TestLossIsCountedFromTheFirstLoss(t *testing.T) {
	b := newBench()
	b.sync("a")
	last := b.now()
	b.clock.Step(20 * time.Second)
	b.Heard("east", b.now())
	b.clock.Step(20 * time.Second)
	if v := b.Member("east"); !v.LostSince.Equal(last) {
		t.Errorf("lost since %v, want %v", v.LostSince, last)
	}
	b.sync("a")
	if v := b.Member("east"); !v.LostSince.IsZero() || !v.Settled() {
		t.Errorf("after a resync: %+v", v)
	}
}

func TestLostWithoutAWord(t *testing.T) {
	b := newBench()
	b.clock.Step(UnreachableAfter - time.Second)
	if b.Member("east").Lost {
		t.Error("given up too early")
	}
	b.clock.Step(time.Second)
	if v := b.Member("east"); !v.Lost || v.Complete {
		t.Errorf("nobody should wait any more: %+v", v)
	}
}

func TestResyncSweeps(t *testing.T) {
	b := newBench()
	b.sync("a", "b", "c", "d", "e")
	b.ObserveProxySet("east", "pp", &agentv1.ProxySetReport{PlacementUid: "pp", Replicas: 5}, b.now())
	b.sync("a", "b", "c")
	if diff := cmp.Diff([]string{"a", "b", "c"}, b.uids()); diff != "" {
		t.Error(diff)
	}
	if _, ok := b.Set("pp"); ok {
		t.Error("a set that was not reported again is still there")
	}
}

// TestDoubt takes most proxies out of a complete report.
func TestDoubt(t *testing.T) {
	tests := map[string]struct {
		do   func(b *bench)
		want []string
	}{
		// They stay, but are not leased.
		"OneReportIsDoubted": {
			func(b *bench) { b.sync("a") }, []string{"a", "b not ready", "c not ready", "d not ready"},
		},
		"ASecondOneConfirms": {func(b *bench) { b.sync("a"); b.sync("a") }, []string{"a"}},
		"ASecondOneOfTheSameSessionConfirms": {
			func(b *bench) { b.sync("a"); b.Resynced("east", b.now()) }, []string{"a"},
		},
		"ASecondOneDenies": {
			func(b *bench) { b.sync("a"); b.sync("a", "b", "c", "d") }, []string{"a", "b", "c", "d"},
		},
		"HalfIsBelieved": {func(b *bench) { b.sync("a", "b") }, []string{"a", "b"}},
		// What somebody asked for is not delayed.
		"GoneIsBelieved": {
			func(b *bench) {
				for _, uid := range []string{"b", "c", "d"} {
					b.Gone("east", uid, b.now())
				}
				b.sync("a")
			}, []string{"a"},
		},
		"DrainingOnesMayGo": {
			func(b *bench) {
				for _, uid := range []string{"b", "c", "d"} {
					b.ObserveProxy("east", uid, &agentv1.ProxyReport{PlacementUid: "pp", Name: uid, Draining: true}, b.now())
				}
				b.sync("a")
			}, []string{"a"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			b.sync("a", "b", "c", "d")
			test.do(b)
			if diff := cmp.Diff(test.want, b.uids()); diff != "" {
				t.Error(diff)
			}
			if doubted := b.Doubted("east"); doubted != (len(test.want) == 4 && test.want[1] != "b") {
				t.Errorf("doubted: %v", doubted)
			}
		})
	}
}

func TestForeignUIDsAreRejected(t *testing.T) {
	b := newBench()
	b.sync("a")
	b.ObserveProxySet("east", "pp", &agentv1.ProxySetReport{PlacementUid: "pp"}, b.now())
	b.Connected("west", Session{Epoch: 1}, b.now())
	b.ObserveProxy("west", "a", &agentv1.ProxyReport{PlacementUid: "other", Name: "evil"}, b.now())
	b.ObserveProxy("west", "z", &agentv1.ProxyReport{PlacementUid: "pp", Name: "evil"}, b.now())
	b.ObserveProxySet("west", "pp", &agentv1.ProxySetReport{PlacementUid: "pp", Replicas: 99}, b.now())
	b.Gone("west", "a", b.now())
	if diff := cmp.Diff([]string{"a"}, b.uids()); diff != "" {
		t.Error(diff)
	}
	if set, _ := b.Set("pp"); set.Report.GetReplicas() != 0 {
		t.Error("the set changed hands")
	}
	if v := b.Member("west"); v.Foreign != "pp" || v.Proxies != 0 {
		t.Errorf("west: %+v", v)
	}
	b.ForgetMember("east")
	b.ObserveProxy("west", "a", &agentv1.ProxyReport{PlacementUid: "other"}, b.now())
	if p, ok := b.Proxy("a"); !ok || p.Member != "west" {
		t.Error("what nobody has any more may be anybody's")
	}
}

func TestDuplicateAgent(t *testing.T) {
	tests := map[string]struct {
		instances []string
		gap       time.Duration
		want      bool
	}{
		// An agent that restarts is a new instance each time.
		"Restarts":       {[]string{"a", "b", "c"}, time.Second, false},
		"Reconnects":     {[]string{"a", "a", "a"}, time.Second, false},
		"TakeTurns":      {[]string{"a", "b", "a"}, time.Second, true},
		"TooLongAgo":     {[]string{"a", "b", "a"}, DuplicateWindow, false},
		"ThreeTakeTurns": {[]string{"a", "b", "c", "a"}, time.Second, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench()
			for _, instance := range test.instances {
				b.clock.Step(test.gap)
				b.connect(instance)
			}
			if have := b.Member("east").Duplicate; have != test.want {
				t.Errorf("duplicate: %v", have)
			}
			b.clock.Step(DuplicateWindow)
			if b.Member("east").Duplicate {
				t.Error("it is held against the member for ever")
			}
		})
	}
}

func TestOldSessionsAreIgnored(t *testing.T) {
	b := newBench()
	b.Connected("east", Session{Epoch: 7, Instance: "new"}, b.now())
	b.Connected("east", Session{Epoch: 6, Instance: "old"}, b.now())
	b.Disconnected("east", 6, b.now())
	if v := b.Member("east"); v.Session.Instance != "new" || !v.Connected {
		t.Errorf("%+v", v)
	}
}

func TestLastReadyIsByTheHubsClock(t *testing.T) {
	b := newBench()
	b.ObserveProxy("east", "a", &agentv1.ProxyReport{PlacementUid: "pp", ReadyAge: durationpb.New(3 * time.Second)}, b.now())
	p, _ := b.Proxy("a")
	if want := b.now().Add(-3 * time.Second); !p.LastReady.Equal(want) || !p.ReceivedAt.Equal(b.now()) {
		t.Errorf("%+v", p)
	}
}

// TestWatchTellsNewsOnce reports the same over and over: only what is new reaches those who sum up.
func TestWatchTellsNewsOnce(t *testing.T) {
	b := newBench()
	b.sync("a")
	w := b.Watch()
	defer w.Close()
	report := func(class string, ready bool) {
		b.ObserveProxy("east", "a", &agentv1.ProxyReport{
			PlacementUid: "pp", Name: "a", Ready: ready, ProbeClass: class, ReadyAge: durationpb.New(time.Second),
		}, b.now())
	}
	report("OK", true)
	report("SLOW", true)
	if c := w.Take(); len(c.Placements) != 0 || len(c.Counts) != 0 || cmp.Diff([]string{"a"}, c.Proxies) != "" {
		t.Errorf("measurements are no news of placement or member: %+v", c)
	}
	report("PROXY_DOWN", false)
	if c := w.Take(); cmp.Diff([]string{"pp"}, c.Placements) != "" || cmp.Diff([]string{"east"}, c.Counts) != "" || len(c.Members) != 0 {
		t.Errorf("that it is not ready any more is: %+v", c)
	}
	b.ObserveProxy("east", "b", &agentv1.ProxyReport{PlacementUid: "pp", Name: "b"}, b.now())
	if c := w.Take(); cmp.Diff([]string{"east"}, c.Counts) != "" {
		t.Errorf("there is one more: %+v", c)
	}
	b.Gone("east", "b", b.now())
	if c := w.Take(); cmp.Diff([]string{"east"}, c.Counts) != "" {
		t.Errorf("there is one less: %+v", c)
	}
	b.Gone("east", "b", b.now())
	if c := w.Take(); len(c.Counts) != 0 {
		t.Errorf("what was gone is not gone again: %+v", c)
	}
	b.Tick()
	w.Take()
	b.clock.Step(SuspectAfter)
	b.Tick()
	if c := w.Take(); cmp.Diff([]string{"east"}, c.Members) != "" {
		t.Errorf("time has changed the member: %+v", c)
	}
	b.Tick()
	if c := w.Take(); len(c.Members) != 0 {
		t.Errorf("and once is enough: %+v", c)
	}
}

// TestNothingIsKeptOfTheGone fills and empties the inventory.
func TestNothingIsKeptOfTheGone(t *testing.T) {
	b := newBench()
	for i := range 100 {
		b.connect("one")
		uid := fmt.Sprint("uid-", i)
		b.ObserveProxy("east", uid, &agentv1.ProxyReport{PlacementUid: "pp-" + uid}, b.now())
		b.ObserveProxySet("east", "pp-"+uid, &agentv1.ProxySetReport{}, b.now())
		b.Gone("east", uid, b.now())
		b.Gone("east", "pp-"+uid, b.now())
	}
	if n := len(b.owners) + len(b.sets) + len(b.byPlace) + len(b.members["east"].proxies); n != 0 {
		t.Errorf("%d things are kept", n)
	}
	b.ForgetMember("east")
	if len(b.members) != 0 {
		t.Error("the member is kept")
	}
}
