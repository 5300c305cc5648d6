package kubernetes

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/shoal-dev/shoal/agent/provider"
)

// portTaken is the reason of a pod that a kubelet refused because its node has no such port left. Kubelets give a
// scheduler's predicate by its name.
const portTaken = "NodePorts"

// disrupted says whether somebody takes the pod away for a reason of the cluster's own: a drained or tainted node, a pod
// that matters more, a node that shuts down.
func disrupted(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// unplaced gives since when the scheduler has found no node for the pod, or zero. It does not say why in a way that a
// program could read.
func unplaced(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// stateOf sums up a pod's status. The reason is for people.
func stateOf(pod *corev1.Pod) (provider.State, string) {
	switch {
	case pod.DeletionTimestamp != nil:
		return provider.StateStopping, "the pod is being deleted"
	case pod.Status.Phase == corev1.PodFailed:
		// Evicted, refused by its node, or lost with it. A bare pod never comes back from here.
		return provider.StateFailed, describe(pod.Status.Reason, pod.Status.Message, "the pod has failed")
	case pod.Status.Phase == corev1.PodSucceeded:
		return provider.StateFailed, "the pod has ended"
	case pod.Status.Phase == corev1.PodUnknown:
		return provider.StateUnknown, describe(pod.Status.Reason, pod.Status.Message, "the pod's node does not answer")
	case pod.Status.Phase == corev1.PodRunning:
		return runningState(pod)
	case pod.Status.Phase == corev1.PodPending, pod.Status.Phase == "":
		return provider.StatePending, pendingReason(pod)
	default:
		return provider.StateUnknown, "the pod's phase is " + string(pod.Status.Phase)
	}
}

func runningState(pod *corev1.Pod) (provider.State, string) {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == containerName && s.State.Waiting != nil {
			return provider.StatePending, describe(s.State.Waiting.Reason, lastWords(s), "the container waits")
		}
	}
	return provider.StateRunning, ""
}

// pendingReason tells the scheduler's refusal (no port free, no room) and the kubelet's (no image).
func pendingReason(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return describe(c.Reason, c.Message, "no node takes the pod")
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Waiting != nil {
			return describe(s.State.Waiting.Reason, s.State.Waiting.Message, "the container waits")
		}
	}
	return "the pod is starting"
}

func lastWords(s corev1.ContainerStatus) string {
	if t := s.LastTerminationState.Terminated; t != nil {
		return fmt.Sprintf("it last ended with code %d (%s)", t.ExitCode, t.Reason)
	}
	return s.State.Waiting.Message
}

func describe(reason, message, otherwise string) string {
	switch {
	case reason != "" && message != "":
		return reason + ": " + message
	case reason != "":
		return reason
	case message != "":
		return message
	default:
		return otherwise
	}
}

// translate gives an API server's error its kind. It is the one place that knows them, but for what refusal finds out
// about what is Forbidden.
func translate(op string, err error) error {
	if err == nil {
		return nil
	}
	var known *provider.Error
	if errors.As(err, &known) {
		return err
	}
	e := &provider.Error{Kind: provider.KindUnavailable, Op: op, Err: err}
	switch {
	case apierrors.IsNotFound(err):
		e.Kind = provider.KindNotFound
	case apierrors.IsAlreadyExists(err):
		e.Kind = provider.KindAlreadyExists
	case apierrors.IsTooManyRequests(err):
		e.Kind = provider.KindThrottled
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		e.Kind = provider.KindInvalidSpec
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		e.Kind = provider.KindUnauthorized
	}
	return e
}
