package uplink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/session"
)

// network is which hub answers.
type network struct {
	mu  sync.Mutex
	hub *fakeHub
}

func (n *network) set(h *fakeHub) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hub = h
}

func (n *network) current() *fakeHub {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hub
}

// TestHubRestart has the hub go away, and another process come back, while things change on both sides.
func TestHubRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n network
		first := newFakeHub()
		first.desire(spec("s1", "a"))
		first.desire(spec("s2", "b"))
		n.set(first)
		applier, outbox := newFakeApplier(), NewOutbox()
		applier.keysFail = 3
		outbox.Put(report("p1", true))
		outbox.Put(report("p2", false))
		u, _ := run(t, Options{Dial: inProcess(n.current), Applier: applier, Outbox: outbox, Instance: "i1"})
		applier.await(t, "what is desired", func() bool { return applier.keeps() == "[s1=a s2=b]" })
		applier.await(t, "keys", func() bool { return applier.keys == "keys" })
		if applier.who != "hub-1 member-1" || !u.Connected() {
			t.Errorf("welcomed by %q, connected: %t", applier.who, u.Connected())
		}
		if first.resynced != 0 || len(first.reports) != 0 {
			t.Errorf("the hub was told %s before all was observed", first.reported())
		}
		outbox.MarkReady()
		first.await(t, "reports", func() bool { return first.reported() == "[p1=true p2=false]" && first.resynced == 1 })
		outbox.Put(report("p2", true))
		first.await(t, "a change", func() bool { return first.reported() == "[p1=true p2=true]" })
		outbox.Delete("p1")
		first.await(t, "an end", func() bool { return first.reported() == "[p2=true]" })
		first.undesire("s2")
		applier.await(t, "s2 deleted", func() bool { return applier.keeps() == "[s1=a]" })

		n.set(nil)
		first.kill()
		synctest.Wait()
		if u.Connected() {
			t.Error("connected to a hub that is gone")
		}
		outbox.Put(report("p3", true))
		outbox.Put(report("p4", true))
		outbox.Delete("p2")
		outbox.Delete("p4")
		for i := range 1000 {
			uid := fmt.Sprintf("short-lived-%d", i)
			outbox.Put(report(uid, true))
			outbox.Delete(uid)
		}
		outbox.mu.Lock()
		held := len(outbox.items) + len(outbox.gone) + len(outbox.told) + len(outbox.changed)
		outbox.mu.Unlock()
		if held > 6 {
			t.Errorf("the outbox holds on to %d things about one proxy and one that the hub knew", held)
		}
		time.Sleep(10 * time.Minute)
		second := newFakeHub()
		second.desire(spec("s1", "aa"))
		second.desire(spec("s3", "c"))
		began := time.Now()
		n.set(second)
		second.await(t, "reports", func() bool { return second.reported() == "[p3=true]" && second.resynced == 1 })
		applier.await(t, "what is desired", func() bool { return applier.keeps() == "[s1=aa s3=c]" })
		if waited := time.Since(began); waited > 20*time.Second {
			t.Errorf("it took %v to come back", waited)
		}
		hello := second.hellos[0]
		if hello.GetLastEpoch() != 1 || len(hello.GetInventory()) != 1 || hello.GetInstance() != "i1" {
			t.Errorf("greeted with %v", hello)
		}
		second.kill()
	})
}

// TestAgentRestart starts a second agent where the first has ended: it holds what the first has kept, and observes
// anew.
func TestAgentRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n network
		h := newFakeHub()
		defer h.kill()
		h.desire(spec("s1", "a"))
		h.desire(spec("s2", "b"))
		n.set(h)
		applier, outbox := newFakeApplier(), NewOutbox()
		outbox.MarkReady()
		_, stop := run(t, Options{Dial: inProcess(n.current), Applier: applier, Outbox: outbox})
		applier.await(t, "what is desired", func() bool { return applier.keeps() == "[s1=a s2=b]" })
		stop()
		h.change(func() { delete(h.desired, "s2") })
		outbox = NewOutbox()
		outbox.Put(report("p1", true))
		run(t, Options{Dial: inProcess(n.current), Applier: applier, Outbox: outbox})
		applier.await(t, "s2 pruned", func() bool { return applier.keeps() == "[s1=a]" })
		outbox.MarkReady()
		h.await(t, "reports", func() bool { return h.reported() == "[p1=true]" })
		if a, b := h.hellos[0].GetInstance(), h.hellos[1].GetInstance(); a == b || a == "" {
			t.Errorf("instances %q and %q", a, b)
		}
	})
}

