package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// PodSettings is what an entry of the provider file says of its pods beside image, exposure and nodes.
type PodSettings struct {
	// UniqueExit puts every proxy of the member on a node of its own, so that no two of the entry's proxies leave by the same
	// address; where there are not enough nodes the rest waits. Otherwise proxies are spread as far as there are nodes. It
	// is the entry's, and nothing that a fleet asks for: only who knows the cluster knows whether its nodes have addresses
	// of their own, and a fleet chooses by naming the entry.
	UniqueExit bool `yaml:"uniqueExit,omitempty"`
	// Resources are the pods' requests and limits.
	Resources ResourceSettings `yaml:"resources,omitempty"`
	// Tolerations let the pods run on nodes with taints.
	Tolerations []TolerationSettings `yaml:"tolerations,omitempty"`
	// ImagePullSecrets are names of Secrets in the agent's namespace with which the image is pulled.
	ImagePullSecrets []string `yaml:"imagePullSecrets,omitempty"`
	// PriorityClassName says which pods make way for which.
	PriorityClassName string `yaml:"priorityClassName,omitempty"`
	// PodLabels and PodAnnotations are put on the pods: an egress gateway, for one, chooses pods by label.
	PodLabels      map[string]string `yaml:"podLabels,omitempty"`
	PodAnnotations map[string]string `yaml:"podAnnotations,omitempty"`
}

// ResourceSettings are requests and limits, as Kubernetes writes quantities. What is not written is ours: 50m and 64Mi
// requested, 384Mi at most, no limit on the processor.
type ResourceSettings struct {
	Requests map[string]string `yaml:"requests,omitempty"`
	Limits   map[string]string `yaml:"limits,omitempty"`
}

// TolerationSettings is a toleration, in Kubernetes' words.
type TolerationSettings struct {
	Key      string `yaml:"key,omitempty"`
	Operator string `yaml:"operator,omitempty"`
	Value    string `yaml:"value,omitempty"`
	Effect   string `yaml:"effect,omitempty"`
	// TolerationSeconds is how long a taint with effect NoExecute is tolerated; unset means for ever. With key
	// node.kubernetes.io/unreachable it says how soon a proxy on a lost node is replaced, after Kubernetes' own 300.
	TolerationSeconds *int64 `yaml:"tolerationSeconds,omitempty"`
}

// leastMemory is less than a proxy needs: it takes 32 MB before its first tunnel, and 36 KB for each.
var leastMemory = resource.MustParse("48Mi")

// defaults are what is not written. 32 MB and 36 KB a tunnel: 8,000 tunnels are about 320 MB. A limit on the processor
// would only add latency.
func defaults() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("384Mi")},
	}
}

// requirements gives what the container asks for.
func (r ResourceSettings) requirements() (corev1.ResourceRequirements, error) {
	all := defaults()
	for _, part := range []struct {
		name string
		from map[string]string
		to   corev1.ResourceList
	}{{"requests", r.Requests, all.Requests}, {"limits", r.Limits, all.Limits}} {
		for _, name := range slices.Sorted(maps.Keys(part.from)) {
			q, err := resource.ParseQuantity(part.from[name])
			if err != nil || q.Sign() <= 0 {
				return all, fmt.Errorf("%s.%s: %q is no quantity; write such as 250m or 256Mi", part.name, name, part.from[name])
			}
			switch corev1.ResourceName(name) {
			case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
				part.to[corev1.ResourceName(name)] = q
			default:
				return all, fmt.Errorf("%s: a proxy has no use for %q; write cpu, memory or ephemeral-storage", part.name, name)
			}
		}
	}
	for name, limit := range all.Limits {
		if request, ok := all.Requests[name]; ok && request.Cmp(limit) > 0 {
			return all, fmt.Errorf("limits.%s: %s is less than the %s that are requested; raise it, or lower requests.%s", name, limit.String(), request.String(), name)
		}
	}
	if memory := all.Limits[corev1.ResourceMemory]; memory.Cmp(leastMemory) < 0 {
		return all, fmt.Errorf("limits.memory: with %s a proxy would be killed at its start; write 32 MB and 36 KB for each tunnel, such as 384Mi", memory.String())
	}
	return all, nil
}

