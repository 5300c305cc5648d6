package probe_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/shoal-dev/shoal/agent/internal/probe"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts anew")

// TestTranscripts replays testdata/*.txt: a line "> at proxy echo class [exit]" is a result, "> at forget proxy" drops
// one, "> at recall proxy state [exits]" is what was known before a restart, "> echoes …" begins a judge with these
// targets, and what follows each is the judge's whole answer. Run with -rewrite after a change, and read the difference.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, want)
			if *rewrite {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// targets makes targets by their names: one that ends in 4 or 6 is of that family.
func targets(names ...string) []probe.Target {
	var all []probe.Target
	for _, name := range names {
		t := probe.Target{ID: probe.EchoID(name)}
		switch name[len(name)-1] {
		case '4':
			t.Family = probe.FamilyIPv4
		case '6':
			t.Family = probe.FamilyIPv6
		}
		all = append(all, t)
	}
	return all
}

// replay keeps comments and commands of a transcript and writes the answers anew.
func replay(t *testing.T, transcript []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var judge *probe.Judge
	var frozen probe.Freeze
	for scan := bufio.NewScanner(bytes.NewReader(transcript)); scan.Scan(); {
		line := scan.Text()
		if !strings.HasPrefix(line, ">") {
			if strings.HasPrefix(line, "#") || line == "" {
				fmt.Fprintln(&out, line)
			}
			continue
		}
		fmt.Fprintln(&out, line)
		words := strings.Fields(line)[1:]
		if words[0] == "echoes" {
			var err error
			if judge, err = probe.NewJudge(probe.Settings{Targets: targets(words[1:]...)}); err != nil {
				t.Fatal(err)
			}
			frozen = probe.Freeze{}
			continue
		}
		after, err := time.ParseDuration(words[0])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		now := epoch.Add(after)
		switch words[1] {
		case "forget":
			judge.Forget(now, probe.UID(words[2]))
		case "recall":
			known := probe.Known{State: probe.State(words[3]), Since: now.Add(-time.Hour)}
			for _, w := range words[4:] {
				known.Exits = append(known.Exits, netip.MustParseAddr(w))
			}
			judge.Recall(now, probe.UID(words[2]), known)
		default:
			r := probe.Result{UID: probe.UID(words[1]), Echo: probe.EchoID(words[2]), Class: probe.Class(words[3])}
			if len(words) > 4 {
				r.Exit = netip.MustParseAddr(words[4])
			}
			v, changed := judge.Observe(now, r, probe.Thresholds{})
			fmt.Fprintf(&out, "%s %s for %v, %d good, %d bad", v.UID, v.State, now.Sub(v.Since), v.Successes, v.Failures)
			if v.Saturated {
				fmt.Fprint(&out, ", saturated")
			}
			if len(v.Exits) > 0 {
				fmt.Fprintf(&out, ", exits %v", v.Exits)
			}
			if v.Cause != "" {
				fmt.Fprintf(&out, ", because of %s", v.Cause)
			}
			if changed {
				fmt.Fprint(&out, " CHANGED")
			}
			if judge.Undecided(now, v.UID) {
				fmt.Fprint(&out, " (probe soon)")
			}
			fmt.Fprintln(&out)
		}
		if now := judge.Freeze(); now.Frozen != frozen.Frozen || now.Reason != frozen.Reason {
			frozen = now
			if now.Frozen {
				fmt.Fprintf(&out, "FROZEN %s, %d of %d fail\n", now.Reason, now.Failing, now.Ready)
			} else {
				fmt.Fprintf(&out, "THAWED, %d of %d fail\n", now.Failing, now.Ready)
			}
		}
	}
	return out.Bytes()
}

// Whatever the results, what must never happen does not.
func TestJudgeInvariants(t *testing.T) {
	classes := []probe.Class{
		probe.ClassOK, probe.ClassOK, probe.ClassProxyDown, probe.ClassProxyStuck, probe.ClassOverloaded, probe.ClassUnexpected,
		probe.ClassAuthFailed, probe.ClassPolicyDenied, probe.ClassDNSFail, probe.ClassConnectFail, probe.ClassTargetSlow,
		probe.ClassTargetTLS, probe.ClassTargetBlocked, probe.ClassTargetAnswer, probe.ClassAgentFault,
	}
	rapid.Check(t, func(t *rapid.T) {
		echoes := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "echoes")]
		judge, err := probe.NewJudge(probe.Settings{Targets: targets(echoes...)})
		if err != nil {
			t.Fatal(err)
		}
		now := epoch
		states := make(map[probe.UID]probe.State)
		bad := make(map[probe.UID]time.Time) // since when there was no success
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "passed")))
			uid := probe.UID(rapid.SampledFrom([]string{"p", "q", "r", "s"}).Draw(t, "uid"))
			class := rapid.SampledFrom(classes).Draw(t, "class")
			frozen := judge.Freeze().Frozen
			v, changed := judge.Observe(now, probe.Result{UID: uid, Echo: probe.EchoID(rapid.SampledFrom(echoes).Draw(t, "echo")), Class: class}, probe.Thresholds{})
			before, known := states[uid]
			if !known {
				before = probe.StateUnknown
			}
			if v.State != before && !changed {
				t.Fatalf("%s became %s without saying so", before, v.State)
			}
			switch {
			case v.State == before:
			case v.State == probe.StateReady && class == probe.ClassOK:
			case v.State == probe.StateUnhealthy && before == probe.StateReady:
				blame := class.Blame()
				if frozen {
					t.Fatalf("%s became Unhealthy while verdicts are frozen", uid)
				}
				if blame != probe.BlameProxy && len(echoes) < 2 {
					t.Fatalf("%s became Unhealthy by %s of the only target", uid, class)
				}
				if blame == probe.BlameConfig || blame == probe.BlameAgent || class == probe.ClassOverloaded {
					t.Fatalf("%s became Unhealthy by %s", uid, class)
				}
				if class != probe.ClassProxyStuck && now.Sub(bad[uid]) < 12*time.Second {
					t.Fatalf("%s became Unhealthy within %v", uid, now.Sub(bad[uid]))
				}
			default:
				t.Fatalf("%s went from %s to %s by %s", uid, before, v.State, class)
			}
			if v.Saturated && v.State != probe.StateReady {
				t.Fatalf("%s is saturated and %s", uid, v.State)
			}
			states[uid] = v.State
			if _, ok := bad[uid]; !ok || class == probe.ClassOK {
				bad[uid] = now
			}
		}
	})
}

