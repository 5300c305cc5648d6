package identity

import (
	"os"
	"strings"
)

// PodNamespace returns the namespace of the pod that the program runs in, or "" outside of a pod.
func PodNamespace() string {
	data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
