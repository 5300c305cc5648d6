package harness

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Process is the process of a pod's first container, within the node that runs it.
type Process struct {
	cluster   *Cluster
	pod       client.ObjectKey
	node      string
	pid       int
	container string
	restarts  int32
}

// ProcessOf finds the process of a pod's first container.
func (c *Cluster) ProcessOf(ctx context.Context, pod *corev1.Pod) (*Process, error) {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].ContainerID == "" {
		return nil, fmt.Errorf("pod %s has no container yet", pod.Name)
	}
	status := pod.Status.ContainerStatuses[0]
	p := &Process{
		cluster: c, pod: client.ObjectKeyFromObject(pod), node: pod.Spec.NodeName,
		container: status.ContainerID, restarts: status.RestartCount,
	}
	id := strings.TrimPrefix(status.ContainerID, "containerd://")
	text, err := onNode(ctx, p.node, "crictl", "inspect", "--output", "go-template", "--template", "{{.info.pid}}", id)
	if err != nil {
		return nil, err
	}
	if p.pid, err = strconv.Atoi(strings.TrimSpace(text)); err != nil || p.pid <= 1 {
		return nil, fmt.Errorf("container %s of pod %s has no process: %q", id, pod.Name, text)
	}
	return p, nil
}

// Kill sends SIGKILL: the process has no chance to say goodbye to anybody.
func (p *Process) Kill(ctx context.Context) error {
	_, err := onNode(ctx, p.node, "kill", "-KILL", strconv.Itoa(p.pid))
	return err
}

// Restarted returns nil once Kubernetes runs another instance of the container in the same pod after this one was
// killed, and that one is ready.
func (p *Process) Restarted(ctx context.Context) error {
	var pod corev1.Pod
	if err := p.cluster.Client.Get(ctx, p.pod, &pod); err != nil {
		return err
	}
	status := pod.Status.ContainerStatuses[0]
	switch {
	case status.RestartCount <= p.restarts || status.ContainerID == p.container:
		return fmt.Errorf("pod %s has not restarted", pod.Name)
	case !status.Ready:
		return fmt.Errorf("pod %s has restarted and is not ready yet", pod.Name)
	// The kubelet may have removed what was left of the container, and then no longer tells.
	case status.LastTerminationState.Terminated != nil && status.LastTerminationState.Terminated.ExitCode != 137:
		return fmt.Errorf("pod %s ended with code %d, not with 137, which SIGKILL leaves", pod.Name, status.LastTerminationState.Terminated.ExitCode)
	}
	return nil
}

// onNode runs a program in a node, which is a container of the same name.
func onNode(ctx context.Context, node string, command ...string) (string, error) {
	return Run(ctx, "", docker(), append([]string{"exec", node}, command...)...)
}

// ContainerLog is what a container beside the clusters has written.
func ContainerLog(ctx context.Context, name string) (string, error) {
	// To both its outputs.
	return Run(ctx, "", "sh", "-c", `exec "$0" logs "$1" 2>&1`, docker(), name)
}

// docker is the client that hack/clusters names; it finds its daemon by DOCKER_HOST.
func docker() string {
	if path := os.Getenv("SHOAL_DOCKER"); path != "" {
		return path
	}
	return "docker"
}
