package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/shoal-dev/shoal/agent/internal/provider/kubernetes"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func TestSettingsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		s      kubernetes.PodSettings
		want   []string
	}{
		"NoQuantity":      {"a typo", kubernetes.PodSettings{Resources: kubernetes.ResourceSettings{Limits: map[string]string{"memory": "lots"}}}, []string{"resources", "limits.memory", "lots", "256Mi"}},
		"NoResource":      {"a proxy uses no such thing", kubernetes.PodSettings{Resources: kubernetes.ResourceSettings{Requests: map[string]string{"nvidia.com/gpu": "1"}}}, []string{"nvidia.com/gpu", "cpu, memory"}},
		"MoreThanLimit":   {"the API server would refuse every pod", kubernetes.PodSettings{Resources: kubernetes.ResourceSettings{Requests: map[string]string{"memory": "1Gi"}}}, []string{"limits.memory", "384Mi", "1Gi"}},
		"TooLittle":       {"every pod would be killed", kubernetes.PodSettings{Resources: kubernetes.ResourceSettings{Requests: map[string]string{"memory": "16Mi"}, Limits: map[string]string{"memory": "32Mi"}}}, []string{"limits.memory", "killed"}},
		"BadSecret":       {"no name", kubernetes.PodSettings{ImagePullSecrets: []string{"ok", "Not OK"}}, []string{"imagePullSecrets[1]", "Not OK"}},
		"BadPriority":     {"no name", kubernetes.PodSettings{PriorityClassName: "High Priority"}, []string{"priorityClassName"}},
		"BadOperator":     {"no operator", kubernetes.PodSettings{Tolerations: []kubernetes.TolerationSettings{{Key: "a", Operator: "In"}}}, []string{"tolerations[0]", "Equal or Exists"}},
		"BadEffect":       {"no effect", kubernetes.PodSettings{Tolerations: []kubernetes.TolerationSettings{{Key: "a", Effect: "Evict"}}}, []string{"tolerations[0]", "NoExecute"}},
		"EverythingMeant": {"an empty toleration by mistake", kubernetes.PodSettings{Tolerations: []kubernetes.TolerationSettings{{}}}, []string{"tolerations[0]", "operator: Exists"}},
		"ValueOfExists":   {"the API server would refuse every pod", kubernetes.PodSettings{Tolerations: []kubernetes.TolerationSettings{{Key: "a", Operator: "Exists", Value: "b"}}}, []string{"takes no value"}},
		"SecondsOfOthers": {"the API server would refuse every pod", kubernetes.PodSettings{Tolerations: []kubernetes.TolerationSettings{{Key: "a", Effect: "NoSchedule", TolerationSeconds: ptr.To(int64(1))}}}, []string{"NoExecute"}},
		"OurLabel":        {"it tells whose the pod is", kubernetes.PodSettings{PodLabels: map[string]string{"app.kubernetes.io/managed-by": "me"}}, []string{"podLabels", "Shoal's own"}},
		"BusyLabel":       {"it holds evictions off", kubernetes.PodSettings{PodLabels: map[string]string{"shoal.dev/busy": "true"}}, []string{"podLabels", "Shoal's own"}},
		"BadLabel":        {"not a value", kubernetes.PodSettings{PodLabels: map[string]string{"a": "b c"}}, []string{"podLabels", "b c"}},
		"OurAnnotation":   {"the busy mark sets it", kubernetes.PodSettings{PodAnnotations: map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}, []string{"podAnnotations", "Shoal's own"}},
		"BadAnnotation":   {"not a key", kubernetes.PodSettings{PodAnnotations: map[string]string{"a b": "c"}}, []string{"podAnnotations", "a b"}},
	} {
		t.Run(name, func(t *testing.T) {
			var said []string
			c.s.Check(func(field, format string, args ...any) { said = append(said, field+": "+fmt.Sprintf(format, args...)) })
			if len(said) != 1 {
				t.Fatalf("%s: %q, want one mistake", c.reason, said)
			}
			for _, want := range c.want {
				if !strings.Contains(said[0], want) {
					t.Errorf("%s: want %q in %q", c.reason, want, said[0])
				}
			}
		})
	}
}

// everything is an entry that says all that can be said.
func everything() kubernetes.PodSettings {
	return kubernetes.PodSettings{
		UniqueExit:        true,
		Resources:         kubernetes.ResourceSettings{Requests: map[string]string{"cpu": "100m"}, Limits: map[string]string{"memory": "1Gi", "cpu": "2"}},
		Tolerations:       []kubernetes.TolerationSettings{{Key: "egress", Operator: "Equal", Value: "only", Effect: "NoSchedule"}, {Key: corev1.TaintNodeUnreachable, Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr.To(int64(60))}},
		ImagePullSecrets:  []string{"registry"},
		PriorityClassName: "system-node-critical",
		PodLabels:         map[string]string{"example.com/egress": "blue"},
		PodAnnotations:    map[string]string{"example.com/note": "any text"},
	}
}

