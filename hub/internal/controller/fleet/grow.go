package fleet

import (
	"cmp"
	"slices"

	"github.com/shoal-dev/shoal/hub/internal/rollout"
)

// grow is the step for a fleet of which nothing may be removed: it orders what is missing on members that are not
// frozen, never more in all than desired plus surge, and carries everything else over.
func grow(in rollout.Input) rollout.Plan {
	var plan rollout.Plan
	assigned := map[rollout.MemberID]int32{}
	current := map[rollout.MemberID]int{}
	var total, desired int32
	for _, p := range in.Placements {
		assigned[p.Member] += p.Replicas
		total += p.Replicas
		if p.Revision == in.Current {
			current[p.Member] = len(plan.Placements)
		}
		plan.Placements = append(plan.Placements, p)
	}
	members := slices.Clone(in.Members)
	slices.SortFunc(members, func(a, b rollout.Member) int { return cmp.Compare(a.ID, b.ID) })
	for _, m := range members {
		desired += max(m.Desired, 0)
	}
	room := desired + max(in.Budget.MaxSurge, 0) - total
	for _, m := range members {
		missing := m.Desired - assigned[m.ID]
		if m.Frozen || missing <= 0 {
			continue
		}
		n := max(min(missing, room), 0)
		room -= n
		plan.Ordered += n
		plan.Short += missing - n
		if n == 0 {
			continue
		}
		i, ok := current[m.ID]
		if !ok {
			i = len(plan.Placements)
			plan.Placements = append(plan.Placements,
				rollout.Placement{Key: rollout.Key{Member: m.ID, Revision: in.Current}})
		}
		plan.Placements[i].Replicas += n
	}
	return plan
}
