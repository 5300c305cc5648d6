package journaltest

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// scene is an engine at work: what it writes goes to the journal under test.
type scene struct {
	engine  *lease.Engine
	now     time.Time
	batches [][]lease.Record
	granted []lease.ID
}

const sceneProxies = 4

var sceneTarget = lease.MustParseTarget("www.example.com")

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{engine: lease.New(lease.Options{IDs: &lease.CountingIDs{}, Epoch: 1, HistoryComplete: true}), now: start}
	policy := lease.Policy{MaxLeasesPerProxy: 2, DefaultTTL: time.Minute, ReuseDelay: 10 * time.Second}
	s.must(t, lease.SetFleet{Fleet: lease.Fleet{ID: "crawl/news", Policy: policy}})
	for i := range sceneProxies {
		s.must(t, lease.UpsertProxy{Proxy: lease.Proxy{
			UID: lease.ProxyUID(fmt.Sprintf("px-%d", i)), Fleet: "crawl/news", Member: "east", Ready: true,
			Exits:     []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})},
			Endpoints: []lease.Endpoint{{Network: "VM", Host: "203.0.113.1", Port: 3128}},
		}})
	}
	return s
}

// step does a command now and keeps its records as one batch. Refusals are part of the play.
func (s *scene) step(cmd lease.Command) (lease.Result, error) {
	out, err := s.engine.Step(s.now, cmd)
	if len(out.Records) > 0 {
		s.batches = append(s.batches, out.Records)
	}
	return out.Result, err
}

func (s *scene) must(t *testing.T, cmd lease.Command) lease.Result {
	t.Helper()
	result, err := s.step(cmd)
	if err != nil {
		t.Fatalf("%T: %v", cmd, err)
	}
	return result
}

// play leases, renews, bans, releases and lets leases expire.
func (s *scene) play(t *testing.T, round int) {
	t.Helper()
	s.must(t, lease.Touch{ID: "east"})
	for i := range 3 {
		cmd := lease.Acquire{Principal: "anna", Fleet: "crawl/news", Target: sceneTarget, RequestID: lease.RequestID(fmt.Sprintf("r-%d-%d", round, i))}
		if i == 1 {
			cmd.SessionKey = fmt.Sprintf("cart-%d", round)
		}
		if result, err := s.step(cmd); err == nil {
			s.granted = append(s.granted, result.(lease.Granted).Leases[0].ID)
		}
		s.now = s.now.Add(7 * time.Second)
	}
	if n := len(s.granted); n > 2 {
		_, _ = s.step(lease.Renew{Principal: "anna", ID: s.granted[n-1]})
		_, _ = s.step(lease.Release{Principal: "anna", ID: s.granted[n-2]})
		_, _ = s.step(lease.Report{Principal: "anna", ID: s.granted[n-3], Observations: []lease.Observation{
			{Target: lease.MustParseTarget(fmt.Sprintf("shop-%d.example", round)), Outcome: lease.Blocked},
		}})
	}
	s.now = s.now.Add(20 * time.Second)
}

// same checks that another engine answers as the scene's own.
func (s *scene) same(t *testing.T, again *lease.Engine) {
	t.Helper()
	at := s.engine.Now()
	s.engine.Tick(at)
	if out := again.Tick(at); len(out.Records) > 0 {
		t.Errorf("time after the replay gave %d records", len(out.Records))
	}
	questions := []lease.Command{
		lease.List{Fleet: "crawl/news", Target: sceneTarget},
		lease.ReadStats{Fleet: "crawl/news"},
		lease.ReadUse{Fleet: "crawl/news"},
		lease.ReadBusy{},
		lease.ReadInventory{},
	}
	for _, id := range s.granted {
		questions = append(questions, lease.Get{Principal: "anna", ID: id})
	}
	for _, cmd := range questions {
		want, errWant := s.engine.Step(at, cmd)
		got, errGot := again.Step(at, cmd)
		if fmt.Sprint(errWant) != fmt.Sprint(errGot) {
			t.Errorf("%#v: before %v, after %v", cmd, errWant, errGot)
			continue
		}
		if diff := cmp.Diff(want.Result, got.Result, Compare()...); diff != "" {
			t.Errorf("%#v (-before +after):\n%s", cmd, diff)
		}
	}
}

// rebuildsAnEngine checks that what an engine wrote makes the same engine, also for an Acquire that is repeated.
func rebuildsAnEngine(t *testing.T, open Open) {
	s := newScene(t)
	for round := range 10 {
		s.play(t, round)
	}
	last := lease.Acquire{Principal: "anna", Fleet: "crawl/news", RequestID: "repeated"}
	s.must(t, lease.Touch{ID: "east"})
	granted := s.must(t, last).(lease.Granted).Leases[0]
	journal := opened(t, open)
	for _, batch := range s.batches {
		mustAppend(t, journal, batch...)
	}
	again := lease.New(lease.Options{IDs: &lease.CountingIDs{}, Epoch: 2, HistoryComplete: true})
	if err := again.Replay(load(t, open(t))); err != nil {
		t.Fatal(err)
	}
	s.same(t, again)
	out, err := again.Step(s.now, last)
	if err != nil {
		t.Fatal(err)
	}
	if repeated := out.Result.(lease.Granted).Leases[0]; repeated.ID != granted.ID || repeated.Token != granted.Token {
		t.Errorf("repeated after a restart: %s with %s, before %s with %s", repeated.ID, repeated.Token, granted.ID, granted.Token)
	}
}
