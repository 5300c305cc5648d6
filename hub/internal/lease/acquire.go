package lease

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// acquire grants leases or says why not. Nothing changes before the record at
// its end.
func (e *Engine) acquire(cmd *Acquire, out *Output) (Result, *Refusal) {
	if refusal := checkAcquire(cmd); refusal != nil {
		return nil, refusal
	}
	f := e.fleets[cmd.Fleet]
	if f == nil || !f.exists {
		return nil, unknownFleet(cmd.Fleet)
	}
	cmd.Target = f.keyed(cmd.Target)
	ttl, refusal := f.ttl(cmd.TTL, f.policy.DefaultTTL)
	if refusal != nil {
		return nil, refusal
	}
	var fingerprint [sha256.Size]byte
	if cmd.RequestID != "" {
		fingerprint = cmd.fingerprint()
		if result, refusal := e.repeated(cmd, fingerprint); result != nil || refusal != nil {
			return result, refusal
		}
	}
	count, least := cmd.counts()
	if refusal := e.mayGrant(f, cmd); refusal != nil {
		return nil, refusal
	}
	if count, refusal = e.withinQuota(f, cmd.Principal, count, least); refusal != nil {
		return nil, refusal
	}
	v := e.viewFor(f, cmd.Target, &cmd.Selector, cmd.Network)
	s := e.sessionOf(cmd)
	chosen, refusal := e.sessionProxy(s, v, cmd)
	if refusal != nil {
		return nil, refusal
	}
	moved := s != nil && len(chosen) == 0
	if len(chosen) == 0 {
		if chosen = e.allowed(v, cmd, count); len(chosen) < least {
			return nil, e.refuse(v, cmd, least, chosen)
		}
	}
	rec := e.grant(f, cmd, chosen, ttl)
	rec.Fingerprint = fingerprint
	out.Records = append(out.Records, rec)
	leases := make([]Lease, len(chosen))
	for i, l := range e.applyGranted(rec, chosen) {
		e.answer(l, &leases[i])
	}
	return Granted{Leases: leases, Moved: moved}, nil
}

// grant writes down what is granted.
func (e *Engine) grant(f *fleet, cmd *Acquire, chosen []*proxy, ttl time.Duration) *LeasesGranted {
	slots := 1
	if cmd.Exclusive {
		slots = f.slots()
	}
	rec := &LeasesGranted{
		At: moment(e.now), Principal: cmd.Principal, Fleet: cmd.Fleet, Target: cmd.Target,
		Network: cmd.Network, Exclusive: cmd.Exclusive, TTL: ttl,
		Expires:     moment(e.now + int64(ttl)),
		LifetimeEnd: moment(e.now + int64(f.policy.MaxLifetime)),
		Leases:      make([]GrantedLease, len(chosen)),
		RequestID:   cmd.RequestID, SessionKey: cmd.SessionKey,
	}
	for i, p := range chosen {
		rec.Leases[i] = GrantedLease{
			ID:    e.opts.IDs.NextID(),
			Token: FencingToken{Epoch: e.opts.Epoch, Sequence: e.sequence + uint64(i) + 1},
			Proxy: p.known.UID, Slots: slots,
		}
	}
	if cmd.SessionKey != "" {
		outlives := f.policy.MaxLifetime
		if cmd.SessionTTL != nil {
			outlives = *cmd.SessionTTL
		}
		rec.SessionUntil = moment(e.now + int64(max(outlives, ttl)))
	}
	return rec
}

