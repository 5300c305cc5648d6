package proxy

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// watch has the proxy probed while it has an endpoint, and forgotten while it has none: what comes next under the same
// Proxy is another instance and has to prove itself.
func (r *Reconciler) watch(ctx context.Context, s *scope) (time.Duration, error) {
	uid := probe.UID(s.proxy.UID)
	endpoint, ok := s.endpoint()
	if !ok {
		s.site.Prober.Remove(uid)
		r.o.Verdicts.forget(uid)
		s.verdict, s.judged = probe.Verdict{}, false
		return 0, nil
	}
	proxyUID, check := string(s.proxy.UID), s.proxy.Spec.HealthCheck
	sign := s.site.Credential
	probed := probe.Proxy{
		UID:      uid,
		Endpoint: net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port))),
		Known:    s.recalled(),
		Credential: func(now time.Time) (user, pass string, err error) {
			return sign(now, proxyUID)
		},
		HealthCheck: probe.HealthCheck{
			Interval: check.Interval.Duration, Timeout: check.Timeout.Duration,
			FailAfter: int(check.FailureThreshold), PassAfter: int(check.SuccessThreshold),
		},
	}
	var after time.Duration
	if s.proxy.Spec.Mode == v1alpha1.ModeExternal {
		var err error
		if after, err = r.asItsOwner(ctx, s, &probed); err != nil {
			return 0, err
		}
	}
	r.o.Verdicts.track(uid, s.request)
	s.site.Prober.Upsert(probed)
	// An endpoint that has just changed takes its verdict with it.
	s.verdict, s.judged = s.site.Prober.Verdict(uid)
	return after, nil
}

// endpoints are where the proxy is reached. A provider that does not say in this pass leaves them as they were.
func (s *scope) endpoints() []v1alpha1.Endpoint {
	switch {
	case len(s.violations) > 0:
		return nil
	case s.proxy.Spec.Mode == v1alpha1.ModeExternal && s.proxy.Spec.Endpoint != nil:
		return []v1alpha1.Endpoint{{Network: v1alpha1.NetworkExternal, Host: s.proxy.Spec.Endpoint.Host, Port: s.proxy.Spec.Endpoint.Port}}
	case s.instance != nil && s.instance.State == provider.StateRunning:
		return s.instance.Endpoints
	case s.entry == nil || s.proxy.DeletionTimestamp != nil || s.next.attempt == nil || s.next.attempt.State != v1alpha1.AttemptAccepted:
		return nil
	case !s.seen, s.instance != nil && s.instance.State == provider.StateUnknown:
		return s.proxy.Status.Endpoints
	default:
		return nil
	}
}

func (s *scope) endpoint() (v1alpha1.Endpoint, bool) {
	all := s.endpoints()
	if len(all) == 0 {
		return v1alpha1.Endpoint{}, false
	}
	return all[0], true
}

// held says that there is no verdict yet and that the endpoint is the one that the last verdict was about.
func (s *scope) held() bool {
	now := s.endpoints()
	return !s.judged && len(now) > 0 && reflect.DeepEqual(now, s.proxy.Status.Endpoints)
}

// healthy is the verdict of the probes, as a condition.
func (s *scope) healthy() metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionHealthy, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonProbing, Message: "no probe has come through yet"}
	switch {
	case !s.judged && s.provisioned().Status == metav1.ConditionFalse:
		c.Reason, c.Message = v1alpha1.ReasonNotProvisioned, "there is nothing to probe"
	case s.judged && s.verdict.State == probe.StateReady:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonProbesPass, "pages come through the proxy"
	case s.judged && s.verdict.State == probe.StateUnhealthy:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonProbesFail, fmt.Sprintf("probes fail with %s: %s", s.verdict.Cause, s.verdict.Cause.Meaning())
	case s.held():
		// The agent has just started. Until its first probe, what was known of the same endpoint stands.
		if was := meta.FindStatusCondition(s.proxy.Status.Conditions, v1alpha1.ConditionHealthy); was != nil {
			c = *was
		}
	case s.judged && s.verdict.Cause != "":
		c.Message = fmt.Sprintf("no probe has come through yet; they end with %s: %s", s.verdict.Cause, s.verdict.Cause.Meaning())
	}
	return c
}

// saturated says, as a condition, whether the proxy is too busy for more.
func (s *scope) saturated() metav1.Condition {
	if s.judged && s.verdict.Saturated {
		return metav1.Condition{
			Type: v1alpha1.ConditionSaturated, Status: metav1.ConditionTrue, Reason: v1alpha1.ConditionSaturated,
			Message: "the proxy is too busy to answer in time; nothing new is leased on it",
		}
	}
	return metav1.Condition{Type: v1alpha1.ConditionSaturated, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotSaturated, Message: "the proxy has room"}
}
