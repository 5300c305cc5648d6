package kubernetes

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/shoal-dev/shoal/agent/internal/squid"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const (
	// containerName is the pod's one container.
	containerName = "squid"
	// squidUser is Debian's user and group "proxy".
	squidUser = 13
	// configKey is the config map's one key, and configDir where it is mounted.
	configKey = "squid.conf"
	configDir = "/etc/shoal/squid"
	// drainedGraceSeconds is enough for Squid to close its listener when no lease is left.
	drainedGraceSeconds = 3
	// lostAfter is how long after the end of its grace a pod is taken for lost with its node.
	lostAfter = time.Minute
)

// graceSeconds outlives Squid's own shutdown_lifetime, which it always waits out after SIGTERM, even when idle.
var graceSeconds = int(squid.DefaultShutdownLifetime.Seconds()) + 10

// labels carry all that List and a person need to tell whose an object is.
func labels(r provider.Request) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
		v1alpha1.LabelProxyUID:  r.Identity.ProxyUID,
		v1alpha1.LabelHubUID:    r.Identity.HubUID,
		v1alpha1.LabelMemberUID: r.Identity.MemberUID,
	}
}

func (p *Provider) meta(r provider.Request) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: p.o.Namespace,
		Name:      r.Name,
		Labels:    labels(r),
		Annotations: map[string]string{
			v1alpha1.AnnotationSpecHash:       r.SpecHash,
			v1alpha1.AnnotationHomeClusterUID: r.Identity.HomeClusterUID,
		},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion:         v1alpha1.GroupVersion.String(),
			Kind:               "Proxy",
			Name:               r.Owner.Name,
			UID:                types.UID(r.Owner.UID),
			Controller:         ptr.To(true),
			BlockOwnerDeletion: ptr.To(true),
		}},
	}
}

func identityOf(o metav1.Object) provider.Identity {
	l := o.GetLabels()
	return provider.Identity{
		ProxyUID:       l[v1alpha1.LabelProxyUID],
		HubUID:         l[v1alpha1.LabelHubUID],
		MemberUID:      l[v1alpha1.LabelMemberUID],
		HomeClusterUID: o.GetAnnotations()[v1alpha1.AnnotationHomeClusterUID],
	}
}

func (p *Provider) configMap(r provider.Request) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: p.meta(r),
		Immutable:  ptr.To(true),
		Data:       map[string]string{configKey: r.Config},
	}
}

// pod restricts the proxy as far as Pod Security can ask, and gives it nothing to write to.
func (p *Provider) pod(r provider.Request) *corev1.Pod {
	port := corev1.ContainerPort{Name: "proxy", ContainerPort: r.Settings.Port, Protocol: corev1.ProtocolTCP}
	if p.o.HostPort {
		port.HostPort = r.HostPort
	}
	// The kubelet looks at the port only. Whether the proxy reaches the world is for the agent's probes to say: a target's
	// outage must restart nothing.
	listening := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(port.Name)}}
	selector := maps.Clone(p.o.NodeSelector)
	if r.Settings.Placement != nil {
		if selector == nil {
			selector = map[string]string{}
		}
		maps.Copy(selector, r.Settings.Placement.NodeSelector)
	}
	meta := p.meta(r)
	meta.Labels = ours(meta.Labels, p.o.Pods.PodLabels)
	meta.Annotations = ours(meta.Annotations, p.o.Pods.PodAnnotations)
	// Nobody is on it yet.
	_, meta.Annotations[annotationSafeToEvict] = marks(false)
	return &corev1.Pod{
		ObjectMeta: meta,
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyAlways,
			ImagePullSecrets:              p.o.Pods.pullSecrets(),
			PriorityClassName:             p.o.Pods.PriorityClassName,
			Tolerations:                   p.o.Pods.tolerations(),
			TerminationGracePeriodSeconds: ptr.To(int64(graceSeconds)),
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			NodeSelector:                  selector,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   ptr.To(true),
				RunAsUser:      ptr.To(int64(squidUser)),
				RunAsGroup:     ptr.To(int64(squidUser)),
				FSGroup:        ptr.To(int64(squidUser)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Affinity:                  p.apart(r),
			TopologySpreadConstraints: p.spread(r),
			Containers: []corev1.Container{{
				Name:            containerName,
				Image:           p.o.Image,
				ImagePullPolicy: p.o.ImagePullPolicy,
				Command:         []string{"/usr/sbin/squid", "-N", "-f", configDir + "/" + configKey},
				Ports:           []corev1.ContainerPort{port},
				ReadinessProbe:  &corev1.Probe{ProbeHandler: listening, PeriodSeconds: 2, FailureThreshold: 3},
				LivenessProbe:   &corev1.Probe{ProbeHandler: listening, PeriodSeconds: 10, FailureThreshold: 6, InitialDelaySeconds: 10},
				Resources:       p.resources,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false),
					ReadOnlyRootFilesystem:   ptr.To(true),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "config", MountPath: configDir, ReadOnly: true},
					// A directory, never a subPath: only a directory is updated in place.
					{Name: "keys", MountPath: squid.DefaultKeysDir, ReadOnly: true},
				},
			}},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: r.Name}}}},
				{Name: "keys", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: p.o.KeysConfigMap}}}},
			},
		},
	}
}

// siblings selects the member's proxies, whichever entry made them: on one node all leave by one address.
func siblings(r provider.Request) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
		v1alpha1.LabelMemberUID: r.Identity.MemberUID,
	}}
}

// spread puts proxies on as many nodes as there are, and on one where there is only one.
func (p *Provider) spread(r provider.Request) []corev1.TopologySpreadConstraint {
	if p.o.Pods.UniqueExit {
		return nil
	}
	return []corev1.TopologySpreadConstraint{{
		MaxSkew:           1,
		TopologyKey:       corev1.LabelHostname,
		WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector:     siblings(r),
	}}
}

// apart keeps every proxy on a node of its own where the entry asks for that. A proxy that finds none waits: a second one
// on a node would be no exit more.
func (p *Provider) apart(r provider.Request) *corev1.Affinity {
	if !p.o.Pods.UniqueExit {
		return nil
	}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: siblings(r)}},
	}}
}

// ours adds what an entry says to what we say, which stands.
func ours(we, entry map[string]string) map[string]string {
	all := maps.Clone(entry)
	if all == nil {
		return we
	}
	maps.Copy(all, we)
	return all
}

// containerPort gives the port of the proxy's container. A pod of ours always has one; another's may not.
func containerPort(pod *corev1.Pod) corev1.ContainerPort {
	for _, c := range pod.Spec.Containers {
		if c.Name == containerName && len(c.Ports) > 0 {
			return c.Ports[0]
		}
	}
	return corev1.ContainerPort{}
}
