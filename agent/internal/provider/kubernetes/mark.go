package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// annotationSafeToEvict is the cluster autoscaler's own. Without it the autoscaler keeps away from every node with a pod
// that no controller of Kubernetes' own stands behind, and ours never are: an idle proxy must not hold a node.
const annotationSafeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"

// marks are what a pod carries while its proxy is leased, and what while it is not.
func marks(busy bool) (label, safeToEvict string) {
	if busy {
		return v1alpha1.BusyTrue, "false"
	}
	return "", "true"
}

// Mark keeps the cluster autoscaler and evictions away from a pod while its proxy is leased. The label is what the
// chart's PodDisruptionBudget selects by.
func (p *Provider) Mark(ctx context.Context, ref provider.Ref, id provider.Identity, busy bool) error {
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: p.o.Namespace, Name: ref.Name}
	err := p.o.Client.Get(ctx, key, pod)
	if apierrors.IsNotFound(err) {
		err = p.o.Reader.Get(ctx, key, pod)
	}
	switch {
	case err != nil:
		return translate("mark pod", err)
	case !identityOf(pod).SameProxy(id):
		return provider.Errorf(provider.KindAlreadyExists, "mark pod", "pod %s/%s is not this proxy's and is left alone", p.o.Namespace, ref.Name)
	}
	label, safe := marks(busy)
	if pod.Labels[v1alpha1.LabelBusy] == label && pod.Annotations[annotationSafeToEvict] == safe {
		return nil
	}
	before := pod.DeepCopy()
	if label == "" {
		delete(pod.Labels, v1alpha1.LabelBusy)
	} else {
		pod.Labels[v1alpha1.LabelBusy] = label
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotationSafeToEvict] = safe
	return translate("mark pod", p.o.Client.Patch(ctx, pod, client.MergeFrom(before)))
}
