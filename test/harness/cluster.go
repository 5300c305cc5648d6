package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Cluster is one cluster. Its methods are safe for concurrent use.
type Cluster struct {
	// Context is its name in the kubeconfig.
	Context string
	// Nodes are its nodes, which are containers of the same names, and NodeIPs their addresses in the same order.
	Nodes   []string
	NodeIPs []netip.Addr
	// Pods and Services are its ranges.
	Pods, Services netip.Prefix

	// Client knows the kinds of Kubernetes, of hubs and of members.
	Client client.WithWatch
	core   kubernetes.Interface
}

func (c *Cluster) connect() error {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), v1alpha1.AddHubToScheme(known), v1alpha1.AddMemberToScheme(known)); err != nil {
		return err
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if err != nil {
		return fmt.Errorf("context %s: %w", c.Context, err)
	}
	config.QPS, config.Burst = 100, 200
	if c.Client, err = client.NewWithWatch(config, client.Options{Scheme: known}); err != nil {
		return fmt.Errorf("context %s: %w", c.Context, err)
	}
	if c.core, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("context %s: %w", c.Context, err)
	}
	return nil
}

// Kubectl runs kubectl as a user does and returns what it printed. The error holds what it said was wrong.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return Run(ctx, "", "kubectl", append([]string{"--context", c.Context}, args...)...)
}

// Apply applies a manifest. The error holds the API server's words.
func (c *Cluster) Apply(ctx context.Context, manifest string) error {
	_, err := Run(ctx, manifest, "kubectl", "--context", c.Context, "apply", "-f", "-")
	return err
}

// PodLog returns what a container of a pod has logged; with previous, its last instance before the present one.
func (c *Cluster) PodLog(ctx context.Context, pod, container string, previous bool) (string, error) {
	stream, err := c.core.CoreV1().Pods(Namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container, Previous: previous}).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("log of %s on %s: %w", pod, c.Context, err)
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	if err != nil {
		return "", fmt.Errorf("log of %s on %s: %w", pod, c.Context, err)
	}
	return string(text), nil
}

// PodOf returns the one pod in [Namespace] that runs for a Deployment of ours.
func (c *Cluster) PodOf(ctx context.Context, deployment string) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.Client.List(ctx, &pods, client.InNamespace(Namespace), client.MatchingLabels{"app.kubernetes.io/name": deployment}); err != nil {
		return nil, err
	}
	var alive []*corev1.Pod
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			alive = append(alive, &pods.Items[i])
		}
	}
	if len(alive) != 1 {
		return nil, fmt.Errorf("%s on %s has %d pods, not 1", deployment, c.Context, len(alive))
	}
	return alive[0], nil
}

// runTimeout bounds a program whose context has no deadline.
const runTimeout = 2 * time.Minute

// Run runs a program with the text on its standard input and returns its standard output. The error holds what it wrote
// to its standard error.
func Run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), &RunError{Program: name, Said: strings.TrimSpace(errs.String()), Err: err}
	}
	return out.String(), nil
}

// RunError is a program that failed.
type RunError struct {
	// Program is its name and Said its standard error.
	Program, Said string
	// Err is how it ended.
	Err error
}

// Error returns program, end and words.
func (e *RunError) Error() string { return fmt.Sprintf("%s: %v: %s", e.Program, e.Err, e.Said) }

// Unwrap returns how it ended.
func (e *RunError) Unwrap() error { return e.Err }

// Said returns what a failed program wrote to its standard error; empty for any other error.
func Said(err error) string {
	var run *RunError
	if errors.As(err, &run) {
		return run.Said
	}
	return ""
}
