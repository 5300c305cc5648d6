package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// fault is what a server does wrong.
type fault string

const (
	none          fault = ""
	doubleGrant   fault = "grants a proxy that is full"
	lostLease     fault = "forgets a lease at a crash"
	lostRelease   fault = "forgets a release at a crash"
	lostBan       fault = "forgets a ban at a crash"
	lostRequest   fault = "forgets request ids at a crash"
	lostSession   fault = "forgets sessions at a crash"
	tokenBack     fault = "goes back with its tokens at a crash"
	sameToken     fault = "gives a token twice"
	shortRenewal  fault = "answers a renewal and does not do it"
	expiredRenews fault = "renews what has expired"
)

const (
	simProxies = 4
	simSlots   = 2
	simTTL     = 40 * time.Millisecond
	simRest    = 200 * time.Millisecond
)

// simLease is a lease of the server.
type simLease struct {
	id, proxy string
	token     Token
	slots     int
	expires   time.Time
	over      bool
	request   string
	session   string
}

// server is a lease API of a few lines, with a fault.
type server struct {
	fault    fault
	random   *rand.Rand
	leases   map[string]*simLease
	requests map[string]*simLease
	sessions map[string]string
	rests    map[string]time.Time // by proxy and target
	token    Token
	made     int
}

func newServer(f fault, random *rand.Rand) *server {
	return &server{
		fault: f, random: random, token: Token{Epoch: 1},
		leases: map[string]*simLease{}, requests: map[string]*simLease{}, sessions: map[string]string{}, rests: map[string]time.Time{},
	}
}

func (s *server) live(l *simLease, now time.Time) bool { return !l.over && now.Before(l.expires) }

func (s *server) load(proxy string, now time.Time) int {
	taken := 0
	for _, l := range s.leases {
		if l.proxy == proxy && s.live(l, now) {
			taken += l.slots
		}
	}
	return taken
}

// crash loses what the fault says.
func (s *server) crash(now time.Time) {
	switch s.fault {
	case lostLease:
		for _, l := range s.leases {
			l.over = l.over || s.random.IntN(2) == 0
		}
	case lostRelease:
		for _, l := range s.leases {
			if l.over && now.Before(l.expires) {
				l.over = false
			}
		}
	case lostBan:
		clear(s.rests)
	case lostRequest:
		clear(s.requests)
	case lostSession:
		clear(s.sessions)
	case tokenBack:
		s.token.Sequence -= min(s.token.Sequence, 10)
		return
	case none, doubleGrant, sameToken, shortRenewal, expiredRenews:
	}
	s.token.Epoch++
}

// do carries out an operation at a moment and fills in its answer.
func (s *server) do(op *Op, now time.Time) {
	op.Outcome = Done
	refuse := func(reason string) { op.Outcome, op.Reason = Refused, reason }
	if op.Kind == Acquire {
		s.acquire(op, now, refuse)
		return
	}
	l := s.leases[op.Lease]
	switch op.Kind {
	case Release:
		l.over = true
	case Ban:
		op.Cooling = simRest
		s.rests[l.proxy+op.Target] = now.Add(simRest)
	case Renew, Get:
		renewsDead := s.fault == expiredRenews && !l.over && op.Kind == Renew
		if !s.live(l, now) && !renewsDead {
			refuse("LEASE_EXPIRED")
			return
		}
		op.Expires = l.expires
		if op.Kind == Renew {
			op.Expires = now.Add(simTTL)
			if s.fault != shortRenewal {
				l.expires = op.Expires
			}
		}
	case Acquire:
	}
}

func (s *server) acquire(op *Op, now time.Time, refuse func(string)) {
	l := s.requests[op.Request]
	switch {
	case l != nil && !s.live(l, now):
		refuse("LEASE_EXPIRED")
		return
	case l == nil:
		slots := 1
		if op.Exclusive {
			slots = simSlots
		}
		proxy := s.choose(op, slots, now)
		if proxy == "" {
			refuse("NO_CAPACITY")
			return
		}
		if s.token.Sequence++; s.fault == sameToken && s.random.IntN(4) == 0 {
			s.token.Sequence--
		}
		s.made++
		l = &simLease{id: fmt.Sprint("lse_", s.made), proxy: proxy, token: s.token, slots: slots, expires: now.Add(simTTL), request: op.Request, session: op.Session}
		s.leases[l.id], s.requests[op.Request] = l, l
		if op.Session != "" {
			s.sessions[op.Session] = proxy
		}
	}
	op.Grants = []Grant{{Lease: l.id, Proxy: l.proxy, Token: l.token, Exits: []string{"exit of " + l.proxy}, Expires: l.expires}}
}

