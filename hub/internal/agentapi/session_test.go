package agentapi

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shoal-dev/shoal/hub/internal/dispatch"
	"github.com/shoal-dev/shoal/hub/internal/identity"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/session"
)

func pemKey(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func hello(member string) *agentv1.Hello { return &agentv1.Hello{Member: member} }

// TestSession takes desired state down and observed state up over real TLS.
func TestSession(t *testing.T) {
	h := newFakeHub(t, nil)
	n := h.listen(t)
	h.dispatcher.Set("east", dispatch.Item{UID: "s1", Generation: 3, Hash: "h1", Spec: []byte("{}")})
	h.dispatcher.Set("west", dispatch.Item{UID: "s9", Generation: 3, Hash: "h9", Spec: []byte("{}")})
	a := call(t, n.dial(t, "agent-east", n.address), hello("east"), false, proxy("p1", true), proxy("p2", false),
		&agentv1.Upsert{Uid: "s1", Body: &agentv1.Upsert_ProxySet{ProxySet: &agentv1.ProxySetReport{PlacementUid: "s1", Ready: 1}}},
		&agentv1.Upsert{Uid: "bad", Body: &agentv1.Upsert_ProxySet{ProxySet: &agentv1.ProxySetReport{PlacementUid: "other"}}})

	w := a.awaitWelcome(t)
	if w.GetHubUid() != "hub-1" || w.GetMemberUid() != "uid-of-east" || string(w.GetCredentialKeys()) != "keys" || w.GetEpoch() != 1 {
		t.Errorf("welcomed with %v", w)
	}
	if got, want := h.membership.asked[0], "agent-east for east at c1"; got != want {
		t.Errorf("asked membership about %q, want %q", got, want)
	}
	h.inventory.awaitSaid(t, "connected east epoch=1 instance=i1 cluster=c1/shoal")
	h.inventory.awaitSaid(t, "resynced east")
	h.inventory.awaitSaid(t, "set east s1 ready=1")
	if got := len(h.inventory.proxies["east"]); got != 2 {
		t.Errorf("inventory has %d proxies at resync, want 2", got)
	}
	if len(a.keeps()) != 0 {
		t.Errorf("the agent was told of %v before the dispatcher was ready", a.keeps())
	}

	h.dispatcher.MarkReady()
	a.await(t, "s1 at the agent, and nothing of others", func() bool { return len(a.kept) == 1 && a.kept["s1"].GetGeneration() == 3 })
	awaitAck(t, h, "s1", dispatch.Ack{Generation: 3, Hash: "h1"})
	h.dispatcher.Set("east", dispatch.Item{UID: "s1", Generation: 4, Hash: "h2", Spec: []byte("{}")})
	awaitAck(t, h, "s1", dispatch.Ack{Generation: 4, Hash: "h2"})
	// Credentials go with the item, beside its spec.
	with := dispatch.Item{UID: "s1", Generation: 4, Spec: []byte("{}")}.With([]dispatch.Credentials{{Key: "k1", Username: "fish", Password: "hush"}})
	h.dispatcher.Set("east", with)
	awaitAck(t, h, "s1", dispatch.Ack{Generation: 4, Hash: with.Hash})
	a.await(t, "credentials at the agent", func() bool {
		c := a.kept["s1"].GetCredentials()
		return len(c) == 1 && c[0].GetKey() == "k1" && c[0].GetUsername() == "fish" && c[0].GetPassword() == "hush"
	})
	h.dispatcher.Remove("east", "s1")
	h.dispatcher.Remove("east", "s7")
	for !h.dispatcher.Gone("east", "s1") || !h.dispatcher.Gone("east", "s7") {
		awaitEvent(t, h)
	}
	if got := a.keeps(); len(got) != 0 {
		t.Errorf("the agent keeps %v after the tombstones", got)
	}

	a.do(t, func(s *session.Session) {
		s.Delete("p1")
		s.Put(proxy("p2", true))
	})
	h.inventory.await(t, "p1 gone and p2 ready", func() bool {
		p := h.inventory.proxies["east"]
		return len(p) == 1 && p["p2"].GetReady()
	})
	a.cancel()
	h.inventory.awaitSaid(t, "disconnected east epoch=1")
}

// TestLeasedIsTold checks that a member is told which of its proxies are leased, whenever that changes.
func TestLeasedIsTold(t *testing.T) {
	h := newFakeHub(t, nil)
	n := h.listen(t)
	h.leases.changed <- struct{}{} // nothing is known yet, so there is nothing to tell
	h.leases.set("east", "p1", "p2")
	a := call(t, n.dial(t, "agent-east", n.address), hello("east"), false)
	a.await(t, "what is leased", func() bool { return slices.Equal(a.leased, []string{"p1", "p2"}) })
	h.leases.set("east", "p2")
	a.await(t, "what is still leased", func() bool { return slices.Equal(a.leased, []string{"p2"}) })
	h.leases.set("east")
	a.await(t, "that nothing is leased", func() bool { return len(a.leased) == 0 })
}

// awaitEvent waits until acks have changed.
func awaitEvent(t *testing.T, h *fakeHub) {
	t.Helper()
	select {
	case <-h.dispatcher.Events():
	case <-time.After(patience):
		t.Fatal("no ack comes")
	}
}

func awaitAck(t *testing.T, h *fakeHub, uid string, want dispatch.Ack) {
	t.Helper()
	for {
		if got, ok := h.dispatcher.Ack("east", uid); ok && got == want {
			return
		}
		awaitEvent(t, h)
	}
}

// TestRefused checks who is not let in, and with which code: agents go by it.
func TestRefused(t *testing.T) {
	h := newFakeHub(t, nil)
	n := h.listen(t)
	tests := map[string]struct {
		reason  string
		agent   string
		hello   *agentv1.Hello
		refusal error
		want    connect.Code
	}{
		"NoCertificate": {"nobody without a certificate", "", hello("east"), nil, connect.CodeUnauthenticated},
		"NotYours":      {"another agent's member", "a", hello("east"), fmt.Errorf("east: %w", identity.ErrNotYours), connect.CodePermissionDenied},
		"NotAccepted":   {"it may be accepted later", "a", hello("east"), identity.ErrNotAccepted, connect.CodeFailedPrecondition},
		"Conflict":      {"another cluster's name", "a", hello("east"), identity.ErrIdentityConflict, connect.CodeAlreadyExists},
		"Unknown":       {"the hub's own trouble is temporary", "a", hello("east"), errors.New("secret: etcd is on fire"), connect.CodeUnavailable},
		"NoMember":      {"a session is for a member", "a", hello(""), nil, connect.CodeInvalidArgument},
		"LongMember":    {"names are bounded", "a", hello(strings.Repeat("x", 300)), nil, connect.CodeInvalidArgument},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h.membership.refuse(tt.refusal)
			code, status := call(t, n.dial(t, tt.agent, n.address), tt.hello, false).awaitEnd(t)
			if code != tt.want {
				t.Errorf("%s: got %v (%s), want %v", tt.reason, code, status.Message(), tt.want)
			}
			if status.Message() == "" || strings.Contains(status.Message(), "secret") {
				t.Errorf("message %q", status.Message())
			}
		})
	}
	for _, said := range h.inventory.said {
		t.Errorf("the inventory was told: %s", said)
	}
}

