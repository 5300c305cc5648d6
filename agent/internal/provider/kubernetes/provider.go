package kubernetes

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Options configures a Provider.
type Options struct {
	// Client reads and writes pods and config maps of Namespace, and reads nodes. Reads may come from a cache.
	Client client.Client
	// Reader reads without a cache. What is not in the cache is asked for here before it is called gone, so that a
	// pod that was just made is never made twice.
	Reader client.Reader
	// Namespace is the agent's own.
	Namespace string
	// Image is the proxy image.
	Image string
	// ImagePullPolicy is Kubernetes' own; empty means Kubernetes' default.
	ImagePullPolicy corev1.PullPolicy
	// HostPort says whether proxies are exposed by a port of their node, and by the pod's address otherwise.
	HostPort bool
	// NodeSelector chooses nodes for every proxy, beside what a fleet asks.
	NodeSelector map[string]string
	// Pods is what else the entry of the provider file says of its pods.
	Pods PodSettings
	// KeysConfigMap is the name of the ConfigMap with the public keys that credentials are checked with.
	KeysConfigMap string
	// Clock tells when a pod should have ended.
	Clock clock.PassiveClock
}

// Provider runs proxies as pods. It implements [provider.Provider].
type Provider struct {
	o         Options
	resources corev1.ResourceRequirements
}

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Marker   = (*Provider)(nil)
)

// New makes a Provider.
func New(o Options) (*Provider, error) {
	if o.Client == nil || o.Reader == nil || o.Namespace == "" || o.Image == "" || o.KeysConfigMap == "" || o.Clock == nil {
		return nil, errors.New("kubernetes provider: Client, Reader, Namespace, Image, KeysConfigMap and Clock are required")
	}
	resources, err := o.Pods.Resources.requirements()
	if err != nil {
		return nil, fmt.Errorf("kubernetes provider: %w", err)
	}
	return &Provider{o: o, resources: resources}, nil
}

// Create makes the config map, then the pod. The order matters: a pod without its configuration would wait in vain.
func (p *Provider) Create(ctx context.Context, r provider.Request) (provider.Receipt, error) {
	if p.o.HostPort && r.HostPort == 0 {
		return provider.Receipt{}, provider.Errorf(provider.KindInvalidSpec, "create pod", "no host port has been kept for %s", r.Name)
	}
	if r.Settings.Placement != nil {
		for key, want := range r.Settings.Placement.NodeSelector {
			if own, set := p.o.NodeSelector[key]; set && own != want {
				return provider.Receipt{}, provider.Errorf(provider.KindInvalidSpec, "create pod",
					"placement.nodeSelector asks for nodes with %s=%s, and the owner keeps this entry's proxies on those with %s=%s; leave it out", key, want, key, own)
			}
		}
	}
	config := p.configMap(r)
	if err := p.createOrAdopt(ctx, "create config map", config, &corev1.ConfigMap{}, r.Identity); err != nil {
		return provider.Receipt{}, err
	}
	return provider.Receipt{}, p.createOrAdopt(ctx, "create pod", p.pod(r), &corev1.Pod{}, r.Identity)
}

// createOrAdopt creates an object. Where the name is taken it looks whose it is: ours is what was wanted.
func (p *Provider) createOrAdopt(ctx context.Context, op string, want, found client.Object, id provider.Identity) error {
	err := p.o.Client.Create(ctx, want)
	if err == nil {
		return nil
	}
	if apierrors.IsForbidden(err) {
		return p.refusal(ctx, op, want, err)
	}
	if !apierrors.IsAlreadyExists(err) {
		return translate(op, err)
	}
	switch err := p.o.Reader.Get(ctx, client.ObjectKeyFromObject(want), found); {
	case apierrors.IsNotFound(err):
		return provider.Errorf(provider.KindUnavailable, op, "%s %s/%s has just gone", kindOf(found), want.GetNamespace(), want.GetName())
	case err != nil:
		return translate(op, err)
	}
	if !identityOf(found).SameProxy(id) {
		return provider.Errorf(provider.KindAlreadyExists, op, "%s %s/%s exists and is not this proxy's; remove it, or let the proxy go", kindOf(found), found.GetNamespace(), found.GetName())
	}
	if found.GetDeletionTimestamp() != nil {
		return provider.Errorf(provider.KindUnavailable, op, "%s %s/%s is still being deleted", kindOf(found), found.GetNamespace(), found.GetName())
	}
	return nil
}

// Get observes the pod by name.
func (p *Provider) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	pod := &corev1.Pod{}
	key := client.ObjectKey{Namespace: p.o.Namespace, Name: ref.Name}
	err := p.o.Client.Get(ctx, key, pod)
	if apierrors.IsNotFound(err) {
		err = p.o.Reader.Get(ctx, key, pod)
	}
	if err != nil {
		return provider.Instance{}, translate("get pod", err)
	}
	return p.observe(ctx, pod)
}

