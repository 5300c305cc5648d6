package disk

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// victimDir names the journal of a victim, in its environment.
const victimDir = "SHOAL_TEST_JOURNAL_DIR"

const (
	crashFleet   = lease.FleetID("crawl/news")
	crashProxies = 6
	crashSlots   = 2
	crashClients = 8
)

// event is one line from a victim: what it is about to do, or what was
// acknowledged.
type event struct {
	Do      string             `json:"do"` // see below
	Request lease.RequestID    `json:"request,omitempty"`
	ID      lease.ID           `json:"id,omitempty"`
	Proxy   lease.ProxyUID     `json:"proxy,omitempty"`
	Token   lease.FencingToken `json:"token"`
	Expires time.Time          `json:"expires,omitzero"`
	Target  string             `json:"target,omitempty"`
}

// What events say. Those in -ing come before a command, the others after its
// answer.
const (
	acquiring = "acquiring"
	granted   = "granted"
	releasing = "releasing"
	released  = "released"
	renewed   = "renewed"
	banned    = "banned"
	refused   = "refused"
)

// task is what a victim has to go on with: events of the last one.
type task struct {
	Acquiring []lease.RequestID `json:"acquiring"`
	Releasing []lease.ID        `json:"releasing"`
	Held      []lease.ID        `json:"held"`
	Round     int               `json:"round"`
	Seed      uint64            `json:"seed"`
}

// client carries out random commands until the process ends.
type client struct {
	keeper *keeper.Keeper
	name   int
	task   *task
	random *mathrand.Rand
	say    func(event)
	held   []lease.ID
}

const anna = lease.Principal("anna")

// victim runs a keeper on the journal, and clients, until it is killed.
func victim(dir string) error {
	var todo task
	if err := json.NewDecoder(bufio.NewReader(os.Stdin)).Decode(&todo); err != nil {
		return err
	}
	j, err := Open(Options{Dir: dir, Owner: "hub-1", Now: time.Now(), New: true, CompactAfter: 50, Reserve: 1 << 20})
	if err != nil {
		return err
	}
	k := keeper.New(keeper.Options{Engine: crashEngine(j), Journal: j})
	ended := make(chan error, 1+crashClients)
	go func() { ended <- k.Run(context.Background()) }()
	if err := stock(k); err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(e event) {
		line, err := json.Marshal(e)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			_, err = os.Stdout.Write(append(line, '\n'))
		}
		if err != nil {
			ended <- err
		}
	}
	for i := range crashClients {
		c := &client{keeper: k, name: i, task: &todo, say: say, random: mathrand.New(mathrand.NewPCG(todo.Seed, uint64(i)))}
		go func() { ended <- c.run() }()
	}
	return <-ended
}

func crashEngine(j *Journal) *lease.Engine {
	return lease.New(lease.Options{
		IDs: lease.NewRandomIDs(rand.Reader), Epoch: j.Epoch(), HistoryComplete: true, Freshness: time.Hour,
		Guard: lease.Guard{ReporterFloor: 1 << 20, TargetFloor: 1 << 20},
	})
}

// stock tells the keeper of the fleet and its proxies.
func stock(k *keeper.Keeper) error {
	policy := lease.Policy{MaxLeasesPerProxy: crashSlots, DefaultTTL: time.Hour, MaxTTL: time.Hour, MaxLifetime: 10 * time.Hour}
	<-k.Ready()
	if _, err := k.Do(context.Background(), lease.SetFleet{Fleet: lease.Fleet{ID: crashFleet, Policy: policy}}); err != nil {
		return err
	}
	for i := range crashProxies {
		_, err := k.Do(context.Background(), lease.UpsertProxy{Proxy: lease.Proxy{
			UID: lease.ProxyUID(fmt.Sprintf("px-%d", i)), Fleet: crashFleet, Member: "east", Ready: true,
			Endpoints: []lease.Endpoint{{Network: "PodIP", Host: "10.0.0.1", Port: 3128}},
			Exits:     []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})},
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// run takes up its part of what the last victim left, and goes on.
func (c *client) run() error {
	for i, request := range c.task.Acquiring {
		if i%crashClients == c.name {
			if err := c.acquire(request); err != nil {
				return err
			}
		}
	}
	for i, id := range c.task.Releasing {
		if i%crashClients == c.name {
			if err := c.release(id); err != nil {
				return err
			}
		}
	}
	for i, id := range c.task.Held {
		if i%crashClients == c.name {
			c.held = append(c.held, id)
		}
	}
	for n := 0; ; n++ {
		if err := c.step(n); err != nil {
			return err
		}
	}
}

func (c *client) step(n int) error {
	if len(c.held) == 0 {
		return c.acquire(lease.RequestID(fmt.Sprintf("r-%d-%d-%d", c.task.Round, c.name, n)))
	}
	i := c.random.IntN(len(c.held))
	id := c.held[i]
	switch c.random.IntN(6) {
	case 0:
		return c.ban(id, fmt.Sprintf("t%d-%d-%d.example", c.task.Round, c.name, n))
	case 1:
		got, err := c.keeper.Renew(context.Background(), lease.Renew{Principal: anna, ID: id})
		if err != nil {
			return err
		}
		c.say(event{Do: renewed, ID: id, Expires: got.Lease.Expires})
		return nil
	case 2, 3:
		c.held = append(c.held[:i], c.held[i+1:]...)
		return c.release(id)
	default:
		return c.acquire(lease.RequestID(fmt.Sprintf("r-%d-%d-%d", c.task.Round, c.name, n)))
	}
}

func (c *client) acquire(request lease.RequestID) error {
	c.say(event{Do: acquiring, Request: request})
	got, err := c.keeper.Acquire(context.Background(), lease.Acquire{Principal: anna, Fleet: crashFleet, RequestID: request})
	var refusal *lease.Refusal
	if errors.As(err, &refusal) && refusal.Reason == lease.NoCapacity {
		c.say(event{Do: refused, Request: request})
		return nil
	}
	if err != nil {
		return err
	}
	l := &got.Leases[0]
	c.held = append(c.held, l.ID)
	c.say(event{Do: granted, Request: request, ID: l.ID, Proxy: l.Proxy, Token: l.Token, Expires: l.Expires})
	return nil
}

func (c *client) release(id lease.ID) error {
	c.say(event{Do: releasing, ID: id})
	if _, err := c.keeper.Release(context.Background(), lease.Release{Principal: anna, ID: id}); err != nil {
		return err
	}
	c.say(event{Do: released, ID: id})
	return nil
}

func (c *client) ban(id lease.ID, target string) error {
	got, err := c.keeper.Report(context.Background(), lease.Report{
		Principal: anna, ID: id, Observations: []lease.Observation{{Target: lease.MustParseTarget(target), Outcome: lease.Blocked}},
	})
	if err != nil {
		return err
	}
	c.say(event{Do: banned, Proxy: got.Lease.Proxy, Target: target})
	return nil
}
