package uplink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/session"
	"github.com/shoal-dev/shoal/proto/session/pump"
)

// keysRetry is how long to wait after keys could not be kept.
const keysRetry = 2 * time.Second

// conversation is one session.
type conversation struct {
	*Uplink
	// ctx ends with the session. It is kept here for callbacks that have no other way to get it.
	ctx    context.Context //nolint:containedctx // the conversation is the call
	calls  chan pump.Call
	others sync.WaitGroup
	// turns holds as many values as calls of the Applier are running.
	turns chan struct{}
	// keys holds the newest keys that were not kept yet.
	keys chan []byte
}

// converse holds one session and returns why it ended.
func (u *Uplink) converse(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &conversation{
		Uplink: u, ctx: ctx, calls: make(chan pump.Call),
		turns: make(chan struct{}, u.o.Parallel), keys: make(chan []byte, 1),
	}
	s, err := c.begin()
	if err != nil {
		return err
	}
	client, err := u.o.Dial(ctx)
	if err != nil {
		return fmt.Errorf("dial the hub: %w", err)
	}
	stream, err := client.Session(ctx)
	if err != nil {
		return fmt.Errorf("dial the hub: %w", err)
	}
	c.others.Go(c.watch)
	c.others.Go(c.keepKeys)
	err = pump.Run(ctx, pump.Options{
		Stream: pump.Stream{
			Send: func(f *agentv1.Frame) error { return stream.Send(&agentv1.SessionRequest{Frame: f}) },
			Receive: func() (*agentv1.Frame, error) {
				m, err := stream.Receive()
				return m.GetFrame(), err
			},
			// net/http does not look at the context while it waits for more of the request, so that has to end as well.
			StopReceive: func() {
				cancel()
				_ = stream.CloseSend()
			},
			Abort: cancel,
		},
		Session: s, Handle: c.handle, Calls: c.calls,
		Now: u.o.Clock.Now,
		Timer: func(d time.Duration) (<-chan time.Time, func()) {
			t := u.o.Clock.NewTimer(d)
			return t.C(), func() { t.Stop() }
		},
	})
	u.connected.Store(false)
	cancel()
	// The next session must not apply an item while this one still does.
	c.others.Wait()
	_ = stream.Close()
	u.o.Outbox.used(s.Sequence())
	u.epoch = max(u.epoch, s.Epoch())
	return err
}

// begin returns the session with everything that has to be told at its start.
func (c *conversation) begin() (*session.Session, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.o.ApplyTimeout)
	defer cancel()
	held, err := c.o.Applier.Held(ctx)
	if err != nil {
		return nil, fmt.Errorf("read what is held: %w", err)
	}
	cfg := c.o.Session
	cfg.Known = nil
	for _, h := range held {
		cfg.Known = append(cfg.Known, session.Version{UID: h.GetUid(), Generation: h.GetGeneration(), Hash: h.GetHash()})
	}
	s := session.NewAgent(c.o.Clock.Now(), cfg, &agentv1.Hello{
		Member: c.o.Member, Identity: c.o.Identity, Instance: c.o.Instance, AgentVersion: c.o.Version,
		LastEpoch: c.epoch, Providers: c.o.Providers, Networks: c.o.Networks,
	})
	all, sequence := c.o.Outbox.takeAll()
	s.StartAfter(sequence)
	tell(s, all)
	return s, nil
}

func tell(s *session.Session, n news) {
	for _, u := range n.puts {
		s.Put(u)
	}
	for _, uid := range n.deletes {
		s.Delete(uid)
	}
	if n.complete {
		s.Complete()
	}
}

