package session

// Epochs numbers the sessions of members, so that of two sessions of one member the newer is known. The zero value is
// ready to use. It is not safe for concurrent use.
type Epochs struct{ last map[string]uint64 }

// greatest is the greatest epoch that is believed when an agent names it. A greater one is a mistake, and believing it
// would leave no room to count on.
const greatest = 1 << 62

// Claim returns the epoch of a new session of the member: greater than every earlier one of this process, and than
// seen, the last epoch the agent was given, which an earlier hub process may have counted.
func (e *Epochs) Claim(member string, seen uint64) uint64 {
	if e.last == nil {
		e.last = map[string]uint64{}
	}
	epoch := e.last[member]
	if seen <= greatest {
		epoch = max(epoch, seen)
	}
	epoch++
	e.last[member] = epoch
	return epoch
}

// Newest tells whether no newer session of the member has been claimed.
func (e *Epochs) Newest(member string, epoch uint64) bool { return e.last[member] == epoch }

// Forget drops what is known of a member that is no more.
func (e *Epochs) Forget(member string) { delete(e.last, member) }
