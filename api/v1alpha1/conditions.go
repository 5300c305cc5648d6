package v1alpha1

// Condition types. Each is written by one controller only.
const (
	// ConditionAccepted says whether a ProxyFleet or ProxySet can be served as written.
	ConditionAccepted = "Accepted"
	// ConditionAvailable says whether a fleet has as many ready proxies as its update policy allows it to miss.
	ConditionAvailable = "Available"
	// ConditionProgressing says whether a fleet is still on its way to what its spec asks for.
	ConditionProgressing = "Progressing"
	// ConditionExitsShared says whether proxies of a fleet leave by the same address.
	ConditionExitsShared = "ExitsShared"
	// ConditionDegraded says whether a fleet or a member needs somebody's attention.
	ConditionDegraded = "Degraded"

	// ConditionJoined says whether an agent has been allowed to speak for a member.
	ConditionJoined = "Joined"
	// ConditionReady says whether a member's agent is heard, or a proxy has proved itself by a probe.
	ConditionReady = "Ready"
	// ConditionSynced says whether a member has confirmed all of its desired state.
	ConditionSynced = "Synced"

	// ConditionProvisioned says whether a proxy's instance exists and has an endpoint.
	ConditionProvisioned = "Provisioned"
	// ConditionHealthy is the verdict of the probes through a proxy.
	ConditionHealthy = "Healthy"
	// ConditionSaturated says whether a proxy is ready but too busy to be leased.
	ConditionSaturated = "Saturated"
	// ConditionDraining says whether a proxy is on its way out. It never turns back.
	ConditionDraining = "Draining"
)