// checkAcquire refuses what is wrong in the command by itself.
func checkAcquire(cmd *Acquire) *Refusal {
	switch {
	case cmd.Principal == "":
		return invalid("principal", "principal is empty; it names the authenticated caller")
	case cmd.Fleet == "":
		return invalid("fleet", "fleet is empty; write namespace/name, such as crawl/news")
	case cmd.Count != nil && (*cmd.Count < 1 || *cmd.Count > MaxCount):
		return invalid("count", fmt.Sprintf("count is %d; leave it out for 1, or write 1 to %d", *cmd.Count, MaxCount))
	case len(cmd.RequestID) > MaxKeyBytes:
		return invalid("request_id", fmt.Sprintf("request_id has %d bytes; write at most %d", len(cmd.RequestID), MaxKeyBytes))
	case len(cmd.SessionKey) > MaxKeyBytes:
		return invalid("session_key", fmt.Sprintf("session_key has %d bytes; write at most %d", len(cmd.SessionKey), MaxKeyBytes))
	case len(cmd.Selector.Labels) > MaxLabels:
		return invalid("labels", fmt.Sprintf("the selector has %d labels; write at most %d", len(cmd.Selector.Labels), MaxLabels))
	}
	count, least := cmd.counts()
	switch {
	case least < 1 || least > count:
		return invalid("min_count", fmt.Sprintf("min_count is %d; leave it out for all or nothing, or write 1 to count, which is %d", least, count))
	case cmd.SessionKey != "" && count > 1:
		return invalid("count", fmt.Sprintf("count is %d with a session_key; a session has one proxy, so write 1 or use a session_key for each", count))
	case cmd.SessionKey == "" && cmd.AllowMove:
		return invalid("allow_move", "allow_move is set without a session_key; write a session_key or leave it out")
	case cmd.SessionKey == "" && cmd.SessionTTL != nil:
		return invalid("session_ttl", "session_ttl is set without a session_key; write a session_key or leave it out")
	case cmd.SessionTTL != nil && (*cmd.SessionTTL < MinTTL || *cmd.SessionTTL > MaxSessionTTL):
		return invalid("session_ttl", fmt.Sprintf("session_ttl is %s; leave it out for the fleet's maxLifetime, or write 1s to %s", *cmd.SessionTTL, humane(MaxSessionTTL)))
	}
	return nil
}

// counts returns how many leases are asked for, and how many will do.
func (cmd *Acquire) counts() (count, least int) {
	count = 1
	if cmd.Count != nil {
		count = *cmd.Count
	}
	if cmd.MinCount != nil {
		return count, *cmd.MinCount
	}
	return count, count
}

// ttl returns what was asked for, or the default, if the fleet allows it.
func (f *fleet) ttl(asked *time.Duration, otherwise time.Duration) (time.Duration, *Refusal) {
	switch {
	case asked == nil:
		return min(otherwise, f.policy.MaxTTL), nil
	case *asked < MinTTL:
		return 0, invalid("ttl", fmt.Sprintf("ttl is %s; leave it out for %s, or write %s to %s (the maxTTL of %s)",
			*asked, humane(min(otherwise, f.policy.MaxTTL)), humane(MinTTL), humane(f.policy.MaxTTL), f.id))
	case *asked > f.policy.MaxTTL:
		return 0, invalid("ttl", fmt.Sprintf("ttl is %s, more than %s, the maxTTL of %s; write less and renew",
			*asked, humane(f.policy.MaxTTL), f.id))
	default:
		return *asked, nil
	}
}

// repeated answers an Acquire that was granted before. Both results are nil
// for a new one.
func (e *Engine) repeated(cmd *Acquire, fingerprint [sha256.Size]byte) (Result, *Refusal) {
	req := e.requests[cmd.requestKey()]
	if req == nil {
		return nil, nil
	}
	if req.fingerprint != fingerprint {
		return nil, reusedID(cmd)
	}
	leases := make([]Lease, len(req.leases))
	alive := false
	for i, l := range req.leases {
		e.answer(l, &leases[i])
		alive = alive || l.state == Live
	}
	if !alive {
		return nil, &Refusal{Reason: LeaseExpired, Message: fmt.Sprintf(
			"the leases granted for %s have ended (%s is %s); write a new request_id to get others",
			quote("request_id", string(cmd.RequestID)), leases[0].ID, leases[0].State)}
	}
	return Granted{Leases: leases, Repeated: true}, nil
}

