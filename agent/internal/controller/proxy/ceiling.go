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
	s.violations = ceiling.Check(s.policy, s.proxy.Spec, before(s))
	if len(s.violations) == 0 {
		return 0, nil
	}
	words := make([]string, len(s.violations))
	for i, v := range s.violations {
		words[i] = fmt.Sprintf("%s: %s", v.Rule, v.Message)
	}
	s.reason, s.problem = v1alpha1.ReasonAboveCeiling, strings.Join(words, "; ")
	return recheck, nil
}

// before counts the proxies that are ahead of this one.
func before(s *scope) ceiling.Ahead {
	var ahead ceiling.Ahead
	for i := range s.others {
		if other := &s.others[i]; isAhead(other, s.proxy) {
			ahead.Add(other.Spec, isRefused(other))
		}
	}
	return ahead
}

// isRefused says whether the ceiling had refused a proxy when it was last looked at.
func isRefused(p *v1alpha1.Proxy) bool {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionProvisioned)
	return c != nil && c.Reason == v1alpha1.ReasonAboveCeiling
}

// isAhead says whether a comes before b where there is not enough for both: what has an instance before what has none,
// then the older. The order does not change with the order in which passes happen to run.
func isAhead(a, b *v1alpha1.Proxy) bool {
	if has, other := a.Status.InstanceName != "", b.Status.InstanceName != ""; has != other {
		return has
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}
