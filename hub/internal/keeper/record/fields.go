package record

import "github.com/shoal-dev/shoal/hub/internal/lease"

// kindOf returns the kind of a record, or 0 if its type has no encoding.
func kindOf(rec lease.Record) kind {
	switch rec.(type) {
	case *lease.FleetSet:
		return kindFleetSet
	case *lease.FleetRemoved:
		return kindFleetRemoved
	case *lease.ProxySet:
		return kindProxySet
	case *lease.ProxyRemoved:
		return kindProxyRemoved
	case *lease.MemberSeen:
		return kindMemberSeen
	case *lease.LeasesGranted:
		return kindLeasesGranted
	case *lease.Extended:
		return kindExtended
	case *lease.Finished:
		return kindFinished
	case *lease.ExitCooled:
		return kindExitCooled
	case *lease.TargetPaused:
		return kindTargetPaused
	case *lease.SnapshotBegun:
		return kindSnapshotBegun
	case *lease.Kept:
		return kindLeaseKept
	case *lease.SessionKept:
		return kindSessionKept
	case *lease.ProxyPlaced:
		return kindProxyPlaced
	case *lease.TargetHalted:
		return kindTargetHalted
	case *lease.TargetResumed:
		return kindTargetResumed
	case *lease.RevocationSet:
		return kindRevocationSet
	case *lease.RevocationLifted:
		return kindRevocationLifted
	case *lease.CooldownCleared:
		return kindCooldownCleared
	case *lease.PaceLearned:
		return kindPaceLearned
	default:
		return 0
	}
}

// record codes the fields of a record, in an order that never changes within a format.
func (c *coder) record(rec lease.Record) {
	switch r := rec.(type) {
	case *lease.FleetSet:
		c.time(&r.At)
		shared(c, &r.Fleet.ID)
		c.time(&r.Fleet.Created)
		c.policy(&r.Fleet.Policy)
	case *lease.FleetRemoved:
		c.time(&r.At)
		text(c, &r.ID)
	case *lease.ProxySet:
		c.time(&r.At)
		c.proxy(&r.Proxy)
	case *lease.ProxyRemoved:
		c.time(&r.At)
		text(c, &r.UID)
	case *lease.MemberSeen:
		c.time(&r.At)
		text(c, &r.ID)
		c.bool(&r.Suspect)
		c.time(&r.Seen)
	case *lease.LeasesGranted:
		c.granted(r)
	case *lease.Extended:
		c.time(&r.At)
		text(c, &r.ID)
		c.time(&r.Expires)
	case *lease.Finished:
		c.time(&r.At)
		text(c, &r.ID)
		c.state(&r.State)
		c.time(&r.HeldUntil)
	case *lease.ExitCooled:
		c.time(&r.At)
		c.exit(&r.Exit)
		shared(c, &r.Target)
		c.time(&r.Until)
		c.bool(&r.Banned)
		c.number(&r.Strikes)
		c.duration(&r.Rest)
	case *lease.TargetPaused:
		c.time(&r.At)
		shared(c, &r.Fleet)
		shared(c, &r.Target)
		c.time(&r.Until)
	case *lease.SnapshotBegun:
		c.time(&r.At)
		c.uint(&r.Sequence)
	case *lease.Kept:
		c.kept(r)
	case *lease.SessionKept:
		c.time(&r.At)
		shared(c, &r.Principal)
		shared(c, &r.Fleet)
		text(c, &r.Key)
		text(c, &r.Proxy)
		c.time(&r.Until)
	case *lease.ProxyPlaced:
		c.time(&r.At)
		text(c, &r.UID)
		c.time(&r.LastUsed)
		c.number(&r.OnSite)
	default:
		c.operated(rec)
	}
}

// operated codes what operators did.
func (c *coder) operated(rec lease.Record) {
	switch r := rec.(type) {
	case *lease.TargetHalted:
		c.time(&r.At)
		shared(c, &r.Target)
		c.time(&r.Until)
		text(c, &r.Why)
	case *lease.TargetResumed:
		c.time(&r.At)
		shared(c, &r.Target)
	case *lease.RevocationSet:
		c.time(&r.At)
		shared(c, &r.Principal)
		text(c, &r.Proxy)
		c.time(&r.Until)
		text(c, &r.Why)
	case *lease.RevocationLifted:
		c.time(&r.At)
		shared(c, &r.Principal)
		text(c, &r.Proxy)
	case *lease.PaceLearned:
		c.time(&r.At)
		c.exit(&r.Exit)
		shared(c, &r.Target)
		c.float(&r.Rate)
		c.float(&r.Limit)
		c.float(&r.Borne)
		c.time(&r.RefusedAt)
		c.number(&r.Streak)
		c.time(&r.LastPage)
		c.float(&r.PerLease)
	case *lease.CooldownCleared:
		c.time(&r.At)
		c.exit(&r.Exit)
		shared(c, &r.Target)
	}
}