func TestExitOf(t *testing.T) {
	for in, want := range map[string]string{
		"203.0.113.9":            "203.0.113.9",
		"::ffff:203.0.113.9":     "203.0.113.9",
		"2001:db8:1:2:3:4:5:6":   "2001:db8:1:2::",
		"fe80::1:2:3:4%eth0":     "fe80::",
		"2001:db8:1:2:ffff::1":   "2001:db8:1:2::",
		"2001:db8:1:3:ffff::abc": "2001:db8:1:3::",
	} {
		if got := probe.ExitOf(netip.MustParseAddr(in)).String(); got != want {
			t.Errorf("%s is known by %s, want %s", in, got, want)
		}
	}
}

func TestJudgeKeepsLatencyAndTimes(t *testing.T) {
	judge, err := probe.NewJudge(probe.Settings{Targets: targets("a")})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := judge.Verdict("p"); ok {
		t.Error("a verdict without a result")
	}
	judge.Observe(epoch, probe.Result{UID: "p", Echo: "a", Class: probe.ClassOK, Latency: 100 * time.Millisecond}, probe.Thresholds{})
	judge.Observe(epoch.Add(time.Second), probe.Result{UID: "p", Echo: "a", Class: probe.ClassOK, Latency: 200 * time.Millisecond}, probe.Thresholds{})
	judge.Observe(epoch.Add(2*time.Second), probe.Result{UID: "p", Echo: "a", Class: probe.ClassAuthFailed, Latency: time.Hour, Detail: "407"}, probe.Thresholds{})
	v, _ := judge.Verdict("p")
	want := probe.Verdict{
		UID: "p", State: probe.StateReady, Since: epoch, Class: probe.ClassAuthFailed, Detail: "407", Successes: 2,
		Latency: 120 * time.Millisecond, LastProbe: epoch.Add(2 * time.Second), LastOK: epoch.Add(time.Second),
	}
	if diff := cmp.Diff(want, v, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Each proxy is judged by thresholds of its own, and by the latest: what was counted before is not forgotten.
func TestJudgeTakesThresholdsOfTheProxy(t *testing.T) {
	const ok, down, stuck = probe.ClassOK, probe.ClassProxyDown, probe.ClassProxyStuck
	cases := map[string]struct {
		reason string
		first  probe.Thresholds // for all results before the last
		last   probe.Thresholds
		// then follows on a success, a second between one result and the next.
		then []probe.Class
		want probe.State
	}{
		"JudgesOwn":      {reason: "three failures within 2 s are too few seconds", then: []probe.Class{down, down, down}, want: probe.StateReady},
		"OneFailure":     {reason: "a span that is unset is the judge's, and not over", first: probe.Thresholds{FailAfter: 1}, last: probe.Thresholds{FailAfter: 1}, then: []probe.Class{down}, want: probe.StateReady},
		"ShortSpan":      {reason: "its interval is short", first: probe.Thresholds{FailSpan: 2 * time.Second}, last: probe.Thresholds{FailSpan: 2 * time.Second}, then: []probe.Class{down, down, down}, want: probe.StateUnhealthy},
		"MoreFailures":   {reason: "four of five", first: probe.Thresholds{FailAfter: 5, FailSpan: time.Second}, last: probe.Thresholds{FailAfter: 5, FailSpan: time.Second}, then: []probe.Class{down, down, down, down}, want: probe.StateReady},
		"LessPatience":   {reason: "earlier failures count under the new threshold", first: probe.Thresholds{FailAfter: 50}, last: probe.Thresholds{FailAfter: 2, FailSpan: time.Second}, then: []probe.Class{down, down}, want: probe.StateUnhealthy},
		"MorePatience":   {reason: "the new threshold is not reached", first: probe.Thresholds{FailSpan: 2 * time.Second}, last: probe.Thresholds{FailAfter: 4, FailSpan: 2 * time.Second}, then: []probe.Class{down, down, down}, want: probe.StateReady},
		"Stuck":          {reason: "busy for ten probes is broken", first: probe.Thresholds{FailSpan: 2 * time.Second}, last: probe.Thresholds{FailSpan: 2 * time.Second}, then: slices.Repeat([]probe.Class{stuck}, 10), want: probe.StateUnhealthy},
		"StuckForLess":   {reason: "ten within less than a round are no sign", then: slices.Repeat([]probe.Class{stuck}, 10), want: probe.StateReady},
		"StuckAndMore":   {reason: "a proxy that may fail more often may be stuck as often", last: probe.Thresholds{FailAfter: 11, FailSpan: 2 * time.Second}, then: slices.Repeat([]probe.Class{stuck}, 10), want: probe.StateReady},
		"OnePass":        {reason: "one is enough for it", first: probe.Thresholds{FailAfter: 1, FailSpan: 1}, last: probe.Thresholds{PassAfter: 1}, then: []probe.Class{down, down, ok}, want: probe.StateReady},
		"TwoPassesOfTwo": {reason: "as the judge says", first: probe.Thresholds{FailAfter: 1, FailSpan: 1}, then: []probe.Class{down, down, ok, ok}, want: probe.StateReady},
		"TwoPassesOfFew": {reason: "it wants three", first: probe.Thresholds{FailAfter: 1, FailSpan: 1, PassAfter: 3}, last: probe.Thresholds{PassAfter: 3}, then: []probe.Class{down, down, ok, ok}, want: probe.StateUnhealthy},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			judge, err := probe.NewJudge(probe.Settings{Targets: targets("a")})
			if err != nil {
				t.Fatal(err)
			}
			now := epoch
			v, _ := judge.Observe(now, probe.Result{UID: "p", Echo: "a", Class: ok}, probe.Thresholds{})
			for i, class := range tc.then {
				now = now.Add(time.Second)
				limits := tc.first
				if i == len(tc.then)-1 {
					limits = tc.last
				}
				v, _ = judge.Observe(now, probe.Result{UID: "p", Echo: "a", Class: class}, limits)
			}
			if v.State != tc.want {
				t.Errorf("%s: after %v it is %s with %d good and %d bad, want %s", tc.reason, tc.then, v.State, v.Successes, v.Failures, tc.want)
			}
		})
	}
}

func TestNewJudgeRefuses(t *testing.T) {
	echoes := targets("a")
	for name, s := range map[string]probe.Settings{
		"FailAfter":  {Targets: echoes, Thresholds: probe.Thresholds{FailAfter: -1}},
		"PassAfter":  {Targets: echoes, Thresholds: probe.Thresholds{PassAfter: -1}},
		"StuckAfter": {Targets: echoes, StuckAfter: -1},
		"FreezeFrom": {Targets: echoes, FreezeFrom: -1},
		"FailSpan":   {Targets: echoes, Thresholds: probe.Thresholds{FailSpan: -1}},
		"ExitMemory": {Targets: echoes, ExitMemory: -1},
		"NoEcho":     {},
	} {
		if _, err := probe.NewJudge(s); err == nil {
			t.Errorf("%s: %+v was accepted", name, s)
		}
	}
}
