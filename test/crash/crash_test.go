package crash

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/test/oracle"
)

var (
	seedFlag    = flag.Uint64("seed", 20260701, "what the test draws its kills and its crawlers' wishes from; 0 draws a seed")
	killsFlag   = flag.Int("kills", 6, "how often the hub is killed")
	journalFlag = flag.String("journal", "disk", "what keeps the leases: disk, or valkey: then another hub takes over each time")
	hubFlag     = flag.String("hub", "half", "what is killed: half of a hub, without a cluster, or a whole one")
)

const (
	crawlers   = 64
	principals = 4
	proxies    = 24
	slots      = 3
	// slack is how far the hub's clock may be from the crawlers', which is the same machine's.
	slack = 25 * time.Millisecond
	// compactAfter makes compactions often enough to be hit.
	compactAfter = 300
)

// leasing has short leases, so that many end by themselves while a hub is down, and rests that outlast the test's kills.
func leasing() v1alpha1.FleetLeasing {
	duration := func(d time.Duration) v1alpha1.Duration { return v1alpha1.Duration{Duration: d} }
	most := int32(slots)
	return v1alpha1.FleetLeasing{
		MaxLeasesPerProxy: &most, DefaultTTL: duration(4 * time.Second), MaxTTL: duration(8 * time.Second), MaxLifetime: duration(2 * time.Hour),
		Cooldown: v1alpha1.Cooldown{Base: duration(30 * time.Second), Factor: 2, Max: duration(time.Hour)},
	}
}

// story is one run.
type story struct {
	t      *testing.T
	world  *world
	random *rand.Rand
	street *street
	*hubs
	leads  atomic.Pointer[string] // where the crawlers go
	people []*crawler
	start  time.Duration // how long a hub took to be ready, lately
	kinds  map[string]int
}

// TestCrash plays what the flags say: with none, a few kills of a half hub on the disk journal.
func TestCrash(t *testing.T) { play(t, *hubFlag == "whole", *journalFlag, *killsFlag) }

// TestWholeHub plays a few kills of a whole hub.
func TestWholeHub(t *testing.T) { play(t, true, "disk", 6) }

// TestLeaderLost plays a few losses of the hub that leads, on the Valkey journal.
func TestLeaderLost(t *testing.T) { play(t, false, "valkey", 6) }

// play kills hubs under the crawlers and judges what these saw.
func play(t *testing.T, whole bool, journal string, kills int) {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("make crash SEED=%d KILLS=%d JOURNAL=%s HUB=%s", seed, kills, journal, map[bool]string{true: "whole", false: "half"}[whole])
	s := &story{t: t, world: newWorld(t, whole), random: rand.New(rand.NewPCG(seed, 1)), kinds: map[string]int{}, start: time.Second}
	s.street = &street{timeline: newTimeline(), leader: func() string { return *s.leads.Load() }}
	if whole {
		s.hubs = wholeHubs(t, s.world, journal)
	} else {
		s.hubs = halfHubs(t, s.world, journal)
	}
	s.follow()
	s.lead.start(t)
	s.awaitReady()
	if s.elected {
		s.other.start(t)
	}
	if whole {
		s.populate(t, seed)
	} else {
		s.hire(t, seed, s.roots, func(name string) string { return name })
	}
	s.await("every proxy is ready", func() string {
		ready, answer, err := s.list()
		if err != nil || ready != proxies {
			return fmt.Sprint(answer, err)
		}
		return ""
	})

	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var working sync.WaitGroup
	for _, c := range s.people {
		working.Go(func() { c.run(ctx) })
	}
	for n := range kills {
		s.round(n)
	}
	s.awaitReady()
	cancel()
	working.Wait()
	s.finale()
	s.judge(fmt.Sprintf("journal=%s kills=%d", journal, kills), seed, time.Since(began))
}

// follow sends the crawlers to the hub that leads.
func (s *story) follow() {
	address := s.lead.leases()
	s.leads.Store(&address)
}

