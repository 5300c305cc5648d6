package lease

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write what was observed into the transcripts of testdata")

// TestTranscripts plays the stories of testdata: comments, commands, and below
// each what was observed. `go test -run Transcripts -rewrite` refreshes them;
// read the difference before you commit it.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(want))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-written +observed):\n%s", file, diff)
			}
		})
	}
}

// stage is an engine on which a transcript is played.
type stage struct {
	t       *testing.T
	engine  *Engine
	ids     CountingIDs
	epoch   uint64
	now     time.Time
	journal []Record
	out     strings.Builder
}

// play runs the commands of a transcript and returns it as observed.
func play(t *testing.T, text string) string {
	s := &stage{t: t, now: rigStart}
	return s.playAll(text, func() {})
}

// playAll is play on a stage, with something to do before each command.
func (s *stage) playAll(text string, before func()) string {
	t := s.t
	s.restart(true)
	var script strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "  "): // observed the last time
			continue
		case line == "" || strings.HasPrefix(line, "#"):
			script.WriteString(line + "\n")
			continue
		}
		script.WriteString(line + "\n")
		s.out.Reset()
		before()
		s.run(strings.Fields(line))
		if err := verify(s.engine); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		script.WriteString(s.out.String())
	}
	return script.String()
}

func (s *stage) say(format string, args ...any) {
	fmt.Fprintf(&s.out, "  "+format+"\n", args...)
}

func (s *stage) restart(complete bool) {
	s.epoch++
	s.engine = New(Options{IDs: &s.ids, Epoch: s.epoch, StartedAt: s.now, HistoryComplete: complete})
}

// words are the arguments of a transcript's command.
type words struct {
	t     *testing.T
	plain []string
	named map[string]string
}

func (s *stage) words(fields []string) words {
	w := words{t: s.t, named: map[string]string{}}
	for _, field := range fields {
		if name, value, ok := strings.Cut(field, "="); ok {
			w.named[name] = value
		} else {
			w.plain = append(w.plain, field)
		}
	}
	return w
}

func (w words) at(i int) string {
	if i >= len(w.plain) {
		w.t.Fatalf("argument %d is missing: %v", i+1, w.plain)
	}
	return w.plain[i]
}

func (w words) has(flag string) bool {
	for _, word := range w.plain {
		if word == flag {
			return true
		}
	}
	return false
}

func (w words) duration(name string) time.Duration {
	if d := w.maybe(name); d != nil {
		return *d
	}
	return 0
}

