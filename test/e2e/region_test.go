package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/test/harness"
)

// machines is a fleet of the region: one virtual machine for each proxy.
const machines = `{replicas: 2, template: {spec: {provider: machines, egress: {allowedCIDRs: [TARGET/32]}}},
  leasing: {maxLeasesPerProxy: 5, defaultTTL: 10m}, update: {maxSurge: 1, maxUnavailable: 1, drainTimeout: 1m}}`

// tellRegion has a fleet in a region of Google Cloud: its proxies run, are leased and leave by exits of their own like any
// others, one that is removed by hand is replaced, and in the end no machine is left to be paid for.
func tellRegion(t *testing.T, s *story) {
	s.apply(t, "machines", machines)
	harness.Eventually(t, 2*time.Minute, "machines is ready, 2 of 2", s.settled("machines", 2))
	exits := s.machinesAsProxies(t)
	for _, lease := range s.acquire(t, fmt.Sprintf(`{"fleet":"crawl/machines","target":%q,"count":2}`, s.Target)) {
		if !slices.Contains(exits, lease.Exit) || lease.Network != string(v1alpha1.NetworkVM) {
			t.Errorf("lease %s has exit %s and network %s; the machines have %v", lease.LeaseID, lease.Exit, lease.Network, exits)
		}
		for _, scheme := range []string{"http", "https"} {
			if seen, err := s.Fetch(t.Context(), lease.ProxyURL, scheme, "/machine"); err != nil {
				t.Errorf("lease %s: %v", lease.LeaseID, err)
			} else if seen.RemoteIP != lease.Exit {
				t.Errorf("over %s the target saw %s, the lease's exit is %s", scheme, seen.RemoteIP, lease.Exit)
			}
		}
		s.release(t, lease)
	}
	s.machineSecrets(t)

	before, _, err := s.Compute.Machines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Compute.Delete(t.Context(), before[0]); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 2*time.Minute, "the machine that was removed by hand is replaced", func(ctx context.Context) error {
		now, _, err := s.Compute.Machines(ctx)
		if err != nil {
			return err
		}
		running := 0
		for _, m := range now {
			// Name and address may be the same again.
			if m.Status != "RUNNING" || m.ID == before[0].ID {
				return fmt.Errorf("%s (%s) is %s at %s", m.Name, m.ID, m.Status, m.Address())
			}
			running++
		}
		if running != 2 {
			return fmt.Errorf("%d machines run, not 2", running)
		}
		return s.settled("machines", 2)(ctx)
	})
	s.machinesAsProxies(t)

	if _, err := s.Hub.Kubectl(t.Context(), "-n", namespace, "delete", "proxyfleet", "machines", "--wait=false"); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 2*time.Minute, "no machine is left", func(ctx context.Context) error {
		left, _, err := s.Compute.Machines(ctx)
		if err != nil || len(left) > 0 {
			return errors.Join(fmt.Errorf("%d machines are left", len(left)), err)
		}
		if _, err := s.fleet(ctx, "machines"); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the fleet is still there"), err)
		}
		return s.oneEach(ctx)
	})
}

// machinesAsProxies compares the region's machines with the fleet's proxies, one for one, and returns their exits.
func (s *story) machinesAsProxies(t *testing.T) (exits []string) {
	t.Helper()
	fleet, err := s.fleet(t.Context(), "machines")
	if err != nil {
		t.Fatal(err)
	}
	if fleet.Status.Exits != 2 || find(fleet.Status.Conditions, v1alpha1.ConditionExitsShared).Status == metav1.ConditionTrue {
		t.Errorf("machines has %d exits: %s", fleet.Status.Exits, said(fleet.Status.Conditions))
	}
	found, _, err := s.Compute.Machines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byProxy := map[string]harness.Machine{}
	for _, m := range found {
		byProxy[m.Labels["shoal-proxy-uid"]] = m
	}
	all, err := s.of(t.Context(), string(fleet.UID))
	if err != nil {
		t.Fatal(err)
	}
	proxies := 0
	// The region's objects are in the cluster of its agent, the first member's.
	for _, p := range all[s.Members[0].Name] {
		proxies++
		m, ok := byProxy[string(p.UID)]
		if !ok {
			t.Errorf("proxy %s has no machine", p.Name)
			continue
		}
		if !slices.Equal(p.Status.Exits, []string{m.Address().String()}) {
			t.Errorf("proxy %s has the exits %v, its machine the address %s", p.Name, p.Status.Exits, m.Address())
		}
		if p.Labels[v1alpha1.LabelMember] != s.Region {
			t.Errorf("proxy %s says that it is of member %q, not %s", p.Name, p.Labels[v1alpha1.LabelMember], s.Region)
		}
		exits = append(exits, m.Address().String())
	}
	if proxies != 2 || len(found) != 2 {
		t.Fatalf("%d proxies and %d machines, not 2", proxies, len(found))
	}
	return exits
}

// machineSecrets searches what Compute Engine shows of the machines, with all their metadata: whoever may list them reads it.
func (s *story) machineSecrets(t *testing.T) {
	t.Helper()
	_, text, err := s.Compute.Machines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(text) < 10_000 || !strings.Contains(text, "http_access") {
		t.Errorf("the machines' metadata has %d bytes: too little to mean anything", len(text))
	}
	s.clusterSecrets(t)
	credentials := s.anyCredential(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	for value, what := range s.secrets {
		if strings.Contains(text, value) {
			t.Errorf("Compute Engine shows %s", what)
		}
	}
	for _, pattern := range credentials {
		if pattern.MatchString(text) {
			t.Error("Compute Engine shows a signed credential")
		}
	}
}
