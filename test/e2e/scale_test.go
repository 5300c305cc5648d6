package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/test/harness"
)

// tellScale scales news from 6 to 2 and on to 8 while one lease is held: on the proxy that would be the first to go if
// it were not leased.
func tellScale(t *testing.T, s *story) {
	s.held = s.holdOldest(t)
	began := time.Now()

	s.scale(t, "news", 2)
	harness.Eventually(t, time.Minute, "news has 2 proxies, both ready", s.settled("news", 2))
	s.stillThere(t, began)

	s.scale(t, "news", 8)
	harness.Eventually(t, time.Minute, "news has 8 proxies, all ready", s.settled("news", 8))
	s.stillThere(t, began)
	uid := s.fleetUID(t, "news")
	if err := s.spread(uid, 4)(t.Context()); err != nil {
		t.Error(err)
	}
	harness.Eventually(t, time.Minute, "each proxy has one pod and one config map", s.oneEach)
}

// holdOldest leases every proxy of news and keeps the lease of the oldest alone. Unleased proxies go by age.
func (s *story) holdOldest(t *testing.T) harness.Lease {
	t.Helper()
	leases := s.acquire(t, `{"fleet":"crawl/news","count":6,"ttl":"1800s"}`)
	byAge := func(a, b harness.Lease) int {
		left, _, errA := s.findProxy(t.Context(), a.ProxyID)
		right, _, errB := s.findProxy(t.Context(), b.ProxyID)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if c := left.CreationTimestamp.Compare(right.CreationTimestamp.Time); c != 0 {
			return c
		}
		return slices.Compare([]byte(left.UID), []byte(right.UID))
	}
	slices.SortFunc(leases, byAge)
	for i := 1; i < len(leases); i++ {
		if leases[i].ProxyID == leases[i-1].ProxyID {
			t.Fatalf("6 leases of a fleet of 6 have two on proxy %s", leases[i].ProxyID)
		}
	}
	s.release(t, leases[1:]...)
	return leases[0]
}

// stillThere fails if the leased proxy was ever asked to go since then, and fetches a page through it.
func (s *story) stillThere(t *testing.T, since time.Time) {
	t.Helper()
	p, _, err := s.findProxy(t.Context(), s.held.ProxyID)
	if err != nil {
		t.Fatalf("the leased proxy is gone: %v", err)
	}
	for _, recorder := range s.proxies {
		events, err := recorder.Since(since)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Object.UID == p.UID && (e.Type == watch.Deleted || e.Object.Spec.Drain != nil || e.Object.DeletionTimestamp != nil) {
				t.Fatalf("the leased proxy %s was to go at %s", p.Name, e.At.Format(time.TimeOnly))
			}
		}
	}
	events, err := s.placements.Since(since)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if string(e.Object.UID) == p.Labels[v1alpha1.LabelPlacementUID] &&
			slices.ContainsFunc(e.Object.Spec.Drain, func(d v1alpha1.Drain) bool { return d.Name == p.Name }) {
			t.Fatalf("the hub listed the leased proxy %s to go at %s", p.Name, e.At.Format(time.TimeOnly))
		}
	}
	if seen, err := s.Fetch(t.Context(), s.held.ProxyURL, "http", "/held"); err != nil || seen.RemoteIP != s.held.Exit {
		t.Errorf("through the leased proxy: seen %s, exit %s, %v", seen.RemoteIP, s.held.Exit, err)
	}
}

// skew is how long the counts of two clusters may contradict each other because their watches are not heard at the same
// moment. A rollout that breaks its budget does so until a pod has started or stopped, which takes longer.
const skew = time.Second

// tellRoll changes the template. All the time maxSurge and maxUnavailable are kept: counted on the members, written in
// the placements, and told in the fleet's status.
func tellRoll(t *testing.T, s *story) {
	const replicas, surge, unavailable = 8, 2, 1
	uid := types.UID(s.fleetUID(t, "news"))
	old := s.proxyUIDs(t, string(uid))
	began := time.Now()
	s.apply(t, "news", fmt.Sprintf(news, replicas, "residential"))

	// The lease keeps its proxy, draining, outside of all sums.
	harness.Eventually(t, 2*time.Minute, "all 8 are new and ready, and the leased one drains beside them", func(ctx context.Context) error {
		fleet, err := s.fleet(ctx, "news")
		if err != nil {
			return err
		}
		st := fleet.Status
		if st.ObservedGeneration != fleet.Generation || st.Updated != replicas || st.Replicas != replicas || st.Ready != replicas || st.Draining != 1 {
			return fmt.Errorf("replicas %d, updated %d, ready %d, draining %d; %s", st.Replicas, st.Updated, st.Ready, st.Draining, said(st.Conditions))
		}
		return nil
	})
	ended := time.Now()
	s.drainsWithLease(t)
	s.keptBudget(t, uid, began, ended, replicas-unavailable, replicas+surge)

	s.release(t, s.held)
	harness.Eventually(t, time.Minute, "the drained proxy has gone with its lease", s.settled("news", replicas))
	for now, member := range s.proxyUIDs(t, string(uid)) {
		if _, was := old[now]; was {
			t.Errorf("proxy %s on %s is there from before the change", now, member)
		}
	}
	all, err := s.of(t.Context(), string(uid))
	if err != nil {
		t.Fatal(err)
	}
	for member, proxies := range all {
		if len(proxies) != replicas/2 {
			t.Errorf("%s has %d proxies, not %d", member, len(proxies), replicas/2)
		}
		for i := range proxies {
			if tier := proxies[i].Labels["tier"]; tier != "residential" {
				t.Errorf("%s on %s has the label tier=%q", proxies[i].Name, member, tier)
			}
		}
	}
	harness.Eventually(t, time.Minute, "each proxy has one pod and one config map", s.oneEach)
	// Leases can ask for what is new.
	s.release(t, s.acquire(t, `{"fleet":"crawl/news","selector":{"labels":{"tier":"residential"}}}`)...)
}

