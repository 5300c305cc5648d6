package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ProxyFleet asks for a number of proxies, spread over member clusters and leased to crawlers. Its namespace is the
// tenant.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=pf,categories=shoal
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Leased",type=string,JSONPath=`.status.leases`
// +kubebuilder:printcolumn:name="Draining",type=integer,JSONPath=`.status.draining`
// +kubebuilder:printcolumn:name="Exits",type=integer,JSONPath=`.status.exits`
// +kubebuilder:printcolumn:name="Members",type=integer,JSONPath=`.status.memberCount`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].reason`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="choose a name of 63 characters or fewer: it becomes the value of a label"
type ProxyFleet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is asked for.
	// +required
	Spec ProxyFleetSpec `json:"spec"`
	// status is what is there.
	// +optional
	Status ProxyFleetStatus `json:"status,omitzero"`
}

// ProxyFleetSpec is what is asked for.
// +kubebuilder:validation:XValidation:rule="has(self.template) != has(self.external)",message="set exactly one of template (proxies Shoal makes) and external (proxies someone else runs)"
// +kubebuilder:validation:XValidation:rule="!has(self.external) || !has(self.replicas)",message="leave replicas out with external: the endpoints that are listed are the fleet"
type ProxyFleetSpec struct {
	// replicas is how many proxies are wanted. Unset means 1, with a template.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Replicas *int32 `json:"replicas,omitempty"`

	// template is what the proxies are made from.
	// +optional
	Template *ProxyTemplate `json:"template,omitempty"`

	// external lists proxies that someone else runs: they are spread over members to be probed, and leased like any
	// other. Nothing is ever made or removed for them.
	// +optional
	External *ExternalProxies `json:"external,omitempty"`

	// paused stops every change to the fleet's proxies; leases go on.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// placement says which members the proxies are spread over, and how.
	// +optional
	// +kubebuilder:default={}
	Placement FleetPlacement `json:"placement,omitzero"`

	// update says how proxies are replaced when the template changes.
	// +optional
	// +kubebuilder:default={}
	Update FleetUpdate `json:"update,omitzero"`

	// leasing says how the proxies are leased.
	// +optional
	// +kubebuilder:default={}
	Leasing FleetLeasing `json:"leasing,omitzero"`
}

// PlacementStrategy says how replicas are divided over members.
// +kubebuilder:validation:Enum=Spread;Weighted;Pack
type PlacementStrategy string

// The strategies of placement.
const (
	// StrategySpread gives every member the same share.
	StrategySpread PlacementStrategy = "Spread"
	// StrategyWeighted gives every member a share in proportion to its weight.
	StrategyWeighted PlacementStrategy = "Weighted"
	// StrategyPack fills one member after another, heaviest first.
	StrategyPack PlacementStrategy = "Pack"
)

// FleetPlacement says which members the proxies are spread over, and how.
type FleetPlacement struct {
	// memberSelector chooses members by label. Unset chooses all.
	// +optional
	MemberSelector *metav1.LabelSelector `json:"memberSelector,omitempty"`

	// strategy says how the replicas are divided over the members.
	// +optional
	// +kubebuilder:default=Spread
	Strategy PlacementStrategy `json:"strategy,omitempty"`

	// members sets weight and bounds of single members.
	// +optional
	// +kubebuilder:validation:MaxItems=200
	// +listType=map
	// +listMapKey=name
	Members []MemberShare `json:"members,omitempty"`

	// tolerations let the fleet be placed on members with matching taints.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Tolerations []Toleration `json:"tolerations,omitempty"`
}

// MemberShare sets weight and bounds of one member.
// +kubebuilder:validation:XValidation:rule="!has(self.min) || !has(self.max) || self.min <= self.max",message="write a min that is not above max"
type MemberShare struct {
	// name is the MemberCluster's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// weight is the member's share in proportion to the others'. Unset means 1; 0 means none, but for min.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Weight *int32 `json:"weight,omitempty"`
	// min is how many replicas the member gets at least.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Min *int32 `json:"min,omitempty"`
	// max is how many replicas the member gets at most.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Max *int32 `json:"max,omitempty"`
}

// Toleration lets a fleet be placed on members with a matching taint.
type Toleration struct {
	// key is the taint's key. Empty matches every key.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
	// value is the taint's value. Empty matches every value.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`
}

