package proxy

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// recalled is what an agent before this one held of the proxy and wrote down, for the probes to go on from: without it, a
// restart in an outage of the probe targets would turn every proxy out, and the first answer of a NAT with two addresses
// would look like another exit. Only what was held at the very endpoints counts.
func (s *scope) recalled() probe.Known {
	if !s.held() {
		return probe.Known{}
	}
	known := probe.Known{State: probe.StateUnknown}
	healthy := meta.FindStatusCondition(s.proxy.Status.Conditions, v1alpha1.ConditionHealthy)
	switch {
	case healthy == nil:
	case healthy.Status == metav1.ConditionTrue:
		known.State = probe.StateReady
	case healthy.Status == metav1.ConditionFalse:
		known.State, known.Cause = probe.StateUnhealthy, probe.Class(s.proxy.Status.Probe.Class)
	}
	if since := s.proxy.Status.Probe.Since; since != nil {
		known.Since = since.Time
	}
	for _, text := range s.proxy.Status.Exits {
		if exit, err := netip.ParseAddr(text); err == nil {
			known.Exits = append(known.Exits, exit)
		}
	}
	return known
}
