package lease

import (
	"testing"
	"time"
)

// TestRefusals is the table of what is refused: why, when to come back, and
// what the message says.
func TestRefusals(t *testing.T) {
	one := Policy{MaxLeasesPerProxy: 1}
	other := func(a *Acquire) { a.Principal = "boris" }
	cases := map[string]struct {
		reason string
		setUp  func(*rig) Command
		want   Refusal
	}{
		"UnknownFleet": {
			reason: "waiting does not make a fleet",
			setUp:  func(*rig) Command { return acquire(func(a *Acquire) { a.Fleet = "crawl/nws" }) },
			want: Refusal{
				Reason: UnknownFleet, Field: "fleet",
				Message: `fleet "crawl/nws" does not exist; write namespace/name of a ProxyFleet on this hub`,
			},
		},
		"RemovedFleet": {
			reason: "a removed fleet is an unknown one, though its proxies are still there",
			setUp: func(r *rig) Command {
				r.fleet(one)
				r.proxies(1)
				r.do(RemoveFleet{ID: "crawl/news"})
				return acquire()
			},
			want: Refusal{
				Reason: UnknownFleet, Field: "fleet",
				Message: `fleet "crawl/news" does not exist; write namespace/name of a ProxyFleet on this hub`,
			},
		},
		"NoProxies": {
			reason: "a fleet that is being made may have proxies soon",
			setUp:  func(r *rig) Command { r.fleet(one); return acquire() },
			want:   Refusal{Reason: NoMatch, RetryAfter: 5 * time.Second, Message: "crawl/news has no proxies yet"},
		},
		"NoMatch": {
			reason: "the selector is named, and the way to see what there is",
			setUp: func(r *rig) Command {
				r.fleet(one)
				r.proxies(2)
				return acquire(func(a *Acquire) {
					a.Selector = Selector{Region: "mars", Labels: map[string]string{"tier": "isp"}}
				})
			},
			want: Refusal{
				Reason: NoMatch, RetryAfter: 5 * time.Second,
				Message: "none of the 2 proxies of crawl/news fits region=mars,tier=isp; leave something out of the selector, or see what there is with ListProxies",
			},
		},
		"NeverLeased": {
			reason: "an explicit 0 is no default, and waiting does not change it",
			setUp: func(r *rig) Command {
				r.fleet(Policy{})
				r.proxies(2)
				return acquire()
			},
			want: Refusal{
				Reason: NoCapacity, Matching: 2,
				Message: "crawl/news has maxLeasesPerProxy 0, so its proxies are never leased",
			},
		},
		"NotReady": {
			reason: "it says what the proxies are instead of ready",
			setUp: func(r *rig) Command {
				r.fleet(one)
				r.proxies(3)
				sick, full := testProxy(1), testProxy(2)
				sick.Ready, full.Saturated = false, true
				r.do(UpsertProxy{Proxy: sick})
				r.do(UpsertProxy{Proxy: full})
				r.do(Drain{UID: "px-3"})
				return acquire()
			},
			want: Refusal{
				Reason: NoCapacity, Matching: 3, RetryAfter: 5 * time.Second,
				Message: "none of the 3 proxies of crawl/news is ready (1 not ready, 1 saturated, 1 draining)",
			},
		},
		"Busy": {
			reason: "the first lease to end says when",
			setUp: func(r *rig) Command {
				r.fleet(one)
				r.proxies(2)
				r.lease(func(a *Acquire) { a.TTL = ptr(90 * time.Second) })
				r.lease(func(a *Acquire) { a.TTL = ptr(40 * time.Second) })
				r.now = r.now.Add(1500 * time.Millisecond)
				return acquire(other)
			},
			want: Refusal{
				Reason: NoCapacity, Matching: 2, Busy: 2, RetryAfter: 39 * time.Second,
				Message: "all of the 2 proxies of crawl/news have all their slots taken; one may be free in 39s",
			},
		},
		"HeldBack": {
			reason: "a slot that reuseDelay holds back is taken until then",
			setUp: func(r *rig) Command {
				r.fleet(Policy{MaxLeasesPerProxy: 1, ReuseDelay: 20 * time.Second})
				r.proxies(1)
				l := r.lease()
				r.do(Release{Principal: "anna", ID: l.ID})
				r.now = r.now.Add(5 * time.Second)
				return acquire()
			},
			want: Refusal{
				Reason: NoCapacity, Matching: 1, Busy: 1, RetryAfter: 15 * time.Second,
				Message: "the only proxy of crawl/news has all its slots taken; one may be free in 15s",
			},
		},
		"SecondExclusive": {
			reason: "exclusive needs an empty proxy, and the only lease's end makes one",
			setUp: func(r *rig) Command {
				r.fleet(Policy{MaxLeasesPerProxy: 5})
				r.proxies(1)
				r.lease(func(a *Acquire) { a.Exclusive = true })
				return acquire(other, func(a *Acquire) { a.Exclusive = true })
			},
			want: Refusal{
				Reason: NoCapacity, Matching: 1, Busy: 1, RetryAfter: 10 * time.Minute,
				Message: "the only proxy of crawl/news has slots taken, and exclusive needs an empty one; one may be free in 10m",
			},
		},
		"AllOrNothing": {
			reason: "three were asked for and two can be had: none is given",
			setUp: func(r *rig) Command {
				r.fleet(one)
				r.proxies(2)
				return acquire(func(a *Acquire) { a.Count = ptr(3) })
			},
			want: Refusal{
				Reason: NoCapacity, Matching: 2, RetryAfter: 5 * time.Second,
				Message: "the 2 proxies of crawl/news can give 2 leases now, not 3; ask for fewer, set min_count, or retry in 5s",
			},
		},
		"AllCooling": {
			reason: "the first cooldown to end says when",
			setUp: func(r *rig) Command {
				r.fleet(Policy{MaxLeasesPerProxy: 1, Cooldown: Cooldown{Base: time.Minute}})
				r.proxies(3)
				for range 3 {
					r.ban(r.lease())
					r.pass(19 * time.Second)
				}
				r.now = r.now.Add(-38 * time.Second) // the engine's time does not follow
				return acquire(func(a *Acquire) { a.Target = MustParseTarget("shop.example.com") })
			},
			want: Refusal{
				Reason: CoolingDown, Matching: 3, Cooling: 3, RetryAfter: 3 * time.Second,
				Message: "all 3 exits of crawl/news are cooling down for example.com; the first is back in 3s",
			},
		},
		"SomeCoolingSomeBusy": {
			reason: "a cooldown that ends before the lease says when",
			setUp: func(r *rig) Command {
				r.fleet(Policy{MaxLeasesPerProxy: 1, Cooldown: Cooldown{Base: time.Minute}})
				r.proxies(2)
				r.ban(r.lease())
				r.lease()
				return acquire()
			},
			want: Refusal{
				Reason: NoCapacity, Matching: 2, Cooling: 1, Busy: 1, RetryAfter: time.Minute,
				Message: "of the 2 proxies of crawl/news, 1 has all its slots taken and 1 cools down for example.com; one may be free in 1m",
			},
		},
		"TargetGuarded": {
			reason: "a burst of bans on one target pauses it before the pool is burned",
			setUp: func(r *rig) Command {
				r.fleet(one)
				r.proxies(20)
				for range 11 {
					r.ban(r.lease())
				}
				r.now = r.now.Add(13 * time.Second)
				return acquire()
			},
			want: Refusal{
				Reason: TargetGuarded, RetryAfter: 47 * time.Second,
				Message: "bans on example.com come in a burst; to spare the exits of crawl/news that are left, grants for it pause for 47s",
			},
		},
		"SilentMember": {
			reason: "nothing is granted on what may be gone",
			setUp: func(r *rig) Command {
				r.fleet(one)
				r.proxies(2)
				r.now = r.now.Add(time.Minute)
				return acquire()
			},
			want: Refusal{
				Reason: StaleInventory, Matching: 2, RetryAfter: 5 * time.Second,
				Message: "the hub does not hear from the members that have the 2 proxies of crawl/news; they can be leased again once it does",
			},
		},
		"SuspectMember": {
			reason: "a suspect member is like a silent one",
			setUp: func(r *rig) Command {
				r.fleet(one)
				r.proxies(1)
				r.do(SetMember{ID: "east", Suspect: true})
				return acquire()
			},
			want: Refusal{
				Reason: StaleInventory, Matching: 1, RetryAfter: 5 * time.Second,
				Message: "the hub does not hear from the members that have the only proxy of crawl/news; they can be leased again once it does",
			},
		},
		"Quota": {
			reason: "what a principal may hold is bounded, and its first lease to end says when it may again",
			setUp: func(r *rig) Command {
				r.fleet(Policy{MaxLeasesPerProxy: 5, MaxLeasesPerPrincipal: 2})
				r.proxies(2)
				r.lease(other, func(a *Acquire) { a.TTL = ptr(time.Minute) })
				r.lease(func(a *Acquire) { a.TTL = ptr(3 * time.Minute) })
				r.lease(func(a *Acquire) { a.TTL = ptr(2 * time.Minute) })
				return acquire()
			},
			want: Refusal{
				Reason: Quota, RetryAfter: 2 * time.Minute,
				Message: "anna holds 2 leases of crawl/news and may hold 2, so it cannot get 1 more; release some first",
			},
		},
		"ReadOnly": {
			reason: "a full journal takes no grants",
			setUp: func(r *rig) Command {
				r.fleet(one)
				r.proxies(1)
				r.do(SetReadOnly{On: true, Why: "the journal's disk is full"})
				return acquire()
			},
			want: Refusal{
				Reason: ReadOnly, RetryAfter: 5 * time.Second,
				Message: "the hub grants nothing now: the journal's disk is full; leases can be renewed and released",
			},
		},
		"RenewExpired": {
			reason: "an ended lease is not revived",
			setUp: func(r *rig) Command {
				r.fleet(one)
				r.proxies(1)
				l := r.lease(func(a *Acquire) { a.TTL = ptr(time.Minute) })
				r.now = r.now.Add(62 * time.Second)
				return Renew{Principal: "anna", ID: l.ID}
			},
			want: Refusal{Reason: LeaseExpired, Message: "lease lse_1 ended 2s ago (expired); acquire a new one"},
		},
		"RenewUnknown": {
			reason: "what is not known has ended, as far as anybody can tell",
			setUp:  func(*rig) Command { return Renew{Principal: "anna", ID: "lse_x"} },
			want: Refusal{
				Reason:  LeaseExpired,
				Message: `lease_id "lse_x" is not known: it ended more than 10m ago, or was granted before the hub restarted; acquire a new lease`,
			},
		},
		"RenewByAnother": {
			reason: "a lease is its holder's",
			setUp: func(r *rig) Command {
				r.fleet(one)
				r.proxies(1)
				return Renew{Principal: "boris", ID: r.lease().ID}
			},
			want: Refusal{Reason: NotHolder, Message: "lease lse_1 belongs to another principal than boris; use the token that acquired it"},
		},
		"RenewOfRemovedFleet": {
			reason: "leases of a deleted fleet run out",
			setUp: func(r *rig) Command {
				r.fleet(one)
				r.proxies(1)
				l := r.lease(func(a *Acquire) { a.TTL = ptr(4 * time.Minute) })
				r.do(RemoveFleet{ID: "crawl/news"})
				return Renew{Principal: "anna", ID: l.ID}
			},
			want: Refusal{Reason: UnknownFleet, Message: "fleet crawl/news was deleted; lease lse_1 ends in 4m and cannot be renewed"},
		},
		"ReleaseForgotten": {
			reason: "ten minutes after its end a lease is not known any more",
			setUp: func(r *rig) Command {
				r.fleet(one)
				r.proxies(1)
				l := r.lease()
				r.do(Release{Principal: "anna", ID: l.ID})
				r.now = r.now.Add(Remembered)
				return Release{Principal: "anna", ID: l.ID}
			},
			want: Refusal{
				Reason:  LeaseExpired,
				Message: `lease_id "lse_1" is not known: it ended more than 10m ago, or was granted before the hub restarted; acquire a new lease`,
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			cmd := c.setUp(r)
			r.engine.Tick(r.now)
			before := dump(r.engine)
			got := r.refused(cmd)
			if *got != c.want {
				t.Errorf("%s\n got %+v\nwant %+v", c.reason, *got, c.want)
			}
			if err := verify(r.engine); err != nil {
				t.Error(err)
			}
			if dump(r.engine) != before {
				t.Error("the refused command changed something")
			}
		})
	}
}