// FleetUpdate says how proxies are replaced when the template changes.
// +kubebuilder:validation:XValidation:rule="!has(self.maxSurge) || type(self.maxSurge) == string || int(self.maxSurge) >= 0",message="write a maxSurge of 0 or more, or a percentage such as 25%"
// +kubebuilder:validation:XValidation:rule="!has(self.maxUnavailable) || type(self.maxUnavailable) == string || int(self.maxUnavailable) >= 0",message="write a maxUnavailable of 0 or more, or a percentage such as 25%"
// +kubebuilder:validation:XValidation:rule="!has(self.maxSurge) || !has(self.maxUnavailable) || !(string(self.maxSurge) in ['0', '0%']) || !(string(self.maxUnavailable) in ['0', '0%'])",message="set maxSurge or maxUnavailable above 0: with both at 0 nothing could ever be replaced"
type FleetUpdate struct {
	// maxSurge is how many proxies above replicas there may be during an update: a number, or a percentage rounded up.
	// +optional
	// +kubebuilder:default="25%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^([0-9]{1,6}|[0-9]{1,3}%)$`
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
	// maxUnavailable is how many proxies below replicas may be ready during an update: a number, or a percentage
	// rounded down.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^([0-9]{1,6}|[0-9]{1,3}%)$`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// drainTimeout is how long a leased proxy that must go is left to its leases.
	// +optional
	// +kubebuilder:default="15m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="write a drainTimeout between 0s and 24h"
	DrainTimeout *Duration `json:"drainTimeout,omitempty"`
}

// FleetLeasing says how a fleet's proxies are leased.
// +kubebuilder:validation:XValidation:rule="!has(self.defaultTTL) || !has(self.maxTTL) || duration(self.defaultTTL) <= duration(self.maxTTL)",message="write a defaultTTL that is not above maxTTL"
// +kubebuilder:validation:XValidation:rule="!has(self.maxTTL) || !has(self.maxLifetime) || duration(self.maxTTL) <= duration(self.maxLifetime)",message="write a maxTTL that is not above maxLifetime"
type FleetLeasing struct {
	// maxLeasesPerProxy is how many leases one proxy carries at once. 0 means that the fleet is never leased.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MaxLeasesPerProxy *int32 `json:"maxLeasesPerProxy,omitempty"`
	// defaultTTL is the life of a lease that asks for none.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="write a defaultTTL of 1s or more"
	DefaultTTL Duration `json:"defaultTTL,omitzero"`
	// maxTTL is the longest life one grant or renewal may give.
	// +optional
	// +kubebuilder:default="30m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="write a maxTTL between 1s and 24h"
	MaxTTL Duration `json:"maxTTL,omitzero"`
	// maxLifetime is the longest life of a lease with all its renewals, and of the credentials it came with.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="write a maxLifetime between 1s and 168h"
	MaxLifetime Duration `json:"maxLifetime,omitzero"`
	// reuseDelay keeps a slot empty for a while after its lease ended.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="write a reuseDelay of 24h or less"
	ReuseDelay Duration `json:"reuseDelay,omitzero"`
	// cooldown says how long an exit rests for a target that banned it.
	// +optional
	// +kubebuilder:default={}
	Cooldown Cooldown `json:"cooldown,omitzero"`
	// targets are rules for single targets. What a target without a rule tolerates is learnt from what lease holders
	// report, as with pace Auto, from the first report on it on.
	// +optional
	// +listType=map
	// +listMapKey=match
	// +kubebuilder:validation:MaxItems=64
	Targets []TargetRule `json:"targets,omitempty"`
}

// TargetPace says how the leases for a target are spaced on an exit.
// +kubebuilder:validation:Enum=Auto;Fixed;Off
type TargetPace string

// The paces of a target rule.
const (
	TargetPaceAuto  TargetPace = "Auto"
	TargetPaceFixed TargetPace = "Fixed"
	TargetPaceOff   TargetPace = "Off"
)

