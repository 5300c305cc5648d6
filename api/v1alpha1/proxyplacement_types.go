package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ProxyPlacement is the decision how many proxies of one fleet revision run on one member. It is written by the hub.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas
// +kubebuilder:resource:shortName=pp,categories=shoal
// +kubebuilder:printcolumn:name="Fleet",type=string,JSONPath=`.spec.fleet.name`
// +kubebuilder:printcolumn:name="Member",type=string,JSONPath=`.spec.member`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.spec.revision`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Draining",type=integer,JSONPath=`.status.draining`
// +kubebuilder:printcolumn:name="Synced",type=string,JSONPath=`.status.conditions[?(@.type=="Synced")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ProxyPlacement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the decision.
	// +required
	Spec ProxyPlacementSpec `json:"spec"`
	// status is what the member reports of it.
	// +optional
	Status ProxyPlacementStatus `json:"status,omitzero"`
}

// ProxyPlacementSpec is the decision how many proxies of one fleet revision run on one member.
// +kubebuilder:validation:XValidation:rule="has(self.template) != has(self.external)",message="a placement has exactly one of template and external"
// +kubebuilder:validation:XValidation:rule="self.member == oldSelf.member && self.fleet == oldSelf.fleet && self.revision == oldSelf.revision",message="member, fleet and revision of a placement never change; the hub makes another placement"
type ProxyPlacementSpec struct {
	// member is the MemberCluster's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Member string `json:"member"`
	// fleet is the ProxyFleet, in the same namespace.
	// +required
	Fleet FleetRef `json:"fleet"`
	// revision is the hash of the template, or RevisionExternal.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Revision string `json:"revision"`
	// template is what the proxies are made from.
	// +optional
	Template ProxyTemplate `json:"template,omitzero"`
	// external lists proxies that someone else runs, for the member to probe.
	// +optional
	External *PlacedExternal `json:"external,omitempty"`
	// replicas is how many proxies are wanted, not counting those in drain.
	// +required
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
	// drain lists proxies that must go, each at its deadline. It is written before anything is removed, so that a
	// restarted hub never picks others.
	// +optional
	// +kubebuilder:validation:MaxItems=100000
	// +listType=map
	// +listMapKey=name
	Drain []Drain `json:"drain,omitempty"`
}

// RevisionExternal is the revision of placements of proxies that someone else runs. They have no template, and change
// where they are.
const RevisionExternal = "external"

// Drain is a proxy that must go.
type Drain struct {
	// name is the Proxy's name on the member.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// deadline is when the proxy is removed, whatever leases it carries. A lease that ends early moves it to now.
	// +required
	Deadline metav1.Time `json:"deadline"`
}

// ProxyPlacementStatus is what a member reports of a placement.
type ProxyPlacementStatus struct {
	// observedGeneration is the generation of the spec that the member has confirmed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// replicas is how many proxies exist and are not draining.
	// +optional
	Replicas int32 `json:"replicas"`
	// ready is how many of them are ready.
	// +optional
	Ready int32 `json:"ready"`
	// draining is how many are on their way out.
	// +optional
	Draining int32 `json:"draining"`
	// conditions say how the placement fares, for people.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ProxyPlacementList is a list of ProxyPlacements.
//
// +kubebuilder:object:root=true
type ProxyPlacementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProxyPlacement `json:"items"`
}
