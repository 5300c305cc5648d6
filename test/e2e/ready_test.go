package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/test/harness"
)

const (
	// news is the fleet of the first half of the story. Its leases are long enough for all of it.
	news = `{replicas: %d, template: {metadata: {labels: {tier: %s}}, spec: {provider: default, egress: {allowedCIDRs: [TARGET/32]}}},
  leasing: {maxLeasesPerProxy: 5, defaultTTL: 10m}, update: {maxSurge: 2, maxUnavailable: 1, drainTimeout: 10m}}`
	// solo is a fleet of one.
	solo = `{replicas: 1, template: {spec: {provider: default, egress: {allowedCIDRs: [TARGET/32]}}}, leasing: {maxLeasesPerProxy: 3}}`
)

// tellReady brings a fleet of 6 up on two members, 3 each.
func tellReady(t *testing.T, s *story) {
	s.apply(t, "news", fmt.Sprintf(news, 6, "datacenter"))
	s.apply(t, "solo", solo)
	harness.Eventually(t, 2*time.Minute, "news is ready, 6 of 6", s.settled("news", 6))
	harness.Eventually(t, time.Minute, "solo is ready", s.settled("solo", 1))
	fleet, err := s.fleet(t.Context(), "news")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range fleet.Status.Members {
		if row.Name == s.Region {
			if row.Want != 0 || row.Have != 0 || row.Why == "" {
				t.Errorf("status.members has %+v; the region does not offer the provider, which is why it has none", row)
			}
			continue
		}
		if row.Want != 3 || row.Have != 3 || row.Ready != 3 || row.Why == "" {
			t.Errorf("status.members has %+v; want 3, have 3, ready 3, and why", row)
		}
	}
	if n := len(fleet.Status.Members); n != 3 || fleet.Status.MemberCount != 2 {
		t.Errorf("status.members has %d rows and memberCount %d, not 3 and 2", n, fleet.Status.MemberCount)
	}
	// Pods of one node leave by its address: six proxies, two exits, and the fleet says so.
	if fleet.Status.Exits != 2 {
		t.Errorf("status.exits is %d, not 2", fleet.Status.Exits)
	}
	shared := find(fleet.Status.Conditions, v1alpha1.ConditionExitsShared)
	if shared.Status != metav1.ConditionTrue || shared.Reason != v1alpha1.ReasonNodeSNAT {
		t.Errorf("ExitsShared is %s %s (%s), not True NodeSNAT", shared.Status, shared.Reason, shared.Message)
	}
	if fleet.Status.Slots != 30 || fleet.Status.Leases != "0/30" {
		t.Errorf("status.slots is %d and status.leases %q; 6 proxies of 5 slots are 30, none leased", fleet.Status.Slots, fleet.Status.Leases)
	}
	if err := s.spread(string(fleet.UID), 3)(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.oneEach(t.Context()); err != nil {
		t.Error(err)
	}
	all, err := s.of(t.Context(), string(fleet.UID))
	if err != nil {
		t.Fatal(err)
	}
	for member, proxies := range all {
		node := s.Member(member).NodeIPs[0].String()
		for i := range proxies {
			if exits := proxies[i].Status.Exits; !slices.Equal(exits, []string{node}) {
				t.Errorf("%s on %s has exits %v; the node's address is %s", proxies[i].Name, member, exits, node)
			}
		}
	}
}

// tellJudged proves of every proxy that it became Ready by a CONNECT through it, and not before. The proxies' own logs
// are the witness: they are written by Squid, by the same clock as the watch that saw Ready turn True.
func tellJudged(t *testing.T, s *story) {
	judged := 0
	for i, recorder := range s.proxies {
		m := s.Members[i]
		events, err := recorder.Events()
		if err != nil {
			t.Fatal(err)
		}
		turned := map[string]harness.Event[*v1alpha1.Proxy]{}
		for _, e := range events {
			uid := string(e.Object.UID)
			ready := find(e.Object.Status.Conditions, v1alpha1.ConditionReady)
			if _, done := turned[uid]; done || ready.Status != metav1.ConditionTrue {
				continue
			}
			turned[uid] = e
			if e.Object.CreationTimestamp.After(e.At) {
				t.Errorf("%s was Ready before it was made", e.Object.Name)
			}
		}
		for uid, e := range turned {
			judged++
			if err := s.witnessed(t.Context(), m, uid, e); err != nil {
				t.Errorf("%s on %s: %v", e.Object.Name, m.Name, err)
			}
		}
	}
	if judged != 7 {
		t.Errorf("%d proxies were seen to turn Ready, not 7 (6 of news, 1 of solo)", judged)
	}
}

// witnessed asks a proxy's log for a CONNECT of the agent to the echo target that had begun when Ready was seen True,
// and was accepted.
func (s *story) witnessed(ctx context.Context, m *harness.Member, uid string, ready harness.Event[*v1alpha1.Proxy]) error {
	return harness.Until(ctx, 15*time.Second, func(ctx context.Context) error {
		pod, err := s.podOf(ctx, m, uid)
		if err != nil {
			return err
		}
		log, err := m.PodLog(ctx, pod.Name, "squid", false)
		if err != nil {
			return err
		}
		first := time.Time{}
		for _, line := range harness.ParseAccess(log) {
			if line.Method == http.MethodConnect && line.Status == http.StatusOK && line.Tag == "TCP_TUNNEL" &&
				line.Destination == s.Echo.String() && line.Principal == "probe:"+m.Name &&
				(first.IsZero() || line.Began().Before(first)) {
				first = line.Began()
			}
		}
		switch since := find(ready.Object.Status.Conditions, v1alpha1.ConditionReady).LastTransitionTime.Time; {
		case first.IsZero():
			// A tunnel is logged when it is over, shortly after the verdict.
			return fmt.Errorf("Ready since %s, and no accepted CONNECT to %s in the log of %s", since.Format(time.RFC3339), s.Echo, pod.Name)
		case first.After(ready.At):
			return fmt.Errorf("Ready was True at %s, the first accepted CONNECT began %s later", ready.At.Format(time.RFC3339Nano), first.Sub(ready.At))
		case since.Before(first.Truncate(time.Second)):
			return fmt.Errorf("Ready says since %s, the first accepted CONNECT began at %s", since.Format(time.RFC3339), first.Format(time.RFC3339Nano))
		}
		return nil
	})
}
