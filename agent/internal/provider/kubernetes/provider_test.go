package kubernetes_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/provider/kubernetes"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/agent/provider/providertest"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const (
	enforce = "pod-security.kubernetes.io/enforce"
	node    = "node-of-tests"
)

// world is a provider in a namespace of its own, and what a cluster would do beside it.
type world struct {
	t         *testing.T
	namespace string
	clock     *clocktesting.FakePassiveClock
	options   kubernetes.Options
	provider  *kubernetes.Provider
}

func newWorld(t *testing.T, hostPort bool, labels ...string) *world {
	t.Helper()
	w := &world{t: t, namespace: server.Namespace(t, labels...), clock: clocktesting.NewFakePassiveClock(time.Now())}
	w.options = kubernetes.Options{
		Client: server.Client, Reader: server.Client, Namespace: w.namespace, Image: "shoal-proxy:test",
		HostPort: hostPort, KeysConfigMap: "shoal-keys", Clock: w.clock,
	}
	w.with(func(*kubernetes.Options) {})
	return w
}

// with makes the provider anew with other options.
func (w *world) with(change func(*kubernetes.Options)) {
	w.t.Helper()
	change(&w.options)
	var err error
	if w.provider, err = kubernetes.New(w.options); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) owner(_ *testing.T, name string) (provider.Owner, provider.Identity) {
	w.t.Helper()
	p := &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: "default"},
	}
	if err := server.Client.Create(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
	return provider.Owner{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)},
		provider.Identity{ProxyUID: string(p.UID), HubUID: "hub", MemberUID: "member", HomeClusterUID: "home"}
}

func (w *world) request(name string) provider.Request {
	w.t.Helper()
	owner, id := w.owner(w.t, name)
	return provider.Request{
		Name: provider.InstanceName(id.ProxyUID, "hash"), Identity: id, Owner: owner, SpecHash: "hash",
		Settings: v1alpha1.ProxySettings{Port: 3128}, Config: "http_port 3128\n",
	}
}

func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	if err := server.Client.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, pod); err != nil {
		w.t.Fatal(err)
	}
	return pod
}

// start binds a pod to a node and makes it run, as scheduler and kubelet would.
func (w *world) start(_ *testing.T, name string) {
	w.t.Helper()
	w.bind(name)
	w.update(name, func(s *corev1.PodStatus) { s.Phase, s.PodIP = corev1.PodRunning, "10.244.0.7" })
}

func (w *world) bind(name string) {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := server.Client.Create(w.t.Context(), n); err == nil {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: node}, {Type: corev1.NodeInternalIP, Address: "172.30.0.4"}}
		if err := server.Client.Status().Update(w.t.Context(), n); err != nil {
			w.t.Fatal(err)
		}
	} else if !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
	w.bindTo(name, node)
}

func (w *world) bindTo(name, to string) {
	w.t.Helper()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: to}}
	if err := server.Client.SubResource("binding").Create(w.t.Context(), w.pod(name), binding); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) update(name string, f func(*corev1.PodStatus)) {
	w.t.Helper()
	pod := w.pod(name)
	f(&pod.Status)
	if err := server.Client.Status().Update(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) finish(t *testing.T, name string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	server.End(t, pod)
}

// evict evicts a pod, as somebody who drains its node does.
func (w *world) evict(t *testing.T, name string) {
	t.Helper()
	if err := w.tryEvict(name); err != nil {
		t.Fatal(err)
	}
}

func (w *world) tryEvict(name string) error {
	w.t.Helper()
	pod := w.pod(name)
	return server.Client.SubResource("eviction").Create(w.t.Context(), pod, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}})
}

