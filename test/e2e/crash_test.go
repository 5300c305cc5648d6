package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/test/harness"
)

// crash is the fleet of the second half. Its leases are short, so that those of one test do not hold up the next.
const crash = `{replicas: 2, template: {spec: {provider: default, egress: {allowedCIDRs: [TARGET/32]}}},
  leasing: {defaultTTL: 10s, maxTTL: 20s}}`

// window is the time in which a scale-up is killed into. On an idle machine it takes some 2 s.
const window = 1500 * time.Millisecond

// tellAgentKilled kills an agent at a random moment of a scale-up.
func tellAgentKilled(t *testing.T, s *story) {
	s.apply(t, "crash", crash)
	harness.Eventually(t, time.Minute, "crash is ready, 2 of 2", s.settled("crash", 2))
	m := s.Members[s.random.IntN(len(s.Members))]
	t.Logf("it is the agent of %s", m.Name)
	s.killed(t, m.Cluster, "shoal-agent")
}

// tellHubKilled does the same to the hub. It goes on from its journal: what it granted is known, and it grants again as soon
// as it is back, from what it knew of the proxies.
func tellHubKilled(t *testing.T, s *story) {
	s.scale(t, "crash", 2)
	harness.Eventually(t, time.Minute, "crash is back at 2", s.settled("crash", 2))
	s.killed(t, s.Hub, "shoal-hub")
	s.grantsAgain(t)
}

// killed scales crash to 6, kills a program of ours at a random moment meanwhile, and wants exactly 6 in the end: those
// that were there before, and no pod or config map too many.
func (s *story) killed(t *testing.T, c *harness.Cluster, deployment string) {
	t.Helper()
	pod, err := c.PodOf(t.Context(), deployment)
	if err != nil {
		t.Fatal(err)
	}
	process, err := c.ProcessOf(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	uid := s.fleetUID(t, "crash")
	fleet, err := s.fleet(t.Context(), "crash")
	if err != nil {
		t.Fatal(err)
	}
	// Not by kubectl, which takes long enough for the first moments to be over.
	if err := s.Hub.Client.Patch(t.Context(), fleet, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":6}}`))); err != nil {
		t.Fatal(err)
	}
	moment := time.Duration(s.random.Int64N(int64(window)))
	select {
	case <-time.After(moment):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
	before, proven := s.heardOf(uid)
	if err := process.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("killed %s after %s, with %d of 6 proxies made, %d ready", deployment, moment.Round(time.Millisecond), len(before), proven)
	harness.Eventually(t, time.Minute, deployment+" runs again", process.Restarted)
	harness.Eventually(t, 2*time.Minute, "crash is ready, 6 of 6", s.settled("crash", 6))
	harness.Eventually(t, time.Minute, "each proxy has one pod and one config map", s.oneEach)
	now := s.proxyUIDs(t, uid)
	if len(now) != 6 {
		t.Errorf("there are %d proxies, not 6", len(now))
	}
	for _, was := range before {
		if _, there := now[was]; !there {
			t.Errorf("proxy %s was there before the kill and is no more", was)
		}
	}
}

// heardOf returns the UIDs of a fleet's proxies that the recorders have heard of by now, and how many of them are ready.
func (s *story) heardOf(fleetUID string) (uids []string, ready int) {
	for _, recorder := range s.proxies {
		for uid, p := range recorder.Live() {
			if p.Labels[v1alpha1.LabelFleetUID] == fleetUID {
				uids = append(uids, string(uid))
				if meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) {
					ready++
				}
			}
		}
	}
	slices.Sort(uids)
	return uids, ready
}

// grantsAgain asks for a lease until there is one. A hub that has been away for longer than the freshness window must hear
// from a member first; a refusal meanwhile must say so, and when to come back.
func (s *story) grantsAgain(t *testing.T) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the restarted hub grants leases again", func(ctx context.Context) error {
		leases, err := s.crawler.Acquire(ctx, `{"fleet":"crawl/crash"}`)
		if err == nil {
			s.keep(leases...)
			return s.crawler.Release(ctx, leases[0].LeaseID)
		}
		var refused *harness.RefusedError
		if errors.As(err, &refused) && refused.Reply.Status != 0 {
			var refusal harness.Refusal
			if jsonErr := refused.Reply.JSON(&refusal); jsonErr != nil {
				t.Error(jsonErr)
			} else if refusal.Reason != "STALE_INVENTORY" || refusal.RetryAfter == "" {
				t.Errorf("want STALE_INVENTORY and a retryAfter: %s", refused.Reply)
			}
		}
		return err
	})
}