// populate makes the fleet, its members and the crawlers of a whole hub.
func (s *story) populate(t *testing.T, seed uint64) {
	t.Helper()
	roots := s.world.roots(t)
	ctx, cancel := context.WithCancel(t.Context())
	var members sync.WaitGroup
	t.Cleanup(func() { cancel(); members.Wait() })
	agents := func() string { return "https://" + strings.TrimSuffix(s.street.leader(), leasesPort) + agentsPort }
	for n, name := range []string{"east", "west"} {
		m := newMember(n, name, agents, roots)
		m.join(t, s.world.joinToken(t, name, s.lead.agentsURL()))
		members.Go(func() { m.run(ctx) })
	}
	// A fleet that is placed before all its members are there is placed anew when they come, and nothing is to move here.
	s.await("both members are ready", func() string {
		var members v1alpha1.MemberClusterList
		if err := s.world.client.List(t.Context(), &members); err != nil {
			return err.Error()
		}
		ready := 0
		for i := range members.Items {
			if apimeta.IsStatusConditionTrue(members.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
				ready++
			}
		}
		if ready != 2 {
			return fmt.Sprintf("%d are", ready)
		}
		return ""
	})
	s.world.createFleet(t, leasing(), proxies)
	s.hire(t, seed, roots, func(name string) string { return s.world.token(t, name) })
}

// hire makes the crawlers. Eight share a connection.
func (s *story) hire(t *testing.T, seed uint64, roots *x509.CertPool, token func(name string) string) {
	t.Helper()
	for n := range crawlers / 8 {
		client, done := newClient(s.street.leader, token(fmt.Sprint("crawler-", n%principals)), roots)
		t.Cleanup(done)
		for i := range 8 {
			number := n*8 + i
			s.people = append(s.people, &crawler{
				street: s.street, number: number, client: client, random: rand.New(rand.NewPCG(seed, uint64(100+number))), stale: map[string]bool{},
			})
		}
	}
}

// list counts the proxies that are ready, and the leases on all of them.
func (s *story) list() (ready int, text string, err error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), tryFor)
	defer cancel()
	page, err := s.people[0].client.ListProxies(ctx, &leasev1.ListProxiesRequest{Fleet: fleetName, PageSize: 1000})
	leased := int32(0)
	for _, p := range page.GetProxies() {
		if p.GetReady() && !p.GetDraining() {
			ready++
		}
		leased += p.GetLeased()
	}
	return ready, fmt.Sprintf("%d proxies, %d ready, %d leases", len(page.GetProxies()), ready, leased), err
}

// await polls until check has nothing to say. A hub that ends by itself ends the test.
func (s *story) await(what string, check func() string) {
	s.t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		problem := check()
		if problem == "" {
			return
		}
		for _, hub := range []*victim{s.lead, s.other} {
			if hub == nil || hub.process == nil {
				continue
			}
			if err := hub.alive(); err != nil {
				s.t.Fatal(err)
			}
		}
		select {
		case <-ticker.C:
		case <-late.C:
			s.t.Fatalf("waited %s for this: %s. Not so yet: %s\n%s", patience, what, problem, s.lead.process.tail())
		}
	}
}

func (s *story) awaitReady() {
	s.t.Helper()
	began := s.lead.process.begun
	s.await("a hub is ready", func() string {
		switch {
		case s.lead.ready(s.t.Context()):
			return ""
		case s.elected && s.other.process != nil && s.other.ready(s.t.Context()):
			s.lead, s.other = s.other, s.lead
			s.follow()
			return ""
		}
		return "none is"
	})
	if s.start = time.Since(began); s.elected {
		s.start = leaderLease
	}
}

// within is a random time up to d.
func (s *story) within(d time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(d)))
}

// rest lets time pass.
func (s *story) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.t.Context().Done():
	}
}

// moments are lines of the hub's log that a kill may follow.
var moments = []string{"lease journal opened", "lease journal loaded", "hub is ready"}

