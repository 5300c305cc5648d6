package lease

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// revoke ends a principal's leases and keeps it from more.
func (e *Engine) revoke(cmd *Revoke, out *Output) (Result, *Refusal) {
	switch {
	case cmd.Principal == "":
		return nil, invalid("principal", "principal is empty; write whom to revoke, as the audit log and the proxies' logs name it")
	case cmd.Proxy != "" && e.proxies[cmd.Proxy] == nil:
		return nil, invalid("proxy", quote("proxy", string(cmd.Proxy))+" is not known; write the proxyId of a lease, or leave it out to revoke everywhere")
	case cmd.For < 0:
		return nil, invalid("for", fmt.Sprintf("for is %s; write a positive duration, or leave it out", cmd.For))
	case len(cmd.Why) > maxWhy:
		return nil, invalid("why", fmt.Sprintf("why has %d bytes; write at most %d", len(cmd.Why), maxWhy))
	}
	key := revocationKey{principal: cmd.Principal, proxy: cmd.Proxy}
	if _, stands := e.revocations[key]; !stands && len(e.standing()) >= MaxRevocations {
		return nil, invalid("principal", fmt.Sprintf("%d revocations stand, the most there can be; lift some, or remove what lets the principals lease", MaxRevocations))
	}
	ending := e.leasesOf(key)
	until := e.now
	for _, f := range e.fleets {
		until = max(until, e.now+int64(f.policy.MaxLifetime))
	}
	for _, l := range ending {
		until = max(until, l.lifetimeEnd)
	}
	until = max(until+int64(RevocationSlack), e.now+int64(cmd.For))
	if r, stands := e.revocations[key]; stands {
		until = max(until, nanos(r.Until)) // credentials from before it live as long
	}
	rec := &RevocationSet{At: moment(e.now), Principal: cmd.Principal, Proxy: cmd.Proxy, Until: moment(until), Why: cmd.Why}
	e.commit(rec, out)
	if cmd.Proxy == "" {
		e.turnAwayAll(func(waiting *Acquire) bool { return waiting.Principal == cmd.Principal }, out)
	}
	e.regroupAll()
	result := Revoked{Revocation: e.revocations[key]}
	for _, l := range ending {
		result.Ended = append(result.Ended, l.subject())
		e.commit(&Finished{At: moment(e.now), ID: l.id, State: StateRevoked, HeldUntil: moment(e.holdUntil(l, e.now))}, out)
		out.Notices = append(out.Notices, Ended{Of: l.subject(), State: StateRevoked, At: moment(e.now)})
	}
	return result, nil
}

// reinstate lifts a revocation.
func (e *Engine) reinstate(cmd *Reinstate, out *Output) (Result, *Refusal) {
	if cmd.Principal == "" {
		return nil, invalid("principal", "principal is empty; write whose revocation to lift")
	}
	key := revocationKey{principal: cmd.Principal, proxy: cmd.Proxy}
	r, known := e.revocations[key]
	if !known || nanos(r.Until) <= e.now {
		return Lifted{}, nil
	}
	e.commit(&RevocationLifted{At: moment(e.now), Principal: cmd.Principal, Proxy: cmd.Proxy}, out)
	e.regroupAll()
	return Lifted{Count: 1}, nil
}

// leasesOf returns the live leases that a revocation ends, oldest first.
func (e *Engine) leasesOf(key revocationKey) []*lease {
	var found []*lease
	of := func(p *proxy) {
		for _, l := range p.leases {
			if l.principal == key.principal {
				found = append(found, l)
			}
		}
	}
	if key.proxy != "" {
		of(e.proxies[key.proxy])
	} else {
		for _, p := range e.proxies {
			if p.fleet.holders[key.principal] > 0 {
				of(p)
			}
		}
	}
	slices.SortFunc(found, func(a, b *lease) int { return cmp.Compare(a.token.Sequence, b.token.Sequence) })
	return found
}

// standing lists the revocations that stand.
func (e *Engine) standing() []Revocation {
	standing := slices.DeleteFunc(slices.Collect(maps.Values(e.revocations)), func(r Revocation) bool { return nanos(r.Until) <= e.now })
	slices.SortFunc(standing, func(a, b Revocation) int {
		return cmp.Or(cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Proxy, b.Proxy))
	})
	return standing
}

// applyRevocation makes a revocation stand, and forgets those that are over.
func (e *Engine) applyRevocation(r *RevocationSet) {
	maps.DeleteFunc(e.revocations, func(_ revocationKey, old Revocation) bool { return nanos(old.Until) <= nanos(r.At) })
	e.revocations[revocationKey{principal: r.Principal, proxy: r.Proxy}] = Revocation{
		Principal: r.Principal, Proxy: r.Proxy, Since: r.At, Until: r.Until, Why: r.Why,
	}
}

// revokedFrom tells whether a principal may not have a proxy.
func (e *Engine) revokedFrom(principal Principal, proxy ProxyUID) bool {
	if len(e.revocations) == 0 {
		return false
	}
	r, known := e.revocations[revocationKey{principal: principal, proxy: proxy}]
	return known && nanos(r.Until) > e.now
}

// mayLease refuses a principal that is revoked everywhere.
func (e *Engine) mayLease(principal Principal) *Refusal {
	if !e.revokedFrom(principal, "") {
		return nil
	}
	r := e.revocations[revocationKey{principal: principal}]
	retry := retryIn(e.now, nanos(r.Until))
	return &Refusal{Reason: RevokedPrincipal, RetryAfter: retry, Message: fmt.Sprintf(
		"an operator has revoked %s; it may lease again in %s, or when that is lifted%s", principal, humane(retry), because(r.Why))}
}

// allowed chooses as [view.choose] does, but not among the proxies that the
// principal is revoked on. There are few of those, if any.
func (e *Engine) allowed(v *view, cmd *Acquire, count int) []*proxy {
	revoked := 0
	for key, r := range e.revocations {
		if key.principal == cmd.Principal && key.proxy != "" && nanos(r.Until) > e.now {
			revoked++
		}
	}
	if revoked == 0 {
		return v.choose(count, cmd.Exclusive, e.targets[cmd.Target.key], cmd.Target.key)
	}
	// Each of them comes once for each of its slots at most.
	chosen := v.choose(count+revoked*v.fleet.slots(), cmd.Exclusive, e.targets[cmd.Target.key], cmd.Target.key)
	chosen = slices.DeleteFunc(chosen, func(p *proxy) bool { return e.revokedFrom(cmd.Principal, p.known.UID) })
	return chosen[:min(count, len(chosen))]
}
