package computefake

import (
	"net/netip"
	"slices"
	"time"
)

// Machine is an instance that should be running for real, where [Options].Booted is set.
type Machine struct {
	Project, Zone, Name string
	// ID is the instance's, and Boot counts its starts: another pair is another machine.
	ID   Int64
	Boot int
	// Metadata are its items as they are now.
	Metadata []MetadataItem
	// Booted says that [Server.Booted] or [Server.BootFailed] was called for it.
	Booted bool
}

// Machines gives the machines that should be running now: those that are due to be RUNNING, and those that are.
func (s *Server) Machines() (out []Machine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world.advance(s.o.Clock.Now())
	for _, name := range s.o.Projects {
		for _, i := range s.world.projects[name].all() {
			if i.waiting || i.Status == statusRunning {
				out = append(out, Machine{
					Project: i.project, Zone: i.zone, Name: i.Name, ID: i.ID, Boot: i.boots,
					Metadata: slices.Clone(i.Metadata.Items), Booted: !i.waiting,
				})
			}
		}
	}
	return out
}

// OnChange has f called after every call that may have changed something, outside of all locks. It must return at once.
// Set it before the server serves.
func (s *Server) OnChange(f func()) { s.changed = f }

// Booted makes a machine be RUNNING, with the address that it really has. It says whether the machine is still wanted.
func (s *Server) Booted(m Machine, at netip.Addr) bool {
	return s.booted(m, func(w *world, now time.Time, i *instance) { w.run(now, i, at) })
}

// BootFailed makes a machine be RUNNING without anything in it, as one whose boot went wrong is; its console says why.
func (s *Server) BootFailed(m Machine, why string) bool {
	return s.booted(m, func(w *world, now time.Time, i *instance) {
		i.console += "[" + stamp(now) + "] boot failed: " + why + "\n"
		w.run(now, i, netip.Addr{})
	})
}

func (s *Server) booted(m Machine, do func(*world, time.Time, *instance)) bool {
	return s.do(m.Project, m.Zone, m.Name, func(w *world, now time.Time, i *instance) bool {
		if i.ID != m.ID || i.boots != m.Boot || !i.waiting {
			return false
		}
		do(w, now, i)
		return true
	})
}

// Console adds lines to what a machine wrote to its console.
func (s *Server) Console(m Machine, text string) {
	s.do(m.Project, m.Zone, m.Name, func(_ *world, now time.Time, i *instance) bool {
		if i.ID == m.ID {
			i.console += "[" + stamp(now) + "] " + text + "\n"
		}
		return true
	})
}