func TestPodIsWhatTheEntrySays(t *testing.T) {
	w := newWorld(t, false)
	w.with(func(o *kubernetes.Options) { o.Pods = everything(); o.Pods.PriorityClassName = "" })
	r := w.request("one")
	if _, err := w.provider.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	pod := w.pod(r.Name)
	have := pod.Spec.Containers[0].Resources
	got := []string{
		have.Requests.Cpu().String(), have.Requests.Memory().String(), have.Limits.Memory().String(), have.Limits.Cpu().String(),
		pod.Spec.ImagePullSecrets[0].Name, pod.Labels["example.com/egress"], pod.Annotations["example.com/note"], pod.Labels[v1alpha1.LabelProxyUID],
	}
	want := []string{"100m", "64Mi", "1Gi", "2", "registry", "blue", "any text", r.Identity.ProxyUID}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The API server adds its own for not-ready nodes.
	var ours []corev1.Toleration
	for _, tolerated := range pod.Spec.Tolerations {
		if tolerated.Key != corev1.TaintNodeNotReady {
			ours = append(ours, tolerated)
		}
	}
	if len(ours) != 2 || ours[0].Value != "only" || *ours[1].TolerationSeconds != 60 {
		t.Errorf("tolerations = %+v", ours)
	}
	terms := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(terms) != 1 || terms[0].TopologyKey != corev1.LabelHostname || terms[0].LabelSelector.MatchLabels[v1alpha1.LabelMemberUID] != "member" {
		t.Errorf("anti-affinity = %+v, want no two of the member's proxies on a node", terms)
	}
	if len(pod.Spec.TopologySpreadConstraints) != 0 {
		t.Error("it is spread as well, which asks for less than what is required")
	}
}

func TestPodsAreSpreadWhereNodesAreShared(t *testing.T) {
	w := newWorld(t, false)
	r := w.request("one")
	if _, err := w.provider.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	s := w.pod(r.Name).Spec
	if s.Affinity != nil || len(s.TopologySpreadConstraints) != 1 {
		t.Fatalf("affinity %v and %d constraints, want none and one", s.Affinity, len(s.TopologySpreadConstraints))
	}
	if c := s.TopologySpreadConstraints[0]; c.TopologyKey != corev1.LabelHostname || c.WhenUnsatisfiable != corev1.ScheduleAnyway || c.MaxSkew != 1 {
		t.Errorf("constraint = %+v: a cluster of one node must still take all", c)
	}
}

func TestSaltFollowsTheEntry(t *testing.T) {
	w := newWorld(t, false)
	w.with(func(o *kubernetes.Options) { o.Pods = everything() })
	salts := map[string]string{w.provider.Salt(): "as it was"}
	for name, change := range map[string]func(*kubernetes.Options){
		"image":       func(o *kubernetes.Options) { o.Image = "shoal-proxy:other" },
		"exposure":    func(o *kubernetes.Options) { o.HostPort = true },
		"nodes":       func(o *kubernetes.Options) { o.NodeSelector = map[string]string{"a": "b"} },
		"uniqueExit":  func(o *kubernetes.Options) { o.Pods.UniqueExit = false },
		"resources":   func(o *kubernetes.Options) { o.Pods.Resources.Limits = map[string]string{"memory": "2Gi"} },
		"tolerations": func(o *kubernetes.Options) { o.Pods.Tolerations = nil },
		"secrets":     func(o *kubernetes.Options) { o.Pods.ImagePullSecrets = []string{"other"} },
		"priority":    func(o *kubernetes.Options) { o.Pods.PriorityClassName = "other" },
		"labels":      func(o *kubernetes.Options) { o.Pods.PodLabels = nil },
		"annotations": func(o *kubernetes.Options) { o.Pods.PodAnnotations = nil },
	} {
		w := newWorld(t, false)
		w.with(func(o *kubernetes.Options) { o.Pods = everything(); change(o) })
		salt := w.provider.Salt()
		if other, taken := salts[salt]; taken {
			t.Errorf("another %s has the salt of %s: pods would stay what they were", name, other)
		}
		salts[salt] = name
	}
	same := newWorld(t, false)
	same.with(func(o *kubernetes.Options) { o.Pods = everything() })
	if salts[same.provider.Salt()] != "as it was" {
		t.Error("the same entry has another salt after a restart: every pod would be replaced")
	}
}
