package computefake

import (
	"container/heap"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// world is everything that exists. It is not safe for concurrent use and knows no clock: whoever asks says what time it
// is, and [world.advance] brings it there first.
type world struct {
	o        Options
	projects map[string]*project
	events   eventHeap
	serial   int64 // of IDs, and of events at the same time
	faults   worldFaults

	natInUse, internalInUse map[netip.Addr]bool
	natNext, internalNext   netip.Addr
}

// worldFaults are the injected troubles that change what happens, not only what is answered.
type worldFaults struct {
	listLag     time.Duration
	quotaSync   bool
	quotas      map[quotaKey]float64
	stockouts   map[string]Stockout
	failInserts []*InsertFailure
	unreachable map[string]bool
	statuses    map[string]string // by link path
}

// project is what exists in a project.
type project struct {
	name       string
	instances  map[string]map[string]*instance  // zone, name
	addresses  map[string]map[string]*address   // region, name
	operations map[string]map[string]*operation // "zones/z" or "regions/r", name
	requests   map[requestKey]request
}

// requestKey is what a request ID is unique in.
type requestKey struct{ scope, id string }

// request is a call that was made with a request ID.
type request struct {
	call string // method and path
	op   *operation
	at   time.Time
}

// instance is a machine and what is known of it besides what the API says.
type instance struct {
	Instance
	project   string
	zone      string
	cpus      int
	spot      bool
	diskGB    int64
	ssd       bool
	external  bool // wants an external IPv4 address
	wantIPv6  bool
	createdAt time.Time
	// starting is the operation, insert or start, that ends when the machine runs.
	starting *operation
	// leaving are the operations that end when the machine has gone or stopped.
	leaving []*operation
	// boots counts its starts, so that what was planned for an earlier one does not happen to a later one.
	boots   int
	expires time.Time
	console string
	// waiting means that the machine is due to be RUNNING and that whoever boots it has not said that it is.
	waiting bool
	static  *address
}

// address is a reserved address.
type address struct {
	Address
	user *instance
}

// event is something that will happen.
type event struct {
	at     time.Time
	serial int64
	do     func(now time.Time)
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }

func (h eventHeap) Less(i, j int) bool {
	if c := h[i].at.Compare(h[j].at); c != 0 {
		return c < 0
	}
	return h[i].serial < h[j].serial
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }

func (h *eventHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func newWorld(o Options) *world {
	w := &world{
		o: o, projects: map[string]*project{}, natInUse: map[netip.Addr]bool{}, internalInUse: map[netip.Addr]bool{},
		faults: worldFaults{
			quotas: map[quotaKey]float64{}, stockouts: map[string]Stockout{}, unreachable: map[string]bool{}, statuses: map[string]string{},
		},
		natNext: o.NATRange.Addr(), internalNext: o.InternalRange.Addr(),
	}
	for _, name := range o.Projects {
		p := &project{
			name: name, instances: map[string]map[string]*instance{}, addresses: map[string]map[string]*address{},
			operations: map[string]map[string]*operation{}, requests: map[requestKey]request{},
		}
		for _, z := range o.Zones {
			p.instances[z] = map[string]*instance{}
			p.operations["zones/"+z] = map[string]*operation{}
		}
		for _, r := range o.regions() {
			p.addresses[r] = map[string]*address{}
			p.operations["regions/"+r] = map[string]*operation{}
		}
		w.projects[name] = p
	}
	return w
}

// advance lets everything happen that is due, in order.
func (w *world) advance(now time.Time) {
	for len(w.events) > 0 && !w.events[0].at.After(now) {
		e := heap.Pop(&w.events).(event)
		e.do(e.at)
	}
}

// next gives the time of the next event.
func (w *world) next() (time.Time, bool) {
	if len(w.events) == 0 {
		return time.Time{}, false
	}
	return w.events[0].at, true
}

func (w *world) after(at time.Time, do func(now time.Time)) {
	w.serial++
	heap.Push(&w.events, event{at: at, serial: w.serial, do: do})
}

// newID gives an ID that does not fit into a float64: whoever reads it as one is found out.
func (w *world) newID() Int64 {
	w.serial++
	return Int64(6_000_000_000_000_000_001 + 2*w.serial)
}

// path is how an instance is named within the API.
func (i *instance) path() string {
	return fmt.Sprintf("projects/%s/zones/%s/instances/%s", i.project, i.zone, i.Name)
}

// live says whether this very instance is still there: another one may have its name.
func (w *world) live(i *instance) bool {
	return w.projects[i.project].instances[i.zone][i.Name] == i
}

// all gives the instances of a project in the order of zone and name.
func (p *project) all() []*instance {
	var out []*instance
	for _, zone := range p.instances {
		for _, i := range zone {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *instance) int {
		if c := strings.Compare(a.zone, b.zone); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// takeAddress gives a free address of a range, in turn, so that one that was given back is not handed out again at once.
func takeAddress(r netip.Prefix, next *netip.Addr, used map[netip.Addr]bool) string {
	for range 2 {
		for a := next.Next(); r.Contains(a); a = a.Next() {
			if !used[a] {
				used[a] = true
				*next = a
				return a.String()
			}
		}
		*next = r.Addr()
	}
	panic(fmt.Sprintf("compute fake: no address is left in %v", r))
}

// connect gives a machine its addresses. With real ones, whoever booted it says what they are.
func (w *world) connect(i *instance, actual netip.Addr) {
	n := &i.NetworkInterfaces[0]
	switch {
	case actual.IsValid():
		n.NetworkIP = actual.String()
	case n.NetworkIP == "":
		n.NetworkIP = takeAddress(w.o.InternalRange, &w.internalNext, w.internalInUse)
	}
	if i.external && len(n.AccessConfigs) > 0 {
		a := &n.AccessConfigs[0]
		switch {
		case actual.IsValid():
			a.NatIP = actual.String()
		case i.static != nil:
			a.NatIP = i.static.Address.Address
		default:
			a.NatIP = takeAddress(w.o.NATRange, &w.natNext, w.natInUse)
		}
	}
	if i.wantIPv6 && len(n.IPv6AccessConfigs) > 0 {
		c := &n.IPv6AccessConfigs[0]
		c.ExternalIPv6, c.ExternalIPv6PrefixLength = fmt.Sprintf("2001:db8:%x:%x::", i.ID&0xffff, i.ID>>16&0xffff), 96
	}
}

// disconnect takes the ephemeral addresses back.
func (w *world) disconnect(i *instance) {
	n := &i.NetworkInterfaces[0]
	for k := range n.AccessConfigs {
		w.giveBack(i, &n.AccessConfigs[k])
	}
	for k := range n.IPv6AccessConfigs {
		n.IPv6AccessConfigs[k].ExternalIPv6, n.IPv6AccessConfigs[k].ExternalIPv6PrefixLength = "", 0
	}
}

func (w *world) giveBack(i *instance, a *AccessConfig) {
	if i.static == nil && a.NatIP != "" {
		if addr, err := netip.ParseAddr(a.NatIP); err == nil {
			delete(w.natInUse, addr)
		}
		a.NatIP = ""
	}
}

// remove makes an instance be gone, as if it had never been.
func (w *world) remove(i *instance) {
	w.disconnect(i)
	if addr, err := netip.ParseAddr(i.NetworkInterfaces[0].NetworkIP); err == nil {
		delete(w.internalInUse, addr)
	}
	w.release(i)
	delete(w.projects[i.project].instances[i.zone], i.Name)
	// Another machine of that name shows what it does again.
	delete(w.faults.statuses, i.path())
}

// release lets go of a static address.
func (w *world) release(i *instance) {
	if i.static != nil {
		i.static.user, i.static.Status, i.static.Users = nil, "RESERVED", nil
		i.static = nil
	}
}
