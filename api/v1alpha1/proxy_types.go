package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Proxy is one proxy of a member.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=px,categories=shoal
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name="Exit",type=string,JSONPath=`.status.exits[0]`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="Healthy")].status`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Instance",type=string,JSONPath=`.status.providerID`,priority=1
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.status.attempt.zone`,priority=1
// +kubebuilder:printcolumn:name="Attempt",type=integer,JSONPath=`.status.attempt.number`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Proxy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is asked for.
	// +required
	Spec ProxySpec `json:"spec"`
	// status is what is there.
	// +optional
	Status ProxyStatus `json:"status,omitzero"`
}

// ProxyMode says who runs a proxy's instance.
// +kubebuilder:validation:Enum=Managed;External
type ProxyMode string

// The modes of a proxy.
const (
	// ModeManaged means that a provider makes and removes the instance.
	ModeManaged ProxyMode = "Managed"
	// ModeExternal means that someone else runs the instance.
	ModeExternal ProxyMode = "External"
)

// ProxySpec is what is asked for.
// +kubebuilder:validation:XValidation:rule="self.mode == oldSelf.mode",message="mode never changes; make another Proxy"
// +kubebuilder:validation:XValidation:rule="has(self.provider) == has(oldSelf.provider) && (!has(self.provider) || self.provider == oldSelf.provider)",message="provider never changes; make another Proxy"
// +kubebuilder:validation:XValidation:rule="has(self.provider) == (self.mode == 'Managed')",message="set provider with mode Managed, and only then"
// +kubebuilder:validation:XValidation:rule="has(self.endpoint) == (self.mode == 'External')",message="set endpoint with mode External, and only then"
// +kubebuilder:validation:XValidation:rule="!has(self.endpoint) || !has(oldSelf.endpoint) || (self.endpoint.host == oldSelf.endpoint.host && self.endpoint.port == oldSelf.endpoint.port)",message="host and port of an endpoint never change; make another Proxy"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.drain) || has(self.drain)",message="draining is one-way: drain can be moved, not taken back"
type ProxySpec struct {
	// mode says who runs the instance.
	// +optional
	// +kubebuilder:default=Managed
	Mode ProxyMode `json:"mode,omitempty"`
	// provider names an entry of the agent's provider file.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider,omitempty"`
	// endpoint is where a proxy that someone else runs is reached.
	// +optional
	Endpoint *ProxyEndpoint `json:"endpoint,omitempty"`

	ProxySettings `json:",inline"`

	// drain says that the proxy must go, and when.
	// +optional
	Drain *DrainSpec `json:"drain,omitempty"`
}

// DrainSpec says when a proxy must go.
type DrainSpec struct {
	// deadline is when the proxy is removed.
	// +required
	Deadline metav1.Time `json:"deadline"`
}

// ProxyPhase sums up a proxy's conditions.
// +kubebuilder:validation:Enum=Pending;Provisioning;Ready;Unhealthy;Draining;Deleting;Failed
type ProxyPhase string

// The phases of a proxy.
const (
	// PhasePending means that nothing has been asked of a provider yet.
	PhasePending ProxyPhase = "Pending"
	// PhaseProvisioning means that the instance is being made, or has not proved itself yet.
	PhaseProvisioning ProxyPhase = "Provisioning"
	// PhaseReady means that probes through the proxy succeed.
	PhaseReady ProxyPhase = "Ready"
	// PhaseUnhealthy means that they did and no longer do.
	PhaseUnhealthy ProxyPhase = "Unhealthy"
	// PhaseDraining means that the proxy is on its way out.
	PhaseDraining ProxyPhase = "Draining"
	// PhaseDeleting means that the instance is being removed.
	PhaseDeleting ProxyPhase = "Deleting"
	// PhaseFailed means that the instance can never be made from this spec. It stands until the spec or the provider's entry
	// changes, a slow retry comes due, or somebody sets AnnotationRetry.
	PhaseFailed ProxyPhase = "Failed"
)

// Network names the network that an endpoint is reached on.
// +kubebuilder:validation:Enum=PodIP;HostPort;VM;External
type Network string

// The networks.
const (
	// NetworkPodIP is reached by whoever routes to the member's pods.
	NetworkPodIP Network = "PodIP"
	// NetworkHostPort is reached by whoever routes to the member's nodes.
	NetworkHostPort Network = "HostPort"
	// NetworkVM is reached by whoever routes to the virtual machine.
	NetworkVM Network = "VM"
	// NetworkExternal is wherever someone else's proxy is reached.
	NetworkExternal Network = "External"
)

// Endpoint is where a proxy is reached.
type Endpoint struct {
	// network is the network the endpoint is on.
	// +required
	Network Network `json:"network"`
	// host is an address.
	// +required
	Host string `json:"host"`
	// port is a port.
	// +required
	Port int32 `json:"port"`
	// tls says whether the proxy itself speaks TLS.
	// +optional
	TLS bool `json:"tls,omitempty"`
}