func (w *world) subject(hostPort int32) providertest.Subject {
	network := v1alpha1.NetworkPodIP
	if hostPort != 0 {
		network = v1alpha1.NetworkHostPort
	}
	return providertest.Subject{
		Provider: w.provider, Owner: w.owner, Start: w.start, Finish: w.finish, HostPort: hostPort, Network: network,
		Fail: func(_ *testing.T, name string) {
			w.update(name, func(s *corev1.PodStatus) { s.Phase, s.Reason, s.Message = corev1.PodFailed, "Evicted", "disk pressure" })
		},
		Vanish:  w.finish,
		Preempt: w.evict,
		Busy: func(t *testing.T, name string) bool {
			t.Helper()
			return w.pod(name).Labels[v1alpha1.LabelBusy] == v1alpha1.BusyTrue
		},
		Foreign: func(t *testing.T, _, name string) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: "other"}}},
			}
			if err := server.Client.Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func TestContract(t *testing.T) {
	t.Run("PodIP", func(t *testing.T) {
		providertest.Run(t, func(t *testing.T) providertest.Subject { return newWorld(t, false).subject(0) })
	})
	t.Run("HostPort", func(t *testing.T) {
		providertest.Run(t, func(t *testing.T) providertest.Subject { return newWorld(t, true).subject(21000) })
	})
}

func TestPodSecurity(t *testing.T) {
	for name, c := range map[string]struct {
		reason   string
		level    string
		hostPort int32
		want     provider.Kind
	}{
		"PodAddressUnderRestricted": {"a proxy asks for nothing that restricted forbids", "restricted", 0, ""},
		"HostPortUnderRestricted":   {"host ports are forbidden there, and the message says so", "restricted", 21000, provider.KindUnauthorized},
		"HostPortUnderBaseline":     {"and in baseline already", "baseline", 21000, provider.KindUnauthorized},
		"HostPortUnderPrivileged":   {"a namespace for host ports is privileged", "privileged", 21000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.hostPort != 0, enforce, c.level)
			r := w.request("one")
			r.HostPort = c.hostPort
			_, err := w.provider.Create(t.Context(), r)
			if got := provider.KindOf(err); got != c.want {
				t.Fatalf("%s: Create = %q (%v), want %q", c.reason, got, err, c.want)
			}
			if err != nil && !strings.Contains(err.Error(), "hostPort") {
				t.Errorf("the error does not name the cause: %v", err)
			}
		})
	}
}

// Where the owner keeps an entry's proxies a fleet narrows, and never moves.
func TestFleetsDoNotLeaveTheOwnersNodes(t *testing.T) {
	w := newWorld(t, false)
	p, err := kubernetes.New(kubernetes.Options{
		Client: server.Client, Reader: server.Client, Namespace: w.namespace, Image: "shoal-proxy:test",
		KeysConfigMap: "shoal-keys", Clock: w.clock, NodeSelector: map[string]string{"pool": "egress"},
	})
	if err != nil {
		t.Fatal(err)
	}
	away := w.request("away")
	away.Settings.Placement = &v1alpha1.InstancePlacement{NodeSelector: map[string]string{"pool": "payments"}}
	if _, err := p.Create(t.Context(), away); !provider.IsPermanent(err) || !strings.Contains(err.Error(), "pool=egress") {
		t.Errorf("Create = %v, want it refused for good", err)
	}
	within := w.request("within")
	within.Settings.Placement = &v1alpha1.InstancePlacement{NodeSelector: map[string]string{"pool": "egress", "zone": "b"}}
	if _, err := p.Create(t.Context(), within); err != nil {
		t.Fatal(err)
	}
	if s := w.pod(within.Name).Spec.NodeSelector; s["pool"] != "egress" || s["zone"] != "b" {
		t.Errorf("node selector = %v, want both", s)
	}
}

func TestPodIsLockedDown(t *testing.T) {
	w := newWorld(t, false)
	r := w.request("one")
	r.Settings.Placement = &v1alpha1.InstancePlacement{NodeSelector: map[string]string{"pool": "egress"}}
	if _, err := w.provider.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	pod := w.pod(r.Name)
	s := pod.Spec
	if s.HostUsers != nil || s.HostNetwork || *s.AutomountServiceAccountToken || *s.EnableServiceLinks {
		t.Errorf("host users %v, host network %v, token %v, service links %v", s.HostUsers, s.HostNetwork, *s.AutomountServiceAccountToken, *s.EnableServiceLinks)
	}
	if *s.TerminationGracePeriodSeconds != 35 {
		t.Errorf("grace = %d s, want Squid's 25 s and 10 more", *s.TerminationGracePeriodSeconds)
	}
	if s.NodeSelector["pool"] != "egress" {
		t.Errorf("node selector = %v, want the fleet's", s.NodeSelector)
	}
	for _, v := range s.Volumes {
		if v.ConfigMap == nil {
			t.Errorf("volume %s is no config map: nothing may be writable, and no secret is in the pod", v.Name)
		}
	}
	for _, m := range s.Containers[0].VolumeMounts {
		if !m.ReadOnly || m.SubPath != "" {
			t.Errorf("mount %+v: want read-only, and a directory that is updated in place", m)
		}
	}
	if owner := metav1.GetControllerOf(pod); owner == nil || string(owner.UID) != r.Owner.UID {
		t.Errorf("owner = %v, want the proxy", owner)
	}
	config := &corev1.ConfigMap{}
	if err := server.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), config); err != nil {
		t.Fatal(err)
	}
	if config.Data["squid.conf"] != r.Config || config.Immutable == nil || !*config.Immutable {
		t.Errorf("config = %v, immutable %v", config.Data, config.Immutable)
	}
}

