package proxy

import (
	"sync"

	"github.com/shoal-dev/shoal/agent/provider"
)

// portBook remembers the host ports that this process has given out. The Proxies' status is the durable record; the
// book bridges the time until the cache shows it.
type portBook struct {
	mu    sync.Mutex
	given map[int32]string // by port, the UID of the Proxy
}

func newPortBook() *portBook { return &portBook{given: map[int32]string{}} }

// hostPort gives the port kept for the proxy: the one it has, or the lowest of its entry's range that no other Proxy has.
// It is 0 where the entry exposes no host ports.
func (r *Reconciler) hostPort(s *scope) (int32, error) {
	if s.entry.FirstPort == 0 {
		return 0, nil
	}
	uid := string(s.proxy.UID)
	taken := make(map[int32]bool, len(s.others))
	for i := range s.others {
		if port := s.others[i].Status.HostPort; port != 0 {
			taken[port] = true
		}
	}
	r.ports.mu.Lock()
	defer r.ports.mu.Unlock()
	if have := s.proxy.Status.HostPort; have >= s.entry.FirstPort && have <= s.entry.LastPort {
		r.ports.given[have] = uid
		return have, nil
	}
	for port, owner := range r.ports.given {
		if owner == uid && port >= s.entry.FirstPort && port <= s.entry.LastPort {
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

// forget frees the port of a Proxy that is gone.
func (b *portBook) forget(uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for port, owner := range b.given {
		if owner == uid {
			delete(b.given, port)
		}
	}
}
