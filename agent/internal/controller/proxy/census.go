package proxy

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// recount is how often the census is compared with what there is: a Proxy whose end this process missed holds no place
// and no port for longer.
const recount = 10 * time.Minute

// census is what a pass must know of the other Proxies of its member: how many come before it, and which host ports are
// taken. Each pass tells it of its own Proxy, so that none has to read all of them.
type census struct {
	mu    sync.Mutex
	rolls map[roll]*counted
}

// roll names the Proxies that are counted together.
type roll struct{ cluster, namespace string }

type counted struct {
	at      time.Time
	proxies map[types.UID]citizen
	ports   map[int32]map[types.UID]struct{}
	// all sums up every one of them.
	all ceiling.Ahead
	// given are the ports that this process has chosen, also before the cache shows them.
	given map[int32]types.UID
}

// citizen is what matters of one Proxy to the others.
type citizen struct {
	uid     types.UID
	has     bool
	created time.Time
	port    int32
	// refused says that the ceiling had refused it when it was last looked at, check how it is probed otherwise.
	refused bool
	check   v1alpha1.HealthCheck
}

func citizenOf(p *v1alpha1.Proxy) citizen {
	return citizen{
		uid: p.UID, has: p.Status.InstanceName != "", created: p.CreationTimestamp.Time, port: p.Status.HostPort,
		refused: isRefused(p), check: p.Spec.HealthCheck,
	}
}

// before says whether c comes before o where there is not enough for both: what has an instance before what has none,
// then the older. The order does not change with the order in which passes happen to run.
func (c citizen) before(o citizen) bool {
	switch {
	case c.has != o.has:
		return c.has
	case !c.created.Equal(o.created):
		return c.created.Before(o.created)
	default:
		return c.uid < o.uid
	}
}

func newCensus() *census { return &census{rolls: map[roll]*counted{}} }

// visit counts a Proxy, and all others of its roll when that is due.
func (c *census) visit(ctx context.Context, now time.Time, reader client.Reader, of roll, p *v1alpha1.Proxy) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.rolls[of]
	if have == nil {
		have = &counted{proxies: map[types.UID]citizen{}, ports: map[int32]map[types.UID]struct{}{}, given: map[int32]types.UID{}}
	}
	if have.at.IsZero() || now.Sub(have.at) >= recount {
		// They are only read, and copies of all would be most of what the agent does.
		list := &v1alpha1.ProxyList{}
		if err := reader.List(ctx, list, client.InNamespace(of.namespace), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list proxies: %w", err)
		}
		there := make(map[types.UID]bool, len(list.Items))
		for i := range list.Items {
			there[list.Items[i].UID] = true
			have.put(citizenOf(&list.Items[i]))
		}
		for uid := range have.proxies {
			if !there[uid] {
				have.drop(uid)
			}
		}
		// Sums of tenths drift.
		have.all = ceiling.Ahead{}
		for _, other := range have.proxies {
			other.addTo(&have.all)
		}
		have.at = now
		c.rolls[of] = have
	}
	have.put(citizenOf(p))
	return nil
}

// note counts a Proxy as it has just been written.
func (c *census) note(of roll, p *v1alpha1.Proxy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.rolls[of]; have != nil {
		have.put(citizenOf(p))
	}
}

// forget takes a Proxy off its roll and frees its ports.
func (c *census) forget(of roll, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.rolls[of]; have != nil {
		have.drop(uid)
	}
}

func (h *counted) put(c citizen) {
	if was, known := h.proxies[c.uid]; known {
		if was == c {
			return
		}
		h.remove(was)
	}
	h.proxies[c.uid] = c
	c.addTo(&h.all)
	if c.port != 0 {
		if h.ports[c.port] == nil {
			h.ports[c.port] = map[types.UID]struct{}{}
		}
		h.ports[c.port][c.uid] = struct{}{}
	}
}

