package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MemberCluster is a cluster, or a region of a cloud, that hosts proxies.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=mc,categories=shoal
// +kubebuilder:printcolumn:name="Accepted",type=boolean,JSONPath=`.spec.accepted`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.spec.region`
// +kubebuilder:printcolumn:name="Proxies",type=integer,JSONPath=`.status.proxies`
// +kubebuilder:printcolumn:name="Heartbeat",type=date,JSONPath=`.status.lastHeartbeat`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.agentVersion`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="choose a name of 63 characters or fewer: it becomes the value of a label"
type MemberCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the hub's operators decide about the member.
	// +optional
	// +kubebuilder:default={}
	Spec MemberClusterSpec `json:"spec,omitzero"`
	// status is what the hub has seen of the member.
	// +optional
	Status MemberClusterStatus `json:"status,omitzero"`
}

// DeletionPolicy says what happens to a member's proxies when its MemberCluster is deleted.
// +kubebuilder:validation:Enum=Drain;Orphan;Force
type DeletionPolicy string

// The deletion policies.
const (
	// DeletionDrain drains the member's proxies first.
	DeletionDrain DeletionPolicy = "Drain"
	// DeletionOrphan leaves them running.
	DeletionOrphan DeletionPolicy = "Orphan"
	// DeletionForce forgets the member at once.
	DeletionForce DeletionPolicy = "Force"
)

// MemberClusterSpec is what the hub's operators decide about a member.
type MemberClusterSpec struct {
	// accepted lets the agent named by agentRef speak for the member.
	// +optional
	// +kubebuilder:default=false
	Accepted bool `json:"accepted"`
	// agentRef names the agent that may speak for the member. It is set when an agent first registers.
	// +optional
	AgentRef *AgentRef `json:"agentRef,omitempty"`
	// region is where the member is, for placement and leases.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// country is the ISO 3166 code of the country the member leaves from.
	// +optional
	// +kubebuilder:validation:Pattern=`^([A-Z]{2})?$`
	Country string `json:"country,omitempty"`
	// taints keep fleets away that do not tolerate them.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Taints []MemberTaint `json:"taints,omitempty"`
	// deletionPolicy says what happens to the member's proxies when this object is deleted.
	// +optional
	// +kubebuilder:default=Drain
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// AgentRef names an agent.
type AgentRef struct {
	// name is the agent's name, as in its certificate.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
}

// MemberTaint keeps fleets away from a member that do not tolerate it.
type MemberTaint struct {
	// key names the taint.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
	// value qualifies the taint.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`
}

// MemberIdentity is what makes a member the one it is, whatever its name: a cluster is told by clusterUID and namespace, a
// region of a cloud by project and region. The first two then say where its objects are kept.
type MemberIdentity struct {
	// clusterUID is the UID of the cluster's kube-system namespace.
	// +optional
	ClusterUID string `json:"clusterUID,omitempty"`
	// namespace is the namespace the agent keeps the member's objects in.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// project is the project that a region's machines are made in; empty for a cluster.
	// +optional
	Project string `json:"project,omitempty"`
	// region is the region of the cloud; empty for a cluster.
	// +optional
	Region string `json:"region,omitempty"`
}

// MemberClusterStatus is what the hub has seen of a member.
type MemberClusterStatus struct {
	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// identity is bound when the member is first accepted.
	// +optional
	Identity *MemberIdentity `json:"identity,omitempty"`
	// lastHeartbeat is when the member was last heard, by the hub's clock.
	// +optional
	LastHeartbeat *metav1.Time `json:"lastHeartbeat,omitempty"`
	// lostSince is when the member was first missed, by the hub's clock. It survives a restart of the hub.
	// +optional
	LostSince *metav1.Time `json:"lostSince,omitempty"`
	// agentVersion is the version of the agent.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`
	// providers are the provider entries the member offers.
	// +optional
	// +listType=set
	Providers []string `json:"providers,omitempty"`
	// networks are the networks the member exposes proxies on.
	// +optional
	// +listType=set
	Networks []string `json:"networks,omitempty"`
	// proxies is how many proxies the member reports.
	// +optional
	Proxies int32 `json:"proxies"`
	// ready is how many of them are ready.
	// +optional
	Ready int32 `json:"ready"`
	// conditions say how the member fares, for people.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MemberClusterList is a list of MemberClusters.
//
// +kubebuilder:object:root=true
type MemberClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MemberCluster `json:"items"`
}
