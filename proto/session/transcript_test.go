package session

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.txt instead of comparing with it")

// TestTranscripts runs the commands of testdata/*.txt, the lines that begin with "$", and compares what happens with
// the lines below each of them. The commands are those of [script.run].
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(text))
			if strings.Contains(got, "hush") {
				t.Error("the transcript shows a password")
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(text), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("the transcript is different (-want +got); if that is right, run with -rewrite:\n%s", diff)
			}
		})
	}
}

// replay runs the commands of a transcript and returns it as it should be.
func replay(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	s := &script{world: newWorld(Config{})}
	s.log = func(format string, args ...any) { fmt.Fprintf(&out, "  "+format+"\n", args...) }
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "$ "):
			fmt.Fprintln(&out, line)
			if err := s.run(strings.Fields(line)[1:]); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		case !strings.HasPrefix(line, "  "):
			fmt.Fprintln(&out, line)
		}
	}
	return out.String()
}

type script struct{ *world }

// run runs a command:
//
//	hub|agent put UID GENERATION HASH   the end has an item to tell, with a key of credentials behind it if they go with it
//	hub|agent delete UID                it is no more
//	hub|agent complete                  the end has put all it has
//	hub leased [UID…]                   what the agent is to know of leases
//	hub|agent manual                    outcomes are reported by applied
//	hub|agent applied UID [PROBLEM]     reports the outcome of Apply or Delete
//	hub|agent send [ROOM]               puts frames on the way
//	hub|agent drop|dup|last I           loses, doubles or delays the I'th of them
//	hub|agent deliver                   lets those of this end arrive
//	hub|agent restart                   the process is gone, and what only it knew
//	hub|agent keeps                     prints what it has been told
//	hub|agent forget UID                it loses what it has been told of this
//	hub|agent disown UID                it has nothing to tell of this, and never had
//	connect                             a new stream
//	flow                                everything is sent and arrives
//	after DURATION                      time passes, and everything flows (heartbeats are not printed)
//	silence DURATION                    time passes, and nothing arrives
//	claim MEMBER SEEN                   claims an epoch
//	newest MEMBER EPOCH                 tells whether it is the newest
func (s *script) run(args []string) error {
	switch args[0] {
	case "hub":
		return s.at(s.hub, args[1:])
	case "agent":
		return s.at(s.agent, args[1:])
	case "connect":
		s.connect()
	case "flow":
		s.flow()
	case "after", "silence":
		d, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		s.pass(d, func() {
			if args[0] == "after" {
				s.flow()
			}
		})
	case "claim":
		s.log("epoch %d", s.epochs.Claim(args[1], number(args[2])))
	case "newest":
		s.log("%t", s.epochs.Newest(args[1], number(args[2])))
	default:
		return fmt.Errorf("no such command")
	}
	return nil
}

func (s *script) at(p *peer, args []string) error {
	switch args[0] {
	case "put":
		delete(p.credentials, args[1])
		if len(args) > 4 {
			p.credentials[args[1]] = args[4]
		}
		p.put(Version{UID: args[1], Generation: int64(number(args[2])), Hash: args[3]})
	case "delete":
		p.remove(args[1])
	case "complete":
		p.markComplete()
	case "leased":
		p.session.Leased(args[1:])
	case "manual":
		p.manual = true
	case "applied":
		p.outcome(args[1], strings.Join(args[2:], " "))
	case "send":
		room := 100
		if len(args) > 1 {
			room = int(number(args[1]))
		}
		p.ready(room)
	case "drop":
		i := number(args[1]) - 1
		s.log("lost: %s", printFrame(p.out[i]))
		p.out = slices.Delete(p.out, int(i), int(i)+1)
	case "dup":
		p.out = slices.Insert(p.out, int(number(args[1])), p.out[number(args[1])-1])
	case "last":
		i := int(number(args[1])) - 1
		f := p.out[i]
		p.out = append(slices.Delete(p.out, i, i+1), f)
	case "deliver":
		for len(p.out) > 0 {
			p.deliver(0)
			p.other().ready(0)
		}
	case "restart":
		s.restart(p)
	case "forget":
		delete(p.kept, args[1])
		delete(p.session.in.entries, args[1])
	case "disown":
		delete(p.truth, args[1])
	case "keeps":
		for _, uid := range slices.Sorted(maps.Keys(p.kept)) {
			s.log("%s@%d:%s", uid, p.kept[uid].Generation, p.kept[uid].Hash)
		}
	default:
		return fmt.Errorf("no such command")
	}
	return nil
}

func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}
