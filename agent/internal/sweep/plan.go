package sweep

import (
	"cmp"
	"slices"
	"time"

	"github.com/shoal-dev/shoal/agent/provider"
)

// The figures of a sweep.
const (
	// Grace is how long an instance must have been seen without an owner, and how old it must be. A Proxy that has just been
	// made may not be seen yet, and one that is being moved from a backup may come a little later.
	Grace = 10 * time.Minute
	// HeldGrace is Grace where most of a member's instances have no owner at once: rather the owners have been lost than the
	// instances leaked, and a person has this long to bring them back, or to stop the sweep.
	HeldGrace = time.Hour
	// Handful is how many instances without an owner are never taken for the loss of all owners.
	Handful = 5
	// Most is how many instances one pass deletes: what is wrong about a sweep shows before it has done much.
	Most = 20
)

// Seen is what one entry of the provider file said.
type Seen struct {
	// Entry is the entry's name.
	Entry string
	// Listing is what it said. A list that failed is one that is not complete.
	Listing provider.Listing
}

// Memory is what is remembered of each instance without an owner, by its provider's ID. A process begins without any, and
// so begins every grace anew.
type Memory map[string]Mark

// Mark is what is remembered of one instance.
type Mark struct {
	// Since is when it was first seen without an owner.
	Since time.Time
	// Tried is when its deletion was last asked for; zero for never.
	Tried time.Time
}

// Input is all that a decision is made from.
type Input struct {
	// Now is when the owners were read.
	Now time.Time
	// Identity is this agent's, without a Proxy. An identity that lacks a part sweeps nothing.
	Identity provider.Identity
	// Seen is what each of the member's entries said. It was read before the owners were, so that what is made in between
	// has one.
	Seen []Seen
	// Owners are the UIDs of all Proxies that there are, also of those that are being deleted: as long as one is there, its
	// controller sees to its instance.
	Owners map[string]struct{}
	// Memory is what the former pass remembered.
	Memory Memory
}

// Orphan is an instance without an owner.
type Orphan struct {
	// Entry is an entry of the provider file that has it.
	Entry string
	// Instance is what its provider said of it.
	Instance provider.Instance
	// Mark is what is remembered of it.
	Mark
}

// Plan is what to do.
type Plan struct {
	// Delete are the orphans to delete now. Those that were not tried yet come first, so that what cannot be deleted keeps
	// nothing else waiting; then those that have been without an owner for longest.
	Delete []Orphan
	// Orphans counts all instances without an owner, in grace or not. Instances counts all that carry the identity.
	Orphans, Instances int
	// Held counts those that would be deleted if there were not so many of them, until HeldGrace has passed.
	Held int
	// Complete says that every entry's list was.
	Complete bool
	// Memory is for the next pass.
	Memory Memory
}

// Decide compares what is there with its owners.
//
// It deletes only what carries every part of the identity and has no owner, has been seen so on complete lists for
// Grace, and is older than that itself. From a list that is not complete nothing is concluded, neither that something
// is an orphan nor that it is gone.
func Decide(in Input) Plan {
	p := Plan{Complete: true, Memory: Memory{}}
	if in.Identity.HubUID == "" || in.Identity.MemberUID == "" || in.Identity.HomeClusterUID == "" {
		return Plan{Memory: Memory{}}
	}
	orphans := map[string]Orphan{}
	owned := map[string]struct{}{}
	for _, seen := range in.Seen {
		p.Complete = p.Complete && seen.Listing.Complete
		for i := range seen.Listing.Instances {
			instance := seen.Listing.Instances[i]
			id := instance.ProviderID
			if !isOurs(instance.Identity, in.Identity) || id == "" {
				continue
			}
			if _, has := in.Owners[instance.Identity.ProxyUID]; has {
				owned[id] = struct{}{}
				continue
			}
			// Two entries may see the same instance.
			if _, known := orphans[id]; !known && seen.Listing.Complete {
				orphans[id] = Orphan{Entry: seen.Entry, Instance: instance, Mark: Mark{Since: in.Now}}
			}
		}
	}
	if !p.Complete {
		// What was not seen may be there all the same.
		for id, mark := range in.Memory {
			if _, has := owned[id]; !has {
				p.Memory[id] = mark
			}
		}
	}
	for id, o := range orphans {
		if mark, known := in.Memory[id]; known {
			o.Mark = mark
		}
		orphans[id] = o
		p.Memory[id] = o.Mark
	}
	p.Orphans, p.Instances = len(orphans), len(orphans)+len(owned)

	grace, most := Grace, p.Orphans > Handful && 2*p.Orphans > p.Instances
	if most {
		grace = HeldGrace
	}
	var due []Orphan
	for _, o := range orphans {
		switch {
		case o.Instance.State == provider.StateStopping: // somebody lets it go already
		case isDue(o, in.Now, grace):
			due = append(due, o)
		case most && isDue(o, in.Now, Grace):
			p.Held++
		}
	}
	slices.SortFunc(due, func(a, b Orphan) int {
		return cmp.Or(a.Tried.Compare(b.Tried), a.Since.Compare(b.Since), cmp.Compare(a.Instance.ProviderID, b.Instance.ProviderID))
	})
	p.Delete = due[:min(len(due), Most)]
	return p
}

// isOurs says whether an instance carries all of an identity, and names a Proxy. Who else shares the project or the
// cluster differs in one part at least.
func isOurs(of, ours provider.Identity) bool {
	return of.ProxyUID != "" && of.HubUID == ours.HubUID && of.MemberUID == ours.MemberUID && of.HomeClusterUID == ours.HomeClusterUID
}

// isDue says whether an orphan's grace is over. An instance whose provider does not say how old it is has been seen for as
// long.
func isDue(o Orphan, now time.Time, grace time.Duration) bool {
	return now.Sub(o.Since) >= grace && (o.Instance.CreatedAt.IsZero() || now.Sub(o.Instance.CreatedAt) >= grace)
}
