package valkey

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/keeper/valkey/valkeytest"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// hub is a keeper over a journal, with a fleet of a thousand slots: what of a hub the failures are about.
type hub struct {
	t       *testing.T
	journal *Journal
	keeper  *keeper.Keeper
	ended   chan error
	stop    context.CancelFunc
}

const fleet = lease.FleetID("crawl/news")

func startHub(t *testing.T, opts Options) *hub {
	t.Helper()
	opts.Now = time.Now()
	j := mustOpen(t, opts)
	since, whole := j.Since()
	engine := lease.New(lease.Options{IDs: lease.NewRandomIDs(rand.Reader), Epoch: j.Epoch(), StartedAt: since, HistoryComplete: whole})
	h := &hub{t: t, journal: j, keeper: keeper.New(keeper.Options{Engine: engine, Journal: j}), ended: make(chan error, 1)}
	var ctx context.Context
	ctx, h.stop = context.WithCancel(t.Context())
	go func() { h.ended <- h.keeper.Run(ctx) }()
	t.Cleanup(h.stop)
	select {
	case <-h.keeper.Ready():
	case err := <-h.ended:
		t.Fatal(err)
	}
	h.must(lease.SetFleet{Fleet: lease.Fleet{ID: fleet, Policy: lease.Policy{MaxLeasesPerProxy: 1000}}})
	h.must(lease.Touch{ID: "east"})
	h.must(lease.UpsertProxy{Proxy: lease.Proxy{
		UID: "px-1", Fleet: fleet, Member: "east", Ready: true, Exits: []netip.Addr{netip.MustParseAddr("203.0.113.1")},
		Endpoints: []lease.Endpoint{{Network: "VM", Host: "203.0.113.1", Port: 3128}},
	}})
	return h
}

func (h *hub) must(cmd lease.Command) lease.Result {
	h.t.Helper()
	result, err := h.keeper.Do(h.t.Context(), cmd)
	if err != nil {
		h.t.Fatal(err)
	}
	return result
}

// grant leases something, or says why it could not.
func (h *hub) grant(request string) (lease.ID, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	granted, err := h.keeper.Acquire(ctx, lease.Acquire{
		Principal: "anna", Fleet: fleet, Target: lease.MustParseTarget("www.example.com"), RequestID: lease.RequestID(request),
	})
	if err != nil {
		return "", err
	}
	return granted.Leases[0].ID, nil
}

func (h *hub) mustGrant(request string) lease.ID {
	h.t.Helper()
	id, err := h.grant(request)
	if err != nil {
		h.t.Fatal(err)
	}
	return id
}

// knows checks that leases live, and that there are no others.
func (h *hub) knows(ids ...lease.ID) {
	h.t.Helper()
	for _, id := range ids {
		if found := h.must(lease.Get{Principal: "anna", ID: id}).(lease.Found); found.Lease.State != lease.Live {
			h.t.Errorf("lease %s is %v", id, found.Lease.State)
		}
	}
	if stats := h.must(lease.ReadStats{Fleet: fleet}).(lease.Stats); stats.Leases != len(ids) {
		h.t.Errorf("%d leases are held, want %d", stats.Leases, len(ids))
	}
}

// over stops the hub and checks how it ended.
func (h *hub) over(want error) {
	h.t.Helper()
	h.stop()
	if err := <-h.ended; !errors.Is(err, want) {
		h.t.Errorf("the keeper ended with %v, want %v", err, want)
	}
}

func impatient(server *valkeytest.Server) Options {
	opts := options(server, "p")
	opts.Timeout, opts.Patience = 300*time.Millisecond, 20*time.Second
	return opts
}

// TestServerCrashes kills the server again and again under load: each acknowledged lease is there in the end, none twice,
// and callers only wait.
func TestServerCrashes(t *testing.T) {
	server := valkeytest.Start(t)
	h := startHub(t, impatient(server))
	var granted []lease.ID
	var mu sync.Mutex
	var count atomic.Int64
	done := make(chan struct{})
	var clients sync.WaitGroup
	for client := range 8 {
		clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				if count.Load() >= 900 {
					<-done
					return
				}
				id, err := h.grant(fmt.Sprint(client, "-", i))
				if err != nil {
					t.Errorf("client %d: %v", client, err)
					return
				}
				mu.Lock()
				granted = append(granted, id)
				mu.Unlock()
				count.Add(1)
			}
		})
	}
	for crash := range int64(5) {
		for count.Load() < (crash+1)*100 && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		server.Kill()
		server.Run()
	}
	close(done)
	clients.Wait()
	h.knows(granted...)
	h.over(nil)
	next := startHub(t, options(server, "p"))
	next.knows(granted...)
	t.Logf("%d leases over 5 crashes of the server", len(granted))
}