func (c *coder) policy(p *lease.Policy) {
	c.number(&p.MaxLeasesPerProxy)
	c.number(&p.MaxLeasesPerPrincipal)
	c.duration(&p.DefaultTTL)
	c.duration(&p.MaxTTL)
	c.duration(&p.MaxLifetime)
	c.duration(&p.ReuseDelay)
	c.cooldown(&p.Cooldown)
	if c.format < 2 {
		return
	}
	list(c, &p.Targets, func(r *lease.TargetRule) {
		pace := int(r.Pace)
		text(c, &r.Match)
		c.number(&pace)
		c.number(&r.MaxConcurrentPerExit)
		c.duration(&r.MinInterval)
		c.cooldown(&r.Cooldown)
		c.bool(&r.Implied)
		if !c.writing {
			r.Pace = lease.Pace(pace) //nolint:gosec // written from a Pace, and checksummed
		}
	})
}

func (c *coder) cooldown(v *lease.Cooldown) {
	c.duration(&v.Base)
	c.float(&v.Factor)
	c.duration(&v.Max)
}

func (c *coder) proxy(p *lease.Proxy) {
	text(c, &p.UID)
	shared(c, &p.Fleet)
	shared(c, &p.Member)
	text(c, &p.Name)
	shared(c, &p.Region)
	shared(c, &p.Country)
	c.labels(&p.Labels)
	list(c, &p.Endpoints, func(e *lease.Endpoint) {
		port := int(e.Port)
		shared(c, &e.Network)
		shared(c, &e.Host)
		c.number(&port)
		c.bool(&e.TLS)
		if !c.writing {
			e.Port = uint16(port) //nolint:gosec // written from a uint16, and checksummed
		}
	})
	list(c, &p.Exits, c.addr)
	c.bool(&p.Ready)
	c.bool(&p.Saturated)
	c.bool(&p.Draining)
	c.time(&p.DrainDeadline)
	c.time(&p.LastSeen)
	c.time(&p.LastReady)
}

func (c *coder) granted(r *lease.LeasesGranted) {
	c.time(&r.At)
	shared(c, &r.Principal)
	shared(c, &r.Fleet)
	c.target(&r.Target)
	shared(c, &r.Network)
	c.bool(&r.Exclusive)
	c.duration(&r.TTL)
	c.time(&r.Expires)
	c.time(&r.LifetimeEnd)
	list(c, &r.Leases, func(l *lease.GrantedLease) {
		text(c, &l.ID)
		c.token(&l.Token)
		text(c, &l.Proxy)
		c.number(&l.Slots)
	})
	text(c, &r.RequestID)
	if r.RequestID != "" {
		c.bytes(r.Fingerprint[:])
	}
	text(c, &r.SessionKey)
	c.time(&r.SessionUntil)
}

func (c *coder) kept(r *lease.Kept) {
	c.time(&r.At)
	text(c, &r.ID)
	c.token(&r.Token)
	shared(c, &r.Principal)
	shared(c, &r.Fleet)
	text(c, &r.Proxy)
	c.target(&r.Target)
	shared(c, &r.Network)
	c.bool(&r.Exclusive)
	c.number(&r.Slots)
	c.duration(&r.TTL)
	c.time(&r.Granted)
	c.time(&r.Expires)
	c.time(&r.LifetimeEnd)
	c.state(&r.State)
	c.time(&r.HeldUntil)
	c.bool(&r.ExitsChanged)
	text(c, &r.SessionKey)
	text(c, &r.RequestID)
	if r.RequestID != "" {
		c.bytes(r.Fingerprint[:])
	}
	c.bool(&r.Forgotten)
	optional(c, &r.GoneProxy, c.proxy)
	optional(c, &r.GoneFleet, c.policy)
}

func (c *coder) token(t *lease.FencingToken) {
	c.uint(&t.Epoch)
	c.uint(&t.Sequence)
}

func (c *coder) state(s *lease.State) {
	n := uint64(*s)
	c.uint(&n)
	if !c.writing {
		*s = lease.State(n) //nolint:gosec // written from a State, and checksummed
	}
}
