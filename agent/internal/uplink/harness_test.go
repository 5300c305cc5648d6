package uplink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectinprocess"
	"k8s.io/utils/clock"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1/agentv1connect"
	"github.com/shoal-dev/shoal/proto/session"
	"github.com/shoal-dev/shoal/proto/session/pump"
)

// patience is how long a test waits for what must happen.
const patience = 2 * time.Minute

// state is something that is guarded and can be waited for.
type state struct {
	mu      sync.Mutex
	changed chan struct{}
}

// change changes what is guarded.
func (s *state) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// await waits until is tells that something is so.
func (s *state) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	expired := time.NewTimer(patience)
	defer expired.Stop()
	for {
		s.mu.Lock()
		if is() {
			s.mu.Unlock()
			return
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-expired.C:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// fakeHub is the other end: what it desires and what was reported to it are kept across its sessions.
type fakeHub struct {
	agentv1connect.UnimplementedAgentServiceHandler
	state
	cfg     session.Config
	epochs  session.Epochs
	refusal error
	desired map[string]*agentv1.Upsert
	hellos  []*agentv1.Hello
	// reports are what the agent has told, acks what it has acknowledged.
	reports  map[string]*agentv1.Upsert
	acks     map[string][]session.Acked
	resynced int
	// live counts the sessions under way, ended those that were.
	live, ended int
	calls       chan pump.Call
	ctx         context.Context
	stop        context.CancelFunc
	sessions    sync.WaitGroup
}

func newFakeHub() *fakeHub {
	h := &fakeHub{
		desired: map[string]*agentv1.Upsert{}, reports: map[string]*agentv1.Upsert{},
		acks: map[string][]session.Acked{}, calls: make(chan pump.Call),
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

func spec(uid, text string) *agentv1.Upsert {
	return &agentv1.Upsert{Uid: uid, Hash: text, Body: &agentv1.Upsert_ProxySetSpec{ProxySetSpec: []byte(text)}}
}

// desire makes an item desired, now and in later sessions.
func (h *fakeHub) desire(u *agentv1.Upsert) {
	h.change(func() { h.desired[u.GetUid()] = u })
	h.do(func(s *session.Session) { s.Put(copyOf(u)) })
}

// undesire takes it back.
func (h *fakeHub) undesire(uid string) {
	h.change(func() { delete(h.desired, uid) })
	h.do(func(s *session.Session) { s.Delete(uid) })
}

// do does something to the session; nothing if there is none.
func (h *fakeHub) do(do func(*session.Session)) {
	h.mu.Lock()
	live := h.live
	h.mu.Unlock()
	if live == 0 {
		return
	}
	select {
	case h.calls <- func(_ time.Time, s *session.Session) error { do(s); return nil }:
	case <-h.ctx.Done():
	}
}

func copyOf(u *agentv1.Upsert) *agentv1.Upsert {
	return &agentv1.Upsert{Uid: u.GetUid(), Generation: u.GetGeneration(), Hash: u.GetHash(), Body: u.GetBody()}
}

// kill ends the hub's process, as far as an agent can see it.
func (h *fakeHub) kill() {
	h.stop()
	h.sessions.Wait()
}

func (h *fakeHub) Session(ctx context.Context, stream agentv1connect.AgentServiceSessionServerStream) error {
	h.sessions.Add(1)
	defer h.sessions.Done()
	h.change(func() { h.live++ })
	defer h.change(func() { h.live--; h.ended++ })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	err := pump.Run(ctx, pump.Options{
		Stream: pump.Stream{
			Send: func(f *agentv1.Frame) error { return stream.Send(&agentv1.SessionResponse{Frame: f}) },
			Receive: func() (*agentv1.Frame, error) {
				m, err := stream.Receive()
				return m.GetFrame(), err
			},
		},
		Session: session.NewHub(time.Now(), h.cfg), Handle: h.handle, Calls: h.calls,
	})
	if h.ctx.Err() != nil {
		return connect.NewError(connect.CodeUnavailable, "the hub is gone")
	}
	return err
}

func (h *fakeHub) handle(now time.Time, s *session.Session, e session.Event) error {
	switch e := e.(type) {
	case session.Greeted:
		var refusal error
		h.change(func() {
			h.hellos = append(h.hellos, e.Hello)
			if refusal = h.refusal; refusal != nil {
				return
			}
			s.Welcome(now, &agentv1.Welcome{
				Epoch: h.epochs.Claim("east", e.Hello.GetLastEpoch()), HubUid: "hub-1", MemberUid: "member-1",
				CredentialKeys: []byte("keys"),
			})
			for _, uid := range slices.Sorted(maps.Keys(h.desired)) {
				s.Put(copyOf(h.desired[uid]))
			}
			s.Complete()
		})
		return refusal
	case session.Apply:
		h.change(func() { h.reports[e.Upsert.GetUid()] = e.Upsert })
		s.Applied(now, e.Upsert.GetUid(), e.Upsert.GetSequence(), "")
	case session.Delete:
		h.change(func() { delete(h.reports, e.UID) })
		s.Applied(now, e.UID, e.Sequence, "")
	case session.Acked:
		h.change(func() { h.acks[e.UID] = append(h.acks[e.UID], e) })
	case session.Resynced:
		h.change(func() { h.resynced++ })
	}
	return nil
}

// inProcess returns a Dial without a network that reaches whatever current returns; nil is a hub that does not answer.
func inProcess(current func() *fakeHub) func(context.Context) (agentv1connect.AgentServiceClient, error) {
	return func(context.Context) (agentv1connect.AgentServiceClient, error) {
		h := current()
		if h == nil {
			return nil, errors.New("connection refused")
		}
		server := connect.NewServer()
		agentv1connect.RegisterAgentServiceHandler(server, h)
		return agentv1connect.NewAgentServiceClient(connect.NewClient(connectinprocess.New(server))), nil
	}
}

// fakeApplier keeps what it is told.
type fakeApplier struct {
	state
	kept  map[string]Item
	calls []string
	// busy counts the calls under way, by uid and in all; most is the greatest.
	busy   map[string]int
	all    int
	most   int
	broken error
	gate   chan struct{}
	keys   string
	// keysFail is how often SetKeys fails.
	keysFail int
	who      string
}

func newFakeApplier() *fakeApplier {
	return &fakeApplier{kept: map[string]Item{}, busy: map[string]int{}}
}

func (f *fakeApplier) Held(context.Context) ([]*agentv1.Held, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var held []*agentv1.Held
	for _, uid := range slices.Sorted(maps.Keys(f.kept)) {
		held = append(held, &agentv1.Held{Uid: uid, Generation: f.kept[uid].Generation, Hash: f.kept[uid].Hash})
	}
	return held, nil
}

func (f *fakeApplier) Apply(ctx context.Context, item Item) error {
	return f.work(ctx, item.UID, fmt.Sprintf("apply %s %s", item.UID, item.Spec), func() { f.kept[item.UID] = item })
}

func (f *fakeApplier) Delete(ctx context.Context, uid string) error {
	return f.work(ctx, uid, "delete "+uid, func() { delete(f.kept, uid) })
}

func (f *fakeApplier) work(ctx context.Context, uid, call string, do func()) error {
	var gate chan struct{}
	f.change(func() {
		f.calls = append(f.calls, call)
		f.busy[uid]++
		f.all++
		f.most = max(f.most, f.all)
		if f.busy[uid] > 1 {
			panic("two calls at a time for " + uid)
		}
		gate = f.gate
	})
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	err := ctx.Err()
	f.change(func() {
		f.busy[uid]--
		f.all--
		if err == nil {
			err = f.broken
		}
		if err == nil {
			do()
		}
	})
	return err
}

func (f *fakeApplier) SetKeys(_ context.Context, keys []byte) error {
	var err error
	f.change(func() {
		if f.keysFail > 0 {
			f.keysFail--
			err = errors.New("conflict")
			return
		}
		f.keys = string(keys)
	})
	return err
}

func (f *fakeApplier) Welcomed(hubUID, memberUID string) {
	f.change(func() { f.who = hubUID + " " + memberUID })
}

func (f *fakeApplier) keeps() string {
	var kept []string
	for _, uid := range slices.Sorted(maps.Keys(f.kept)) {
		kept = append(kept, uid+"="+string(f.kept[uid].Spec))
	}
	return fmt.Sprint(kept)
}

// run runs an uplink until the test ends, or until stop.
func run(t *testing.T, o Options) (u *Uplink, stop func()) {
	t.Helper()
	o.Member, o.Clock = "east", clock.RealClock{}
	o.Identity = &agentv1.MemberIdentity{ClusterUid: "c1", Namespace: "shoal"}
	u, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // ends in Cleanup
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := u.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return u, stop
}

func report(uid string, ready bool) *agentv1.Upsert {
	return &agentv1.Upsert{
		Uid: uid, Hash: fmt.Sprint(ready),
		Body: &agentv1.Upsert_Proxy{Proxy: &agentv1.ProxyReport{Name: uid, Ready: ready}},
	}
}

// reported tells what a hub was told, for await.
func (h *fakeHub) reported() string {
	var told []string
	for _, uid := range slices.Sorted(maps.Keys(h.reports)) {
		told = append(told, uid+"="+h.reports[uid].GetHash())
	}
	return fmt.Sprint(told)
}
