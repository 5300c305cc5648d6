// Package v1alpha1 holds the API of Shoal: what a platform team writes on the hub and what an agent keeps on a member.
//
// Hub kinds: [ProxyFleet], [MemberCluster], [ProxyPlacement]. Member kinds: [ProxySet], [Proxy]. The two sets are
// disjoint, and each is installed by its own chart, so that one cluster can be hub and member.
//
// The package holds types, the words that travel in labels and conditions, and nothing that acts. It may import
// k8s.io/api and k8s.io/apimachinery only: everything else imports it.
//
// +kubebuilder:object:generate=true
// +groupName=shoal.dev
package v1alpha1
