package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every kind in this package.
const GroupName = "shoal.dev"

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// HubSchemeBuilder adds the kinds of the hub to a scheme.
var HubSchemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ProxyFleet{}, &ProxyFleetList{},
		&MemberCluster{}, &MemberClusterList{},
		&ProxyPlacement{}, &ProxyPlacementList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// MemberSchemeBuilder adds the kinds of a member to a scheme.
var MemberSchemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&ProxySet{}, &ProxySetList{},
		&Proxy{}, &ProxyList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddHubToScheme adds the kinds of the hub to s.
func AddHubToScheme(s *runtime.Scheme) error { return HubSchemeBuilder.AddToScheme(s) }

// AddMemberToScheme adds the kinds of a member to s.
func AddMemberToScheme(s *runtime.Scheme) error { return MemberSchemeBuilder.AddToScheme(s) }