// ProbeSummary is the last verdict of the probes.
type ProbeSummary struct {
	// class is the class of the last result, for example OK or PROXY_DOWN.
	// +optional
	Class string `json:"class,omitempty"`
	// since is when the verdict last changed.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// AttemptState says how far an attempt at an instance has come.
// +kubebuilder:validation:Enum=Planned;Accepted;Ended
type AttemptState string

// The states of an attempt.
const (
	// AttemptPlanned means that the attempt is written down. The provider may have been asked or not.
	AttemptPlanned AttemptState = "Planned"
	// AttemptAccepted means that the provider took the request, or that the instance was seen.
	AttemptAccepted AttemptState = "Accepted"
	// AttemptEnded means that nothing of the attempt is left, and that nothing will come of it.
	AttemptEnded AttemptState = "Ended"
)

// Attempt is one attempt at making an instance. It is written down before the provider is asked, so that whoever leads the
// proxy next knows what there can be, and where. There is never another attempt before this one has ended.
type Attempt struct {
	// number counts the attempts of this proxy, from 1.
	// +required
	Number int64 `json:"number"`
	// state says how far the attempt has come.
	// +required
	State AttemptState `json:"state"`
	// requestID is the UUID that the provider is asked with, however often it has to be asked.
	// +required
	RequestID string `json:"requestID"`
	// zone is where the instance is asked for; empty where the provider is not zoned.
	// +optional
	Zone string `json:"zone,omitempty"`
	// operation is what the provider calls the work of making the instance, where it said so.
	// +optional
	Operation string `json:"operation,omitempty"`
	// startedAt is when the attempt was written down.
	// +required
	StartedAt metav1.Time `json:"startedAt"`
	// acceptedAt is when the provider took the request, or when the instance was first seen.
	// +optional
	AcceptedAt *metav1.Time `json:"acceptedAt,omitempty"`
	// readyAt is when the proxy was first ready on this instance.
	// +optional
	ReadyAt *metav1.Time `json:"readyAt,omitempty"`
}

// Setback is the last thing that went wrong with a proxy's instances. It is kept until an instance has lasted.
type Setback struct {
	// attempt is the number of the attempt that it happened to.
	// +required
	Attempt int64 `json:"attempt"`
	// reason is a word for it: a provider's kind of error, InstanceLost or InstanceFailed.
	// +required
	Reason string `json:"reason"`
	// message says what happened, for people.
	// +optional
	Message string `json:"message,omitempty"`
	// count is how often something has gone wrong without an instance that lasted in between.
	// +required
	Count int32 `json:"count"`
	// time is when it happened.
	// +required
	Time metav1.Time `json:"time"`
	// retryAt is when the provider is asked again.
	// +required
	RetryAt metav1.Time `json:"retryAt"`
	// scope is what else it holds for, where the provider said so: other proxies wait with this one then.
	// +optional
	Scope string `json:"scope,omitempty"`
}

// ProxyStatus is what is there. It is written on transitions only.
type ProxyStatus struct {
	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase sums up the conditions.
	// +optional
	Phase ProxyPhase `json:"phase,omitempty"`
	// instanceName is the name of the instance, written before it is made.
	// +optional
	InstanceName string `json:"instanceName,omitempty"`
	// providerID names the instance to its provider and needs nothing beside it.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// specHash is the hash of the spec the instance was made from.
	// +optional
	SpecHash string `json:"specHash,omitempty"`
	// hostPort is the port kept for the proxy on the member's nodes, where it is exposed that way.
	// +optional
	HostPort int32 `json:"hostPort,omitempty"`
	// attempt is the last attempt at an instance, written before the provider is asked.
	// +optional
	Attempt *Attempt `json:"attempt,omitempty"`
	// setback is the last thing that went wrong with the instances.
	// +optional
	Setback *Setback `json:"setback,omitempty"`
	// handledRetry is the value of the annotation shoal.dev/retry that was last acted on.
	// +optional
	HandledRetry string `json:"handledRetry,omitempty"`
	// address is the first endpoint in a form for people.
	// +optional
	Address string `json:"address,omitempty"`
	// endpoints are where the proxy is reached.
	// +optional
	// +listType=atomic
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	// exits are the addresses the proxy was seen to leave by.
	// +optional
	// +listType=set
	Exits []string `json:"exits,omitempty"`
	// probe is the last verdict of the probes.
	// +optional
	Probe ProbeSummary `json:"probe,omitzero"`
	// conditions say how the proxy fares, for people.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ProxyList is a list of Proxies.
//
// +kubebuilder:object:root=true
type ProxyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Proxy `json:"items"`
}
