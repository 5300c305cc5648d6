package agentapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shoal-dev/shoal/hub/internal/inventory"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1/agentv1connect"
	"github.com/shoal-dev/shoal/proto/session"
	"github.com/shoal-dev/shoal/proto/session/pump"
)

const (
	// authorizeTimeout bounds one question to Membership.
	authorizeTimeout = 10 * time.Second
	// resyncWait is how long a session waits for its turn to resync, resyncHold how long it may keep others waiting.
	resyncWait, resyncHold = 2 * time.Second, 30 * time.Second
	// maxName bounds the names in a Hello.
	maxName = 256
)

// Session serves the session of one member until it ends.
func (s *Service) Session(ctx context.Context, stream agentv1connect.AgentServiceSessionServerStream) error {
	agent, err := s.o.Agent(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c := &conversation{
		Service: s, ctx: ctx, cancel: cancel, agent: agent,
		log: s.o.Logger.With("agent", agent), calls: make(chan pump.Call),
	}
	err = c.run(stream)
	return c.answer(err)
}

// conversation is one session. Its fields belong to the goroutine that owns the session, but for those that never
// change.
type conversation struct {
	*Service
	// ctx ends with the conversation; its cause says why. It is kept here for callbacks that have no other way to get
	// it.
	ctx    context.Context //nolint:containedctx // the conversation is the call
	cancel context.CancelCauseFunc
	agent  string
	log    *slog.Logger
	calls  chan pump.Call
	others sync.WaitGroup

	hello   *agentv1.Hello
	member  string
	uid     string // of the member
	live    *live
	session *session.Session
	// welcomed says that Inventory knows of the session.
	welcomed bool
	// resyncing is since when the session has held a turn to resync; zero if it does not.
	resyncing time.Time
}

func (c *conversation) run(stream agentv1connect.AgentServiceSessionServerStream) error {
	cfg := c.o.Session
	if cfg.Jitter == nil {
		cfg.Jitter = rand.Float64
	}
	c.session = session.NewHub(c.o.Clock.Now(), cfg)
	s := pump.Stream{
		Send: func(f *agentv1.Frame) error { return stream.Send(&agentv1.SessionResponse{Frame: f}) },
		Receive: func() (*agentv1.Frame, error) {
			m, err := stream.Receive()
			return m.GetFrame(), err
		},
	}
	if control, ok := controlOf(c.ctx); ok {
		s.Abort = control.abort
	}
	err := pump.Run(c.ctx, pump.Options{
		Stream: s, Session: c.session, Handle: c.handle, Calls: c.calls,
		Now: c.o.Clock.Now, Timer: c.timer,
	})
	c.cancel(err)
	c.others.Wait()
	c.resynced()
	if c.welcomed {
		c.o.Inventory.Disconnected(c.member, c.live.epoch, c.o.Clock.Now())
	}
	if c.live != nil {
		c.members.release(c.live, c.session.Sequence())
	}
	return err
}

func (c *conversation) timer(d time.Duration) (<-chan time.Time, func()) {
	t := c.o.Clock.NewTimer(d)
	return t.C(), func() { t.Stop() }
}

func (c *conversation) handle(now time.Time, s *session.Session, e session.Event) error {
	switch e := e.(type) {
	case session.Greeted:
		return c.greeted(s, e.Hello)
	case session.Beat:
		c.o.Inventory.Heard(c.member, now)
		if !c.resyncing.IsZero() && now.Sub(c.resyncing) >= resyncHold {
			c.resynced()
		}
	case session.Apply:
		s.Applied(now, e.Upsert.GetUid(), e.Upsert.GetSequence(), c.observe(now, e.Upsert))
	case session.Delete:
		c.o.Inventory.Gone(c.member, e.UID, now)
		s.Applied(now, e.UID, e.Sequence, "")
	case session.Resynced:
		c.o.Inventory.Resynced(c.member, now)
		c.resynced()
		c.log.Info("member resynced", "items", e.Count, "pruned", e.Pruned, "snapshot", e.Snapshot)
		if c.o.Inventory.Doubted(c.member) {
			c.log.Warn("member reads much emptier than before; asking again", "items", e.Count)
			s.Resync(now, c.confirmAfter(), "the report is much emptier than the one before; send it again to confirm")
		}
	case session.HeldBack:
		c.log.Warn("snapshot held back until a second one confirms it", "missing", e.Missing, "known", e.Known)
	case session.Acked:
		if e.Problem != "" {
			c.log.Warn("member could not act on an item", "uid", e.UID, "generation", e.Generation, "problem", e.Problem)
		}
		c.o.Dispatcher.Acked(c.member, e.UID, e.Generation, e.Hash, e.Problem)
	case session.TombstoneAcked:
		c.o.Dispatcher.TombstoneAcked(c.member, e.UID)
	case session.Welcomed, session.Leased:
		// Agents only.
	}
	return nil
}

func (c *conversation) confirmAfter() time.Duration {
	if c.o.Session.ConfirmAfter > 0 {
		return c.o.Session.ConfirmAfter
	}
	return 2 * c.o.Session.HeartbeatInterval
}

// greeted lets the agent in, or says why not. It may take its time: nothing else happens in a session before it is
// welcomed.
func (c *conversation) greeted(s *session.Session, hello *agentv1.Hello) error {
	c.hello, c.member = hello, hello.GetMember()
	for name, value := range map[string]string{
		"member": c.member, "instance": hello.GetInstance(),
		"identity.cluster_uid": hello.GetIdentity().GetClusterUid(), "identity.namespace": hello.GetIdentity().GetNamespace(),
	} {
		if value == "" || len(value) > maxName {
			return connect.Errorf(connect.CodeInvalidArgument, "Hello needs a %s of 1 to %d bytes, not of %d", name, maxName, len(value))
		}
	}
	if id := hello.GetIdentity(); len(id.GetProject()) > maxName || len(id.GetRegion()) > maxName {
		return connect.Errorf(connect.CodeInvalidArgument, "Hello has an identity.project or identity.region of more than %d bytes", maxName)
	}
	c.log = c.log.With("member", c.member, "instance", hello.GetInstance())
	memberUID, err := c.authorize()
	if err != nil {
		return err
	}
	if err := c.takeTurn(); err != nil {
		return err
	}
	c.live, err = c.members.claim(c.member, hello.GetLastEpoch(), c.cancel)
	if err != nil {
		return err
	}
	if err := c.members.await(c.live); err != nil {
		return err
	}
	now := c.o.Clock.Now()
	c.welcomed = true
	c.o.Inventory.Connected(c.member, inventory.Session{
		Epoch: c.live.epoch, Instance: hello.GetInstance(), Version: hello.GetAgentVersion(),
		Providers: hello.GetProviders(), Networks: hello.GetNetworks(),
		ClusterUID: hello.GetIdentity().GetClusterUid(), Namespace: hello.GetIdentity().GetNamespace(),
	}, now)
	s.StartAfter(c.live.sequence)
	c.uid = memberUID
	s.Welcome(now, c.welcome())
	c.others.Go(c.watch)
	c.log.Info("session began", "epoch", c.live.epoch, "version", hello.GetAgentVersion(), "held", len(hello.GetInventory()))
	return nil
}

// welcome says who hub and member are, and what credentials are checked with.
func (c *conversation) welcome() *agentv1.Welcome {
	return &agentv1.Welcome{Epoch: c.live.epoch, HubUid: c.o.HubUID, MemberUid: c.uid, CredentialKeys: c.o.Keys()}
}

// observe records a report and returns what is wrong with it, if anything.
func (c *conversation) observe(now time.Time, u *agentv1.Upsert) (problem string) {
	switch body := u.GetBody().(type) {
	case *agentv1.Upsert_Proxy:
		c.o.Inventory.ObserveProxy(c.member, u.GetUid(), body.Proxy, now)
	case *agentv1.Upsert_ProxySet:
		if body.ProxySet.GetPlacementUid() != u.GetUid() {
			return "the uid of a ProxySet's report must be that of its ProxyPlacement"
		}
		c.o.Inventory.ObserveProxySet(c.member, u.GetUid(), body.ProxySet, now)
	default:
		return "the hub does not know this kind of report; it is older than the agent"
	}
	return ""
}

// watch is the part of a session that waits for things outside of it.
func (c *conversation) watch() {
	changed, cancel := c.o.Dispatcher.Watch(c.member)
	defer cancel()
	leases, cancelLeases := c.o.Leases.Watch(c.member)
	defer cancelLeases()
	keys, cancelKeys := c.keysChanged()
	defer cancelKeys()
	old := c.o.Clock.NewTimer(time.Duration((2 + 2*rand.Float64()) / 3 * float64(c.o.MaxAge)))
	defer old.Stop()
	for {
		recheck := c.o.Clock.NewTimer(c.o.Recheck)
		select {
		case <-c.ctx.Done():
		case <-old.C():
			c.cancel(errTooOld)
		case <-changed:
			c.call(c.desire)
		case <-leases:
			c.call(c.leased)
		case <-keys:
			c.call(func(now time.Time, s *session.Session) error {
				s.Welcome(now, c.welcome())
				return nil
			})
		case <-recheck.C():
			// Only a refusal ends the session: a hub that cannot read its own objects must not lose its members as
			// well.
			if _, err := c.authorize(); err != nil && connect.CodeOf(err) != connect.CodeUnavailable {
				c.cancel(err)
			}
		}
		recheck.Stop()
		if c.ctx.Err() != nil {
			return
		}
	}
}

// keysChanged watches what credentials are checked with. What changes between the Welcome and here is told as well.
func (c *conversation) keysChanged() (changed <-chan struct{}, cancel func()) {
	if c.o.KeysChanged == nil {
		return nil, func() {}
	}
	return c.o.KeysChanged()
}

// call does something to the session, unless it ends before.
func (c *conversation) call(do pump.Call) {
	select {
	case c.calls <- do:
	case <-c.ctx.Done():
	}
}

// leased tells which of the member's proxies are leased, once that is known.
func (c *conversation) leased(_ time.Time, s *session.Session) error {
	if proxies, known := c.o.Leases.Leased(c.member); known {
		s.Leased(proxies)
	}
	return nil
}

// desire puts what the member is wanted to have.
func (c *conversation) desire(_ time.Time, s *session.Session) error {
	items, tombstones, ready := c.o.Dispatcher.Desired(c.member)
	for _, item := range items {
		upsert := &agentv1.Upsert{
			Uid: item.UID, Generation: item.Generation, Hash: item.Hash,
			Body: &agentv1.Upsert_ProxySetSpec{ProxySetSpec: item.Spec},
		}
		for _, c := range item.Credentials {
			upsert.Credentials = append(upsert.Credentials, &agentv1.OwnerCredentials{
				Key: c.Key, Username: c.Username, Password: c.Password,
			})
		}
		s.Put(upsert)
	}
	for _, uid := range tombstones {
		s.Delete(uid)
	}
	if ready {
		s.Complete()
	}
	return nil
}

// authorize asks whether the agent may speak for the member.
func (c *conversation) authorize() (memberUID string, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, authorizeTimeout)
	defer cancel()
	memberUID, err = c.o.Membership.Authorize(ctx, c.agent, c.member, c.hello.GetIdentity())
	if err == nil {
		return memberUID, nil
	}
	if c.ctx.Err() != nil {
		return "", context.Cause(c.ctx)
	}
	code, known := codeOf(err)
	if !known {
		c.log.Warn("cannot tell whether the agent may speak for the member", "err", err)
		return "", connect.NewError(connect.CodeUnavailable, "the hub cannot read its objects at the moment; try again")
	}
	c.log.Info("session refused", "code", code.String(), "err", err)
	return "", connect.NewError(code, err.Error())
}

