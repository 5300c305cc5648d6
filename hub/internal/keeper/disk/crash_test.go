package disk

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

var (
	crashes   = flag.Int("crashes", 20, "how often TestCrash kills its victim")
	crashSeed = flag.Uint64("crash-seed", 0, "seed of TestCrash; by default another one each time")
)

// held is a lease as its holder knows it.
type held struct {
	proxy   lease.ProxyUID
	token   lease.FencingToken
	expires time.Time
	// leaving says that its release was asked for, and ended that it was
	// acknowledged.
	leaving, ended bool
}

// history is what the victims acknowledged.
type history struct {
	t         *testing.T
	leases    map[lease.ID]*held
	acquiring map[lease.RequestID]bool
	bans      []event
	tokens    map[lease.FencingToken]lease.ID
	// last is the greatest token of earlier victims, greatest that of all.
	last, greatest lease.FencingToken
}

// TestCrash kills a process that leases from a keeper on a disk journal, with
// SIGKILL, again and again, and holds the next ones to what it acknowledged.
func TestCrash(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: -crash-seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	h := &history{
		t: t, leases: map[lease.ID]*held{}, acquiring: map[lease.RequestID]bool{}, tokens: map[lease.FencingToken]lease.ID{},
	}
	lines := 0
	for round := range *crashes {
		lines += h.kill(dir, round, random.Uint64(), 1+random.IntN(300))
		h.check(dir)
		if t.Failed() {
			t.Fatalf("after round %d", round)
		}
	}
	t.Logf("%d events, %d leases, %d bans over %d crashes", lines, len(h.leases), len(h.bans), *crashes)
}

// kill starts a victim, follows it for some events and kills it.
func (h *history) kill(dir string, round int, seed uint64, after int) int {
	todo := task{Round: round, Seed: seed, Acquiring: slices.Sorted(maps.Keys(h.acquiring))}
	for _, id := range slices.Sorted(maps.Keys(h.leases)) {
		switch l := h.leases[id]; {
		case l.ended:
		case l.leaving:
			todo.Releasing = append(todo.Releasing, id)
		default:
			todo.Held = append(todo.Held, id)
		}
	}
	input, err := json.Marshal(todo)
	if err != nil {
		h.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.CommandContext(h.t.Context(), self)
	cmd.Env = append(os.Environ(), victimDir+"="+dir)
	cmd.Stdin = bytes.NewReader(input)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.last = h.greatest
	n := 0
	for reader := bufio.NewReader(out); ; {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			break // a line that was cut off was not acknowledged
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			h.t.Fatalf("%q: %v", line, err)
		}
		h.follow(e)
		if n++; n == after {
			if err := cmd.Process.Kill(); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	err = cmd.Wait()
	if n < after || complaints.Len() > 0 {
		h.t.Fatalf("the victim ended by itself after %d events: %v\n%s", n, err, complaints.Bytes())
	}
	return n
}

// follow notes an event and checks what may never be.
func (h *history) follow(e event) {
	switch e.Do {
	case acquiring:
		h.acquiring[e.Request] = true
	case refused:
		delete(h.acquiring, e.Request)
	case granted:
		delete(h.acquiring, e.Request)
		h.granted(e)
	case releasing:
		h.leases[e.ID].leaving = true
	case released:
		h.leases[e.ID].ended = true
	case renewed:
		l := h.leases[e.ID]
		if e.Expires.After(l.expires) {
			l.expires = e.Expires
		}
	case banned:
		h.bans = append(h.bans, e)
	default:
		h.t.Fatalf("unknown event %+v", e)
	}
}

func (h *history) granted(e event) {
	if other, used := h.tokens[e.Token]; used && other != e.ID {
		h.t.Errorf("%s and %s have the same token %s", other, e.ID, e.Token)
	}
	if h.leases[e.ID] != nil {
		h.t.Errorf("%s was granted twice", e.ID)
	}
	onProxy := 0
	for _, l := range h.leases {
		if l.proxy == e.Proxy && !l.leaving {
			onProxy++
		}
	}
	if onProxy >= crashSlots {
		h.t.Errorf("%s is the %dth lease on %s, which has %d slots", e.ID, onProxy+1, e.Proxy, crashSlots)
	}
	h.leases[e.ID] = &held{proxy: e.Proxy, token: e.Token, expires: e.Expires}
	h.tokens[e.Token] = e.ID
	if e.Token.Compare(h.greatest) > 0 {
		h.greatest = e.Token
	}
}

// check reads the journal as the next hub would.
func (h *history) check(dir string) {
	h.t.Helper()
	j, err := Open(Options{Dir: dir, Owner: "hub-1", Now: time.Now(), New: true, Reserve: 1 << 20})
	if err != nil {
		h.t.Fatal(err)
	}
	defer mustClose(h.t, j)
	if j.Epoch() <= h.greatest.Epoch {
		h.t.Errorf("the next tokens are of epoch %d, after %s", j.Epoch(), h.greatest)
	}
	engine := crashEngine(j)
	if err := j.Load(h.t.Context(), engine.Apply); err != nil {
		h.t.Fatal(err)
	}
	at := time.Now()
	engine.Tick(at)
	for id, l := range h.leases {
		out, err := engine.Step(at, lease.Get{Principal: anna, ID: id})
		if err != nil {
			h.t.Errorf("%s is forgotten: %v", id, err)
			continue
		}
		got := out.Result.(lease.Found).Lease
		switch {
		case got.Proxy != l.proxy || got.Token != l.token:
			h.t.Errorf("%s on %s with %s became one on %s with %s", id, l.proxy, l.token, got.Proxy, got.Token)
		case l.ended && got.State != lease.StateReleased:
			h.t.Errorf("%s was released and is %s", id, got.State)
		case !l.leaving && got.State != lease.Live:
			h.t.Errorf("%s is %s and was never released", id, got.State)
		case !l.leaving && got.Expires.Before(l.expires):
			h.t.Errorf("%s expires at %s, and %s was promised", id, got.Expires, l.expires)
		}
	}
	for _, ban := range h.bans {
		if !cools(h.t, engine, at, ban) {
			h.t.Errorf("the ban of %s for %s is forgotten", ban.Proxy, ban.Target)
		}
	}
	out, err := engine.Step(at, lease.ReadUse{Fleet: crashFleet})
	if err != nil {
		return // killed before the fleet was known
	}
	for _, use := range out.Result.(lease.UseList).Proxies {
		if use.Leases > crashSlots {
			h.t.Errorf("%s has %d leases and %d slots", use.UID, use.Leases, crashSlots)
		}
	}
}

// cools tells whether the proxy of a ban cools for its target.
func cools(t *testing.T, engine *lease.Engine, at time.Time, ban event) bool {
	t.Helper()
	out, err := engine.Step(at, lease.List{Fleet: crashFleet, Target: lease.MustParseTarget(ban.Target)})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range out.Result.(lease.Page).Proxies {
		if p.Proxy.UID == ban.Proxy {
			return p.CoolingFor > 0
		}
	}
	return false
}
