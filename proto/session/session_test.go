package session

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

var (
	helloFrame  = &agentv1.Frame{Kind: &agentv1.Frame_Hello{Hello: &agentv1.Hello{Member: "east"}}}
	leasedFrame = &agentv1.Frame{Kind: &agentv1.Frame_Leased{Leased: &agentv1.Leased{Proxies: []string{"p"}}}}
	beatFrame   = &agentv1.Frame{Kind: &agentv1.Frame_Heartbeat{Heartbeat: &agentv1.Heartbeat{}}}
)

func welcomeFrame(epoch uint64, interval time.Duration) *agentv1.Frame {
	return &agentv1.Frame{Kind: &agentv1.Frame_Welcome{Welcome: &agentv1.Welcome{
		Epoch: epoch, HeartbeatInterval: durationpb.New(interval),
	}}}
}

// TestProtocol tries frames that are right and wrong at their moment.
func TestProtocol(t *testing.T) {
	upsert := func(uid string, sequence uint64) *agentv1.Frame {
		return &agentv1.Frame{Kind: &agentv1.Frame_Upsert{Upsert: &agentv1.Upsert{Uid: uid, Sequence: sequence}}}
	}
	tombstone := &agentv1.Frame{Kind: &agentv1.Frame_Tombstone{Tombstone: &agentv1.Tombstone{Uid: "u"}}}
	tests := map[string]struct {
		reason string
		hub    bool
		frames []*agentv1.Frame
		bad    bool
	}{
		"HelloFirst":      {"a hub expects Hello", true, []*agentv1.Frame{helloFrame}, false},
		"BeatFirst":       {"nothing comes before Hello", true, []*agentv1.Frame{beatFrame}, true},
		"HelloTwice":      {"a session has one Hello", true, []*agentv1.Frame{helloFrame, helloFrame}, true},
		"Unwelcome":       {"an agent that was not let in must wait", true, []*agentv1.Frame{helloFrame, beatFrame}, true},
		"WelcomeAtHub":    {"agents do not welcome", true, []*agentv1.Frame{welcomeFrame(1, 1)}, true},
		"Welcome":         {"an agent expects Welcome", false, []*agentv1.Frame{welcomeFrame(8, 1)}, false},
		"WelcomeOld":      {"this hub has lost its turn: epoch 7 was seen", false, []*agentv1.Frame{welcomeFrame(7, 1)}, true},
		"WelcomeSilent":   {"an agent must know how often to be heard", false, []*agentv1.Frame{welcomeFrame(8, 0)}, true},
		"NewKeys":         {"a hub tells of new keys by a second Welcome", false, []*agentv1.Frame{welcomeFrame(8, 1), welcomeFrame(8, 1)}, false},
		"OtherEpoch":      {"a session has one epoch", false, []*agentv1.Frame{welcomeFrame(8, 1), welcomeFrame(9, 1)}, true},
		"HelloAtAgent":    {"hubs do not greet", false, []*agentv1.Frame{helloFrame}, true},
		"UnknownKind":     {"a newer peer may say what we do not know", false, []*agentv1.Frame{welcomeFrame(8, 1), {}}, false},
		"UpsertNoUID":     {"an item has a uid", false, []*agentv1.Frame{welcomeFrame(8, 1), upsert("", 1)}, true},
		"UpsertUnordered": {"an item has a sequence", false, []*agentv1.Frame{welcomeFrame(8, 1), upsert("u", 0)}, true},
		"Leased":          {"an agent is told of leases", false, []*agentv1.Frame{welcomeFrame(8, 1), leasedFrame}, false},
		"LeasedFirst":     {"nothing comes before Welcome", false, []*agentv1.Frame{leasedFrame}, true},
		"LeasedAtHub":     {"agents grant no leases", true, []*agentv1.Frame{helloFrame, leasedFrame}, true},
		"Tombstone":       {"a tombstone has a sequence", false, []*agentv1.Frame{welcomeFrame(8, 1), tombstone}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			s := NewAgent(now, Config{}, &agentv1.Hello{LastEpoch: 7})
			if tt.hub {
				s = NewHub(now, Config{})
			}
			var err error
			for _, f := range tt.frames {
				if err != nil {
					t.Fatalf("an earlier frame was refused: %v", err)
				}
				err = s.Step(now, f)
			}
			var protocol *ProtocolError
			if got := errors.As(err, &protocol); got != tt.bad {
				t.Errorf("%s: got error %v", tt.reason, err)
			}
			if tt.bad && (s.Tick(now) == nil || len(s.Ready(now, 10).Frames) > 0) {
				t.Error("the session goes on after the error")
			}
		})
	}
}

