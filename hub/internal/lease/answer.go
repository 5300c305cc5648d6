package lease

// answer describes a lease to its holder.
func (e *Engine) answer(l *lease, into *Lease) {
	p := l.proxy
	*into = Lease{
		ID: l.id, Token: l.token, Principal: l.principal, Fleet: l.fleet.id, Target: l.target,
		SessionKey: l.session, Exclusive: l.exclusive, State: l.state,
		Proxy: p.known.UID, ProxyName: p.known.Name, Member: p.known.Member,
		Region: p.known.Region, Country: p.known.Country, Exits: p.list,
		Granted: moment(l.granted), Expires: moment(l.expires), LifetimeEnd: moment(l.lifetimeEnd),
		Draining: p.known.Draining, DrainDeadline: p.known.DrainDeadline,
		ExitsChanged: l.change != p.change,
	}
	endpoint, ok := p.known.endpoint(l.network)
	if !ok {
		endpoint, _ = p.known.endpoint("")
	}
	into.Endpoint = endpoint
	if l.state == Live {
		into.TTL = e.left(l.expires)
		into.RenewAfter = into.TTL / 2
		into.Limits = e.limits(l)
	}
}

// subject says whose lease it is.
func (l *lease) subject() Subject {
	return Subject{ID: l.id, Principal: l.principal, Fleet: l.fleet.id, Proxy: l.proxy.known.UID}
}
