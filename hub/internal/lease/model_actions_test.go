package lease

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// acquire asks for leases and has the answer judged.
func (m *model) acquire(t *rapid.T) {
	cmd := Acquire{
		Principal: Principal(rapid.SampledFrom([]string{"anna", "boris"}).Draw(t, "principal")),
		Fleet:     modelFleet, Target: rapid.SampledFrom(modelTargets).Draw(t, "target"),
	}
	if rapid.Bool().Draw(t, "byRegion") {
		cmd.Selector.Region = rapid.SampledFrom(modelRegions).Draw(t, "region")
	}
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		cmd.Exclusive = true
	case 1, 2:
		cmd.Count = new(int)
		*cmd.Count = rapid.IntRange(1, 5).Draw(t, "count")
		if rapid.Bool().Draw(t, "partly") {
			cmd.MinCount = new(int)
			*cmd.MinCount = rapid.IntRange(1, *cmd.Count).Draw(t, "least")
		}
		cmd.Exclusive = rapid.Bool().Draw(t, "exclusive")
	}
	if rapid.IntRange(0, 5).Draw(t, "withID") == 0 {
		cmd.RequestID = RequestID(fmt.Sprintf("r-%d", m.ids))
		m.ids++
	}
	if rapid.Bool().Draw(t, "waits") {
		cmd.Wait = time.Duration(rapid.IntRange(1, 40).Draw(t, "wait")) * time.Second
	}
	result, refusal := m.step(cmd)
	if waiting, ok := result.(Waiting); ok {
		m.waiters = append(m.waiters, &modelWaiter{ticket: waiting.Ticket, cmd: cmd, came: m.now, deadline: m.now.Add(cmd.Wait)})
		if w := m.next(); w != nil {
			t.Fatalf("%+v waits for what could be granted", w)
		}
		return
	}
	m.judge(cmd, result, refusal)
	m.settle()
	if cmd.RequestID == "" || refusal != nil {
		return
	}
	first := result.(Granted)
	again := m.must(cmd).(Granted)
	if !again.Repeated || first.Repeated {
		t.Fatalf("repeated is %v, then %v", first.Repeated, again.Repeated)
	}
	again.Repeated = false
	if diff := cmp.Diff(first, again, cmp.Comparer(func(a, b Exit) bool { return a == b }), cmp.Comparer(func(a, b Target) bool { return a == b })); diff != "" {
		t.Fatalf("the same request got another answer (-first +again):\n%s", diff)
	}
	cmd.Exclusive = !cmd.Exclusive
	if _, refusal := m.step(cmd); refusal == nil || refusal.Reason != InvalidRequest || refusal.Field != "request_id" {
		t.Fatalf("another body with the same request id: %v", refusal)
	}
}

// some returns a lease that lives, or nil.
func (m *model) some(t *rapid.T) *modelLease {
	live := slices.DeleteFunc(slices.Clone(m.leases), func(l *modelLease) bool { return !l.live() })
	if len(live) == 0 {
		return nil
	}
	return rapid.SampledFrom(live).Draw(t, "lease")
}

func (m *model) release(t *rapid.T) {
	l := m.some(t)
	if l == nil {
		return
	}
	if released := m.must(Release{Principal: l.principal, ID: l.id}).(Released); released.Already {
		t.Fatalf("%s had ended before", l.id)
	}
	m.settle()
	if released := m.must(Release{Principal: l.principal, ID: l.id}).(Released); !released.Already {
		t.Fatalf("%s ended twice", l.id)
	}
}

func (m *model) renew(t *rapid.T) {
	l := m.some(t)
	if l == nil {
		return
	}
	if _, refusal := m.step(Renew{Principal: "mallory", ID: l.id}); refusal == nil || refusal.Reason != NotHolder {
		t.Fatalf("renewed by another: %v", refusal)
	}
	before := l.expires
	renewed := m.must(Renew{Principal: l.principal, ID: l.id}).(Renewed)
	p := m.find(l.proxy)
	want := m.now.Add(modelPolicy.DefaultTTL)
	if want.After(l.life) {
		want = l.life
	}
	if want.Before(before) {
		want = before
	}
	if p.Draining && !p.DrainDeadline.IsZero() && want.After(p.DrainDeadline) {
		want = p.DrainDeadline
		if !want.After(m.now) {
			want = before
		}
	}
	if !renewed.Lease.Expires.Equal(want) {
		t.Fatalf("%s is renewed to %s, want %s (was %s)", l.id, renewed.Lease.Expires, want, before)
	}
	m.settle()
}

func (m *model) report(t *rapid.T) {
	if len(m.leases) == 0 {
		return
	}
	l := rapid.SampledFrom(m.leases[max(0, len(m.leases)-10):]).Draw(t, "lease")
	o := Observation{
		Target:  rapid.SampledFrom(modelTargets[1:]).Draw(t, "target"),
		Outcome: rapid.SampledFrom([]Outcome{OK, Blocked, Captcha, RateLimited, TargetError, ProxyError, Timeout}).Draw(t, "outcome"),
	}
	_, refusal := m.step(Report{Principal: l.principal, ID: l.id, Observations: []Observation{o}})
	ended := l.expires
	if !l.live() && l.heldUntil.Add(-modelPolicy.ReuseDelay).Before(ended) {
		ended = l.heldUntil.Add(-modelPolicy.ReuseDelay)
	}
	if refusal != nil && (refusal.Reason != LeaseExpired || m.now.Before(ended.Add(Remembered))) {
		t.Fatalf("the report is refused: %v", refusal)
	}
}

