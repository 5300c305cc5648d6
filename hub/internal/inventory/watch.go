package inventory

import "sync"

// Changes is what changed since a watcher last looked. Each name stands for "read it again".
type Changes struct {
	// Members changed their state or what they say of themselves.
	Members []string
	// Counts are members with more or fewer proxies, or ready ones, or with other conditions of ProxySets.
	Counts []string
	// Heard are members that sent a frame, whatever was in it.
	Heard []string
	// Placements have other proxies, or reports that differ in more than measurements.
	Placements []string
	// Proxies were reported anew, whether or not anything differs, or are gone.
	Proxies []string
}

// Watcher collects changes for one reader. What happens twice before the reader looks is told once, so its memory is
// bounded by the number of objects.
type Watcher struct {
	inv    *Inventory
	signal chan struct{}

	mu                                          sync.Mutex
	members, counts, heard, placements, proxies map[string]struct{}
}

// Watch returns a watcher of all changes from now on. Close it when done.
func (inv *Inventory) Watch() *Watcher {
	w := &Watcher{
		inv: inv, signal: make(chan struct{}, 1),
		members: map[string]struct{}{}, counts: map[string]struct{}{}, heard: map[string]struct{}{},
		placements: map[string]struct{}{}, proxies: map[string]struct{}{},
	}
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.watchers[w] = struct{}{}
	return w
}

// Changed holds a signal whenever there is something to Take.
func (w *Watcher) Changed() <-chan struct{} { return w.signal }

// Take returns what changed since the last call, in no order.
func (w *Watcher) Take() Changes {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Changes{
		Members: drain(w.members), Counts: drain(w.counts), Heard: drain(w.heard),
		Placements: drain(w.placements), Proxies: drain(w.proxies),
	}
}

// Close ends the watch.
func (w *Watcher) Close() {
	w.inv.mu.Lock()
	defer w.inv.mu.Unlock()
	delete(w.inv.watchers, w)
}

func drain(set map[string]struct{}) []string {
	names := make([]string, 0, len(set))
	for name := range set {
		names = append(names, name)
	}
	clear(set)
	return names
}

func (inv *Inventory) changeMember(name string) {
	inv.tell(func(w *Watcher) { w.members[name] = struct{}{} })
}

func (inv *Inventory) changeCounts(name string) {
	inv.tell(func(w *Watcher) { w.counts[name] = struct{}{} })
}

func (inv *Inventory) touch(name string) {
	inv.tell(func(w *Watcher) { w.heard[name] = struct{}{} })
}

func (inv *Inventory) changePlacement(uid string) {
	inv.tell(func(w *Watcher) { w.placements[uid] = struct{}{} })
}

func (inv *Inventory) changeProxy(p *proxy) {
	inv.tell(func(w *Watcher) {
		w.proxies[p.uid] = struct{}{}
		w.placements[p.report.GetPlacementUid()] = struct{}{}
	})
}

// tell holds the lock of the inventory and takes those of the watchers, never the other way round.
func (inv *Inventory) tell(note func(*Watcher)) {
	for w := range inv.watchers {
		w.mu.Lock()
		note(w)
		w.mu.Unlock()
		select {
		case w.signal <- struct{}{}:
		default:
		}
	}
}
