package node

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Options says where this node's things are.
type Options struct {
	// Name is the node's name.
	Name string
	// Kubeconfig is the kubelet's, which kubeadm writes some time after the node has started.
	Kubeconfig string
	// CNIConfig is the file the container runtime reads its network from.
	CNIConfig string
	// Volumes is the directory that holds one directory per volume.
	Volumes string
}

// NewCommand returns the program.
func NewCommand() *cobra.Command {
	name, _ := os.Hostname()
	options := Options{
		Name:       name,
		Kubeconfig: "/etc/kubernetes/kubelet.conf",
		CNIConfig:  "/etc/cni/net.d/10-pods.conflist",
		Volumes:    "/var/lib/shoal-volumes",
	}
	cmd := &cobra.Command{
		Use:   "shoal-node",
		Short: "Gives a node of a development cluster its pod network and its volumes",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return Run(cmd.Context(), options) },
	}
	cmd.Flags().StringVar(&options.Name, "node-name", options.Name, "name of this node")
	cmd.Flags().StringVar(&options.Kubeconfig, "kubeconfig", options.Kubeconfig, "the kubelet's kubeconfig")
	cmd.Flags().StringVar(&options.CNIConfig, "cni-config", options.CNIConfig, "file to write the CNI configuration to")
	cmd.Flags().StringVar(&options.Volumes, "volumes", options.Volumes, "directory for volumes")
	return cmd
}

// retryEvery is how long to wait for what kubeadm is about to bring about: the kubeconfig, the node, its pod range.
const retryEvery = 200 * time.Millisecond

// resyncEvery repairs what changed behind our back, such as a route that somebody deleted.
const resyncEvery = 30 * time.Second

// Run does the node's jobs until ctx ends. It returns an error only for what a restart may repair.
func Run(ctx context.Context, options Options) error {
	client, err := waitForClient(ctx, options.Kubeconfig)
	if err != nil {
		return err
	}
	// The own node first and with a plain Get: the kubelet's rights cover it from the start, while those to watch all
	// nodes are granted only when the cluster's manifests are applied, and pods need a network before that.
	own, err := waitForPodRange(ctx, client, options.Name)
	if err != nil {
		return err
	}
	if err := writeCNI(options.CNIConfig, own.Spec.PodCIDR); err != nil {
		return err
	}
	klog.InfoS("pod network configured", "podCIDR", own.Spec.PodCIDR)

	factory := informers.NewSharedInformerFactory(client, resyncEvery)
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // a pass is due already and will see this change too
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify() },
		UpdateFunc: func(any, any) { notify() },
		DeleteFunc: func(any) { notify() },
	}
	core := factory.Core().V1()
	for _, informer := range []cache.SharedIndexInformer{
		core.Nodes().Informer(),
		core.PersistentVolumeClaims().Informer(),
		core.PersistentVolumes().Informer(),
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	routes := router{name: options.Name}
	volumes := provisioner{
		name:    options.Name,
		root:    options.Volumes,
		client:  client.CoreV1(),
		claims:  core.PersistentVolumeClaims().Lister(),
		volumes: core.PersistentVolumes().Lister(),
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		failed := false
		if err := routes.sync(core.Nodes().Lister()); err != nil {
			klog.ErrorS(err, "routes")
			failed = true
		}
		if err := volumes.sync(ctx); err != nil {
			klog.ErrorS(err, "volumes")
			failed = true
		}
		if failed {
			time.AfterFunc(time.Second, notify)
		}
	}
}

// waitForClient returns a client as soon as there is a kubeconfig to make it from.
func waitForClient(ctx context.Context, kubeconfig string) (kubernetes.Interface, error) {
	for {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err == nil {
			config.UserAgent = "shoal-node"
			return kubernetes.NewForConfig(config)
		}
		if err := sleep(ctx); err != nil {
			return nil, err
		}
	}
}

// waitForPodRange returns the node once the controller manager has given it a pod range.
func waitForPodRange(ctx context.Context, client kubernetes.Interface, name string) (*corev1.Node, error) {
	var last string
	for {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && node.Spec.PodCIDR != "" {
			return node, nil
		}
		if text := fmt.Sprint(err); text != last {
			last = text
			klog.InfoS("waiting for this node's pod range", "err", err)
		}
		if err := sleep(ctx); err != nil {
			return nil, err
		}
	}
}

func sleep(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(retryEvery):
		return nil
	}
}