// TestInvalid is the table of commands that are wrong in themselves.
func TestInvalid(t *testing.T) {
	policy := Policy{MaxLeasesPerProxy: 1, DefaultTTL: 10 * time.Minute, MaxTTL: 30 * time.Minute}
	long := string(make([]byte, MaxKeyBytes+1))
	outcome := func(o Observation) Command {
		return Report{Principal: "anna", ID: "lse_1", Observations: []Observation{o}}
	}
	cases := map[string]struct {
		cmd     Command
		field   string
		message string // if it is to be exact
	}{
		"ZeroTTL": {
			acquire(func(a *Acquire) { a.TTL = ptr(time.Duration(0)) }), "ttl",
			"ttl is 0s; leave it out for 10m, or write 1s to 30m (the maxTTL of crawl/news)",
		},
		"NegativeTTL": {acquire(func(a *Acquire) { a.TTL = ptr(-time.Second) }), "ttl", ""},
		"LongTTL": {
			acquire(func(a *Acquire) { a.TTL = ptr(2 * time.Hour) }), "ttl",
			"ttl is 2h0m0s, more than 30m, the maxTTL of crawl/news; write less and renew",
		},
		"ZeroCount": {
			acquire(func(a *Acquire) { a.Count = ptr(0) }), "count",
			"count is 0; leave it out for 1, or write 1 to 100",
		},
		"HugeCount":       {acquire(func(a *Acquire) { a.Count = ptr(101) }), "count", ""},
		"ZeroMinCount":    {acquire(func(a *Acquire) { a.MinCount = ptr(0) }), "min_count", ""},
		"MinAboveCount":   {acquire(func(a *Acquire) { a.Count, a.MinCount = ptr(2), ptr(3) }), "min_count", ""},
		"NoPrincipal":     {acquire(func(a *Acquire) { a.Principal = "" }), "principal", ""},
		"NoFleet":         {acquire(func(a *Acquire) { a.Fleet = "" }), "fleet", ""},
		"LongRequestID":   {acquire(func(a *Acquire) { a.RequestID = RequestID(long) }), "request_id", ""},
		"LongSessionKey":  {acquire(func(a *Acquire) { a.SessionKey = long }), "session_key", ""},
		"SessionOfTwo":    {acquire(func(a *Acquire) { a.SessionKey, a.Count = "s", ptr(2) }), "count", ""},
		"MoveNoSession":   {acquire(func(a *Acquire) { a.AllowMove = true }), "allow_move", ""},
		"SessionTTLAlone": {acquire(func(a *Acquire) { a.SessionTTL = ptr(time.Hour) }), "session_ttl", ""},
		"ZeroSessionTTL":  {acquire(func(a *Acquire) { a.SessionKey, a.SessionTTL = "s", ptr(time.Duration(0)) }), "session_ttl", ""},
		"RenewZeroTTL":    {Renew{Principal: "anna", ID: "lse_1", TTL: ptr(time.Duration(0))}, "ttl", ""},
		"RenewLongTTL":    {Renew{Principal: "anna", ID: "lse_1", TTL: ptr(31 * time.Minute)}, "ttl", ""},
		"RenewNoID":       {Renew{Principal: "anna"}, "lease_id", ""},
		"RenewNobody":     {Renew{ID: "lse_1"}, "principal", ""},
		"EmptyReport":     {Report{Principal: "anna", ID: "lse_1"}, "outcomes", ""},
		"NoOutcome":       {outcome(Observation{}), "outcome", ""},
		"UnknownOutcome":  {outcome(Observation{Outcome: 200}), "outcome", ""},
		"PagesOfABan":     {outcome(Observation{Outcome: Blocked, Pages: 3}), "pages", ""},
		"NegativePages":   {outcome(Observation{Outcome: OK, Pages: -3}), "pages", ""},
		"RetryOfAnOK":     {outcome(Observation{Outcome: OK, RetryAfter: time.Second}), "retry_after", ""},
		"NegativeRetry":   {outcome(Observation{Outcome: RateLimited, RetryAfter: -time.Second}), "retry_after", ""},
		"BadReleaseReport": {
			Release{Principal: "anna", ID: "lse_1", Outcome: &Observation{Outcome: 77}},
			"outcome",
			"",
		},
		"NegativePage":      {List{Fleet: "crawl/news", PageSize: -1}, "page_size", ""},
		"HugePage":          {List{Fleet: "crawl/news", PageSize: MaxPageSize + 1}, "page_size", ""},
		"FleetWithoutSlash": {SetFleet{Fleet: Fleet{ID: "news"}}, "fleet", ""},
		"NegativeSlots":     {SetFleet{Fleet: Fleet{ID: "a/b", Policy: Policy{MaxLeasesPerProxy: -1}}}, "maxLeasesPerProxy", ""},
		"TooManySlots":      {SetFleet{Fleet: Fleet{ID: "a/b", Policy: Policy{MaxLeasesPerProxy: 1001}}}, "maxLeasesPerProxy", ""},
		"DefaultAboveMax":   {SetFleet{Fleet: Fleet{ID: "a/b", Policy: Policy{DefaultTTL: time.Hour, MaxTTL: time.Minute}}}, "defaultTTL", ""},
		"ShortLifetime":     {SetFleet{Fleet: Fleet{ID: "a/b", Policy: Policy{MaxTTL: time.Hour, MaxLifetime: time.Minute}}}, "maxLifetime", ""},
		"ShrinkingCooldown": {SetFleet{Fleet: Fleet{ID: "a/b", Policy: Policy{Cooldown: Cooldown{Factor: 0.5}}}}, "cooldown.factor", ""},
		"CooldownMaxBelow":  {SetFleet{Fleet: Fleet{ID: "a/b", Policy: Policy{Cooldown: Cooldown{Base: time.Hour, Max: time.Minute}}}}, "cooldown.max", ""},
		"NegativeReuse":     {SetFleet{Fleet: Fleet{ID: "a/b", Policy: Policy{ReuseDelay: -1}}}, "reuseDelay", ""},
		"ProxyWithoutUID":   {UpsertProxy{Proxy: Proxy{Fleet: "a/b", Member: "m"}}, "uid", ""},
		"ProxyMoves":        {UpsertProxy{Proxy: Proxy{UID: "px-1", Fleet: "crawl/other", Member: "east"}}, "uid", ""},
		"MemberWithoutName": {SetMember{Suspect: true}, "member", ""},
		"SilentReadOnly":    {SetReadOnly{On: true}, "why", ""},
		"NoCommand":         {nil, "command", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.fleet(policy)
			r.proxies(2)
			r.lease()
			before := dump(r.engine)
			got := r.refused(c.cmd)
			if got.Reason != InvalidRequest || got.Field != c.field || got.RetryAfter != 0 || got.Message == "" {
				t.Errorf("got %s of %q (%s), want %s of %q", got.Reason, got.Field, got.Message, InvalidRequest, c.field)
			}
			if c.message != "" && got.Message != c.message {
				t.Errorf("got  %s\nwant %s", got.Message, c.message)
			}
			if after := dump(r.engine); after != before {
				t.Errorf("the refused command changed something:\n%s\n%s", before, after)
			}
		})
	}
}