func TestDeleteRemovesBoth(t *testing.T) {
	for name, c := range map[string]struct {
		drained bool
		grace   int64
	}{
		"InUse": {false, 35}, "Drained": {true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, false)
			r := w.request("one")
			if _, err := w.provider.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			w.start(t, r.Name)
			if err := w.provider.Delete(t.Context(), provider.Ref{Name: r.Name}, r.Identity, provider.DeleteOptions{Drained: c.drained}); err != nil {
				t.Fatal(err)
			}
			if got := *w.pod(r.Name).DeletionGracePeriodSeconds; got != c.grace {
				t.Errorf("grace = %d s, want %d", got, c.grace)
			}
			err := server.Client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: r.Name}, &corev1.ConfigMap{})
			if !apierrors.IsNotFound(err) {
				t.Errorf("the config map is still there: %v", err)
			}
		})
	}
}

func TestDeleteShortensGraceOfADrainedPod(t *testing.T) {
	w := newWorld(t, false)
	r := w.request("one")
	if _, err := w.provider.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	w.start(t, r.Name)
	for _, drained := range []bool{false, true, false} {
		if err := w.provider.Delete(t.Context(), provider.Ref{Name: r.Name}, r.Identity, provider.DeleteOptions{Drained: drained}); err != nil {
			t.Fatal(err)
		}
	}
	if got := *w.pod(r.Name).DeletionGracePeriodSeconds; got != 3 {
		t.Errorf("grace = %d s, want 3: a grace gets shorter, never longer", got)
	}
}