// takeTurn waits for a turn to resync, for a little.
func (c *conversation) takeTurn() error {
	timeout, stop := c.timer(resyncWait)
	defer stop()
	select {
	case c.resyncs <- struct{}{}:
		c.resyncing = c.o.Clock.Now()
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	case <-timeout:
		return comeBack(connect.CodeResourceExhausted, "too many members resync at once", time.Second+rand.N(2*time.Second))
	}
}

// resynced gives the turn to resync to the next.
func (c *conversation) resynced() {
	if !c.resyncing.IsZero() {
		c.resyncing = time.Time{}
		<-c.resyncs
	}
}

// answer translates the end of a session for the wire.
func (c *conversation) answer(err error) error {
	var protocol *session.ProtocolError
	var status *connect.Error
	if c.welcomed {
		c.log.Info("session ended", "epoch", c.live.epoch, "reason", err)
	}
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, errSuperseded):
		return connect.Errorf(connect.CodeAborted, "a newer session of member %s has begun", c.member)
	case errors.Is(err, errStopping):
		return comeBack(connect.CodeUnavailable, errStopping.Error(), time.Second)
	case errors.Is(err, errTooOld):
		return comeBack(connect.CodeUnavailable, errTooOld.Error(), time.Second)
	case errors.Is(err, session.ErrSilent):
		return connect.NewError(connect.CodeUnavailable, err.Error())
	case errors.As(err, &protocol):
		return connect.NewError(connect.CodeInvalidArgument, err.Error())
	case errors.As(err, &status):
		return status
	}
	return err
}

// comeBack returns an error with the time after which to try again, as a detail of type google.protobuf.Duration.
func comeBack(code connect.Code, message string, after time.Duration) error {
	err := connect.Errorf(code, "%s; come back in %s", message, after.Round(time.Millisecond))
	detail, packing := connectproto.NewErrorDetail(durationpb.New(after))
	if packing != nil {
		return err
	}
	return err.WithDetail(detail)
}
