package probe_test

import (
	"fmt"
	"strings"
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
		at, ok := s.Next(probe.LaneQuick)
		if !ok || at.After(until) {
			return seen
		}
		uid, _ := s.Take(at, probe.LaneQuick)
		seen[uid] = append(seen[uid], at)
		s.Done(at, uid, hurry, probe.LaneQuick)
	}
}

// Five thousand proxies, all new at once: the first rounds, in which they find their places, have no moment with more
// than twice the usual work, and after that every moment has much the same.
func TestScheduleIsEven(t *testing.T) {
	const proxies, rounds = 5000, 5
	s := newSchedule(t, 1)
	for i := range proxies {
		s.Put(epoch, probe.UID(fmt.Sprintf("proxy-%d", i)), 0)
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

// Fleets come and go at once, all of a sort or one here and there: whatever is left is spread as evenly, and no second has
// more than twice its share of the work.
func TestScheduleStaysEven(t *testing.T) {
	const proxies, perSecond = 5000, 500
	every := func(n int) func(int) bool { return func(i int) bool { return i%n == 0 } }
	cases := map[string]struct {
		reason string
		remove func(i int) bool // of the 5,000
		add    int
	}{
		"Doubled":      {reason: "half of them are new", remove: func(i int) bool { return i >= 2500 }, add: 2500},
		"Replaced":     {reason: "all are other instances", remove: every(1), add: proxies},
		"OldestGone":   {reason: "a fleet was deleted", remove: func(i int) bool { return i < 4000 }, add: 0},
		"EveryOther":   {reason: "half of them, mixed", remove: every(2), add: 0},
		"EveryFifth":   {reason: "steps of a Fibonacci number", remove: func(i int) bool { return i%5 != 0 }, add: 0},
		"EveryEighth":  {reason: "steps of a greater one", remove: func(i int) bool { return i%8 != 0 }, add: 0},
		"ThinAndGrown": {reason: "one of many stays, and many come", remove: func(i int) bool { return i%8 != 0 }, add: 4000},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSchedule(t, 1)
			left := 0
			for i := range proxies {
				s.Put(epoch, probe.UID(fmt.Sprintf("old-%d", i)), 0)
			}
			now := epoch.Add(time.Minute)
			walk(s, now, false)
			for i := range proxies {
				if tc.remove(i) {
					s.Remove(probe.UID(fmt.Sprintf("old-%d", i)))
				} else {
					left++
				}
			}
			for i := range tc.add {
				s.Put(now, probe.UID(fmt.Sprintf("new-%d", i)), 0)
			}
			left += tc.add
			counts := make(map[int]int)
			for _, times := range walk(s, now.Add(2*time.Minute), false) {
				for _, at := range times {
					counts[int(at.Sub(now)/time.Second)]++
				}
			}
			mean := left / 10
			for second := range 120 {
				// New proxies are probed as fast as they can be on top of the others, until all have been.
				most := mean*13/10 + 5
				if second < 30 && tc.add > 0 {
					most = 2 * perSecond
				}
				if counts[second] > most {
					t.Errorf("%s: %d probes in second %d, the mean is %d", tc.reason, counts[second], second, mean)
				}
			}
		})
	}
}

// Fleets with other intervals, their proxies mixed: each proxy keeps to its own, and the whole is as even as one alone.
func TestScheduleIsEvenWithMixedIntervals(t *testing.T) {
	fleets := map[string]time.Duration{"fast": time.Second, "usual": 0, "slow": 30 * time.Second}
	sizes := map[string]int{"fast": 100, "usual": 2000, "slow": 3000}
	const length, perSecond = 150 * time.Second, 100 + 2000/10 + 3000/30
	s := newSchedule(t, 1)
	for i := range 3000 {
		for name, interval := range fleets {
			if i < sizes[name] {
				s.Put(epoch, probe.UID(fmt.Sprintf("%s-%d", name, i)), interval)
			}
		}
	}
	counts := make(map[int]int)
	for uid, times := range walk(s, epoch.Add(length), false) {
		fleet, _, _ := strings.Cut(string(uid), "-")
		interval := max(fleets[fleet], 0)
		if interval == 0 {
			interval = 10 * time.Second
		}
		for i, at := range times {
			counts[int(at.Sub(epoch)/time.Second)]++
			// The first gap finds the place, which is at least half an interval ahead.
			if i < 2 {
				continue
			}
			if gap := at.Sub(times[i-1]); gap < interval*89/100 || gap > interval*111/100 {
				t.Fatalf("%s: gap %d is %v, its interval is %v", uid, i, gap, interval)
			}
		}
	}
	// The slowest have found their places after one and a half of their intervals.
	for second := 60; second < int(length/time.Second); second++ {
		if n := counts[second]; n < perSecond*85/100 || n > perSecond*115/100 {
			t.Errorf("%d probes in second %d, the mean is %d", n, second, perSecond)
		}
	}
}

