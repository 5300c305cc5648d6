package fleet

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
)

// accept finds out whether the fleet can be served as written. What stands against it is for its owner to change: it
// becomes a condition, and the fleet's proxies stay as they are.
func (s *scope) accept() {
	s.accepted = metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse}
	switch reason, message := s.objection(); reason {
	case "":
		s.accepted.Status = metav1.ConditionTrue
		s.accepted.Reason = v1alpha1.ReasonAccepted
		s.accepted.Message = "the fleet can be served as written"
	default:
		s.accepted.Reason, s.accepted.Message = reason, message
	}
}

func (s *scope) objection() (reason, message string) {
	selector := labels.Everything()
	if sel := s.fleet.Spec.Placement.MemberSelector; sel != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(sel); err != nil {
			return v1alpha1.ReasonInvalidSpec, fmt.Sprintf("placement.memberSelector: %v", err)
		}
	}
	fitting := 0
	for _, m := range s.members {
		m.unfit = m.misfit(selector)
		if m.fits = m.unfit == ""; m.fits {
			fitting++
		}
	}
	if fitting == 0 {
		return v1alpha1.ReasonNoMembers, noMembers(s.members, selector)
	}
	if s.outside != nil {
		return s.outside.objection(s.fleet.Spec.External)
	}
	return s.offered()
}

// misfit says why the member is not one for the fleet; empty if it is.
func (m *member) misfit(selector labels.Selector) string {
	switch {
	case !m.DeletionTimestamp.IsZero():
		return "the member is being deleted"
	case !m.Spec.Accepted:
		return "not accepted: set spec.accepted of the MemberCluster to true"
	case !selector.Matches(labels.Set(m.Labels)):
		return "placement.memberSelector does not match its labels"
	}
	return ""
}

func noMembers(members []*member, selector labels.Selector) string {
	if len(members) == 0 {
		return "there is no member yet; join one with: shoalctl member join-token NAME"
	}
	if !selector.Empty() {
		return fmt.Sprintf(
			"no member is accepted and matches %q (%s); label a MemberCluster to match, or change placement.memberSelector",
			selector, counted(len(members), "does not", "do not"))
	}
	return fmt.Sprintf("no member is accepted (%s); set spec.accepted of a MemberCluster to true",
		counted(len(members), "waits", "wait"))
}

// offered finds out whether any fitting member offers the template's provider.
func (s *scope) offered() (reason, message string) {
	wanted := s.fleet.Spec.Template.Spec.Provider
	var offers []string
	for _, m := range s.members {
		if !m.fits {
			continue
		}
		if slices.Contains(m.providers(), wanted) {
			return "", ""
		}
		offer := "nothing yet"
		if known := m.providers(); len(known) > 0 {
			known = slices.Clone(known)
			slices.Sort(known)
			offer = strings.Join(known, ", ")
		}
		offers = append(offers, m.Name+" offers "+offer)
	}
	const most = 5
	if more := len(offers) - most; more > 0 {
		offers = append(offers[:most], fmt.Sprintf("%d more members", more))
	}
	return v1alpha1.ReasonUnknownProvider, fmt.Sprintf(
		"no member offers provider %q: %s; name one of these in spec.template.spec.provider, or add it to an agent's provider file",
		wanted, strings.Join(offers, "; "))
}

// providers are what the member offers: by its present session, else by its last word.
func (m *member) providers() []string {
	if m.view.State == inventory.NeverHeard {
		return m.Status.Providers
	}
	return m.view.Session.Providers
}