// round kills the hub that leads once, and has the next one start. The first rounds show every kind.
func (s *story) round(n int) {
	kinds := []string{"compaction", "load", "start", "batch", "line", "stop"}
	kind := kinds[s.random.IntN(len(kinds))]
	if n < len(kinds) {
		kind = kinds[n]
	}
	thinks := []time.Duration{0, 20 * time.Millisecond, 60 * time.Millisecond}
	s.street.think.Store(int64(thinks[s.random.IntN(len(thinks))]))
	compaction := s.lead.process.says(s.compacts)
	switch kind {
	case "start":
		s.replace()
		s.rest(s.within(s.start + s.start/4))
	case "line":
		line := moments[s.random.IntN(len(moments))]
		s.replace()
		said := s.lead.process.says(line)
		s.await("the hub logs "+line, func() string {
			select {
			case <-said:
				return ""
			default:
				if s.lead.ready(s.t.Context()) || s.elected && s.other.ready(s.t.Context()) {
					return "" // it was logged before anybody listened, or by the other
				}
				return "it has not"
			}
		})
		s.rest(s.within(40 * time.Millisecond))
	case "stop":
		s.awaitReady()
		s.rest(s.within(600 * time.Millisecond))
		s.pause()
		s.kinds[kind]++
		return
	case "batch":
		s.awaitReady()
		s.street.think.Store(0)
		s.rest(100*time.Millisecond + s.within(500*time.Millisecond))
	case "compaction":
		s.awaitReady()
		select {
		case <-compaction:
			s.rest(s.within(30 * time.Millisecond))
		case <-time.After(2 * time.Second):
			kind = "load"
		}
	default:
		s.awaitReady()
		s.rest(s.within(1500 * time.Millisecond))
	}
	s.kinds[kind]++
	s.replace()
}

// replace kills the hub that leads, and starts it again, or the other one in its place.
func (s *story) replace() {
	s.t.Helper()
	if err := s.lead.alive(); err != nil {
		s.t.Fatal(err)
	}
	s.lead.kill()
	s.swap()
	s.follow()
}

// swap has the other hub take the place of the one that is lost, if there is another, and starts the one that is to run.
func (s *story) swap() {
	lost := s.lead
	if s.other != nil {
		s.lead, s.other = s.other, s.lead
	}
	if s.elected {
		lost.start(s.t) // the other runs
		return
	}
	s.lead.start(s.t)
}

// pause stops the hub that leads for a while. Alone, it goes on and is killed soon after. Where there is another, that one
// takes over meanwhile, and the first, which does not know, must find out and end.
func (s *story) pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	if s.other == nil {
		s.rest(s.within(2500 * time.Millisecond))
		s.signal(syscall.SIGCONT)
		s.rest(s.within(400 * time.Millisecond))
		s.replace()
		return
	}
	deposed := s.lead
	deposed.process.condemn()
	s.lead, s.other = s.other, s.lead
	if !s.elected {
		s.lead.start(s.t)
	}
	s.awaitReady()
	s.follow()
	s.rest(s.within(400 * time.Millisecond))
	if err := deposed.process.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		s.t.Fatal(err)
	}
	s.await("the hub that was deposed ends", func() string {
		select {
		case <-deposed.process.ended:
			return ""
		default:
			return "it goes on"
		}
	})
	if code := deposed.process.cmd.ProcessState.ExitCode(); code != 1 {
		s.t.Errorf("the hub that was deposed ended with %d\n%s", code, deposed.process.tail())
	}
	if s.elected {
		deposed.start(s.t)
	}
}

func (s *story) signal(signal os.Signal) {
	s.t.Helper()
	if err := s.lead.process.cmd.Process.Signal(signal); err != nil {
		s.t.Fatalf("%v: %v", err, s.lead.alive())
	}
}