func TestDeleteGivesUpAPodOfALostNode(t *testing.T) {
	w := newWorld(t, false)
	r := w.request("one")
	if _, err := w.provider.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	w.start(t, r.Name)
	remove := func() {
		t.Helper()
		if err := w.provider.Delete(t.Context(), provider.Ref{Name: r.Name}, r.Identity, provider.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	w.clock.SetTime(w.clock.Now().Add(90 * time.Second)) // 35 s of grace, and not yet a minute more
	remove()
	if got, err := w.provider.Get(t.Context(), provider.Ref{Name: r.Name}); err != nil || got.State != provider.StateStopping {
		t.Fatalf("Get = %q, %v; want it to be waited for", got.State, err)
	}
	w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
	remove()
	if _, err := w.provider.Get(t.Context(), provider.Ref{Name: r.Name}); !provider.IsNotFound(err) {
		t.Fatalf("Get = %v, want it given up: nobody on a lost node says that a pod has ended", err)
	}
}

func TestMissingNodeIsNoMissingPod(t *testing.T) {
	w := newWorld(t, true)
	r := w.request("one")
	r.HostPort = 21000
	if _, err := w.provider.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	w.bindTo(r.Name, "node-that-left")
	w.update(r.Name, func(s *corev1.PodStatus) { s.Phase, s.PodIP = corev1.PodRunning, "10.244.0.7" })
	got, err := w.provider.Get(t.Context(), provider.Ref{Name: r.Name})
	if err != nil || got.State != provider.StateUnknown || len(got.Endpoints) != 0 {
		t.Fatalf("Get = %q with %v, %v; want %q without endpoints", got.State, got.Endpoints, err, provider.StateUnknown)
	}
}

func TestEndpointFollowsTheNode(t *testing.T) {
	w := newWorld(t, true)
	r := w.request("one")
	r.HostPort = 21000
	if _, err := w.provider.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "moving-"}}
	if err := server.Client.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.bindTo(r.Name, n.Name)
	w.update(r.Name, func(s *corev1.PodStatus) { s.Phase, s.PodIP = corev1.PodRunning, "10.244.0.7" })
	for _, address := range []string{"172.30.0.8", "172.30.0.9"} {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		if err := server.Client.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		got, err := w.provider.Get(t.Context(), provider.Ref{Name: r.Name})
		if err != nil || len(got.Endpoints) != 1 || got.Endpoints[0].Host != address {
			t.Errorf("Get = %v, %v; want an endpoint at %s", got.Endpoints, err, address)
		}
	}
	if err := server.Client.Delete(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	got, err := w.provider.Get(t.Context(), provider.Ref{Name: r.Name})
	if err != nil || got.State != provider.StateUnknown || len(got.Endpoints) != 0 {
		t.Errorf("Get = %q with %v, %v; want %q without endpoints", got.State, got.Endpoints, err, provider.StateUnknown)
	}
	w.finish(t, r.Name) // as the garbage collector of pods does some time later
	if _, err := w.provider.Get(t.Context(), provider.Ref{Name: r.Name}); !provider.IsNotFound(err) {
		t.Errorf("Get = %v, want it gone with its node", err)
	}
}

func TestConflictsOfPortsAreTold(t *testing.T) {
	w := newWorld(t, true)
	r := w.request("one")
	r.HostPort = 21000
	if _, err := w.provider.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	since := metav1.NewTime(time.Now().Add(-time.Minute)).Rfc3339Copy()
	w.update(r.Name, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodPending
		s.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: since,
			Message: "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
		}}
	})
	got, err := w.provider.Get(t.Context(), provider.Ref{Name: r.Name})
	if err != nil || !got.Unplaced.Equal(since.Time) || got.PortTaken {
		t.Errorf("unplaced since %v, port taken %v, %v; want %v, and nobody knows why", got.Unplaced, got.PortTaken, err, since)
	}
	w.update(r.Name, func(s *corev1.PodStatus) {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, "NodePorts", "Predicate NodePorts failed"
	})
	got, err = w.provider.Get(t.Context(), provider.Ref{Name: r.Name})
	if err != nil || !got.PortTaken || !got.Unplaced.IsZero() || got.State != provider.StateFailed {
		t.Errorf("state %q, port taken %v, unplaced since %v, %v; want the port to be the reason", got.State, got.PortTaken, got.Unplaced, err)
	}
}

func TestStates(t *testing.T) {
	waiting := func(reason string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "squid", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}}}}
	}
	type said struct {
		State  provider.State
		Reason string
	}
	for name, c := range map[string]struct {
		reason string
		status corev1.PodStatus
		want   said
	}{
		"Unschedulable": {
			"a port conflict on all nodes is the scheduler's word",
			corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes: didn't have free ports",
			}}},
			said{provider.StatePending, "Unschedulable: 0/1 nodes: didn't have free ports"},
		},
		"NoImage": {
			"the kubelet's word",
			corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: waiting("ErrImagePull")},
			said{provider.StatePending, "ErrImagePull: why"},
		},
		"CrashLoop": {
			"a container that waits to be started again serves nobody",
			corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", ContainerStatuses: waiting("CrashLoopBackOff")},
			said{provider.StatePending, "CrashLoopBackOff: why"},
		},
		"Evicted": {
			"a bare pod never comes back",
			corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "disk pressure"},
			said{provider.StateFailed, "Evicted: disk pressure"},
		},
		"Ended":   {"Squid does not end by itself", corev1.PodStatus{Phase: corev1.PodSucceeded}, said{provider.StateFailed, "the pod has ended"}},
		"Unknown": {"counts as existing", corev1.PodStatus{Phase: corev1.PodUnknown}, said{provider.StateUnknown, "the pod's node does not answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, false)
			r := w.request("one")
			if _, err := w.provider.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			w.update(r.Name, func(s *corev1.PodStatus) { *s = c.status })
			got, err := w.provider.Get(t.Context(), provider.Ref{Name: r.Name})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, said{got.State, got.Reason}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}