// TestColdStartAfterACrash starts a hub on a server that was restarted meanwhile: the journal cannot tell that from a
// restored backup, so what it holds is known, and nothing is granted for one maxTTL.
func TestColdStartAfterACrash(t *testing.T) {
	server := valkeytest.Start(t)
	h := startHub(t, options(server, "p"))
	id := h.mustGrant("one")
	h.over(nil)
	server.Kill()
	server.Run()
	next := startHub(t, options(server, "p"))
	if !next.journal.Replaced() {
		t.Error("it is not noticed")
	}
	next.knows(id)
	var refusal *lease.Refusal
	if _, err := next.grant("two"); !errors.As(err, &refusal) || refusal.Reason != lease.StaleInventory {
		t.Errorf("a grant: %v", err)
	}
	if again, err := next.grant("one"); err != nil || again != id {
		t.Errorf("the same request: %s, %v", again, err)
	}
	next.over(nil)
	third := startHub(t, options(server, "p"))
	if third.journal.Replaced() {
		t.Error("it is noticed twice")
	}
	if _, whole := third.journal.Since(); whole {
		t.Error("it is forgotten")
	}
}

// TestServerHangs stops the server's process while batches are sent to it: they are sent again, and each counts once.
func TestServerHangs(t *testing.T) {
	server := valkeytest.Start(t)
	h := startHub(t, impatient(server))
	ids := []lease.ID{h.mustGrant("before")}
	for i := range 3 {
		server.Pause()
		answer := make(chan lease.ID, 1)
		go func() {
			id, err := h.grant(fmt.Sprint(i))
			if err != nil {
				t.Error(err)
			}
			answer <- id
		}()
		select {
		case <-answer:
			t.Error("it is answered while the server hangs")
		case <-time.After(time.Second): // some attempts
		}
		server.Resume()
		ids = append(ids, <-answer)
	}
	h.knows(ids...)
	h.over(nil)
	startHub(t, options(server, "p")).knows(ids...)
}

// TestServerStaysAway has the keeper end when its patience does; the lease that was under way may be granted or not.
func TestServerStaysAway(t *testing.T) {
	server := valkeytest.Start(t)
	opts := impatient(server)
	opts.Patience = 500 * time.Millisecond
	h := startHub(t, opts)
	ids := []lease.ID{h.mustGrant("before")}
	server.Pause()
	_, err := h.grant("during")
	var away *keeper.Unavailable
	if !errors.As(err, &away) || !away.Maybe {
		t.Errorf("the caller gets %v", err)
	}
	if err := <-h.ended; err == nil {
		t.Error("the keeper goes on")
	}
	server.Resume()
	next := startHub(t, options(server, "p"))
	ids = append(ids, next.mustGrant("during")) // the same request: one lease, whatever became of it
	next.knows(ids...)
}

// TestLostReply applies a batch whose answer the hub did not get.
func TestLostReply(t *testing.T) {
	server := valkeytest.Start(t)
	lossy := newRelay(t, server)
	opts := impatient(server)
	opts.Server.Addresses = []string{lossy.address}
	j := mustOpen(t, opts)
	var want []lease.Record
	for i := range 20 {
		if i%4 == 0 {
			lossy.loseNextReply.Store(true)
		}
		mustAppend(t, j, paused(i*10, i*10+10)...)
		want = append(want, paused(i*10, i*10+10)...)
	}
	if lossy.lost.Load() < 5 {
		t.Fatalf("only %d replies were lost", lossy.lost.Load())
	}
	sameRecords(t, want, loaded(t, j))
}

// TestScriptsFlushed makes the server forget the scripts.
func TestScriptsFlushed(t *testing.T) {
	server := valkeytest.Start(t)
	j := mustOpen(t, options(server, "p"))
	mustAppend(t, j, paused(0, 3)...)
	server.Must("SCRIPT", "FLUSH")
	mustAppend(t, j, paused(3, 6)...)
	sameRecords(t, paused(0, 6), loaded(t, j))
}