// TargetRule says what a fleet allows for the targets that it matches, on each exit. Fleets that share an exit divide it.
// +kubebuilder:validation:XValidation:rule="!has(self.pace) || self.pace != 'Fixed' || has(self.minInterval) || has(self.maxConcurrentPerExit)",message="with pace Fixed write minInterval or maxConcurrentPerExit"
// +kubebuilder:validation:XValidation:rule="!has(self.pace) || self.pace != 'Off' || !has(self.minInterval) && !has(self.maxConcurrentPerExit)",message="with pace Off leave out minInterval and maxConcurrentPerExit, or write pace Fixed"
type TargetRule struct {
	// match is a host, which stands for itself and all hosts below it, or "*" for all targets that no other rule
	// matches. The longest match counts. All targets that match the same host are one target: what it bans, it bans for
	// all of them. Without a rule that is the registrable domain.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(\*|[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*)$`
	Match string `json:"match"`
	// pace says how leases are spaced: Auto learns from reports what the target tolerates and stays below it, from the
	// first lease on; Fixed keeps to minInterval and maxConcurrentPerExit; Off does not space them.
	// +optional
	// +kubebuilder:default=Auto
	Pace TargetPace `json:"pace,omitempty"`
	// maxConcurrentPerExit bounds the leases for the target that one exit carries at once.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxConcurrentPerExit int32 `json:"maxConcurrentPerExit,omitempty"`
	// minInterval is the least time between two leases for the target on one exit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('24h')",message="write a minInterval between 1ms and 24h"
	MinInterval Duration `json:"minInterval,omitzero"`
	// cooldown says how long an exit rests when the target bans it, instead of the fleet's cooldown.
	// +optional
	Cooldown *Cooldown `json:"cooldown,omitempty"`
}

// Cooldown says how long an exit rests for a target that banned it: base after the first ban, factor times longer
// after each further one, never longer than max.
type Cooldown struct {
	// base is the rest after the first ban.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="write a base between 1s and 168h"
	Base Duration `json:"base,omitzero"`
	// factor is by how much each further ban lengthens the rest.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Factor int32 `json:"factor,omitempty"`
	// max is the longest rest.
	// +optional
	// +kubebuilder:default="12h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('720h')",message="write a max between 1s and 720h"
	Max Duration `json:"max,omitzero"`
}

// ProxyFleetStatus is what is there.
type ProxyFleetStatus struct {
	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// revision is the hash of the current template.
	// +optional
	Revision string `json:"revision,omitempty"`
	// replicas is how many proxies exist and are not draining.
	// +optional
	Replicas int32 `json:"replicas"`
	// updated is how many of them are of the current revision.
	// +optional
	Updated int32 `json:"updated"`
	// ready is how many of them are ready.
	// +optional
	Ready int32 `json:"ready"`
	// draining is how many proxies are on their way out.
	// +optional
	Draining int32 `json:"draining"`
	// leased is how many leases are held.
	// +optional
	Leased int32 `json:"leased"`
	// slots is how many leases the ready proxies can carry.
	// +optional
	Slots int32 `json:"slots"`
	// leases is leased and slots in a form for people.
	// +optional
	Leases string `json:"leases,omitempty"`
	// exits is how many distinct exits have been measured.
	// +optional
	Exits int32 `json:"exits"`
	// memberCount is how many members the fleet is placed on.
	// +optional
	MemberCount int32 `json:"memberCount"`
	// members has a row for each member that the fleet is, was or could be placed on.
	// +optional
	// +listType=map
	// +listMapKey=name
	Members []FleetMemberStatus `json:"members,omitempty"`
	// selector selects the fleet's placements, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`
	// conditions say how the fleet fares, for people.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FleetMemberStatus is a fleet's part on one member.
type FleetMemberStatus struct {
	// name is the MemberCluster's name.
	// +required
	Name string `json:"name"`
	// region is where the member is.
	// +optional
	Region string `json:"region,omitempty"`
	// want is how many proxies the plan puts there.
	// +optional
	Want int32 `json:"want"`
	// have is how many exist there and are not draining.
	// +optional
	Have int32 `json:"have"`
	// ready is how many of them are ready.
	// +optional
	Ready int32 `json:"ready"`
	// draining is how many are on their way out.
	// +optional
	Draining int32 `json:"draining"`
	// why explains the number wanted.
	// +optional
	Why string `json:"why,omitempty"`
}

// DesiredReplicas is how many proxies the spec asks for, with the default applied.
func (f *ProxyFleet) DesiredReplicas() int32 {
	switch {
	case f.Spec.External != nil:
		return int32(len(f.Spec.External.Endpoints)) //nolint:gosec // at most 1000, by validation
	case f.Spec.Replicas == nil:
		return 1
	default:
		return *f.Spec.Replicas
	}
}

// ProxyFleetList is a list of ProxyFleets.
//
// +kubebuilder:object:root=true
type ProxyFleetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProxyFleet `json:"items"`
}

// FleetRef names a fleet from an object that outlives a change of its name's owner.
type FleetRef struct {
	// name is the ProxyFleet's name, in the same namespace.
	// +required
	Name string `json:"name"`
	// uid is the ProxyFleet's UID.
	// +required
	UID types.UID `json:"uid"`
}