// Delete removes the pod and its configuration. What is in the way under their names and is not ours is left alone.
func (p *Provider) Delete(ctx context.Context, ref provider.Ref, id provider.Identity, o provider.DeleteOptions) error {
	key := client.ObjectKey{Namespace: p.o.Namespace, Name: ref.Name}
	pod := &corev1.Pod{}
	switch err := p.o.Reader.Get(ctx, key, pod); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return translate("delete pod", err)
	case !identityOf(pod).SameProxy(id):
		return provider.Errorf(provider.KindAlreadyExists, "delete pod", "pod %s/%s is not this proxy's and is left alone", p.o.Namespace, ref.Name)
	default:
		if err := p.deletePod(ctx, pod, o); err != nil {
			return err
		}
	}
	config := &corev1.ConfigMap{}
	switch err := p.o.Reader.Get(ctx, key, config); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return translate("delete config map", err)
	case !identityOf(config).SameProxy(id):
		return nil
	}
	if err := p.o.Client.Delete(ctx, config, client.Preconditions{UID: &config.UID}); err != nil && !apierrors.IsNotFound(err) {
		return translate("delete config map", err)
	}
	return nil
}

// deletePod asks for the pod's end, and for a quicker one where a slow one is under way and nobody has to be waited for.
// A pod that should have ended long ago is on a node that is lost: nobody else would ever say that it is gone.
func (p *Provider) deletePod(ctx context.Context, pod *corev1.Pod, o provider.DeleteOptions) error {
	grace := int64(graceSeconds)
	if o.Drained {
		grace = drainedGraceSeconds
	}
	// The timestamp is when the grace ends.
	if pod.DeletionTimestamp != nil && p.o.Clock.Since(pod.DeletionTimestamp.Time) > lostAfter {
		grace = 0
	}
	if pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, 0) <= grace {
		return nil
	}
	err := p.o.Client.Delete(ctx, pod, client.GracePeriodSeconds(grace), client.Preconditions{UID: &pod.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		return translate("delete pod", err)
	}
	return nil
}

// List observes every pod of the identity. Pods of one namespace are always listed completely or not at all.
func (p *Provider) List(ctx context.Context, id provider.Identity) (provider.Listing, error) {
	pods := &corev1.PodList{}
	err := p.o.Reader.List(ctx, pods, client.InNamespace(p.o.Namespace), client.MatchingLabels{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
		v1alpha1.LabelHubUID:    id.HubUID,
		v1alpha1.LabelMemberUID: id.MemberUID,
	})
	if err != nil {
		return provider.Listing{}, translate("list pods", err)
	}
	var instances []provider.Instance
	for i := range pods.Items {
		if identityOf(&pods.Items[i]).HomeClusterUID != id.HomeClusterUID {
			continue
		}
		instance, err := p.observe(ctx, &pods.Items[i])
		if err != nil {
			return provider.Listing{}, err
		}
		instances = append(instances, instance)
	}
	return provider.Listing{Instances: instances, Complete: true}, nil
}

// observe translates a pod.
func (p *Provider) observe(ctx context.Context, pod *corev1.Pod) (provider.Instance, error) {
	state, reason := stateOf(pod)
	instance := provider.Instance{
		Name:       pod.Name,
		ProviderID: pod.Namespace + "/" + pod.Name,
		State:      state,
		Reason:     reason,
		Identity:   identityOf(pod),
		SpecHash:   pod.Annotations[v1alpha1.AnnotationSpecHash],
		CreatedAt:  pod.CreationTimestamp.Time,
		Preempted:  (state == provider.StateStopping || state == provider.StateFailed) && disrupted(pod),
		PortTaken:  state == provider.StateFailed && pod.Status.Reason == portTaken,
	}
	if state == provider.StatePending {
		instance.Unplaced = unplaced(pod)
	}
	if pod.Status.PodIP == "" || state != provider.StateRunning {
		return instance, nil
	}
	if !p.o.HostPort {
		instance.Endpoints = []v1alpha1.Endpoint{{Network: v1alpha1.NetworkPodIP, Host: pod.Status.PodIP, Port: containerPort(pod).ContainerPort}}
		return instance, nil
	}
	host, err := p.nodeAddress(ctx, pod.Spec.NodeName)
	if err != nil {
		return provider.Instance{}, err
	}
	if host == "" {
		instance.State, instance.Reason = provider.StateUnknown, fmt.Sprintf("node %s is not known, or has no address yet", pod.Spec.NodeName)
		return instance, nil
	}
	instance.Endpoints = []v1alpha1.Endpoint{{Network: v1alpha1.NetworkHostPort, Host: host, Port: containerPort(pod).HostPort}}
	return instance, nil
}

// nodeAddress gives the address at which crawlers reach a node: its external address where it has one. It is empty
// where the node is not known; that must not be taken for a pod that is not there.
func (p *Provider) nodeAddress(ctx context.Context, name string) (string, error) {
	node := &corev1.Node{}
	switch err := p.o.Client.Get(ctx, client.ObjectKey{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", translate("get node", err)
	}
	for _, wanted := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		for _, a := range node.Status.Addresses {
			if a.Type == wanted {
				return a.Address, nil
			}
		}
	}
	return "", nil
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *corev1.Pod:
		return "pod"
	case *corev1.ConfigMap:
		return "config map"
	default:
		return fmt.Sprintf("%T", o)
	}
}
