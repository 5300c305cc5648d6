package inventory

import "time"

// member is what is known of one member.
type member struct {
	session   Session
	connects  int
	connected bool
	// resynced is of the present session, complete of any session since the hub started.
	resynced, complete bool
	doubted            bool
	// round counts sessions; what carries an older mark was not observed by the present one.
	round uint64

	heard     bool
	lastHeard time.Time
	// lostAt is when the member was first missed; zero while it is not.
	lostAt time.Time
	// heardAgain is since when a lost member has been heard without a gap.
	heardAgain time.Time
	// unreachable is latched until a resync.
	unreachable bool

	instances []turn
	duplicate time.Time
	foreign   string

	proxies map[string]*proxy
	sets    map[string]*proxySet
	// told is the state that watchers were last told of by Tick.
	told State
}

// turn is when an instance of the agent connected.
type turn struct {
	instance string
	at       time.Time
}

// hear counts a frame. A gap that has become a loss begins one, whether or not anybody looked meanwhile.
func (m *member) hear(now time.Time) {
	if m.heard {
		m.lapse(now)
	}
	if !m.heard || now.After(m.lastHeard) {
		m.lastHeard = now
	}
	m.heard = true
	if !m.lostAt.IsZero() && m.heardAgain.IsZero() {
		m.heardAgain = now
	}
	if !m.lostAt.IsZero() && !m.unreachable && m.complete && now.Sub(m.heardAgain) >= RecoverAfter {
		m.lostAt, m.heardAgain = time.Time{}, time.Time{}
	}
}

// lapse turns silence into loss.
func (m *member) lapse(now time.Time) {
	silence := now.Sub(m.lastHeard)
	if silence < SuspectAfter {
		return
	}
	if m.lostAt.IsZero() {
		m.lostAt = m.lastHeard
	}
	m.heardAgain = time.Time{}
	if silence >= UnreachableAfter {
		m.unreachable = true
	}
}

// recovered ends a loss: the member has told all it has.
func (m *member) recovered(time.Time) {
	m.unreachable = false
	m.lostAt, m.heardAgain = time.Time{}, time.Time{}
}

// state judges the member.
func (m *member) state(now time.Time) State {
	if !m.heard {
		return NeverHeard
	}
	m.lapse(now)
	silence := now.Sub(m.lastHeard)
	switch {
	case silence >= UnreachableAfter:
		return Unreachable
	case !m.lostAt.IsZero():
		return Suspect
	case !m.complete:
		return Syncing
	}
	return Ready
}

// noteInstance finds out whether two instances take turns: an instance that comes back after another one connected is
// alive beside it, because an agent that restarts is a new instance.
func (m *member) noteInstance(instance string, now time.Time) {
	for len(m.instances) > 0 && now.Sub(m.instances[0].at) > DuplicateWindow {
		m.instances = m.instances[1:]
	}
	if n := len(m.instances); n > 0 && m.instances[n-1].instance == instance {
		m.instances[n-1].at = now
		return
	}
	for _, t := range m.instances {
		if t.instance == instance {
			m.duplicate = now
		}
	}
	const most = 8
	if len(m.instances) == most {
		m.instances = m.instances[1:]
	}
	m.instances = append(m.instances, turn{instance: instance, at: now})
}

// duplicated tells whether two live instances took turns lately.
func (m *member) duplicated(now time.Time) bool {
	return !m.duplicate.IsZero() && now.Sub(m.duplicate) < DuplicateWindow
}