func (h *counted) remove(c citizen) {
	delete(h.proxies, c.uid)
	var own ceiling.Ahead
	c.addTo(&own)
	h.all.Proxies -= own.Proxies
	h.all.ProbesPerSecond -= own.ProbesPerSecond
	delete(h.ports[c.port], c.uid)
	if len(h.ports[c.port]) == 0 {
		delete(h.ports, c.port)
	}
}

func (h *counted) drop(uid types.UID) {
	if have, known := h.proxies[uid]; known {
		h.remove(have)
	}
	for port, owner := range h.given {
		if owner == uid {
			delete(h.given, port)
		}
	}
}

// ahead sums up the Proxies that come before one. While all of them together are within the policy it matters to none who
// comes first, and nothing is summed up.
func (c *census) ahead(of roll, uid types.UID, policy ceiling.Policy) ceiling.Ahead {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.rolls[of]
	me, all := have.proxies[uid], have.all
	if me.refused {
		// Those that are refused take nothing of the bound, but this one would.
		me.refused = false
		me.addTo(&all)
	}
	if policy.Room(len(have.proxies)-1) > 0 && all.ProbesPerSecond <= float64(cmp.Or(policy.MaxProbesPerSecond, ceiling.DefaultMaxProbesPerSecond)) {
		return ceiling.Ahead{}
	}
	var ahead ceiling.Ahead
	for _, other := range have.proxies {
		if other.uid != uid && other.before(me) {
			other.addTo(&ahead)
		}
	}
	return ahead
}

func (c citizen) addTo(a *ceiling.Ahead) {
	a.Add(v1alpha1.ProxySpec{ProxySettings: v1alpha1.ProxySettings{HealthCheck: c.check}}, c.refused)
}

// hostPort gives the port kept for the proxy: the one it has, or the lowest of its entry's range that no other Proxy has.
// It is 0 where the entry exposes no host ports. A port that something else on the nodes seems to have is left for others.
//
// Two Proxies can have written down the same port if an agent took over from another before it saw all that the other
// had written. Then the one that is ahead keeps it, and the other's instance is replaced.
func (r *Reconciler) hostPort(s *scope) (int32, error) {
	if s.entry.FirstPort == 0 {
		return 0, nil
	}
	r.census.mu.Lock()
	defer r.census.mu.Unlock()
	all := r.census.rolls[s.roll()]
	uid, have := s.proxy.UID, s.proxy.Status.HostPort
	shunned := func(port int32) bool { return r.moves.shuns(r.o.Clock.Now(), s.place(), port) }
	kept := have >= s.entry.FirstPort && have <= s.entry.LastPort && all.keeps(uid, have)
	if kept && !shunned(have) {
		all.given[have] = uid
		return have, nil
	}
	for port := s.entry.FirstPort; port <= s.entry.LastPort; port++ {
		if all.given[port] == uid && !all.taken(port, uid) && !shunned(port) {
			return port, nil
		}
	}
	for port := s.entry.FirstPort; port <= s.entry.LastPort; port++ {
		if _, given := all.given[port]; !given && !all.taken(port, uid) && !shunned(port) {
			if all.given[have] == uid {
				delete(all.given, have)
			}
			all.given[port] = uid
			return port, nil
		}
	}
	if kept {
		// There is none that is better.
		return have, nil
	}
	return 0, provider.Errorf(provider.KindCapacityExhausted, "choose a host port",
		"all ports from %d to %d are taken; have the member's owner widen hostPortRange", s.entry.FirstPort, s.entry.LastPort)
}

// keeps says whether no Proxy that is ahead has the same port.
func (h *counted) keeps(uid types.UID, port int32) bool {
	for other := range h.ports[port] {
		if other != uid && h.proxies[other].before(h.proxies[uid]) {
			return false
		}
	}
	return true
}

// taken says whether another Proxy has a port.
func (h *counted) taken(port int32, uid types.UID) bool {
	for other := range h.ports[port] {
		if other != uid {
			return true
		}
	}
	return false
}