// tellHubDown stops the hub. Its members go on: a killed pod is replaced, the other proxies stay what they are, and
// credentials that were granted work. A new pod is not Ready before a CONNECT has come through it, and with the hub its
// echo target is down; once the hub is back the proxy is Ready again, the same as before.
func tellHubDown(t *testing.T, s *story) {
	harness.Eventually(t, time.Minute, "crash is ready, 6 of 6", s.settled("crash", 6))
	uid := s.fleetUID(t, "crash")
	leases := s.acquire(t, `{"fleet":"crawl/crash","count":6,"ttl":"20s"}`)
	victim := leases[s.random.IntN(len(leases))]
	s.scaleHub(t, 0)
	harness.Eventually(t, time.Minute, "the hub is gone", func(ctx context.Context) error {
		var pods corev1.PodList
		err := s.Hub.Client.List(ctx, &pods, client.InNamespace(harness.Namespace), client.MatchingLabels{"app.kubernetes.io/name": "shoal-hub"})
		if err == nil && len(pods.Items) > 0 {
			return fmt.Errorf("pod %s is still there", pods.Items[0].Name)
		}
		return err
	})
	down := time.Now()
	proxy, m, err := s.findProxy(t.Context(), victim.ProxyID)
	if err != nil {
		t.Fatal(err)
	}
	was, err := s.podOf(t.Context(), m, victim.ProxyID)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Client.Delete(t.Context(), was, client.GracePeriodSeconds(1)); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, time.Minute, "the agent has replaced the pod of "+proxy.Name, func(ctx context.Context) error {
		is, err := s.podOf(ctx, m, victim.ProxyID)
		switch {
		case err != nil:
			return err
		case is.UID == was.UID:
			return errors.New("it is still the same pod")
		case !podReady(is):
			return errors.New("the new pod is not ready")
		}
		return nil
	})
	harness.Eventually(t, 30*time.Second, "the replaced proxy has an endpoint and is not Ready, for nothing proves it", s.provisionedOnly(m, proxy.Name))
	if err := harness.Stays(t.Context(), 3*time.Second, s.provisionedOnly(m, proxy.Name)); err != nil {
		t.Errorf("the replaced proxy without a CONNECT through it: %v", err)
	}
	for _, l := range leases {
		if _, err := s.Fetch(t.Context(), l.ProxyURL, "https", "/hub-down"); err != nil {
			t.Errorf("with the hub down, lease %s: %v", l.LeaseID, err)
		}
	}
	s.stayedReady(t, uid, down, proxy.Name)

	s.scaleHub(t, 1)
	harness.Eventually(t, 2*time.Minute, "with the hub back, crash is ready, 6 of 6", s.settled("crash", 6))
	if _, there := s.proxyUIDs(t, uid)[victim.ProxyID]; !there {
		t.Errorf("proxy %s, whose pod was replaced, is another one now", proxy.Name)
	}
	harness.Eventually(t, time.Minute, "each proxy has one pod and one config map", s.oneEach)
}

func (s *story) scaleHub(t *testing.T, replicas int) {
	t.Helper()
	_, err := s.Hub.Kubectl(t.Context(), "-n", harness.Namespace, "scale", "statefulset", "shoal-hub", fmt.Sprintf("--replicas=%d", replicas))
	if err != nil {
		t.Fatal(err)
	}
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// provisionedOnly says why a proxy is not one that has an endpoint and no verdict.
func (s *story) provisionedOnly(m *harness.Member, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		var p v1alpha1.Proxy
		err := m.Client.Get(ctx, client.ObjectKey{Namespace: harness.Namespace, Name: name}, &p)
		switch {
		case apierrors.IsNotFound(err):
			return errors.New("it is gone")
		case err != nil:
			return err
		case !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionProvisioned),
			meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady):
			return errors.New(said(p.Status.Conditions))
		}
		return nil
	}
}

// stayedReady fails if a proxy of the fleet, but for one, has not been Ready since then.
func (s *story) stayedReady(t *testing.T, fleetUID string, since time.Time, except string) {
	t.Helper()
	for i, recorder := range s.proxies {
		events, err := recorder.Since(since)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			p := e.Object
			if p.Labels[v1alpha1.LabelFleetUID] == fleetUID && p.Name != except && !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) {
				t.Errorf("at %s, with the hub down, %s on %s was not Ready: %s", e.At.Format(time.TimeOnly), p.Name, s.Members[i].Name, said(p.Status.Conditions))
			}
		}
	}
}