// TestFailover lets a replica take over that lacks what was granted last. The hub that lives writes all of it again; a hub
// that starts instead finds out that something may be missing.
func TestFailover(t *testing.T) {
	for name, cold := range map[string]bool{"TheHubLives": false, "TheHubDiesToo": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary, replica := valkeytest.Start(t), valkeytest.Start(t)
			way := newRelay(t, primary)
			opts := impatient(primary)
			opts.Server.Addresses = []string{way.address}
			h := startHub(t, opts)
			ids := []lease.ID{h.mustGrant("replicated")}
			replica.Follow(primary)
			if n, err := primary.Do("WAIT", "1", "5000").AsInt64(); err != nil || n != 1 {
				t.Fatalf("%d replicas: %v", n, err)
			}
			replica.Must("REPLICAOF", "NO", "ONE") // it lacks what comes from now on
			last := h.mustGrant("not replicated")
			if cold {
				h.over(nil)
			}
			primary.Kill()
			way.to(replica)
			if cold {
				next := startHub(t, opts)
				if !next.journal.Replaced() {
					t.Error("the failover is not noticed")
				}
				next.knows(ids...)
				var refusal *lease.Refusal
				if _, err := next.grant("another"); !errors.As(err, &refusal) || refusal.Reason != lease.StaleInventory {
					t.Errorf("a grant after it: %v", err)
				}
				return
			}
			ids = append(ids, last, h.mustGrant("after"))
			h.knows(ids...)
			h.over(nil)
			next := startHub(t, opts)
			if next.journal.Replaced() {
				t.Error("the leader did not note the new primary")
			}
			next.knows(ids...)
			next.mustGrant("more")
		})
	}
}

// TestServerEmptied loses all data under a hub that lives, which writes it again.
func TestServerEmptied(t *testing.T) {
	server := valkeytest.Start(t)
	h := startHub(t, options(server, "p"))
	ids := []lease.ID{h.mustGrant("one")}
	server.Must("FLUSHALL")
	ids = append(ids, h.mustGrant("two"))
	h.knows(ids...)
	h.over(nil)
	next := startHub(t, options(server, "p"))
	next.knows(ids...)
	if next.journal.Fresh() || next.journal.ID() != h.journal.ID() {
		t.Error("it is another journal now")
	}
}

// TestInterruptedRewrite starts a hub on a server that the leader was writing everything to again when it died.
func TestInterruptedRewrite(t *testing.T) {
	server := valkeytest.Start(t)
	first := mustOpen(t, options(server, "p"))
	mustAppend(t, first, paused(0, 3)...)
	server.Must("FLUSHALL")
	if err := first.Append(t.Context(), paused(3, 6)); !errors.Is(err, keeper.ErrForgotten) {
		t.Fatalf("an append to nothing: %v", err)
	}
	died := errors.New("killed")
	err := first.Rewrite(t.Context(), func(emit func(lease.Record) error) error {
		for _, rec := range paused(0, 2) {
			if err := emit(rec); err != nil {
				return err
			}
		}
		return died
	})
	if !errors.Is(err, died) {
		t.Fatal(err)
	}
	if err := first.Append(t.Context(), paused(3, 6)); !errors.Is(err, keeper.ErrForgotten) {
		t.Errorf("an append to half a journal: %v", err)
	}
	opts := options(server, "p")
	opts.Now = now.Add(time.Hour)
	next := mustOpen(t, opts)
	if since, whole := next.Since(); !next.Replaced() || whole || !since.Equal(opts.Now) {
		t.Errorf("half a journal is believed: since %v, whole %v", since, whole)
	}
	if got := loaded(t, next); len(got) != 0 {
		t.Errorf("%d records of half a snapshot", len(got))
	}
}

// TestForeignJournal puts another journal in place of the one in use.
func TestForeignJournal(t *testing.T) {
	server := valkeytest.Start(t)
	first := mustOpen(t, options(server, "p"))
	mustAppend(t, first, paused(0, 3)...)
	server.Must("HSET", "{p}:journal:header", "id", "another")
	if err := first.Append(t.Context(), paused(3, 6)); !errors.Is(err, errForeign) {
		t.Errorf("an append: %v", err)
	}
	server.Must("DEL", "{p}:journal:header")
	server.Must("SET", "{p}:journal:header", "x")
	if err := first.Append(t.Context(), paused(3, 6)); !errors.Is(err, errForeign) {
		t.Errorf("an append to a string: %v", err)
	}
}

