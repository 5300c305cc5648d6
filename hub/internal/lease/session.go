package lease

import "fmt"

// sessionOf returns the live session that an Acquire asks for, or nil.
func (e *Engine) sessionOf(cmd *Acquire) *session {
	if cmd.SessionKey == "" {
		return nil
	}
	return e.sessions[sessionKey{principal: cmd.Principal, fleet: cmd.Fleet, key: cmd.SessionKey}]
}

// sessionProxy returns the proxy of a session, as a list of one. Without a
// session, and where its proxy cannot be had and may be another, the list is
// empty. A site that sees a session jump to another address may ban it, so
// without AllowMove the session is refused instead.
func (e *Engine) sessionProxy(s *session, v *view, cmd *Acquire) ([]*proxy, *Refusal) {
	if s == nil {
		return nil, nil
	}
	p := e.proxies[s.proxy]
	refusal := e.unusable(p, s, v, cmd)
	switch {
	case refusal == nil:
		v.fleet.candidate = append(v.fleet.candidate[:0], p)
		return v.fleet.candidate, nil
	case cmd.AllowMove:
		return nil, nil
	default:
		refusal.Message += "; set allow_move to go on with another proxy"
		return nil, refusal
	}
}

// unusable says why a session cannot go on with its proxy, or nil.
func (e *Engine) unusable(p *proxy, s *session, v *view, cmd *Acquire) *Refusal {
	name := quote("session_key", cmd.SessionKey)
	f := v.fleet
	if p == nil || p.fleet != f {
		return &Refusal{Reason: SessionLost, RetryAfter: retryIn(e.now, s.until), Message: fmt.Sprintf(
			"the proxy of %s is gone; the session ends in %s", name, humane(e.left(s.until)))}
	}
	if e.revokedFrom(cmd.Principal, p.known.UID) {
		return &Refusal{Reason: RevokedPrincipal, RetryAfter: retryIn(e.now, s.until), Matching: 1, Message: fmt.Sprintf(
			"an operator has revoked %s on the proxy of %s; the session ends in %s", cmd.Principal, name, humane(e.left(s.until)))}
	}
	if v.unmatched.has(p.index) {
		return &Refusal{Reason: NoMatch, RetryAfter: retryIn(e.now, s.until), Message: fmt.Sprintf(
			"the proxy of %s does not fit the selector; the session ends in %s", name, humane(e.left(s.until)))}
	}
	switch p.class {
	case usable:
	case stale:
		return &Refusal{Reason: StaleInventory, RetryAfter: idleRetry, Matching: 1, Message: fmt.Sprintf(
			"the proxy of %s is on member %s, which the hub does not hear from", name, p.known.Member)}
	case draining:
		return &Refusal{Reason: SessionLost, RetryAfter: retryIn(e.now, s.until), Matching: 1, Message: fmt.Sprintf(
			"the proxy of %s is draining; the session ends in %s", name, humane(e.left(s.until)))}
	case saturated, down, classes:
		return &Refusal{Reason: NoCapacity, RetryAfter: idleRetry, Matching: 1, Message: fmt.Sprintf(
			"the proxy of %s is not ready now", name)}
	}
	if v.cool.has(p.index) {
		retry := retryIn(e.now, v.target.coolUntil(p))
		return &Refusal{Reason: CoolingDown, RetryAfter: retry, Matching: 1, Cooling: 1, Message: fmt.Sprintf(
			"the proxy of %s is cooling down for %s; it is back in %s", name, v.target.key, humane(retry))}
	}
	if v.paced.has(p.index) {
		retry := idleRetry
		if at := v.opens(p); at != never {
			retry = retryIn(e.now, at)
		} else if at := f.firstFree(func(l *lease) bool { return l.target.key == cmd.Target.key }); at != 0 {
			retry = retryIn(e.now, at)
		}
		return &Refusal{Reason: NoCapacity, RetryAfter: retry, Matching: 1, Busy: 1, Paced: 1, Message: fmt.Sprintf(
			"the proxy of %s is at the pace that %s bears; it is free in %s", name, v.target.key, humane(retry))}
	}
	if p.queued == notQueued || p.index == f.reserved || cmd.Exclusive && p.load > 0 {
		retry := retryIn(e.now, f.firstFree(func(l *lease) bool { return l.proxy == p }))
		return &Refusal{Reason: NoCapacity, RetryAfter: retry, Matching: 1, Busy: 1, Message: fmt.Sprintf(
			"the proxy of %s is busy; a slot may be free in %s", name, humane(retry))}
	}
	return nil
}
