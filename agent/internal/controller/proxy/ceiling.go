package proxy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// recheck is how soon a refused proxy is looked at again: room may have been made for it.
const recheck = time.Minute

// checkCeiling refuses what the cluster's owner does not allow. Nothing is made for a proxy that is refused.
func (r *Reconciler) checkCeiling(_ context.Context, s *scope) (time.Duration, error) {
	s.violations = ceiling.Check(s.policy, s.proxy.Spec, r.census.ahead(s.roll(), s.proxy.UID, s.policy))
	if len(s.violations) == 0 {
		return 0, nil
	}
	words := make([]string, len(s.violations))
	for i, v := range s.violations {
		words[i] = fmt.Sprintf("%s: %s", v.Rule, v.Message)
	}
	s.wait(v1alpha1.ReasonAboveCeiling, strings.Join(words, "; "))
	return recheck, nil
}

// isRefused says whether the ceiling had refused a proxy when it was last looked at.
func isRefused(p *v1alpha1.Proxy) bool {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProvisioned)
	return c != nil && c.Reason == v1alpha1.ReasonAboveCeiling
}