// drainsWithLease renews the held lease, which says that its proxy is on its way out, and still works.
func (s *story) drainsWithLease(t *testing.T) {
	t.Helper()
	reply, err := s.crawler.Curl(t.Context(), http.MethodPost, "/v1/leases/"+s.held.LeaseID+":renew", `{"ttl":"60s"}`)
	if err != nil {
		t.Fatal(err)
	}
	var renewed harness.Lease
	if err := reply.JSON(&renewed); err != nil || reply.Status != http.StatusOK || !renewed.Draining {
		t.Errorf("renewing a lease on a proxy that drains must say so: %s", reply)
	}
	if _, err := s.Fetch(t.Context(), s.held.ProxyURL, "https", "/draining"); err != nil {
		t.Errorf("through the draining proxy: %v", err)
	}
}

// keptBudget fails if fewer than least were available, or more than most alive, between two times.
func (s *story) keptBudget(t *testing.T, uid types.UID, from, to time.Time, least, most int) {
	t.Helper()
	placements, err := s.placements.Events()
	if err != nil {
		t.Fatal(err)
	}
	var members [][]harness.Event[*v1alpha1.Proxy]
	for _, recorder := range s.proxies {
		events, err := recorder.Events()
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, events)
	}
	counts := harness.After(harness.Census(uid, placements, members...), from)
	for _, c := range counts {
		t.Logf("%s alive %d, available %d", c.At.Format("15:04:05.000"), c.Alive, c.Available)
	}
	if c, d := harness.Longest(counts, to, func(c harness.Count) bool { return c.Available < least }); d > skew {
		t.Errorf("for %s only %d proxies were available; maxUnavailable leaves %d", d, c.Available, least)
	}
	if c, d := harness.Longest(counts, to, func(c harness.Count) bool { return c.Alive > most }); d > skew {
		t.Errorf("for %s there were %d proxies beside those that drained; maxSurge allows %d", d, c.Alive, most)
	}

	// What the hub has ordered, exactly: one watch of one API server.
	ordered := map[types.UID]int32{}
	for _, e := range placements {
		if e.Object.Spec.Fleet.UID != uid {
			continue
		}
		ordered[e.Object.UID] = e.Object.Spec.Replicas
		if e.Type == watch.Deleted {
			delete(ordered, e.Object.UID)
		}
		sum := int32(0)
		for _, n := range ordered {
			sum += n
		}
		if e.At.After(from) && int(sum) > most {
			t.Errorf("at %s the placements ask for %d proxies in all; maxSurge allows %d", e.At.Format(time.TimeOnly), sum, most)
		}
	}
	// What the fleet told.
	fleets, err := s.fleets.Since(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range fleets {
		if e.Object.UID != uid || e.At.After(to) {
			continue
		}
		if st := e.Object.Status; int(st.Ready) < least || int(st.Replicas) > most {
			t.Errorf("at %s status has ready %d and replicas %d; the budget is %d and %d", e.At.Format(time.TimeOnly), st.Ready, st.Replicas, least, most)
		}
	}
}

// tellDeleteBegins deletes news. Squid is given time to let tunnels end, so what is left is looked at later.
func tellDeleteBegins(t *testing.T, s *story) {
	s.deletedUID, s.deletedAt = s.fleetUID(t, "news"), time.Now()
	if _, err := s.Hub.Kubectl(t.Context(), "-n", namespace, "delete", "proxyfleet", "news", "--wait=false"); err != nil {
		t.Fatal(err)
	}
}

// tellDeleted looks for anything that is left of news, on the hub and on both members.
func tellDeleted(t *testing.T, s *story) {
	harness.Eventually(t, 2*time.Minute, "nothing of the deleted fleet is left", func(ctx context.Context) error {
		if _, err := s.fleet(ctx, "news"); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the fleet is still there"), err)
		}
		var placements v1alpha1.ProxyPlacementList
		if err := s.Hub.Client.List(ctx, &placements, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range placements.Items {
			if string(placements.Items[i].Spec.Fleet.UID) == s.deletedUID {
				return fmt.Errorf("placement %s is still there", placements.Items[i].Name)
			}
		}
		for _, m := range s.Members {
			var sets v1alpha1.ProxySetList
			if err := m.Client.List(ctx, &sets, client.InNamespace(harness.Namespace)); err != nil {
				return err
			}
			for i := range sets.Items {
				if string(sets.Items[i].Spec.FleetUID) == s.deletedUID {
					return fmt.Errorf("ProxySet %s is still there on %s", sets.Items[i].Name, m.Name)
				}
			}
		}
		left, err := s.of(ctx, s.deletedUID)
		if err != nil {
			return err
		}
		for member, proxies := range left {
			if len(proxies) > 0 {
				return fmt.Errorf("%s has %d proxies still", member, len(proxies))
			}
		}
		return s.oneEach(ctx)
	})
	t.Logf("gone %s after it was deleted, or earlier", time.Since(s.deletedAt).Round(time.Second))
	harness.Eventually(t, time.Minute, "solo, which nobody deleted, is as it was", s.settled("solo", 1))
}