// TestApply has the Applier fail, and be slow.
func TestApply(t *testing.T) {
	t.Run("Failure", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var n network
			h := newFakeHub()
			defer h.kill()
			n.set(h)
			applier := newFakeApplier()
			applier.broken = errors.New("quota exceeded")
			run(t, Options{Dial: inProcess(n.current), Applier: applier, Outbox: NewOutbox()})
			h.await(t, "the session", func() bool { return len(h.hellos) == 1 })
			h.desire(spec("s1", "a"))
			h.await(t, "the problem", func() bool { return len(h.acks["s1"]) == 1 })
			if got := h.acks["s1"][0].Problem; got != "quota exceeded" {
				t.Errorf("the hub was told %q", got)
			}
			began := time.Now()
			applier.change(func() { applier.broken = nil })
			h.await(t, "success", func() bool { return len(h.acks["s1"]) == 2 && h.acks["s1"][1].Problem == "" })
			if waited := time.Since(began); waited > 10*time.Second {
				t.Errorf("tried again after %v", waited)
			}
		})
	})
	t.Run("UnknownKind", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var n network
			h := newFakeHub()
			defer h.kill()
			h.desire(&agentv1.Upsert{Uid: "x", Hash: "?"})
			n.set(h)
			run(t, Options{Dial: inProcess(n.current), Applier: newFakeApplier(), Outbox: NewOutbox()})
			h.await(t, "the problem", func() bool {
				return len(h.acks["x"]) == 1 && strings.Contains(h.acks["x"][0].Problem, "older than the hub")
			})
		})
	})
	t.Run("Slow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var n network
			h := newFakeHub()
			defer h.kill()
			for i := range 20 {
				h.desire(spec(fmt.Sprintf("s%02d", i), "a"))
			}
			n.set(h)
			applier := newFakeApplier()
			applier.gate = make(chan struct{})
			u, _ := run(t, Options{Dial: inProcess(n.current), Applier: applier, Outbox: NewOutbox(), Parallel: 4, ApplyTimeout: time.Hour})
			applier.await(t, "as many calls as may run", func() bool { return applier.all == 4 })
			// Slow work must not cost the session, and only the newest counts.
			for i := range 5 {
				time.Sleep(time.Minute)
				h.desire(spec("s00", fmt.Sprintf("b%d", i)))
			}
			if !u.Connected() || len(h.hellos) != 1 {
				t.Errorf("connected: %t, after %d sessions", u.Connected(), len(h.hellos))
			}
			synctest.Wait()
			close(applier.gate)
			h.await(t, "all acks", func() bool { return len(h.acks) == 20 })
			if applier.most > 4 {
				t.Errorf("%d calls ran at a time, not 4", applier.most)
			}
			applied := 0
			for _, call := range applier.calls {
				if strings.HasPrefix(call, "apply s00 ") {
					applied++
				}
			}
			if string(applier.kept["s00"].Spec) != "b4" || applied > 2 {
				t.Errorf("s00 was applied %d times and is %s", applied, applier.kept["s00"].Spec)
			}
		})
	})
}

// TestRefusal checks that an agent that is refused does not press.
func TestRefusal(t *testing.T) {
	for _, code := range []connect.Code{connect.CodeAborted, connect.CodeFailedPrecondition, connect.CodePermissionDenied} {
		t.Run(code.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n network
				h := newFakeHub()
				defer h.kill()
				h.refusal = connect.NewError(code, "not now")
				n.set(h)
				u, _ := run(t, Options{Dial: inProcess(n.current), Applier: newFakeApplier(), Outbox: NewOutbox()})
				time.Sleep(10 * time.Minute)
				h.change(func() {
					if got := len(h.hellos); got < 20 || got > 60 {
						t.Errorf("tried %d times in 10 min", got)
					}
					h.refusal = nil
				})
				time.Sleep(31 * time.Second)
				if !u.Connected() {
					t.Error("not connected although it may")
				}
			})
		})
	}
}

// TestPause checks how long to wait before the next attempt.
func TestPause(t *testing.T) {
	lost := errors.New("connection reset")
	tests := map[string]struct {
		reason    string
		err       error
		attempt   int
		low, high time.Duration
	}{
		"First":      {"come back at once, but not all at the same moment", lost, 0, 0, time.Second},
		"Third":      {"wait longer", lost, 2, 0, 4 * time.Second},
		"Capped":     {"the jitter is over all of the cap", lost, 50, 0, 10 * time.Second},
		"EOF":        {"a clean end is no reason to wait", nil, 0, 0, time.Second},
		"Superseded": {"another instance is alive", connect.NewError(connect.CodeAborted, ""), 0, 10 * time.Second, 30 * time.Second},
		"NotOurs":    {"only a person can change that", connect.NewError(connect.CodePermissionDenied, ""), 9, 10 * time.Second, 30 * time.Second},
		"Protocol":   {"the hub speaks another language", fmt.Errorf("x: %w", &session.ProtocolError{}), 0, 10 * time.Second, 30 * time.Second},
		"Silent":     {"the hub may be back soon", session.ErrSilent, 0, 0, time.Second},
		"Asked":      {"the hub knows best", askedToWait(t, 4*time.Second), 0, 4 * time.Second, 8 * time.Second},
		"AskedLong":  {"but not for ever", askedToWait(t, 24*time.Hour), 0, 5 * time.Minute, 10 * time.Minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := pause(tt.err, tt.attempt, 0); got != tt.low {
				t.Errorf("%s: at least %v, want %v", tt.reason, got, tt.low)
			}
			if got := pause(tt.err, tt.attempt, 1); got != tt.high {
				t.Errorf("%s: at most %v, want %v", tt.reason, got, tt.high)
			}
		})
	}
}

// TestJoinsWhereItIsAStranger has a hub that does not know whom the agent speaks for, until the agent asks.
func TestJoinsWhereItIsAStranger(t *testing.T) {
	for name, code := range map[string]connect.Code{"NotYours": connect.CodePermissionDenied, "Waits": connect.CodeFailedPrecondition} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n network
				h := newFakeHub()
				defer h.kill()
				h.desire(spec("s1", "a"))
				h.refusal = connect.NewError(code, "register for it")
				n.set(h)
				attempts := 0
				applier := newFakeApplier()
				run(t, Options{Dial: inProcess(n.current), Applier: applier, Outbox: NewOutbox(), Join: func(context.Context) error {
					if attempts++; attempts < 3 {
						return errors.New("run shoalctl member accept")
					}
					h.change(func() { h.refusal = nil })
					return nil
				}})
				applier.await(t, "what is desired", func() bool { return applier.keeps() == "[s1=a]" })
				if attempts != 3 {
					t.Errorf("asked %d times, want until it was let in and not again", attempts)
				}
			})
		})
	}
}