func (w words) maybe(name string) *time.Duration {
	text, ok := w.named[name]
	if !ok {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return &d
}

func (w words) number(name string) *int {
	text, ok := w.named[name]
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return &n
}

func (w words) target() Target { return MustParseTarget(w.named["target"]) }

func (s *stage) run(fields []string) {
	w := s.words(fields[1:])
	switch fields[0] {
	case "pass":
		s.pass(w)
	case "restart":
		s.restart(w.has("with-journal"))
		if w.has("with-journal") {
			if err := s.engine.Replay(s.journal); err != nil {
				s.t.Fatal(err)
			}
			s.say("%d records replayed", len(s.journal))
		}
	default:
		out, err := s.engine.Step(s.now, s.command(fields[0], w))
		var refusal *Refusal
		if errors.As(err, &refusal) {
			s.refusal(refusal)
		} else {
			s.result(out.Result)
		}
		s.follow(out)
	}
}

// pass lets time go by and stops wherever the engine has something to do.
// Members are heard all along unless the time is silent.
func (s *stage) pass(w words) {
	d, err := time.ParseDuration(w.at(0))
	if err != nil {
		s.t.Fatal(err)
	}
	for end := s.now.Add(d); s.now.Before(end); {
		next := s.now.Add(min(20*time.Second, end.Sub(s.now)))
		if at, ok := s.engine.NextDeadline(); ok && at.After(s.now) && at.Before(next) {
			next = at
		}
		s.now = next
		s.follow(s.engine.Tick(s.now))
		for id := range s.engine.members {
			if w.has("silent") {
				break
			}
			out, err := s.engine.Step(s.now, Touch{ID: id})
			if err != nil {
				s.t.Fatal(err)
			}
			s.journal = append(s.journal, out.Records...)
		}
	}
}

func (s *stage) command(name string, w words) Command {
	switch name {
	case "fleet":
		fleet := Fleet{ID: FleetID(w.at(0)), Policy: Policy{
			MaxLeasesPerProxy: 1, DefaultTTL: w.duration("ttl"), MaxTTL: w.duration("max-ttl"), MaxLifetime: w.duration("lifetime"),
			ReuseDelay: w.duration("reuse"), Cooldown: Cooldown{Base: w.duration("cooldown"), Max: w.duration("cooldown-max")},
		}}
		if n := w.number("slots"); n != nil {
			fleet.Policy.MaxLeasesPerProxy = *n
		}
		if w.has("new") {
			fleet.Created = s.now
		}
		return SetFleet{Fleet: fleet}
	case "remove-fleet":
		return RemoveFleet{ID: FleetID(w.at(0))}
	case "proxy":
		return UpsertProxy{Proxy: s.proxy(w)}
	case "remove":
		return RemoveProxy{UID: ProxyUID(w.at(0))}
	case "drain":
		cmd := Drain{UID: ProxyUID(w.at(0)), OnlyIdle: w.has("only-idle")}
		if d := w.maybe("in"); d != nil {
			cmd.Deadline = s.now.Add(*d)
		}
		return cmd
	case "member":
		return SetMember{ID: MemberID(w.at(0)), Suspect: w.has("suspect")}
	case "acquire":
		return Acquire{
			Principal: Principal(w.at(0)), Fleet: FleetID(w.at(1)), Target: w.target(),
			Selector: Selector{Region: w.named["region"], Member: MemberID(w.named["member"])},
			TTL:      w.maybe("ttl"), Count: w.number("count"), MinCount: w.number("min"), Exclusive: w.has("exclusive"),
			SessionKey: w.named["session"], AllowMove: w.has("move"), RequestID: RequestID(w.named["id"]),
			Network: Network(w.named["network"]), Wait: w.duration("wait"),
		}
	case "cancel":
		n := w.number("ticket")
		return Cancel{Ticket: Ticket(*n)}
	case "abandon":
		return Abandon{Principal: Principal(w.at(0)), IDs: []ID{ID(w.at(1))}}
	case "renew":
		return Renew{Principal: Principal(w.at(0)), ID: ID(w.at(1)), TTL: w.maybe("ttl")}
	case "release":
		return Release{Principal: Principal(w.at(0)), ID: ID(w.at(1))}
	case "report":
		for i, outcome := range outcomeNames {
			if outcome == w.at(2) {
				return Report{Principal: Principal(w.at(0)), ID: ID(w.at(1)), Observations: []Observation{{
					Target: w.target(), Outcome: Outcome(i), RetryAfter: w.duration("retry-after"),
				}}}
			}
		}
	case "get":
		return Get{Principal: Principal(w.at(0)), ID: ID(w.at(1))}
	case "stats":
		return ReadStats{Fleet: FleetID(w.at(0))}
	case "use":
		return ReadUse{Fleet: FleetID(w.at(0))}
	case "list":
		return List{Fleet: FleetID(w.at(0)), Target: w.target(), Selector: Selector{Region: w.named["region"]}}
	}
	s.t.Fatalf("unknown command %s %v", name, w.plain)
	return nil
}

func (s *stage) proxy(w words) Proxy {
	uid := w.at(0)
	known := Proxy{
		UID: ProxyUID(uid), Name: "news-" + uid, Fleet: "crawl/news", Member: "east", Region: "us-east1", Ready: !w.has("not-ready"),
		Saturated: w.has("saturated"), Endpoints: []Endpoint{{Network: "HostPort", Host: "198.51.100.7", Port: 21001}},
	}
	if member := w.named["member"]; member != "" {
		known.Member = MemberID(member)
	}
	if region := w.named["region"]; region != "" {
		known.Region = region
	}
	for addr := range strings.SplitSeq(w.named["exits"], ",") {
		if addr != "" {
			known.Exits = append(known.Exits, netip.MustParseAddr(addr))
		}
	}
	return known
}

func (s *stage) refusal(r *Refusal) {
	s.say("%s: %s", r.Reason, r.Message)
	if r.RetryAfter > 0 {
		s.say("  retry after %s; matching %d, cooling %d, busy %d", humane(r.RetryAfter), r.Matching, r.Cooling, r.Busy)
	}
}

func (s *stage) result(result Result) {
	switch result := result.(type) {
	case Granted:
		for i := range result.Leases {
			l := &result.Leases[i]
			s.say("granted%s%s %s", ifSo(" again", result.Repeated), ifSo(" elsewhere", result.Moved), s.lease(l))
		}
	case Waiting:
		s.say("waits with ticket %d", result.Ticket)
	case Renewed:
		capped := [...]string{"", ", capped by maxLifetime", ", capped by the drain deadline"}[result.Capped]
		s.say("renewed%s %s", capped, s.lease(&result.Lease))
	case Released:
		s.say("released%s %s", ifSo(" (it had ended: "+result.Lease.State.String()+")", result.Already), result.Lease.ID)
	case Reported:
		s.say("reported on %s%s%s", result.Lease.Proxy,
			ifSo(", cooling for "+humane(result.CoolingFor), result.CoolingFor > 0), ifSo(", guarded", result.Guarded > 0))
	case Found:
		s.say("%s %s", result.Lease.State, s.lease(&result.Lease))
	case Drained:
		s.say("draining %v with %d leases", result.Draining, result.Leases)
	case Stats:
		s.say("proxies %d, ready %d, usable %d, draining %d; leases %d, slots %d+%d/%d; exits %d, cooling %d", result.Proxies, result.Ready,
			result.Usable, result.Draining, result.Leases, result.SlotsTaken, result.SlotsHeld, result.SlotsTotal, result.Exits, result.CoolingExits)
	case UseList:
		for _, use := range result.Proxies {
			s.say("%s on %s: %d leases%s, burned for %d", use.UID, use.Member, use.Leases, ifSo(", draining", use.Draining), use.CoolingTargets)
		}
	case Page:
		for i := range result.Proxies {
			p := &result.Proxies[i]
			s.say("%s in %s by %v: usable %v, slots %d/%d%s", p.Proxy.UID, p.Proxy.Region, p.Exits, p.Usable, p.Slots, p.SlotsTotal,
				ifSo(", cooling for "+humane(p.CoolingFor), p.CoolingFor > 0))
		}
	case Done:
	default:
		s.t.Fatalf("unknown result %T", result)
	}
}

func (s *stage) lease(l *Lease) string {
	return fmt.Sprintf("%s on %s (token %s, ttl %s%s%s%s)", l.ID, l.Proxy, l.Token, l.TTL, ifSo(", exclusive", l.Exclusive),
		ifSo(", draining", l.Draining), ifSo(", exits changed", l.ExitsChanged))
}

// follow keeps the journal and tells what happened on the side.
func (s *stage) follow(out Output) {
	s.journal = append(s.journal, out.Records...)
	for _, a := range out.Answers {
		s.say("%s ticket %d:", s.now.Format("15:04:05"), a.Ticket)
		if a.Refusal != nil {
			s.refusal(a.Refusal)
		} else {
			s.result(a.Result)
		}
	}
	for _, notice := range out.Notices {
		clock := s.now.Format("15:04:05")
		switch n := notice.(type) {
		case Ended:
			s.say("%s notice to %s: %s ended (%s)", n.At.Format("15:04:05"), n.Of.Principal, n.Of.ID, n.State)
		case Draining:
			s.say("%s notice to %s: the proxy of %s drains until %s", clock, n.Of.Principal, n.Of.ID, n.Deadline.Format("15:04:05"))
		case ExitsChanged:
			s.say("%s notice to %s: the proxy of %s leaves by %v", clock, n.Of.Principal, n.Of.ID, n.Exits)
		}
	}
}

func ifSo(text string, on bool) string {
	if on {
		return text
	}
	return ""
}
