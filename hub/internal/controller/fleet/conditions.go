package fleet

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
)

// conditions computes all conditions of the fleet. Messages hold no times, so that a message changes only when the
// fleet does.
func (s *scope) conditions(total, updated counts) []metav1.Condition {
	return []metav1.Condition{
		s.accepted,
		s.available(total),
		s.progressing(total, updated),
		s.exitsShared(),
		s.degraded(total),
	}
}

func condition(kind string, status bool, reason, format string, args ...any) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
	if status {
		c.Status = metav1.ConditionTrue
	}
	return c
}

func (s *scope) available(total counts) metav1.Condition {
	desired := s.fleet.DesiredReplicas()
	on := map[string]struct{}{}
	for _, p := range s.placements {
		if p.count().ready > 0 {
			on[p.Spec.Member] = struct{}{}
		}
	}
	ready := fmt.Sprintf("%d of %s ready on %s", total.ready,
		counted(desired, "proxy is", "proxies are"), counted(len(on), "member", "members"))
	least := max(desired-s.budget().MaxUnavailable, 0)
	switch {
	case desired == 0:
		return condition(v1alpha1.ConditionAvailable, true, v1alpha1.ReasonScaledToZero, "the fleet asks for no proxies")
	case total.ready >= desired:
		return condition(v1alpha1.ConditionAvailable, true, v1alpha1.ReasonAllReady, "%s", ready)
	case total.ready >= least:
		return condition(v1alpha1.ConditionAvailable, true, v1alpha1.ReasonMinimumAvailable,
			"%s; update.maxUnavailable allows %d to be missing", ready, desired-least)
	}
	return condition(v1alpha1.ConditionAvailable, false, v1alpha1.ReasonMinimumUnavailable,
		"%s; %d or more are needed", ready, least)
}

func (s *scope) progressing(total, updated counts) metav1.Condition {
	const kind = v1alpha1.ConditionProgressing
	desired := s.fleet.DesiredReplicas()
	old := total.have - updated.have
	settled := updated.have == desired && old == 0 && total.draining == 0
	switch {
	case !s.isAccepted():
		return condition(kind, false, s.accepted.Reason, "nothing is changed until the fleet is accepted")
	case s.fleet.Spec.Paused:
		return condition(kind, false, v1alpha1.ReasonPaused, "nothing is changed while spec.paused is true; leases go on")
	case s.held != "" && !settled:
		return condition(kind, true, v1alpha1.ReasonWaitingForInventory, "%s", s.held)
	case old > 0:
		return condition(kind, true, v1alpha1.ReasonRollingOut, "%d of %s of revision %s; %s to be replaced, %d draining",
			updated.have, counted(desired, "proxy is", "proxies are"), s.revision,
			counted(old, "older one is", "older ones are"), total.draining)
	case settled && (total.ready == desired || s.wasComplete()):
		// Whether proxies that were ready once are ready now is Available's to say.
		return condition(kind, false, v1alpha1.ReasonComplete, "%s as the spec asks", counted(desired, "proxy is", "proxies are"))
	case s.decision.Unplaced > 0:
		return condition(kind, false, v1alpha1.ReasonUnplaceable, "%s no member: %s",
			counted(s.decision.Unplaced, "proxy finds", "proxies find"), s.decision.UnplacedWhy)
	}
	if lost := s.lost(); len(lost) > 0 && updated.have >= desired-s.onLost() && total.draining == 0 {
		return condition(kind, false, v1alpha1.ReasonUnreachable, "the rest waits for %s to be heard again", listed(lost))
	}
	return condition(kind, true, v1alpha1.ReasonScaling, "%d of %s there, %d ready; %d draining",
		total.have, counted(desired, "proxy is", "proxies are"), total.ready, total.draining)
}