// drawProxy describes one of seven proxies anew.
func (m *model) drawProxy(t *rapid.T) Proxy {
	n := rapid.IntRange(0, 6).Draw(t, "proxy")
	exits := []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(rapid.IntRange(1, 5).Draw(t, "exit"))})}
	if rapid.Bool().Draw(t, "dual") {
		exits = append(exits, netip.MustParseAddr(fmt.Sprintf("2001:db8:0:%d::1", rapid.IntRange(1, 3).Draw(t, "prefix"))))
	}
	return Proxy{
		UID: ProxyUID(fmt.Sprintf("uid-%d", n)), Fleet: modelFleet, Member: MemberID(fmt.Sprintf("m-%d", n%2)),
		Region: modelRegions[n%2], Exits: exits, Endpoints: []Endpoint{{Network: "PodIP", Host: "10.0.0.1", Port: 3128}},
		Ready: rapid.IntRange(0, 4).Draw(t, "ready") > 0, Saturated: rapid.IntRange(0, 6).Draw(t, "saturated") == 0,
	}
}

func (m *model) upsert(t *rapid.T) {
	proxy := m.drawProxy(t)
	known := proxy
	m.seen[proxy.Member] = m.now
	if p := m.find(proxy.UID); p != nil {
		proxy.Draining, proxy.DrainDeadline = p.Draining, p.DrainDeadline
		p.Proxy = proxy
	} else {
		m.proxies = append(m.proxies, &modelProxy{Proxy: proxy, level: notQueued})
	}
	m.must(UpsertProxy{Proxy: known})
	m.settle()
}

func (m *model) remove(t *rapid.T) {
	if len(m.proxies) == 0 || rapid.IntRange(0, 2).Draw(t, "spare") > 0 {
		return
	}
	i := rapid.IntRange(0, len(m.proxies)-1).Draw(t, "index")
	gone := m.proxies[i]
	m.proxies = slices.Delete(m.proxies, i, i+1)
	m.must(RemoveProxy{UID: gone.UID})
	for _, l := range m.leases { // a proxy that comes back under the same uid starts empty
		if l.proxy == gone.UID {
			l.proxy = "gone"
		}
	}
	m.settle()
}

func (m *model) drain(t *rapid.T) {
	if len(m.proxies) == 0 || rapid.IntRange(0, 3).Draw(t, "spare") > 0 {
		return
	}
	p := rapid.SampledFrom(m.proxies).Draw(t, "proxy")
	cmd := Drain{UID: p.UID, OnlyIdle: rapid.Bool().Draw(t, "onlyIdle"), Deadline: m.now.Add(30 * time.Second)}
	held := 0
	for _, l := range m.leases {
		if l.proxy == p.UID && l.live() {
			held++
		}
	}
	want := !cmd.OnlyIdle || held == 0 || p.Draining
	if want {
		p.Draining, p.DrainDeadline = true, cmd.Deadline
	}
	if drained := m.must(cmd).(Drained); drained.Draining != want || drained.Leases != held {
		t.Fatalf("drained %+v, want %v with %d leases", drained, want, held)
	}
	m.settle()
}

func (m *model) member(t *rapid.T) {
	id := rapid.SampledFrom([]MemberID{"m-0", "m-1"}).Draw(t, "member")
	if rapid.Bool().Draw(t, "touch") {
		if slices.ContainsFunc(m.proxies, func(p *modelProxy) bool { return p.Member == id }) {
			m.seen[id] = m.now
		}
		m.must(Touch{ID: id})
	} else {
		m.suspect[id] = rapid.Bool().Draw(t, "suspect")
		m.must(SetMember{ID: id, Suspect: m.suspect[id]})
	}
	m.settle()
}

// actions are what rapid chooses among.
func (m *model) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"acquire": m.acquire, "acquire2": m.acquire, "release": m.release, "renew": m.renew, "report": m.report,
		"leave": m.leave, "upsert": m.upsert, "remove": m.remove, "drain": m.drain, "member": m.member,
		"pass": func(t *rapid.T) { m.pass(time.Duration(rapid.IntRange(1, 30).Draw(t, "seconds")) * time.Second) },
	}
}

// TestModel compares the engine with the model over random histories.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, 45*time.Second)
		for range 4 {
			m.upsert(t)
		}
		t.Repeat(m.actions())
	})
}

// TestReplay checks that an engine built from the records is the one that
// wrote them, in the order of its queues too, and that it goes on as that one
// does. No member goes stale in it: that is not durable.
func TestReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, 1000*time.Hour)
		for range 4 {
			m.upsert(t)
		}
		actions := m.actions()
		actions[""] = func(t *rapid.T) {
			if rapid.IntRange(0, 9).Draw(t, "restart") > 0 {
				return
			}
			again := newModelEngine(1000 * time.Hour)
			if err := again.Replay(m.records); err != nil {
				t.Fatal(err)
			}
			if out := again.Tick(m.now); len(out.Records) > 0 {
				t.Fatalf("time after the replay gave %d records", len(out.Records))
			}
			if err := verify(again); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(dump(m.engine), dump(again)); diff != "" {
				t.Fatalf("replay differs (-wrote +replayed):\n%s", diff)
			}
			again.opts.IDs = m.engine.opts.IDs
			m.engine = again // and go on with it
			m.waiters = nil  // waiting is not durable
		}
		t.Repeat(actions)
	})
}
