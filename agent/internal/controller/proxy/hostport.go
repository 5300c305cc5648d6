package proxy

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/shoal-dev/shoal/agent/provider"
)

// portBook remembers the host ports that this process has given out. The Proxies' status is the durable record; the
// book bridges the time until the cache shows it.
type portBook struct {
	mu    sync.Mutex
	given map[int32]types.UID
}

func newPortBook() *portBook { return &portBook{given: map[int32]types.UID{}} }

// hostPort gives the port kept for the proxy: the one it has, or the lowest of its entry's range that no other Proxy has.
// It is 0 where the entry exposes no host ports.
//
// Two Proxies can have written down the same port if an agent took over from another before it saw all that the other
// had written. Then the one that is ahead keeps it, and the other's instance is replaced.
func (r *Reconciler) hostPort(s *scope) (int32, error) {
	if s.entry.FirstPort == 0 {
		return 0, nil
	}
	uid, have := s.proxy.UID, s.proxy.Status.HostPort
	kept := have >= s.entry.FirstPort && have <= s.entry.LastPort
	taken := make(map[int32]bool, len(s.others))
	for i := range s.others {
		port := s.others[i].Status.HostPort
		taken[port] = true
		if port == have && isAhead(&s.others[i], s.proxy) {
			kept = false
		}
	}
	r.ports.mu.Lock()
	defer r.ports.mu.Unlock()
	if kept {
		r.ports.given[have] = uid
		return have, nil
	}
	for port := s.entry.FirstPort; port <= s.entry.LastPort; port++ {
		if r.ports.given[port] == uid && !taken[port] {
			return port, nil
		}
	}
	for port := s.entry.FirstPort; port <= s.entry.LastPort; port++ {
		if _, given := r.ports.given[port]; !given && !taken[port] {
			r.ports.given[port] = uid
			return port, nil
		}
	}
	return 0, provider.Errorf(provider.KindCapacityExhausted, "choose a host port",
		"all ports from %d to %d are taken; have the member's owner widen hostPortRange", s.entry.FirstPort, s.entry.LastPort)
}

// forget frees the ports of a Proxy that is gone.
func (b *portBook) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for port, owner := range b.given {
		if owner == uid {
			delete(b.given, port)
		}
	}
}
