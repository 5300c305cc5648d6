package session

import (
	"errors"
	"time"
)

// ErrSilent means that the peer has not been heard for longer than it may be silent. The stream may look alive:
// whatever is between may answer for a peer that is dead.
var ErrSilent = errors.New("the peer is silent")

// ProtocolError means that the peer has sent what it must not. Trying again with the same peer will hardly help.
type ProtocolError struct{ Reason string }

// Error says what the peer did.
func (e *ProtocolError) Error() string { return "session protocol: " + e.Reason }

// Config holds the figures of a session. Zero values mean the defaults.
type Config struct {
	// HeartbeatInterval is how often heartbeats are sent; 5 s. A hub tells it to the agent, whose own value is not
	// used.
	HeartbeatInterval time.Duration
	// MissedHeartbeats is how many intervals the peer may be silent; 3.
	MissedHeartbeats int
	// HandshakeTimeout is how long to wait for Hello or Welcome; 15 s.
	HandshakeTimeout time.Duration
	// ResendAfter is how long to wait for an ack before the item is sent again; 5 s. It doubles each time, up to
	// ResendCap; 1 min.
	ResendAfter, ResendCap time.Duration
	// DigestEvery is the mean time between two digests; 5 min. Jitter spreads it over half to one and a half of it.
	DigestEvery time.Duration
	// ResyncRetry is how long to wait for a snapshot that was asked for, or for the next item of one that has begun,
	// before asking again; 30 s.
	ResyncRetry time.Duration
	// SnapshotPause is the least time between two snapshots; 1 s. It doubles while they come in a row, up to
	// SnapshotPauseCap; 1 min.
	SnapshotPause, SnapshotPauseCap time.Duration
	// ConfirmAfter is how long to wait before asking for the snapshot that confirms one that was held back; 10 s.
	ConfirmAfter time.Duration
	// Handful is how many items a snapshot may prune without being doubted, however few are known; 3.
	Handful int
	// Graves is how many deleted uids are remembered, so that a late Upsert does not revive them; 4096. The oldest are
	// forgotten first.
	Graves int
	// Jitter returns a random number in [0, 1). Nil means 0.5, always.
	Jitter func() float64

	// Known are the items that the caller holds from earlier sessions. Those missing from the snapshot are pruned.
	Known []Version
}

func (c Config) withDefaults() Config {
	duration := func(p *time.Duration, d time.Duration) {
		if *p <= 0 {
			*p = d
		}
	}
	number := func(p *int, n int) {
		if *p <= 0 {
			*p = n
		}
	}
	duration(&c.HeartbeatInterval, 5*time.Second)
	number(&c.MissedHeartbeats, 3)
	duration(&c.HandshakeTimeout, 15*time.Second)
	duration(&c.ResendAfter, 5*time.Second)
	duration(&c.ResendCap, time.Minute)
	duration(&c.DigestEvery, 5*time.Minute)
	duration(&c.ResyncRetry, 30*time.Second)
	duration(&c.SnapshotPause, time.Second)
	duration(&c.SnapshotPauseCap, time.Minute)
	duration(&c.ConfirmAfter, 10*time.Second)
	number(&c.Handful, 3)
	number(&c.Graves, 4096)
	if c.Jitter == nil {
		c.Jitter = func() float64 { return 0.5 }
	}
	return c
}

// doubled returns base doubled n times, but no more than limit.
func doubled(base, limit time.Duration, n int) time.Duration {
	for ; n > 0 && base < limit; n-- {
		base *= 2
	}
	return min(base, limit)
}

// earliest returns the earlier of two times, of which a zero one is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
