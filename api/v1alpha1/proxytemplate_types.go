package v1alpha1

// ProxyTemplate is what every proxy of a fleet is made from.
type ProxyTemplate struct {
	// metadata holds the labels that leases can select by.
	// +optional
	Metadata TemplateMetadata `json:"metadata,omitzero"`

	// spec describes the proxies.
	// +required
	Spec ProxyTemplateSpec `json:"spec"`
}

// TemplateMetadata is the part of an object's metadata that a template may set.
type TemplateMetadata struct {
	// labels are copied to every proxy.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('shoal.dev/'))",message="labels that begin with shoal.dev/ are set by Shoal itself; choose another prefix"
	Labels map[string]string `json:"labels,omitempty"`
}

// ProxyTemplateSpec describes the proxies of a fleet.
type ProxyTemplateSpec struct {
	// provider names an entry of each member's own provider file: pods in one member, virtual machines in another.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider"`

	ProxySettings `json:",inline"`
}

// ProxySettings is what a fleet's template and a Proxy say in the same words.
type ProxySettings struct {
	// placement narrows where within a member the proxy may run.
	// +optional
	Placement *InstancePlacement `json:"placement,omitempty"`

	// port is the port Squid listens on inside the instance.
	// +optional
	// +kubebuilder:default=3128
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// egress says where the proxy may connect to.
	// +optional
	// +kubebuilder:default={}
	Egress Egress `json:"egress,omitzero"`

	// cloudInit is the user's part of a virtual machine's first boot, beside ours. Pods ignore it.
	// +optional
	CloudInit *CloudInit `json:"cloudInit,omitempty"`

	// healthCheck says how often and how strictly the proxy is probed.
	// +optional
	// +kubebuilder:default={}
	HealthCheck HealthCheck `json:"healthCheck,omitzero"`
}

// InstancePlacement narrows where within a member an instance may run.
type InstancePlacement struct {
	// region is a region of the provider, for providers that span several.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// zone is a zone of the provider.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// nodeSelector chooses nodes by label, for providers that run pods.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
}

// Egress says where a proxy may connect to. Private, link-local, metadata and cluster addresses are refused whatever
// it says, but for what allowedCIDRs cuts out.
type Egress struct {
	// ports are the ports of plain HTTP requests.
	// +optional
	// +kubebuilder:default={80}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	// +listType=set
	Ports []int32 `json:"ports,omitempty"`
	// connectPorts are the ports of CONNECT requests.
	// +optional
	// +kubebuilder:default={443}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	// +listType=set
	ConnectPorts []int32 `json:"connectPorts,omitempty"`
	// allowedCIDRs are cut out of the private ranges that are refused by default. Metadata addresses and the member's
	// own ranges can never be allowed, and the member's owner may set a narrower ceiling.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c))",message="write each entry as a CIDR, for example 10.20.0.0/16, or 10.20.0.7/32 for one address"
	// +listType=set
	AllowedCIDRs []string `json:"allowedCIDRs,omitempty"`
}

// CloudInit is the user's part of a virtual machine's first boot.
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.secretRef), has(self.startupScript)].filter(x, x).size() == 1",message="set exactly one of inline, secretRef and startupScript"
type CloudInit struct {
	// inline is a cloud-config document.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Inline string `json:"inline,omitempty"`
	// secretRef names a key of a Secret in the agent's namespace that holds a cloud-config document.
	// +optional
	SecretRef *SecretKeyRef `json:"secretRef,omitempty"`
	// startupScript is run at every boot, for images without cloud-init.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	StartupScript string `json:"startupScript,omitempty"`
}

// SecretKeyRef names one key of a Secret.
type SecretKeyRef struct {
	// name is the Secret's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// key is the key within the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// HealthCheck says how often and how strictly a proxy is probed.
type HealthCheck struct {
	// interval is the time between two probes of one proxy.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="write an interval between 1s and 1h"
	Interval Duration `json:"interval,omitzero"`
	// timeout bounds one probe from dial to the last byte. A proxy itself waits 10s for a target, so that with less than
	// 12s a target that does not answer looks like a proxy that is stuck.
	// +optional
	// +kubebuilder:default="15s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1m')",message="write a timeout between 100ms and 1m"
	Timeout Duration `json:"timeout,omitzero"`
	// failureThreshold is how many failures in a row that are the proxy's own make it unhealthy.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
	// successThreshold is how many successes in a row make an unhealthy proxy healthy again.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SuccessThreshold int32 `json:"successThreshold,omitempty"`
}