// finale gives everything back and looks whether the hub agrees.
func (s *story) finale() {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var settling sync.WaitGroup
	for _, c := range s.people {
		settling.Go(func() {
			c.settle(ctx)
			for _, id := range c.ended {
				c.look(ctx, id)
			}
		})
	}
	settling.Wait()
	if ctx.Err() != nil {
		s.t.Fatalf("the crawlers could not give everything back within %s", patience)
	}
	if ready, text, err := s.list(); err != nil || text != fmt.Sprintf("%d proxies, %d ready, 0 leases", proxies, ready) {
		s.t.Errorf("all leases were given back, and the hub lists %s, %v", text, err)
	}
	// A hub grants again once it has heard its members for a while: those that an earlier one missed have to show that they
	// are back.
	last := s.people[0]
	s.await("the hub hears its members", func() string {
		last.made++
		op := last.ask(ctx, oracle.Op{}, &leasev1.AcquireRequest{Fleet: fleetName, RequestId: fmt.Sprint("first-", last.made)}, true)
		last.settle(ctx)
		if op.Reason == "STALE_INVENTORY" {
			return op.Message
		}
		return ""
	})
	// Every slot can be had, and no more.
	for n := range proxies*slots + 1 {
		op := oracle.Op{Expect: string(oracle.Done), Why: fmt.Sprintf("%d of %d slots are free", proxies*slots-n, proxies*slots)}
		if n == proxies*slots {
			op.Expect, op.Why = "NO_CAPACITY", "no slot is free"
		}
		last.made++
		request := &leasev1.AcquireRequest{Fleet: fleetName, RequestId: fmt.Sprint("last-", last.made), Ttl: durationpb.New(8 * time.Second)}
		last.ask(ctx, op, request, true)
	}
	last.settle(ctx)
	// What rests still does: the oracle looks at the answers.
	for _, c := range s.people {
		for _, ban := range c.bans {
			c.tryBanned(ctx, ban)
		}
		c.settle(ctx)
	}
}

// judge hands the history to the oracle and prints the figures.
func (s *story) judge(what string, seed uint64, took time.Duration) {
	t, h := s.t, s.street.history
	if err := s.lead.alive(); err != nil {
		t.Error(err)
	}
	if drift := s.street.drift(); drift > slack/2 {
		t.Skipf("the machine's clock was set by %s during the test, so its times and the hub's cannot be compared", drift)
	}
	count := map[string]int{}
	grants := 0
	for _, op := range h {
		count[string(op.Kind)+" "+string(op.Outcome)]++
		if op.Kind == oracle.Acquire && op.Outcome == oracle.Done {
			grants += len(op.Grants)
		}
		if op.Outcome == oracle.Refused {
			count[string(op.Kind)+" "+op.Reason]++
		}
	}
	began := time.Now()
	found := oracle.Check(h, oracle.Limits{Slots: slots, Slack: slack, ModelTimeout: patience})
	t.Logf("CRASH %s %v operations=%d grants=%d bans=%d unanswered-tries=%d answered-later=%d seed=%d took=%s judged-in=%s",
		what, s.kinds, len(h), grants, count["ban done"], s.street.unknown, s.street.resolved, seed,
		took.Round(100*time.Millisecond), time.Since(began).Round(10*time.Millisecond))
	for _, name := range slices.Sorted(maps.Keys(count)) {
		t.Logf("  %-28s %d", name, count[name])
	}
	for i, v := range found {
		if i == 20 {
			t.Errorf("and %d more", len(found)-20)
			break
		}
		t.Error(v)
	}
	if grants < 50 || s.street.unknown == 0 {
		t.Errorf("%d grants and %d tries without an answer: this shows nothing", grants, s.street.unknown)
	}
	if t.Failed() {
		data, err := json.Marshal(h)
		if err == nil {
			err = os.WriteFile(filepath.Join(s.world.dir, "history.json"), data, 0o600)
		}
		if err != nil {
			t.Errorf("keep the history: %v", err)
		}
	}
}
