package probe_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/shoal-dev/shoal/agent/internal/probe"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newSchedule(t interface{ Fatal(...any) }, seed uint64) *probe.Schedule {
	s, err := probe.NewSchedule(probe.ScheduleOptions{Interval: 10 * time.Second, Hurried: 2 * time.Second, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// walk takes whatever is due until the end, each probe taking no time, and returns the times per proxy.
func walk(s *probe.Schedule, until time.Time, hurry bool) map[probe.UID][]time.Time {
	seen := make(map[probe.UID][]time.Time)
	for {
		at, ok := s.Next()
		if !ok || at.After(until) {
			return seen
		}
		uid, _ := s.Take(at)
		seen[uid] = append(seen[uid], at)
		s.Done(at, uid, hurry)
	}
}

// Five thousand proxies, all new at once: the first rounds, in which they find their places, have no moment with more
// than twice the usual work, and after that every moment has much the same.
func TestScheduleIsEven(t *testing.T) {
	const proxies, rounds = 5000, 5
	s := newSchedule(t, 1)
	for i := range proxies {
		s.Add(epoch, probe.UID(fmt.Sprintf("proxy-%d", i)))
	}
	const bucket = 100 * time.Millisecond
	counts := make(map[int]int)
	for uid, times := range walk(s, epoch.Add(rounds*10*time.Second), false) {
		for i, at := range times {
			counts[int(at.Sub(epoch)/bucket)]++
			if i == 0 {
				continue
			}
			// The first gap may be as short as half an interval: a proxy finds its place.
			gap, least := at.Sub(times[i-1]), 8900*time.Millisecond
			if i == 1 {
				least = 4400 * time.Millisecond
			}
			if gap < least || gap > 15600*time.Millisecond || i > 1 && gap > 11100*time.Millisecond {
				t.Fatalf("%s: gap %d is %v", uid, i, gap)
			}
		}
	}
	mean := proxies / 100
	for b := range rounds * 100 {
		least, most := mean*6/10, mean*14/10
		if b < 200 {
			least, most = 0, mean*2
		}
		if counts[b] < least || counts[b] > most {
			t.Errorf("%d probes in the tenth of a second %d, the mean is %d", counts[b], b, mean)
		}
	}
}

func TestScheduleFirstProbes(t *testing.T) {
	s := newSchedule(t, 1)
	s.Add(epoch, "alone")
	if uid, ok := s.Take(epoch); !ok || uid != "alone" {
		t.Errorf("a single new proxy is not probed at once: %q %v", uid, ok)
	}
	if uid, ok := s.Take(epoch.Add(time.Hour)); ok {
		t.Errorf("%s was taken twice", uid)
	}
}

func TestScheduleHurries(t *testing.T) {
	s := newSchedule(t, 1)
	s.Add(epoch, "new")
	times := walk(s, epoch.Add(time.Minute), true)["new"]
	if len(times) < 28 || len(times) > 32 {
		t.Errorf("%d probes in a minute, want about 30", len(times))
	}
}

func TestScheduleRepeats(t *testing.T) {
	run := func(seed uint64) string {
		s := newSchedule(t, seed)
		for i := range 50 {
			s.Add(epoch.Add(time.Duration(i)*time.Second), probe.UID(fmt.Sprintf("proxy-%d", i)))
		}
		return fmt.Sprint(walk(s, epoch.Add(2*time.Minute), false))
	}
	if run(1) != run(1) {
		t.Error("the same seed gives another schedule")
	}
	if run(1) == run(2) {
		t.Error("another seed gives the same schedule")
	}
}

// Against a plain map: whatever happens, the right proxies are in the schedule, each once, and none is forgotten.
func TestScheduleKeepsWhatItWasGiven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSchedule(t, 1)
		now := epoch
		present, taken := make(map[probe.UID]bool), make(map[probe.UID]bool)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			uid := probe.UID(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "uid"))
			switch rapid.SampledFrom([]string{"add", "remove", "take", "done"}).Draw(t, "step") {
			case "add":
				if !present[uid] {
					// A proxy that comes back while its old probe runs is the runner's business.
					delete(taken, uid)
				}
				s.Add(now, uid)
				present[uid] = true
			case "remove":
				s.Remove(uid)
				delete(present, uid)
				delete(taken, uid)
			case "take":
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "passed")))
				if got, ok := s.Take(now); ok {
					if !present[got] || taken[got] {
						t.Fatalf("took %s, present %v, taken %v", got, present[got], taken[got])
					}
					taken[got] = true
				}
			case "done":
				s.Done(now, uid, rapid.Bool().Draw(t, "hurry"))
				delete(taken, uid)
			}
		}
		for {
			uid, ok := s.Take(now.Add(time.Hour))
			if !ok {
				break
			}
			if !present[uid] || taken[uid] {
				t.Fatalf("at the end took %s, present %v, taken %v", uid, present[uid], taken[uid])
			}
			taken[uid] = true
		}
		if len(taken) != len(present) {
			t.Fatalf("%d of %d proxies were to be had", len(taken), len(present))
		}
	})
}

func TestNewScheduleRefuses(t *testing.T) {
	for name, o := range map[string]probe.ScheduleOptions{
		"Nothing":       {},
		"NoHurry":       {Interval: time.Second},
		"HurryIsSlower": {Interval: time.Second, Hurried: 2 * time.Second},
	} {
		if _, err := probe.NewSchedule(o); err == nil {
			t.Errorf("%s: %+v was accepted", name, o)
		}
	}
}