func reusedID(cmd *Acquire) *Refusal {
	return invalid("request_id", quote("request_id", string(cmd.RequestID))+
		" was used for another request in "+string(cmd.Fleet)+"; repeat that one unchanged or write a new request_id")
}

// mayGrant refuses while nothing may be granted at all.
func (e *Engine) mayGrant(f *fleet, cmd *Acquire) *Refusal {
	if refusal := e.mayLease(cmd.Principal); refusal != nil {
		return refusal
	}
	if refusal := e.targetPaused(cmd.Target.key); refusal != nil {
		return refusal
	}
	if e.readOnly != "" {
		return &Refusal{Reason: ReadOnly, RetryAfter: idleRetry, Message: "the hub grants nothing now: " + e.readOnly + "; leases can be renewed and released"}
	}
	if f.graceUntil > e.now {
		retry := retryIn(e.now, f.graceUntil)
		return &Refusal{Reason: StaleInventory, RetryAfter: retry, Message: fmt.Sprintf(
			"the hub restarted without its history, so leases of %s from before may still live; it grants again in %s", f.id, humane(retry))}
	}
	if until, paused := f.paused[cmd.Target.key]; paused {
		if until > e.now {
			retry := retryIn(e.now, until)
			return &Refusal{Reason: TargetGuarded, RetryAfter: retry, Message: fmt.Sprintf(
				"bans on %s come in a burst; to spare the exits of %s that are left, grants for it pause for %s", cmd.Target.key, f.id, humane(retry))}
		}
		delete(f.paused, cmd.Target.key)
	}
	return nil
}

// withinQuota cuts the count down to what the principal may still hold.
func (e *Engine) withinQuota(f *fleet, holder Principal, count, least int) (int, *Refusal) {
	most := f.policy.MaxLeasesPerPrincipal
	if most == 0 {
		return count, nil
	}
	holds := f.holders[holder]
	if holds+least <= most {
		return min(count, most-holds), nil
	}
	retry := time.Duration(0)
	if least <= most {
		retry = retryIn(e.now, f.firstFree(func(l *lease) bool { return l.state == Live && l.principal == holder }))
	}
	return 0, &Refusal{Reason: Quota, RetryAfter: retry, Message: fmt.Sprintf(
		"%s holds %d leases of %s and may hold %d, so it cannot get %d more; release some first", holder, holds, f.id, most, least)}
}

// fingerprint tells an Acquire from any other: it covers all that was asked,
// apart from who asks, how long it waits, and the request id itself.
func (cmd *Acquire) fingerprint() [sha256.Size]byte {
	text := make([]byte, 0, 256)
	put := func(s string) {
		text = binary.AppendUvarint(text, uint64(len(s)))
		text = append(text, s...)
	}
	number := func(set bool, n int64) {
		if !set {
			text = append(text, 0)
			return
		}
		text = binary.AppendVarint(append(text, 1), n)
	}
	put(strings.ToUpper(cmd.Selector.Country))
	put(cmd.Selector.key(cmd.Network))
	put(cmd.Target.host)
	put(cmd.SessionKey)
	optional := func(d *time.Duration) {
		if d == nil {
			number(false, 0)
			return
		}
		number(true, int64(*d))
	}
	optional(cmd.TTL)
	optional(cmd.SessionTTL)
	for _, n := range []*int{cmd.Count, cmd.MinCount} {
		if n == nil {
			number(false, 0)
			continue
		}
		number(true, int64(*n))
	}
	for _, b := range []bool{cmd.AllowMove, cmd.Exclusive} {
		number(b, 1)
	}
	return sha256.Sum256(text)
}

func unknownFleet(id FleetID) *Refusal {
	return &Refusal{Reason: UnknownFleet, Field: "fleet", Message: quote("fleet", string(id)) +
		" does not exist; write namespace/name of a ProxyFleet on this hub"}
}
