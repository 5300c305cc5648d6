package fleet

import (
	"fmt"
	"slices"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	"github.com/shoal-dev/shoal/hub/internal/placement"
)

// plan divides the fleet over the members.
func (s *scope) plan() {
	if !s.isAccepted() {
		return
	}
	snapshot := placement.Snapshot{Fleet: placement.Fleet{
		UID:      placement.FleetUID(s.fleet.UID),
		Replicas: s.fleet.DesiredReplicas(),
		Strategy: placement.Strategy(s.fleet.Spec.Placement.Strategy),
	}}
	for _, m := range s.members {
		snapshot.Members = append(snapshot.Members, s.candidate(m))
	}
	decision := placement.Plan(snapshot)
	if s.outside != nil {
		s.assign(snapshot, &decision)
	}
	s.decision = &decision
}

func (s *scope) isAccepted() bool { return s.accepted.Reason == v1alpha1.ReasonAccepted }

// candidate describes a member to placement.
func (s *scope) candidate(m *member) placement.Member {
	c := placement.Member{
		ID: placement.MemberID(m.Name), UID: placement.MemberUID(m.UID), Region: m.Spec.Region,
		Eligible: m.fits, Reason: m.unfit, Accepted: m.Spec.Accepted,
		Liveness: liveness(m.view), Weight: 1, Have: m.have,
		Taints: untolerated(m.Spec.Taints, s.fleet.Spec.Placement.Tolerations),
	}
	for _, share := range s.fleet.Spec.Placement.Members {
		if share.Name != m.Name {
			continue
		}
		if share.Weight != nil {
			c.Weight = *share.Weight
		}
		if share.Min != nil {
			c.Min = *share.Min
		}
		c.Max = share.Max
	}
	if s.outside != nil {
		c.Have = s.outside.holds(m.Name)
		if c.Eligible && s.handsOver(m) {
			c.Eligible = false
			c.Reason = fmt.Sprintf("not heard for more than %s, so that others probe its endpoints", handOverAfter)
		}
		return c
	}
	wanted := s.fleet.Spec.Template.Spec.Provider
	if c.Eligible && c.Liveness == placement.Ready && !slices.Contains(m.providers(), wanted) {
		if m.haveHere == 0 {
			c.Eligible, c.Reason = false, fmt.Sprintf("it does not offer provider %q", wanted)
		} else {
			// It did: a mistake in an agent's provider file must not cost the proxies that run.
			c.Capacity, c.CapacityReason = &m.have, fmt.Sprintf("it no longer offers provider %q", wanted)
		}
	}
	return c
}

func liveness(v inventory.MemberView) placement.Liveness {
	switch v.State {
	case inventory.Ready:
		return placement.Ready
	case inventory.Suspect:
		return placement.Suspect
	case inventory.Unreachable:
		return placement.Unreachable
	case inventory.NeverHeard, inventory.Syncing:
	}
	return placement.NotJoined
}

// untolerated returns the taints that no toleration covers. In the API an empty key covers every key, and an empty
// value every value.
func untolerated(taints []v1alpha1.MemberTaint, tolerations []v1alpha1.Toleration) []placement.Taint {
	var left []placement.Taint
	for _, taint := range taints {
		covered := slices.ContainsFunc(tolerations, func(t v1alpha1.Toleration) bool {
			return (t.Key == "" || t.Key == taint.Key) && (t.Value == "" || t.Value == taint.Value)
		})
		if !covered {
			left = append(left, placement.Taint{Key: taint.Key, Value: taint.Value, Effect: placement.NoSchedule})
		}
	}
	return left
}