// TestLeasedIsBounded checks that a frame that would be too large says all instead, and that it goes ahead of items.
func TestLeasedIsBounded(t *testing.T) {
	w := newWorld(Config{})
	w.hub.complete = true
	w.connect()
	w.flow()
	w.hub.put(Version{UID: "s", Hash: "h"})
	w.hub.session.Leased(make([]string, MaxLeased+1))
	first := w.hub.session.Ready(w.now, 1).Frames[0].GetLeased()
	if len(first.GetProxies()) != 0 || !first.GetAll() {
		t.Errorf("%d proxies, all %v; want none, and all", len(first.GetProxies()), first.GetAll())
	}
	w.hub.session.Leased(make([]string, MaxLeased))
	second := w.hub.session.Ready(w.now, 1).Frames[0].GetLeased()
	if len(second.GetProxies()) != MaxLeased || second.GetAll() {
		t.Errorf("%d proxies, all %v; want %d by name", len(second.GetProxies()), second.GetAll(), MaxLeased)
	}
	if frames := w.hub.session.Ready(w.now, 10).Frames; len(frames) != 1 || frames[0].GetUpsert() == nil {
		t.Errorf("%d frames are left, want the item alone: each Leased is sent once", len(frames))
	}
}

// TestPriority checks that acks and heartbeats do not wait behind items, and that no more frames are handed out than
// there is room for.
func TestPriority(t *testing.T) {
	w := newWorld(Config{})
	w.hub.complete, w.agent.complete = true, true
	w.connect()
	w.flow()
	for _, uid := range []string{"a", "b", "c", "d", "e"} {
		w.agent.put(Version{UID: uid, Hash: "h"})
		w.hub.put(Version{UID: uid, Hash: "h"})
	}
	w.hub.ready(10)
	for len(w.hub.out) > 0 {
		w.hub.deliver(0)
	}
	w.agent.ready(0)
	w.now = w.now.Add(5 * time.Second)
	if err := w.agent.session.Tick(w.now); err != nil {
		t.Fatal(err)
	}
	frames := w.agent.session.Ready(w.now, 8).Frames
	if len(frames) != 8 {
		t.Fatalf("got %d frames for a room of 8, with 11 to send", len(frames))
	}
	for i, f := range frames {
		if got, want := f.GetAck() != nil, i < 5; got != want {
			t.Errorf("frame %d is %s", i, printFrame(f))
		}
		if got, want := f.GetHeartbeat() != nil, i == 5; got != want {
			t.Errorf("frame %d is %s", i, printFrame(f))
		}
	}
}

// TestResyncPace checks that a peer that asks again and again for a snapshot gets fewer and fewer.
func TestResyncPace(t *testing.T) {
	w := newWorld(Config{})
	w.agent.complete = true
	w.connect()
	w.flow()
	snapshots := 0
	for range 300 {
		before := w.agent.session.out.snapshot
		w.hub.session.Resync(w.now, 0, "greed")
		w.flow()
		w.pass(time.Second, w.flow)
		snapshots += int(w.agent.session.out.snapshot - before)
	}
	// 1, 2, 4, … 32 s, then one a minute.
	if snapshots < 8 || snapshots > 12 {
		t.Errorf("got %d snapshots in 5 min of asking, not about 10", snapshots)
	}
}