// Another interval counts from when it is set: a proxy does not wait out an hour first.
func TestScheduleChangesIntervals(t *testing.T) {
	cases := map[string]struct {
		reason   string
		from, to time.Duration
		probing  bool // while the interval changes
		within   time.Duration
		after    time.Duration
	}{
		"Shorter":           {reason: "comes forward", from: time.Hour, to: 4 * time.Second, within: 6500 * time.Millisecond, after: 1800 * time.Millisecond},
		"ShorterInProbe":    {reason: "is what the probe under way is followed by", from: time.Hour, to: 4 * time.Second, probing: true, within: 6500 * time.Millisecond, after: 1800 * time.Millisecond},
		"Longer":            {reason: "keeps the next one", from: 4 * time.Second, to: time.Hour, within: 6500 * time.Millisecond, after: 1800 * time.Millisecond},
		"LongerInProbe":     {reason: "is what the probe under way is followed by", from: 4 * time.Second, to: time.Hour, probing: true, within: 93 * time.Minute, after: 27 * time.Minute},
		"TheSchedulesOwn":   {reason: "stands for none", from: time.Hour, to: 0, within: 15600 * time.Millisecond, after: 4400 * time.Millisecond},
		"NoChange":          {reason: "changes nothing", from: 4 * time.Second, to: 4 * time.Second, within: 6500 * time.Millisecond, after: 1800 * time.Millisecond},
		"FromTheSchedulesO": {reason: "counts at once", from: 0, to: time.Second, within: 1600 * time.Millisecond, after: 440 * time.Millisecond},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSchedule(t, 1)
			s.Put(epoch, "p", tc.from)
			s.Take(epoch, probe.LaneQuick)
			if tc.probing {
				s.Put(epoch, "p", tc.to)
				s.Done(epoch, "p", false, probe.LaneQuick)
			} else {
				s.Done(epoch, "p", false, probe.LaneQuick)
				s.Put(epoch, "p", tc.to)
			}
			next, ok := s.Next(probe.LaneQuick)
			if wait := next.Sub(epoch); !ok || wait < tc.after || wait > tc.within {
				t.Errorf("it %s: next probe in %v, want %v to %v", tc.reason, wait, tc.after, tc.within)
			}
		})
	}
}

func TestScheduleHurriesInProportion(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{
		0:               2 * time.Second,
		time.Second:     200 * time.Millisecond,
		time.Minute:     12 * time.Second,
		time.Hour:       30 * time.Second, // whoever waits for a new proxy does not wait for 12 min
		5 * time.Second: time.Second,
	} {
		s := newSchedule(t, 1)
		s.Put(epoch, "p", interval)
		times := walk(s, epoch.Add(time.Hour), true)["p"]
		if got := times[len(times)-1].Sub(epoch) / time.Duration(len(times)-1); got < want*98/100 || got > want*102/100 {
			t.Errorf("with an interval of %v a hurried proxy is probed every %v, want %v", interval, got, want)
		}
	}
}

func TestScheduleFirstProbes(t *testing.T) {
	s := newSchedule(t, 1)
	s.Put(epoch, "alone", 0)
	if uid, ok := s.Take(epoch, probe.LaneQuick); !ok || uid != "alone" {
		t.Errorf("a single new proxy is not probed at once: %q %v", uid, ok)
	}
	if uid, ok := s.Take(epoch.Add(time.Hour), probe.LaneQuick); ok {
		t.Errorf("%s was taken twice", uid)
	}
}

func TestScheduleHurries(t *testing.T) {
	s := newSchedule(t, 1)
	s.Put(epoch, "new", 0)
	times := walk(s, epoch.Add(time.Minute), true)["new"]
	if len(times) < 28 || len(times) > 32 {
		t.Errorf("%d probes in a minute, want about 30", len(times))
	}
}

func TestScheduleRepeats(t *testing.T) {
	run := func(seed uint64) string {
		s := newSchedule(t, seed)
		for i := range 50 {
			s.Put(epoch.Add(time.Duration(i)*time.Second), probe.UID(fmt.Sprintf("proxy-%d", i)), 0)
		}
		return fmt.Sprint(walk(s, epoch.Add(2*time.Minute), false))
	}
	first := run(1)
	if again := run(1); again != first {
		t.Error("the same seed gives another schedule")
	}
	if run(2) == first {
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
				s.Put(now, uid, time.Duration(rapid.SampledFrom([]int{0, 1, 10, 900}).Draw(t, "interval"))*time.Second)
				present[uid] = true
			case "remove":
				s.Remove(uid)
				delete(present, uid)
				delete(taken, uid)
			case "take":
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Second)).Draw(t, "passed")))
				if got, ok := s.Take(now, rapid.SampledFrom([]probe.Lane{probe.LaneQuick, probe.LaneSlow}).Draw(t, "lane")); ok {
					if !present[got] || taken[got] {
						t.Fatalf("took %s, present %v, taken %v", got, present[got], taken[got])
					}
					taken[got] = true
				}
			case "done":
				s.Done(now, uid, rapid.Bool().Draw(t, "hurry"), rapid.SampledFrom([]probe.Lane{probe.LaneQuick, probe.LaneSlow}).Draw(t, "lane"))
				delete(taken, uid)
			}
		}
		for {
			uid, ok := s.Take(now.Add(time.Hour), probe.LaneQuick)
			if !ok {
				uid, ok = s.Take(now.Add(time.Hour), probe.LaneSlow)
			}
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
