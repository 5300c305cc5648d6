package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"strconv"
)

// ExternalProxies lists proxies that someone else runs.
type ExternalProxies struct {
	// endpoints are the proxies. Each is probed by one member at a time.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +listType=map
	// +listMapKey=host
	// +listMapKey=port
	Endpoints []ExternalEndpoint `json:"endpoints"`

	// credentialsSecretRef names a Secret with the owner's credentials, for every endpoint that names none of its own.
	// Unset means that the proxies ask for none.
	// +optional
	CredentialsSecretRef *CredentialsSecretRef `json:"credentialsSecretRef,omitempty"`

	// labels are what leases can select by, on every endpoint.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('shoal.dev/'))",message="labels that begin with shoal.dev/ are set by Shoal itself; choose another prefix"
	Labels map[string]string `json:"labels,omitempty"`

	// healthCheck says how often and how strictly the proxies are probed.
	// +optional
	// +kubebuilder:default={}
	HealthCheck HealthCheck `json:"healthCheck,omitzero"`
}

// ExternalEndpoint is a proxy that someone else runs. It speaks HTTP: a crawler reaches it as http://host:port.
type ExternalEndpoint struct {
	// host is a DNS name in lower case or an IP address, as crawlers and the member that probes reach it. The member's
	// owner decides which private addresses may be named; the member's own ranges and metadata addresses never may.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9.]+$') || self.contains(':') ? isIP(self) && ip.isCanonical(self) : self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="write a DNS name in lower case, or an IP address in its shortest form and without brackets"
	Host string `json:"host"`
	// port is the proxy's port.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// region is where the proxy is, for leases. Unset means the region of the member that probes it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// country is the ISO 3166 code of the country the proxy leaves from, for leases. Unset means that of the member that
	// probes it.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Z]{2}$`
	Country string `json:"country,omitempty"`
	// labels are what leases can select by, beside those of all endpoints, which they override.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`

	// credentialsSecretRef names a Secret with the credentials of this proxy.
	// +optional
	CredentialsSecretRef *CredentialsSecretRef `json:"credentialsSecretRef,omitempty"`
}

// CredentialsSecretRef names a Secret in the fleet's namespace that holds the keys username and password.
type CredentialsSecretRef struct {
	// name is the Secret's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// The keys of a Secret that a CredentialsSecretRef names.
const (
	// CredentialsUsernameKey holds the user name. It is not empty and has no colon.
	CredentialsUsernameKey = "username"
	// CredentialsPasswordKey holds the password, which may have any characters but control characters.
	CredentialsPasswordKey = "password"
)

// SecretNames are the Secrets that the endpoints name, once each, in the order of their first use.
func (e *ExternalProxies) SecretNames() []string {
	var names []string
	seen := map[string]bool{}
	for i := range e.Endpoints {
		if name := e.SecretOf(&e.Endpoints[i]); name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// SecretOf is the name of the Secret with an endpoint's credentials; empty for a proxy that asks for none.
func (e *ExternalProxies) SecretOf(endpoint *ExternalEndpoint) string {
	switch {
	case endpoint.CredentialsSecretRef != nil:
		return endpoint.CredentialsSecretRef.Name
	case e.CredentialsSecretRef != nil:
		return e.CredentialsSecretRef.Name
	}
	return ""
}

// Name is what the endpoint is called among those of a placement: a hash of where it is, so that it never changes. A
// member calls its Proxy by its ProxySet's name and this.
func (e *ExternalEndpoint) Name() string {
	sum := sha256.Sum256([]byte(e.Address()))
	return "x" + hex.EncodeToString(sum[:6])
}

// Address is host:port.
func (e *ExternalEndpoint) Address() string {
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// PlacedExternal is a placement's part of a fleet of proxies that someone else runs.
type PlacedExternal struct {
	// endpoints are the proxies, those in drain too, in order of name.
	// +optional
	// +kubebuilder:validation:MaxItems=2000
	// +listType=map
	// +listMapKey=name
	Endpoints []PlacedEndpoint `json:"endpoints,omitempty"`
	// healthCheck says how often and how strictly they are probed.
	// +optional
	// +kubebuilder:default={}
	HealthCheck HealthCheck `json:"healthCheck,omitzero"`
}

// PlacedEndpoint is a proxy that someone else runs, on the member that probes it.
type PlacedEndpoint struct {
	// name is derived from host and port.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// host is a name or an address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host"`
	// port is the proxy's port.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// region is where the proxy is. Unset means where its member is.
	// +optional
	Region string `json:"region,omitempty"`
	// country is the country the proxy leaves from. Unset means its member's.
	// +optional
	Country string `json:"country,omitempty"`
	// labels are what leases can select by.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// credentials names the version of the credentials that the proxy takes; empty if it asks for none. What they are is
	// in no object of the hub but the owner's Secret.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Credentials string `json:"credentials,omitempty"`
}

// SetExternal is a member's copy of a PlacedExternal.
type SetExternal struct {
	// endpoints are the proxies, those in drain too.
	// +optional
	// +listType=map
	// +listMapKey=name
	Endpoints []SetEndpoint `json:"endpoints,omitempty"`
	// healthCheck says how often and how strictly they are probed.
	// +optional
	// +kubebuilder:default={}
	HealthCheck HealthCheck `json:"healthCheck,omitzero"`
}

// SetEndpoint is what a member has to know of a proxy that someone else runs.
type SetEndpoint struct {
	// name is the last part of the Proxy's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// host is a name or an address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host"`
	// port is the proxy's port.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// credentials is the key of the credentials in the set's Secret; empty if the proxy asks for none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Credentials string `json:"credentials,omitempty"`
}

// ProxyEndpoint is where a proxy that someone else runs is reached.
type ProxyEndpoint struct {
	// host is a name or an address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host"`
	// port is the proxy's port.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// credentialsSecretRef names a key of a Secret in the agent's namespace whose value is user name, colon, password.
	// Unset means that the proxy asks for none. New credentials are another key.
	// +optional
	CredentialsSecretRef *SecretKeyRef `json:"credentialsSecretRef,omitempty"`
}

// CredentialsSecretName is the name of the Secret beside a ProxySet that holds what its endpoints name as credentials.
func CredentialsSecretName(proxySet string) string { return "shoal-credentials-" + proxySet }