// TestNewestWins begins a second session of a member: the first is told, and has ended before the second begins.
func TestNewestWins(t *testing.T) {
	h := newFakeHub(t, nil)
	n := h.listen(t)
	client := n.dial(t, "a", n.address)
	first := call(t, client, &agentv1.Hello{Member: "east", Instance: "i1"}, false)
	first.awaitWelcome(t)
	second := call(t, client, &agentv1.Hello{Member: "east", Instance: "i2", LastEpoch: 6}, false)
	if got := second.awaitWelcome(t).GetEpoch(); got != 7 {
		t.Errorf("the second session has epoch %d, want 7: the agent has seen 6", got)
	}
	if code, _ := first.awaitEnd(t); code != connect.CodeAborted {
		t.Errorf("the first session ended with %v", code)
	}
	h.inventory.awaitSaid(t, "resynced east")
	var order []string
	for _, said := range h.inventory.said {
		if !strings.HasPrefix(said, "resynced") {
			order = append(order, strings.Join(strings.Fields(said)[:3], " "))
		}
	}
	if got, want := strings.Join(order, ", "), "connected east epoch=1, disconnected east epoch=1, connected east epoch=7"; got != want {
		t.Errorf("the inventory was told %q, want %q", got, want)
	}
}

// TestShutdown ends live sessions with a time to come back at, and refuses new ones.
func TestShutdown(t *testing.T) {
	h := newFakeHub(t, nil)
	n := h.listen(t)
	client := n.dial(t, "a", n.address)
	a := call(t, client, hello("east"), false)
	b := call(t, client, hello("west"), false)
	a.awaitWelcome(t)
	b.awaitWelcome(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := h.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	for _, agent := range []*fakeAgent{a, b} {
		code, status := agent.awaitEnd(t)
		if code != connect.CodeUnavailable || retryAfter(status) == 0 {
			t.Errorf("ended with %v, come back in %v", status, retryAfter(status))
		}
	}
	if code, _ := call(t, client, hello("east"), false).awaitEnd(t); code != connect.CodeUnavailable {
		t.Errorf("a new session got %v", code)
	}
}

func retryAfter(status *connect.Error) time.Duration {
	for _, detail := range status.Details() {
		if m, err := connectproto.UnmarshalErrorDetail(detail); err == nil {
			return m.(*durationpb.Duration).AsDuration()
		}
	}
	return 0
}

// anyAgent lets agents in that have no certificate, for want of a network.
func anyAgent(o *Options) {
	o.Agent = func(context.Context) (string, error) { return "a", nil }
}

// TestResyncTurns lets one member at a time be between Welcome and its first complete snapshot; the others are sent
// away for a while.
func TestResyncTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub(t, func(o *Options) { anyAgent(o); o.MaxResyncs = 1 })
		client := h.inProcess()
		slow := call(t, client, hello("slow"), true)
		slow.awaitWelcome(t)
		code, status := call(t, client, hello("east"), false).awaitEnd(t)
		if after := retryAfter(status); code != connect.CodeResourceExhausted || after < time.Second || after > 3*time.Second {
			t.Errorf("while another resyncs: %v, come back in %v", status, after)
		}
		slow.do(t, func(s *session.Session) { s.Complete() })
		h.inventory.awaitSaid(t, "resynced slow")
		call(t, client, hello("east"), false).awaitWelcome(t)
		h.inventory.awaitSaid(t, "resynced east")

		// One that never gets ready keeps the others waiting for half a minute.
		call(t, client, hello("stuck"), true).awaitWelcome(t)
		began := time.Now()
		for {
			a := call(t, client, hello("west"), false)
			a.await(t, "an answer", func() bool {
				select {
				case <-a.ended:
					return true
				default:
					return a.welcome != nil
				}
			})
			if a.welcome != nil {
				break
			}
		}
		if waited := time.Since(began); waited < resyncHold-10*time.Second || waited > resyncHold+10*time.Second {
			t.Errorf("waited for %v", waited)
		}
	})
}