// wasComplete tells whether the fleet has been complete with this template already.
func (s *scope) wasComplete() bool {
	c := meta.FindStatusCondition(s.fleet.Status.Conditions, v1alpha1.ConditionProgressing)
	return c != nil && c.Reason == v1alpha1.ReasonComplete && c.ObservedGeneration == s.fleet.Generation
}

func (s *scope) exitsShared() metav1.Condition {
	const kind = v1alpha1.ConditionExitsShared
	measured, distinct := s.exits()
	switch shared := measured - distinct; {
	case measured == 0:
		c := condition(kind, false, v1alpha1.ReasonNoExits, "no exit has been measured yet")
		c.Status = metav1.ConditionUnknown
		return c
	case shared > 0 && s.outside != nil:
		return condition(kind, true, v1alpha1.ReasonSharedOutside,
			"%s by %s; %s one with another, so that what a target bans on one is banned on both",
			counted(measured, "proxy leaves", "proxies leave"), counted(distinct, "address", "addresses"),
			counted(shared, "shares", "share"))
	case shared > 0:
		return condition(kind, true, v1alpha1.ReasonNodeSNAT,
			"%s by %s; %s a node with another (spread over more nodes, or use VMs)",
			counted(measured, "proxy leaves", "proxies leave"), counted(distinct, "address", "addresses"),
			counted(shared, "shares", "share"))
	}
	return condition(kind, false, v1alpha1.ReasonDistinct, "%s by an address of its own",
		counted(measured, "proxy leaves", "proxies leave, each"))
}

// degraded says what needs somebody's attention: the worst thing first.
func (s *scope) degraded(total counts) metav1.Condition {
	const kind = v1alpha1.ConditionDegraded
	if lost := s.lost(); len(lost) > 0 {
		return condition(kind, true, v1alpha1.ReasonUnreachable, "%s unreachable; %s there %s left alone",
			listed(lost)+verb(len(lost), " is", " are"), counted(s.onLost(), "proxy", "proxies"), verb(s.onLost(), "is", "are"))
	}
	if total.failed > 0 {
		return condition(kind, true, v1alpha1.ReasonProviderError, "%s: %s",
			counted(total.failed, "proxy failed", "proxies failed"), s.failure())
	}
	for _, p := range s.placements {
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionSynced)
		if c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonSyncing {
			return condition(kind, true, c.Reason, "%s: %s", p.Spec.Member, c.Message)
		}
	}
	return condition(kind, false, v1alpha1.ReasonAsExpected, "nothing needs attention")
}

// lost names the members with proxies of the fleet that are lost.
func (s *scope) lost() []string {
	var names []string
	for _, p := range s.placements {
		if p.view.Lost && (p.Spec.Replicas > 0 || len(p.Spec.Drain) > 0) && !slices.Contains(names, p.Spec.Member) {
			names = append(names, p.Spec.Member)
		}
	}
	return names
}

// onLost is how many proxies are placed on lost members.
func (s *scope) onLost() int32 {
	var n int32
	for _, p := range s.placements {
		if p.view.Lost {
			n += p.Spec.Replicas
		}
	}
	return n
}

// failure quotes one failed proxy's own words.
func (s *scope) failure() string {
	for _, p := range s.placements {
		for _, view := range p.proxies {
			if view.Report.GetPhase() != string(v1alpha1.PhaseFailed) {
				continue
			}
			if words := conditionWords(view); words != "" {
				return fmt.Sprintf("%s on %s: %s", view.Report.GetName(), p.Spec.Member, words)
			}
			return fmt.Sprintf("%s on %s", view.Report.GetName(), p.Spec.Member)
		}
	}
	return "their members do not say why"
}

func conditionWords(view inventory.ProxyView) string {
	for _, c := range view.Report.GetConditions() {
		if c.GetType() == v1alpha1.ConditionProvisioned && c.GetStatus() != string(metav1.ConditionTrue) {
			return c.GetReason() + ": " + c.GetMessage()
		}
	}
	return ""
}
