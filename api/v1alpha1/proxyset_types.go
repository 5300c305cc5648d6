package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ProxySet is a member's copy of one ProxyPlacement, so that its agent works through any outage of the hub. It names
// its fleet by UID only: a tenant's names never reach a member.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas
// +kubebuilder:resource:shortName=ps,categories=shoal
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.spec.revision`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.template.spec.provider`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Draining",type=integer,JSONPath=`.status.draining`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ProxySet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the hub's decision.
	// +required
	Spec ProxySetSpec `json:"spec"`
	// status is what is there.
	// +optional
	Status ProxySetStatus `json:"status,omitzero"`
}

// ProxySetSpec is the hub's decision, in the form it travels to the member.
// +kubebuilder:validation:XValidation:rule="has(self.template) != has(self.external)",message="set exactly one of template and external"
type ProxySetSpec struct {
	// placementUID is the UID of the ProxyPlacement on the hub.
	// +required
	PlacementUID types.UID `json:"placementUID"`
	// placementGeneration is the generation of the ProxyPlacement that this spec is a copy of.
	// +optional
	PlacementGeneration int64 `json:"placementGeneration,omitempty"`
	// fleetUID is the UID of the ProxyFleet on the hub.
	// +required
	FleetUID types.UID `json:"fleetUID"`
	// revision is the hash of the template, or RevisionExternal.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Revision string `json:"revision"`
	// template is what the proxies are made from.
	// +optional
	Template ProxyTemplate `json:"template,omitzero"`
	// external lists proxies that someone else runs. There is one Proxy for each; replicas counts those not in drain.
	// +optional
	External *SetExternal `json:"external,omitempty"`
	// replicas is how many proxies are wanted, not counting those in drain.
	// +required
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
	// drain lists proxies that must go, each at its deadline.
	// +optional
	// +listType=map
	// +listMapKey=name
	Drain []Drain `json:"drain,omitempty"`
}

// ProxySetStatus is what is there.
type ProxySetStatus struct {
	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// placementGeneration is the generation of the ProxyPlacement that has been acted on.
	// +optional
	PlacementGeneration int64 `json:"placementGeneration,omitempty"`
	// replicas is how many proxies exist and are not draining.
	// +optional
	Replicas int32 `json:"replicas"`
	// ready is how many of them are ready.
	// +optional
	Ready int32 `json:"ready"`
	// draining is how many are on their way out.
	// +optional
	Draining int32 `json:"draining"`
	// conditions say how the set fares, for people.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ProxySetList is a list of ProxySets.
//
// +kubebuilder:object:root=true
type ProxySetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProxySet `json:"items"`
}
