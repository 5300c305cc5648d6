package fleet

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/rollout"
)

// hold finds out whether anything may be removed at all.
func (s *scope) hold() {
	var awaited []string
	for _, m := range s.members {
		if !m.view.Complete && !m.view.Lost && s.expects(m.Name) {
			awaited = append(awaited, m.Name)
		}
	}
	switch {
	case len(awaited) > 0:
		s.held = fmt.Sprintf("the hub has restarted and %s not reported yet; until then proxies are added but none is removed",
			hasOrHave(awaited))
		s.after(holdInterval)
	case s.now.Before(s.graceUntil):
		s.held = fmt.Sprintf("the hub has restarted without its leases, which may live for up to maxTTL (%s); "+
			"until then proxies are added but none is removed", s.fleet.Spec.Leasing.MaxTTL.Duration)
		s.after(s.graceUntil.Sub(s.now))
	}
}

func hasOrHave(names []string) string {
	if len(names) == 1 {
		return names[0] + " has"
	}
	return listed(names) + " have"
}

func (s *scope) expects(member string) bool {
	for _, p := range s.placements {
		if p.Spec.Member == member {
			return true
		}
	}
	return false
}

// roll takes the next safe step towards the plan.
func (s *scope) roll() {
	s.step = nil
	if s.decision == nil || s.fleet.Spec.Paused {
		return
	}
	if s.outside != nil {
		s.rollOutside()
		return
	}
	in := rollout.Input{
		Now: s.now, Current: rollout.Revision(s.revision), Budget: s.budget(), DrainTimeout: s.drainTimeout(),
	}
	for _, row := range s.decision.Members {
		m := s.member(string(row.Member))
		in.Members = append(in.Members, rollout.Member{
			ID: rollout.MemberID(row.Member), Desired: row.Wanted, Frozen: !m.view.Settled() || s.vacating(m.Name),
		})
	}
	for _, p := range s.placements {
		in.Placements = append(in.Placements, p.asRollout())
		in.Proxies = append(in.Proxies, s.asProxies(p)...)
	}
	var step rollout.Plan
	if s.held != "" {
		step = grow(in)
	} else {
		step = rollout.Step(in)
	}
	s.step = &step
}

// vacating tells whether a placement of the present revision is still being deleted on the member: its successor would
// bear the same name.
func (s *scope) vacating(member string) bool {
	for _, p := range s.going {
		if p.Spec.Member == member && p.Spec.Revision == s.revision {
			s.after(drainInterval)
			return true
		}
	}
	return false
}

func (p *placed) key() rollout.Key {
	return rollout.Key{Member: rollout.MemberID(p.Spec.Member), Revision: rollout.Revision(p.Spec.Revision)}
}

func (p *placed) asRollout() rollout.Placement {
	out := rollout.Placement{Key: p.key(), Replicas: p.Spec.Replicas}
	for _, d := range p.Spec.Drain {
		out.Drain = append(out.Drain, rollout.Drain{Name: rollout.ProxyName(d.Name), Deadline: d.Deadline.Time})
	}
	return out
}

// asProxies describes what the member reported of a placement.
func (s *scope) asProxies(p *placed) []rollout.Proxy {
	drains := p.drains()
	var out []rollout.Proxy
	for _, view := range p.proxies {
		report := view.Report
		use := s.use[view.UID]
		proxy := rollout.Proxy{
			Name: rollout.ProxyName(report.GetName()), UID: rollout.ProxyUID(view.UID),
			Member: rollout.MemberID(p.Spec.Member), Revision: rollout.Revision(p.Spec.Revision),
			Ready: view.Ready, Failed: report.GetPhase() == string(v1alpha1.PhaseFailed),
			Leased: use.Leases, Burned: use.CoolingTargets,
			CreatedAt: report.GetCreatedAt().AsTime(),
		}
		_, drained := drains[report.GetName()]
		switch {
		case drained:
			// Deadlines are brought forward by settleDrains alone, once the engine grants nothing more.
			proxy.Leased = max(proxy.Leased, 1)
		case report.GetDraining(), report.GetPhase() == string(v1alpha1.PhaseDeleting):
			proxy.Terminating = true
		}
		out = append(out, proxy)
	}
	return out
}

// drains returns the drain list by name.
func (p *placed) drains() map[string]v1alpha1.Drain {
	list := make(map[string]v1alpha1.Drain, len(p.Spec.Drain))
	for _, d := range p.Spec.Drain {
		list[d.Name] = d
	}
	return list
}

func (s *scope) drainTimeout() time.Duration {
	const byDefault = 15 * time.Minute // as in the API's schema, for objects that were never defaulted
	if t := s.fleet.Spec.Update.DrainTimeout; t != nil {
		return t.Duration
	}
	return byDefault
}

func (s *scope) budget() rollout.Budget {
	surge := amount(s.fleet.Spec.Update.MaxSurge, rollout.Amount{Value: 25, Percent: true})
	unavailable := amount(s.fleet.Spec.Update.MaxUnavailable, rollout.Amount{})
	if unavailable.Percent {
		unavailable.Value = min(unavailable.Value, 100) // more than all is all
	}
	budget, err := rollout.Resolve(surge, unavailable, s.fleet.DesiredReplicas())
	if err != nil {
		// The API refuses what Resolve refuses; should it ever not, the strictest budget that moves is right.
		return rollout.Budget{MaxUnavailable: 1}
	}
	return budget
}

// amount reads a number or a percentage. The API server has checked its form.
func amount(v *intstr.IntOrString, byDefault rollout.Amount) rollout.Amount {
	if v == nil {
		return byDefault
	}
	if v.Type == intstr.Int {
		return rollout.Amount{Value: v.IntVal}
	}
	text, percent := strings.CutSuffix(v.StrVal, "%")
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return byDefault
	}
	return rollout.Amount{Value: int32(n), Percent: percent}
}