// TestTime lets sessions grow old, fall silent, and lose their right to be.
func TestTime(t *testing.T) {
	t.Run("Old", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newFakeHub(t, anyAgent)
			began := time.Now()
			a := call(t, h.inProcess(), hello("east"), false)
			<-a.ended
			code, status := a.awaitEnd(t)
			if age := time.Since(began); code != connect.CodeUnavailable || retryAfter(status) == 0 ||
				age < 30*time.Minute || age > 61*time.Minute {
				t.Errorf("after %v: %v", age, status)
			}
		})
	})
	t.Run("Revoked", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newFakeHub(t, anyAgent)
			a := call(t, h.inProcess(), hello("east"), false)
			a.awaitWelcome(t)
			h.membership.refuse(errors.New("the API server is away"))
			time.Sleep(10 * time.Minute)
			select {
			case <-a.ended:
				t.Fatalf("a hub that cannot read its objects has ended the session: %v", a.err)
			default:
			}
			h.membership.refuse(identity.ErrNotAccepted)
			began := time.Now()
			if code, _ := a.awaitEndWithin(t, time.Hour); code != connect.CodeFailedPrecondition || time.Since(began) > time.Minute {
				t.Errorf("after %v: %v", time.Since(began), code)
			}
		})
	})
	t.Run("Silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newFakeHub(t, anyAgent)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := h.inProcess().Session(ctx)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			greeting := hello("east")
			greeting.Instance = "i1"
			greeting.Identity = &agentv1.MemberIdentity{ClusterUid: "c1", Namespace: "shoal"}
			if err := stream.Send(&agentv1.SessionRequest{Frame: &agentv1.Frame{Kind: &agentv1.Frame_Hello{Hello: greeting}}}); err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = stream.Receive()
			}
			if code := connect.CodeOf(err); code != connect.CodeUnavailable || time.Since(began) != 15*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			h.inventory.awaitSaid(t, "disconnected east epoch=1")
			cancel()
			synctest.Wait()
		})
	})
	t.Run("Doubted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newFakeHub(t, anyAgent)
			h.inventory.doubts = 1
			call(t, h.inProcess(), hello("east"), false)
			began := time.Now()
			h.inventory.await(t, "a second snapshot", func() bool {
				return strings.Count(strings.Join(h.inventory.said, ";"), "resynced east") == 2
			})
			if waited := time.Since(began); waited < 5*time.Second || waited > 30*time.Second {
				t.Errorf("the doubted snapshot was confirmed after %v", waited)
			}
		})
	})
}

// awaitEndWithin is awaitEnd for tests in which time costs nothing.
func (a *fakeAgent) awaitEndWithin(t *testing.T, d time.Duration) (connect.Code, *connect.Error) {
	t.Helper()
	select {
	case <-a.ended:
	case <-time.After(d):
	}
	return a.awaitEnd(t)
}

// TestNewKeysAreToldAtOnce tells sessions that have begun of keys that change.
func TestNewKeysAreToldAtOnce(t *testing.T) {
	changed := make(chan struct{}, 1)
	var keys atomic.Value
	keys.Store("old")
	h := newFakeHub(t, func(o *Options) {
		anyAgent(o)
		o.Keys = func() []byte { return []byte(keys.Load().(string)) }
		o.KeysChanged = func() (<-chan struct{}, func()) { return changed, func() {} }
	})
	a := call(t, h.inProcess(), hello("east"), false)
	first := a.awaitWelcome(t)
	keys.Store("new")
	changed <- struct{}{}
	a.await(t, "the new keys", func() bool { return string(a.welcome.GetCredentialKeys()) == "new" })
	second := a.awaitWelcome(t)
	if string(first.GetCredentialKeys()) != "old" || second.GetEpoch() != first.GetEpoch() ||
		second.GetMemberUid() != first.GetMemberUid() || second.GetHubUid() != first.GetHubUid() {
		t.Errorf("welcomed with %v, then with %v", first, second)
	}
}
