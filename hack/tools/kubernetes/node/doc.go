// Package node is what each node of a development cluster runs beside its kubelet, in place of a network plug-in's
// daemon and a storage provisioner: three small level-based jobs on the node's own credentials.
//
//   - network: the CNI configuration for the pod range that this node was given,
//   - routes: one kernel route per other node, and masquerading of what leaves the cluster,
//   - volumes: a directory and a PersistentVolume for each claim that the scheduler placed on this node.
//
// It runs before there is a network for pods, so it is a systemd unit of the node and no pod. The rights it needs
// beyond a kubelet's are in the node image's default-cni.yaml.
package node