// Condition reasons.
const (
	// ReasonAccepted means that nothing stands against the spec.
	ReasonAccepted = "Accepted"
	// ReasonUnknownProvider means that no member offers the provider that is named.
	ReasonUnknownProvider = "UnknownProvider"
	// ReasonNoMembers means that no member fits the placement.
	ReasonNoMembers = "NoMembers"
	// ReasonCredentialsUnreadable means that the hub may not read Secrets in the fleet's namespace.
	ReasonCredentialsUnreadable = "CredentialsUnreadable"
	// ReasonCredentialsMissing means that a Secret with credentials is not there, or lacks a key.
	ReasonCredentialsMissing = "CredentialsMissing"
	// ReasonCredentialsInvalid means that credentials cannot be sent to any proxy as they are written.
	ReasonCredentialsInvalid = "CredentialsInvalid"
	// ReasonPaused means that the fleet's spec asks for no changes.
	ReasonPaused = "Paused"
	// ReasonUnknownField means that the sender of a spec knows a field that the receiver does not.
	ReasonUnknownField = "UnknownField"
	// ReasonAboveCeiling means that the cluster owner's policy does not allow what the spec asks for.
	ReasonAboveCeiling = "AboveCeiling"

	// ReasonAllReady means that every wanted proxy is ready.
	ReasonAllReady = "AllReady"
	// ReasonMinimumUnavailable means that more proxies are missing than maxUnavailable allows.
	ReasonMinimumUnavailable = "MinimumUnavailable"
	// ReasonMinimumAvailable means that some proxies are missing, within maxUnavailable.
	ReasonMinimumAvailable = "MinimumAvailable"
	// ReasonScaledToZero means that the fleet asks for no proxies.
	ReasonScaledToZero = "ScaledToZero"

	// ReasonComplete means that everything is as the spec asks.
	ReasonComplete = "Complete"
	// ReasonScaling means that proxies are being added or removed.
	ReasonScaling = "Scaling"
	// ReasonRollingOut means that proxies of an older revision are being replaced.
	ReasonRollingOut = "RollingOut"
	// ReasonWaitingForInventory means that nothing is changed before the expected members have reported.
	ReasonWaitingForInventory = "WaitingForInventory"
	// ReasonUnplaceable means that some replicas fit no member.
	ReasonUnplaceable = "Unplaceable"
	// ReasonDeleting means that the object is being deleted.
	ReasonDeleting = "Deleting"

	// ReasonAsExpected means that nothing needs attention.
	ReasonAsExpected = "AsExpected"
	// ReasonForeignProxy means that a member reported what belongs to another.
	ReasonForeignProxy = "ForeignProxy"
	// ReasonVerdictsFrozen: so many probes fail together that no proxy of the member is judged unhealthy by them.
	ReasonVerdictsFrozen = "VerdictsFrozen"

	// ReasonNodeSNAT means that proxies on one node leave by the node's address.
	ReasonNodeSNAT = "NodeSNAT"
	// ReasonSharedOutside means that proxies that someone else runs leave by the same address.
	ReasonSharedOutside = "SharedByOwner"
	// ReasonDistinct means that each proxy leaves by an address of its own.
	ReasonDistinct = "Distinct"
	// ReasonNoExits means that no exit has been measured yet.
	ReasonNoExits = "NoExits"

	// ReasonJoined means that the agent named by agentRef may speak for the member.
	ReasonJoined = "Joined"
	// ReasonNotAccepted means that spec.accepted is not true.
	ReasonNotAccepted = "NotAccepted"
	// ReasonNotRegistered means that no agent has registered for the member.
	ReasonNotRegistered = "NotRegistered"
	// ReasonHeard means that the member's heartbeats arrive.
	ReasonHeard = "Heard"
	// ReasonNeverHeard means that the member has not connected since the hub started.
	ReasonNeverHeard = "NeverHeard"
	// ReasonSuspect means that heartbeats are missing: nothing new is leased there.
	ReasonSuspect = "Suspect"
	// ReasonUnreachable means that heartbeats have been missing for long.
	ReasonUnreachable = "Unreachable"
	// ReasonDuplicateAgent means that two live agents speak for one member.
	ReasonDuplicateAgent = "DuplicateAgent"
	// ReasonSyncing means that the member is still confirming its desired state.
	ReasonSyncing = "Syncing"
	// ReasonSynced means that the member has confirmed its desired state.
	ReasonSynced = "Synced"

	// ReasonProvisioning means that the instance is being made.
	ReasonProvisioning = "Provisioning"
	// ReasonProvisioned means that the instance exists and has an endpoint.
	ReasonProvisioned = "Provisioned"
	// ReasonProviderError means that the provider answered with an error that may pass.
	ReasonProviderError = "ProviderError"
	// ReasonInvalidSpec means that the provider can never make this instance.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonQuotaExceeded means that the owner's quota is used up; the message says whose and until when nothing is asked for.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonCapacityExhausted means that the provider has no room where the instance may be.
	ReasonCapacityExhausted = "CapacityExhausted"
	// ReasonThrottled means that the provider wants fewer requests.
	ReasonThrottled = "Throttled"
	// ReasonBackingOff means that the last instance did not last, and that the next one waits.
	ReasonBackingOff = "BackingOff"
	// ReasonNeverReady means that there is an instance on which the proxy has not become ready in time.
	ReasonNeverReady = "NeverReady"
	// ReasonInstanceLost means that somebody else removed the instance.
	ReasonInstanceLost = "InstanceLost"
	// ReasonInstanceFailed means that the instance ended and never runs again.
	ReasonInstanceFailed = "InstanceFailed"
	// ReasonExternal means that someone else runs the instance.
	ReasonExternal = "External"
	// ReasonProbing means that no verdict has been reached yet.
	ReasonProbing = "Probing"
	// ReasonProbesPass means that probes through the proxy succeed.
	ReasonProbesPass = "ProbesPass"
	// ReasonProbesFail means that probes through the proxy fail; the message says how.
	ReasonProbesFail = "ProbesFail"
	// ReasonNotProvisioned means that there is no instance yet.
	ReasonNotProvisioned = "NotProvisioned"
	// ReasonDraining means that the proxy is on its way out.
	ReasonDraining = "Draining"
	// ReasonPreempted means that the provider takes the instance back.
	ReasonPreempted = "Preempted"
	// ReasonNotDraining means that the proxy is wanted.
	ReasonNotDraining = "NotDraining"
	// ReasonNotSaturated means that the proxy has room.
	ReasonNotSaturated = "NotSaturated"
)
