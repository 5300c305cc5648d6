package proxy

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// watch has the proxy probed while it has an endpoint, and forgotten while it has none: what comes next under the same
// Proxy is another instance and has to prove itself.
func (r *Reconciler) watch(_ context.Context, s *scope) (time.Duration, error) {
	uid := probe.UID(s.proxy.UID)
	endpoint, ok := s.endpoint()
	if !ok {
		s.site.Prober.Remove(uid)
		r.o.Verdicts.forget(uid)
		s.verdict, s.judged = probe.Verdict{}, false
		return 0, nil
	}
	proxyUID, check := string(s.proxy.UID), s.proxy.Spec.HealthCheck
	r.o.Verdicts.track(uid, s.request)
	s.site.Prober.Upsert(probe.Proxy{
		UID:      uid,
		Endpoint: net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port))),
		Known:    s.recalled(),
		Credential: func(now time.Time) (user, pass string, err error) {
			return s.site.Credential(now, proxyUID)
		},
		HealthCheck: probe.HealthCheck{
			Interval: check.Interval.Duration, Timeout: check.Timeout.Duration,
			FailAfter: int(check.FailureThreshold), PassAfter: int(check.SuccessThreshold),
		},
	})
	// An endpoint that has just changed takes its verdict with it.
	s.verdict, s.judged = s.site.Prober.Verdict(uid)
	return 0, nil
}

// endpoints are where the proxy is reached. A provider that did not answer in this pass leaves them as they were.
func (s *scope) endpoints() []v1alpha1.Endpoint {
	switch {
	case len(s.violations) > 0:
		return nil
	case s.proxy.Spec.Mode == v1alpha1.ModeExternal && s.proxy.Spec.Endpoint != nil:
		return []v1alpha1.Endpoint{{Network: v1alpha1.NetworkExternal, Host: s.proxy.Spec.Endpoint.Host, Port: s.proxy.Spec.Endpoint.Port}}
	case s.instance != nil && s.instance.State == provider.StateRunning:
		return s.instance.Endpoints
	case !s.seen && s.reason == v1alpha1.ReasonProviderError && s.proxy.DeletionTimestamp == nil:
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
