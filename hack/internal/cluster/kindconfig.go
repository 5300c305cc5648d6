package cluster

import (
	"strings"

	"sigs.k8s.io/yaml"
)

type object = map[string]any

// kindConfig describes a cluster to kind.
func kindConfig(group *Group, c *Cluster, cgroupV1 bool) ([]byte, error) {
	nodes := []object{{"role": "control-plane"}}
	for range c.Want - 1 {
		nodes = append(nodes, object{"role": "worker"})
	}
	kubelet := object{"kind": "KubeletConfiguration"}
	if cgroupV1 {
		kubelet["failCgroupV1"] = false // the default since 1.35 is to refuse
	}
	if ownImage(group.NodeImage) {
		kubelet["cgroupDriver"] = "cgroupfs" // ours gives runc the groups without systemd's help
	}
	patches := []object{
		{
			"kind": "ClusterConfiguration",
			// A development cluster is remade after a power cut, and has nobody to elect a leader from.
			"etcd":              object{"local": object{"extraArgs": object{"unsafe-no-fsync": "true"}}},
			"controllerManager": object{"extraArgs": object{"leader-elect": "false"}},
			"scheduler":         object{"extraArgs": object{"leader-elect": "false"}},
		},
		kubelet,
	}
	if c.Want > 1 {
		// Every node takes pods, as each is an exit, the control plane too. Where it is alone kind sees to that itself,
		// and fails if it need not.
		patches = append(patches, object{"kind": "InitConfiguration", "nodeRegistration": object{"taints": []any{}}})
	}
	var texts []string
	for _, patch := range patches {
		text, err := yaml.Marshal(patch)
		if err != nil {
			return nil, err
		}
		texts = append(texts, string(text))
	}
	return yaml.Marshal(object{
		"kind":       "Cluster",
		"apiVersion": "kind.x-k8s.io/v1alpha4",
		"name":       c.Name,
		"networking": object{
			"ipFamily":      "ipv4",
			"podSubnet":     c.Pods.String(),
			"serviceSubnet": c.Services.String(),
			"kubeProxyMode": "nftables",
		},
		"nodes":                nodes,
		"kubeadmConfigPatches": texts,
	})
}

// ownImage reports whether a node image is one that we built.
func ownImage(name string) bool { return strings.HasPrefix(name, "shoal.dev/") }
