package v1alpha1

// Labels and annotations of Shoal. A label whose value is a name of the hub stays on the hub: a member sees UIDs only,
// and its own name.
const (
	// LabelPrefix begins the labels and annotations that Shoal sets itself.
	LabelPrefix = "shoal.dev/"
	// LabelFleet names the ProxyFleet that a ProxyPlacement belongs to.
	LabelFleet = "shoal.dev/fleet"
	// LabelMember names the MemberCluster that a ProxyPlacement is for, and on a member's ProxySets and Proxies the member
	// they are of: several members of one agent may keep theirs in one namespace.
	LabelMember = "shoal.dev/member"
	// LabelRevision is the revision of a fleet's template, as in ProxyPlacementSpec.Revision.
	LabelRevision = "shoal.dev/revision"
	// LabelFleetUID is the UID of the ProxyFleet, on the member's objects.
	LabelFleetUID = "shoal.dev/fleet-uid"
	// LabelPlacementUID is the UID of the ProxyPlacement, on the member's objects.
	LabelPlacementUID = "shoal.dev/placement-uid"
	// LabelProxySet names the ProxySet that owns a Proxy.
	LabelProxySet = "shoal.dev/proxy-set"
	// LabelProxyUID is the UID of the Proxy, on everything a provider made for it.
	LabelProxyUID = "shoal.dev/proxy-uid"
	// LabelHubUID is the UID of the hub, on everything a provider made at its wish.
	LabelHubUID = "shoal.dev/hub-uid"
	// LabelMemberUID is the UID of the member, on everything a provider made in it.
	LabelMemberUID = "shoal.dev/member-uid"
	// LabelBusy marks a pod whose proxy is leased, with BusyTrue; without it the proxy is idle. The chart's
	// PodDisruptionBudget selects by it.
	LabelBusy = "shoal.dev/busy"
	// LabelManagedBy is Kubernetes' own label; its value on our objects is ManagedBy.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelComponent says which kind of Secret or ConfigMap of ours an object is (ComponentAPIToken and its kin).
	LabelComponent = "shoal.dev/component"

	// AnnotationSpecHash is the hash of the spec an instance was made from; another hash means another instance.
	AnnotationSpecHash = "shoal.dev/spec-hash"
	// AnnotationHomeClusterUID is the UID of the cluster that the agent keeps its objects in, on everything a provider
	// made.
	AnnotationHomeClusterUID = "shoal.dev/home-cluster-uid"
	// AnnotationRetry asks, on a Proxy, to try again now what has failed. Any value that was not there before does; `shoalctl
	// proxy retry` writes the time.
	AnnotationRetry = "shoal.dev/retry"
	// AnnotationUnknownFields holds, on a ProxySet, what the hub asked for and the agent does not know.
	AnnotationUnknownFields = "shoal.dev/unknown-fields"

	// BusyTrue is the value of LabelBusy.
	BusyTrue = "true"

	// ManagedBy is the value of LabelManagedBy on objects an agent made.
	ManagedBy = "shoal-agent"

	// ComponentAPIToken marks a Secret that holds the hash of a crawler's API token.
	ComponentAPIToken = "api-token"
	// ComponentJoinToken marks a Secret that holds the hash of a member's join token.
	ComponentJoinToken = "join-token"
	// ComponentCredentials marks a Secret of a member that holds credentials of proxies that someone else runs.
	ComponentCredentials = "credentials"
	// ComponentKubeconfig marks a Secret that holds the kubeconfig of a cluster that its agent serves beside its own.
	ComponentKubeconfig = "kubeconfig"
	// ComponentIdentity marks the Secret that holds the hub's UID and keys.
	ComponentIdentity = "identity"

	// FinalizerFleet holds a ProxyFleet until its placements are gone.
	FinalizerFleet = "shoal.dev/fleet"
	// FinalizerMember holds a MemberCluster until its proxies are drained, if its deletionPolicy says so.
	FinalizerMember = "shoal.dev/member"
	// FinalizerPlacement holds a ProxyPlacement until its member has confirmed that nothing of it is left.
	FinalizerPlacement = "shoal.dev/placement"
	// FinalizerProxy holds a Proxy until its instance is gone. It is set before the first call to a provider.
	FinalizerProxy = "shoal.dev/instance"
)
