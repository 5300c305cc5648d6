package probe

import "errors"

// Limiter bounds the probes under way of all runners that share it: connections, memory and processor time are the
// agent's, not a member's. It is safe for concurrent use, and fair: who waits is served in turn.
//
// Half of the places are for slow proxies, which hold theirs until a deadline. So they never keep others from being
// probed in time, however many they are: a proxy is in the way of others once, by the probe that finds it slow.
type Limiter struct {
	places [lanes]chan struct{}
}

// DefaultProbes is the number of probes under way that a runner without a limiter is given. One takes some 50 KiB and a
// socket.
const DefaultProbes = 512

// NewLimiter returns a limiter of that many probes, or an error if they are less than two.
func NewLimiter(probes int) (*Limiter, error) {
	if probes < 2 {
		return nil, errors.New("probe limiter: it needs at least 2 places, for a quick and a slow proxy")
	}
	l := &Limiter{}
	l.places[LaneSlow] = make(chan struct{}, probes/2)
	l.places[LaneQuick] = make(chan struct{}, probes-probes/2)
	return l, nil
}