// Check refuses what a pod cannot be made from. It tells each mistake with its field.
func (s *PodSettings) Check(refuse func(field, format string, args ...any)) {
	if _, err := s.Resources.requirements(); err != nil {
		refuse("resources", "%v", err)
	}
	for i, name := range s.ImagePullSecrets {
		if bad := validation.IsDNS1123Subdomain(name); len(bad) > 0 {
			refuse(fmt.Sprintf("imagePullSecrets[%d]", i), "%q is no name of a Secret; write the name alone", name)
		}
	}
	if bad := validation.IsDNS1123Subdomain(s.PriorityClassName); s.PriorityClassName != "" && len(bad) > 0 {
		refuse("priorityClassName", "%q is no name of a PriorityClass", s.PriorityClassName)
	}
	for i, t := range s.Tolerations {
		if why := t.wrong(); why != "" {
			refuse(fmt.Sprintf("tolerations[%d]", i), "%s", why)
		}
	}
	checkMeta(refuse, "podLabels", s.PodLabels, validation.IsValidLabelValue)
	checkMeta(refuse, "podAnnotations", s.PodAnnotations, func(string) []string { return nil })
}

func checkMeta(refuse func(field, format string, args ...any), field string, written map[string]string, wrong func(string) []string) {
	for _, key := range slices.Sorted(maps.Keys(written)) {
		switch {
		case key == v1alpha1.LabelManagedBy || key == annotationSafeToEvict || strings.HasPrefix(key, "shoal.dev/"):
			refuse(field, "%s is Shoal's own; choose another", key)
		case len(validation.IsQualifiedName(key)) > 0:
			refuse(field, "%q is no key; write such as example.com/egress", key)
		case len(wrong(written[key])) > 0:
			refuse(field, "%q is no value of %s; write letters, digits, dots, dashes and underscores, at most 63", written[key], key)
		}
	}
}

// wrong says what keeps a toleration from being one.
func (t TolerationSettings) wrong() string {
	operator, effect := corev1.TolerationOperator(t.Operator), corev1.TaintEffect(t.Effect)
	switch {
	case operator != "" && operator != corev1.TolerationOpEqual && operator != corev1.TolerationOpExists:
		return fmt.Sprintf("operator %q is none; write Equal or Exists", t.Operator)
	case effect != "" && effect != corev1.TaintEffectNoSchedule && effect != corev1.TaintEffectPreferNoSchedule && effect != corev1.TaintEffectNoExecute:
		return fmt.Sprintf("effect %q is none; write NoSchedule, PreferNoSchedule or NoExecute, or leave it out for all", t.Effect)
	case t.Key == "" && operator != corev1.TolerationOpExists:
		return "without a key it tolerates everything, and needs operator: Exists to say so"
	case t.Key != "" && len(validation.IsQualifiedName(t.Key)) > 0:
		return fmt.Sprintf("%q is no key of a taint", t.Key)
	case operator == corev1.TolerationOpExists && t.Value != "":
		return "operator Exists takes no value; leave it out, or write Equal"
	case t.TolerationSeconds != nil && effect != corev1.TaintEffectNoExecute:
		return "tolerationSeconds needs effect: NoExecute"
	}
	return ""
}

func (s *PodSettings) tolerations() []corev1.Toleration {
	var all []corev1.Toleration
	for _, t := range s.Tolerations {
		all = append(all, corev1.Toleration{
			Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value, Effect: corev1.TaintEffect(t.Effect),
			TolerationSeconds: t.TolerationSeconds,
		})
	}
	return all
}

func (s *PodSettings) pullSecrets() []corev1.LocalObjectReference {
	var all []corev1.LocalObjectReference
	for _, name := range s.ImagePullSecrets {
		all = append(all, corev1.LocalObjectReference{Name: name})
	}
	return all
}

// Salt is a hash of all that the entry says of its pods. Where it changes, every pod is replaced.
func (p *Provider) Salt() string {
	text, err := json.Marshal([]any{p.o.Image, p.o.HostPort, p.o.NodeSelector, p.o.Pods, p.resources})
	if err != nil {
		panic(fmt.Sprintf("kubernetes provider: settings of text and numbers do not marshal: %v", err))
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