func (s *server) choose(op *Op, slots int, now time.Time) string {
	proxies := make([]string, simProxies)
	for i := range proxies {
		proxies[i] = fmt.Sprint("px-", i)
	}
	s.random.Shuffle(len(proxies), func(i, j int) { proxies[i], proxies[j] = proxies[j], proxies[i] })
	if bound := s.sessions[op.Session]; op.Session != "" && bound != "" {
		proxies = []string{bound}
	}
	i := slices.IndexFunc(proxies, func(proxy string) bool {
		full := s.load(proxy, now)+slots > simSlots && s.fault != doubleGrant
		return !full && (op.Target == "" || !now.Before(s.rests[proxy+op.Target]))
	})
	if i < 0 {
		return ""
	}
	return proxies[i]
}

// client is a client of the simulation.
type client struct {
	number int
	op     *Op  // under way
	done   bool // it has taken effect
	lost   bool // its answer will not come
	held   []Grant
	asked  []Op              // Acquires without an answer, or with one, to repeat
	of     map[string]string // request by lease
}

// simulate lets clients loose on a server with a fault, and crashes it now and then.
func simulate(f fault, seed uint64, steps int) History {
	random := rand.New(rand.NewPCG(seed, 1))
	s := newServer(f, random)
	clients := make([]*client, 6)
	for i := range clients {
		clients[i] = &client{number: i, of: map[string]string{}}
	}
	var history History
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range steps {
		now = now.Add(time.Duration(1+random.IntN(400)) * time.Microsecond)
		if n%400 == 399 {
			s.crash(now)
			for _, c := range clients {
				c.lost = c.lost || c.op != nil
				if c.op != nil && !c.done {
					c.done = true // it never will
				}
			}
			continue
		}
		c := clients[random.IntN(len(clients))]
		switch {
		case c.op == nil:
			c.begin(s, n, now)
		case !c.done:
			s.do(c.op, now)
			c.done, c.lost = true, random.IntN(12) == 0
		default:
			history = append(history, c.end(now))
		}
	}
	return history
}

// begin asks for something.
func (c *client) begin(s *server, n int, now time.Time) {
	c.op = &Op{Client: c.number, Call: now, LastCall: now, Tries: 1}
	c.done, c.lost = false, false
	target := fmt.Sprintf("t%d.example", s.random.IntN(3))
	switch pick := s.random.IntN(10); {
	case pick < 2 && len(c.asked) > 0:
		again := c.asked[len(c.asked)-1]
		c.op.Kind, c.op.Request, c.op.Target, c.op.Session, c.op.Exclusive = Acquire, again.Request, again.Target, again.Session, again.Exclusive
	case pick < 5 || len(c.held) == 0:
		c.op.Kind, c.op.Request = Acquire, fmt.Sprintf("r-%d-%d", c.number, n)
		switch s.random.IntN(4) {
		case 0:
			c.op.Target = target
		case 1:
			c.op.Session = fmt.Sprint("s-", c.number)
		case 2:
			c.op.Exclusive = s.random.IntN(3) == 0
		}
		c.asked = append(c.asked, *c.op)
	default:
		i := s.random.IntN(len(c.held))
		c.op.Lease = c.held[i].Lease
		c.op.Kind = []Kind{Renew, Get, Release, Release, Ban}[pick-5]
		if c.op.Kind == Ban {
			c.op.Target, c.op.Exits = target, c.held[i].Exits
		}
	}
}

// end takes the answer, or gives up.
func (c *client) end(now time.Time) Op {
	op := *c.op
	c.op = nil
	if c.lost {
		op.Outcome, op.Reason, op.Grants, op.Expires, op.Cooling = Unknown, "", nil, time.Time{}, 0
	} else {
		op.Return = now
	}
	switch {
	case op.Kind == Acquire && op.Outcome == Done:
		if !slices.ContainsFunc(c.held, func(g Grant) bool { return g.Lease == op.Grants[0].Lease }) {
			c.held = append(c.held, op.Grants...)
			c.of[op.Grants[0].Lease] = op.Request
		}
	// Who does not know whether it was extended does not use it any more; a lease that was released is looked at later.
	case op.Kind == Renew && op.Outcome == Unknown, len(c.held) > 6:
		if op.Kind == Renew && op.Outcome == Unknown {
			c.asked = slices.DeleteFunc(c.asked, func(again Op) bool { return again.Request == c.of[op.Lease] })
		}
		c.held = slices.DeleteFunc(c.held, func(g Grant) bool { return g.Lease == op.Lease || len(c.held) > 6 && g.Lease == c.held[0].Lease })
	}
	return op
}
