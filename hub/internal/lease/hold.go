package lease

import (
	"fmt"
	"time"
)

// held returns the lease that a holder names, dead or alive.
func (e *Engine) heldBy(holder Principal, id ID) (*lease, *Refusal) {
	if holder == "" {
		return nil, invalid("principal", "principal is empty; it names the authenticated caller")
	}
	if id == "" {
		return nil, invalid("lease_id", "lease_id is empty; write the leaseId that Acquire returned")
	}
	l := e.leases[id]
	if l == nil {
		return nil, UnknownLease(id)
	}
	if l.principal != holder {
		return nil, &Refusal{Reason: NotHolder, Message: fmt.Sprintf(
			"lease %s belongs to another principal than %s; use the token that acquired it", l.id, holder)}
	}
	return l, nil
}

// UnknownLease is the refusal of a lease that the engine knows nothing of. An
// edge that must not tell strangers which leases there are answers it for
// NotHolder too.
func UnknownLease(id ID) *Refusal {
	return &Refusal{Reason: LeaseExpired, Message: quote("lease_id", string(id)) + fmt.Sprintf(
		" is not known: it ended more than %s ago, or was granted before the hub restarted; acquire a new lease", humane(Remembered))}
}

// renew extends a lease.
func (e *Engine) renew(cmd *Renew, out *Output) (Result, *Refusal) {
	l, refusal := e.heldBy(cmd.Principal, cmd.ID)
	if refusal != nil {
		return nil, refusal
	}
	if l.state != Live {
		return nil, &Refusal{Reason: LeaseExpired, Message: fmt.Sprintf(
			"lease %s ended %s ago (%s); acquire a new one", l.id, humane(time.Duration(e.now-l.expires)), l.state)}
	}
	f := l.fleet
	if !f.exists {
		return nil, &Refusal{Reason: UnknownFleet, Message: fmt.Sprintf(
			"fleet %s was deleted; lease %s ends in %s and cannot be renewed", f.id, l.id, humane(e.left(l.expires)))}
	}
	ttl, refusal := f.ttl(cmd.TTL, l.ttl)
	if refusal != nil {
		return nil, refusal
	}
	expires, capped := e.extended(l, ttl)
	if expires != l.expires {
		e.commit(&Extended{At: moment(e.now), ID: l.id, Expires: moment(expires)}, out)
	}
	result := Renewed{Capped: capped}
	e.answer(l, &result.Lease)
	return result, nil
}

// extended returns when a renewed lease ends. A renewal never shortens a
// lease, but for the deadline of a draining proxy: it ends with it anyway.
func (e *Engine) extended(l *lease, ttl time.Duration) (int64, Cap) {
	capped := NotCapped
	expires := e.now + int64(ttl)
	if expires > l.lifetimeEnd {
		expires, capped = l.lifetimeEnd, CappedByLifetime
	}
	expires = max(expires, l.expires)
	deadline := nanos(l.proxy.known.DrainDeadline)
	switch {
	case !l.proxy.known.Draining || deadline == 0 || expires <= deadline:
	case deadline > e.now:
		expires, capped = deadline, CappedByDrain
	default: // the deadline has passed, and the proxy is still here
		expires, capped = l.expires, CappedByDrain
	}
	return expires, capped
}

// release ends a lease. The second time it changes nothing and answers the
// same, so that a client whose first answer was lost need not tell the two
// apart. Once the lease is forgotten it is refused as LEASE_EXPIRED.
func (e *Engine) release(cmd *Release, out *Output) (Result, *Refusal) {
	l, refusal := e.heldBy(cmd.Principal, cmd.ID)
	if refusal != nil {
		return nil, refusal
	}
	if cmd.Outcome != nil {
		if refusal := l.checkObservation(cmd.Outcome); refusal != nil {
			return nil, refusal
		}
		var reported Reported
		e.observe(l, cmd.Outcome, &reported, out)
	}
	result := Released{Already: l.state != Live}
	if l.state == Live {
		e.commit(&Finished{
			At: moment(e.now), ID: l.id, State: StateReleased, HeldUntil: moment(e.holdUntil(l, e.now)),
		}, out)
	}
	e.answer(l, &result.Lease)
	return result, nil
}

// get finds a lease of the principal.
func (e *Engine) get(cmd *Get) (Result, *Refusal) {
	l, refusal := e.heldBy(cmd.Principal, cmd.ID)
	if refusal != nil {
		return nil, refusal
	}
	var result Found
	e.answer(l, &result.Lease)
	return result, nil
}
