package agentapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/dispatch"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/session"
)

// hole is a TCP proxy that can stop forwarding without closing anything.
type hole struct {
	net.Listener
	state
	// passed counts the bytes that came through.
	passed int
	closed atomic.Bool
	wg     sync.WaitGroup
	conns  chan net.Conn
}

func newHole(t *testing.T, to string) *hole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{Listener: l, conns: make(chan net.Conn, 16)}
	h.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			h.conns <- in
			h.conns <- out
			h.wg.Go(func() { h.forward(in, out) })
			h.wg.Go(func() { h.forward(out, in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		for {
			select {
			case c := <-h.conns:
				_ = c.Close()
				continue
			default:
			}
			break
		}
		h.wg.Wait()
	})
	return h
}

// forward copies until the hole closes; then it takes and forgets.
func (h *hole) forward(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if !h.closed.Load() {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
			h.change(func() { h.passed += n })
		}
	}
}

// TestBlackhole cuts the network without a word. Both ends notice by the heartbeats that do not come.
func TestBlackhole(t *testing.T) {
	h := newFakeHub(t, func(o *Options) { o.Session.HeartbeatInterval = 100 * time.Millisecond })
	n := h.listen(t)
	hole := newHole(t, n.address)
	a := call(t, n.dial(t, "a", hole.Addr().String()), hello("east"), false)
	h.inventory.await(t, "some heartbeats", func() bool { return h.inventory.heard["east"] >= 3 })
	hole.closed.Store(true)
	h.inventory.awaitSaid(t, "disconnected east epoch=1")
	select {
	case <-a.ended:
	case <-time.After(patience):
		t.Fatal("the agent does not notice")
	}
	if !errors.Is(a.err, session.ErrSilent) {
		t.Errorf("the agent's session ended with %v", a.err)
	}
}

// TestStuckPeer supersedes a session whose agent has stopped reading, with much under way to it: the new one must not
// wait for it.
func TestStuckPeer(t *testing.T) {
	h := newFakeHub(t, nil)
	n := h.listen(t)
	hole := newHole(t, n.address)
	client := n.dial(t, "a", hole.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := client.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	greeting := &agentv1.Hello{Member: "east", Instance: "i1", Identity: &agentv1.MemberIdentity{ClusterUid: "c1", Namespace: "shoal"}}
	if err := stream.Send(&agentv1.SessionRequest{Frame: &agentv1.Frame{Kind: &agentv1.Frame_Hello{Hello: greeting}}}); err != nil {
		t.Fatal(err)
	}
	h.inventory.awaitSaid(t, "connected east epoch=1 instance=i1 cluster=c1/shoal")
	const items = 24
	for i := range items {
		spec := make([]byte, 256<<10)
		h.dispatcher.Set("east", dispatch.Item{UID: fmt.Sprintf("s%d", i), Generation: 1, Hash: "h", Spec: spec})
	}
	h.dispatcher.MarkReady()
	// That is as much as the HTTP client takes for one stream on its own account.
	hole.await(t, "a full window", func() bool { return hole.passed > 4<<20 })
	second := call(t, client, hello("east"), false)
	second.await(t, "all items in the second session", func() bool { return len(second.kept) == items })
}