// TestOutOfMemory fills the server's memory. Grants are to stop first, what keeps promises goes on, and nothing that was
// acknowledged is lost. When there is room again it is used.
func TestOutOfMemory(t *testing.T) {
	const most = 24 << 20
	server := valkeytest.Start(t, "maxmemory", fmt.Sprint(most))
	opts := options(server, "p")
	opts.Reserve, opts.RoomEvery, opts.Patience = 8<<20, 5*time.Millisecond, 300*time.Millisecond
	j := mustOpen(t, opts)
	awaitRoom(t, j, keeper.RoomForAll)
	mustAppend(t, j, paused(0, 3)...)
	server.Must("SETRANGE", "ballast", fmt.Sprint(14<<20), "x")
	awaitRoom(t, j, keeper.RoomForUpkeep)
	mustAppend(t, j, paused(3, 6)...)
	server.Must("SETRANGE", "more", fmt.Sprint(7<<20), "x")
	awaitRoom(t, j, keeper.RoomForNothing)
	for i := 0; ; i++ { // another program takes the rest
		if err := server.Do("SETRANGE", fmt.Sprint("rest-", i), "1000000", "x").Error(); err != nil {
			break
		}
	}
	err := j.Append(t.Context(), paused(6, 9))
	if code(err) != "OOM" || !strings.Contains(err.Error(), "maxmemory") {
		t.Fatalf("an append to a full server: %v", err)
	}
	next := mustOpen(t, opts) // a start needs no room
	sameRecords(t, paused(0, 6), loaded(t, next))
	server.Must("FLUSHALL")
	awaitRoom(t, next, keeper.RoomForAll)
	if err := next.Append(t.Context(), paused(6, 9)); !errors.Is(err, keeper.ErrForgotten) {
		t.Error(err)
	}
}

func awaitRoom(t *testing.T, j *Journal, want keeper.Room) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		room, why := j.Room()
		if room == want {
			if (room == keeper.RoomForAll) != (why == "") {
				t.Errorf("room %d: %q", room, why)
			}
			return
		}
		select {
		case <-late:
			t.Fatalf("room %d (%s), want %d", room, why, want)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestRoomOf is what the server's words about its memory mean.
func TestRoomOf(t *testing.T) {
	info := func(most, used int) map[string]string {
		return map[string]string{"maxmemory": fmt.Sprint(most << 20), "used_memory": fmt.Sprint(used << 20)}
	}
	for name, test := range map[string]struct {
		info    map[string]string
		reserve uint64
		want    keeper.Room
	}{
		"NoLimit":        {info(0, 5000), 0, keeper.RoomForAll},
		"ToldNothing":    {nil, 0, keeper.RoomForAll},
		"Plenty":         {info(800, 600), 0, keeper.RoomForAll},
		"AnEighth":       {info(80, 71), 0, keeper.RoomForUpkeep},
		"NeverMoreThan":  {info(8000, 7930), 0, keeper.RoomForAll},
		"LastMegabyte":   {info(80, 79), 0, keeper.RoomForNothing},
		"BeyondTheLimit": {info(80, 90), 0, keeper.RoomForNothing},
		"OwnReserve":     {info(80, 60), 30 << 20, keeper.RoomForUpkeep},
	} {
		t.Run(name, func(t *testing.T) {
			got := keeper.RoomForAll
			if s := roomOf(test.info, test.reserve); s != nil {
				got = s.room
			}
			if got != test.want {
				t.Errorf("room %d, want %d", got, test.want)
			}
		})
	}
}

// relay is a way to a server which can lead to another one, and lose replies.
type relay struct {
	address       string
	mu            sync.Mutex
	target        string
	open          map[net.Conn]bool
	loseNextReply atomic.Bool
	lost          atomic.Int64
}

func newRelay(t *testing.T, server *valkeytest.Server) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	r := &relay{address: listener.Addr().String(), target: server.TCP, open: map[net.Conn]bool{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go r.carry(conn)
		}
	}()
	return r
}

// to leads to another server, and ends what leads to the one before.
func (r *relay) to(server *valkeytest.Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = server.TCP
	for conn := range r.open {
		_ = conn.Close()
	}
}

func (r *relay) carry(conn net.Conn) {
	r.mu.Lock()
	target := r.target
	r.open[conn] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.open, conn)
		r.mu.Unlock()
		_ = conn.Close()
	}()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer conn.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			// Only appends answer with a list of this one word.
			if string(buffer[:n]) == "*1\r\n$4\r\ndone\r\n" && r.loseNextReply.CompareAndSwap(true, false) {
				r.lost.Add(1)
				return
			}
			if _, err := conn.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}