func (c *conversation) handle(_ time.Time, _ *session.Session, e session.Event) error {
	switch e := e.(type) {
	case session.Welcomed:
		c.welcomed(e.Welcome)
	case session.Leased:
		if c.o.Leased != nil {
			c.o.Leased(e.Proxies, e.All)
		}
	case session.Apply:
		c.work(e.Upsert.GetUid(), e.Upsert.GetSequence(), func(ctx context.Context) error {
			return c.apply(ctx, e.Upsert)
		})
	case session.Delete:
		c.work(e.UID, e.Sequence, func(ctx context.Context) error {
			return c.o.Applier.Delete(ctx, e.UID)
		})
	case session.Resynced:
		c.o.Logger.Info("in step with the hub", "items", e.Count, "pruned", e.Pruned)
	case session.HeldBack:
		c.o.Logger.Warn("the hub's list lacks most of what is held; nothing is deleted before it is confirmed",
			"missing", e.Missing, "known", e.Known)
	case session.TombstoneAcked:
		c.o.Outbox.acknowledged(e.UID)
	case session.Acked:
		if e.Problem != "" {
			c.o.Logger.Warn("the hub does not take a report", "uid", e.UID, "problem", e.Problem)
		}
	case session.Beat, session.Greeted:
		// A beat has been counted by the session; hubs alone are greeted.
	}
	return nil
}

func (c *conversation) welcomed(w *agentv1.Welcome) {
	if !c.connected.Swap(true) {
		c.o.Logger.Info("session began", "epoch", w.GetEpoch(), "hubUID", w.GetHubUid(), "memberUID", w.GetMemberUid())
	}
	c.o.Applier.Welcomed(w.GetHubUid(), w.GetMemberUid())
	if len(w.GetCredentialKeys()) == 0 {
		return
	}
	select {
	case <-c.keys:
	default:
	}
	c.keys <- w.GetCredentialKeys()
}

// keepKeys gives the Applier the newest keys until it has taken them.
func (c *conversation) keepKeys() {
	for {
		var keys []byte
		select {
		case keys = <-c.keys:
		case <-c.ctx.Done():
			return
		}
		for keys != nil {
			err := c.bounded(func(ctx context.Context) error { return c.o.Applier.SetKeys(ctx, keys) })
			if err == nil || c.ctx.Err() != nil {
				break
			}
			c.o.Logger.Warn("cannot keep the keys for credentials", "err", err, "retryIn", keysRetry.String())
			retry := c.o.Clock.NewTimer(keysRetry)
			select {
			case <-retry.C():
			case keys = <-c.keys:
			case <-c.ctx.Done():
			}
			retry.Stop()
		}
	}
}

// watch tells the session what changes in the outbox.
func (c *conversation) watch() {
	for {
		select {
		case <-c.o.Outbox.signal:
		case <-c.ctx.Done():
			return
		}
		c.call(func(_ time.Time, s *session.Session) error {
			tell(s, c.o.Outbox.takeChanged())
			return nil
		})
	}
}

// work runs a call of the Applier beside the session and reports its outcome. The session allows one for each uid, so
// there are no more of them than items.
func (c *conversation) work(uid string, sequence uint64, do func(context.Context) error) {
	c.others.Go(func() {
		select {
		case c.turns <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
		err := c.bounded(do)
		<-c.turns
		problem := ""
		if err != nil {
			if c.ctx.Err() != nil {
				return
			}
			problem = err.Error()
			c.o.Logger.Warn("cannot act on an item", "uid", uid, "err", err)
		}
		c.call(func(now time.Time, s *session.Session) error {
			s.Applied(now, uid, sequence, problem)
			return nil
		})
	})
}

func (c *conversation) apply(ctx context.Context, u *agentv1.Upsert) error {
	body, ok := u.GetBody().(*agentv1.Upsert_ProxySetSpec)
	if !ok {
		return errors.New("the agent does not know this kind of item; it is older than the hub")
	}
	item := Item{UID: u.GetUid(), Generation: u.GetGeneration(), Hash: u.GetHash(), Spec: body.ProxySetSpec}
	for _, c := range u.GetCredentials() {
		item.Credentials = append(item.Credentials, Credentials{Key: c.GetKey(), Username: c.GetUsername(), Password: c.GetPassword()})
	}
	return c.o.Applier.Apply(ctx, item)
}

// bounded calls do with a context that ends with the session and in time.
func (c *conversation) bounded(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.o.ApplyTimeout)
	defer cancel()
	return do(ctx)
}

// call does something to the session, unless it ends before.
func (c *conversation) call(do pump.Call) {
	select {
	case c.calls <- do:
	case <-c.ctx.Done():
	}
}
