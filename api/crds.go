// Package api embeds the CustomResourceDefinitions of Shoal.
//
// The types are in v1alpha1. The definitions are bytes here: parsing them is left to who installs them, so that this
// module needs nothing of the API server's.
package api

import "embed"

// HubCRDs holds crds/hub/*.yaml: ProxyFleet, MemberCluster and ProxyPlacement.
//
//go:embed crds/hub/*.yaml
var HubCRDs embed.FS

// MemberCRDs holds crds/member/*.yaml: ProxySet and Proxy.
//
//go:embed crds/member/*.yaml
var MemberCRDs embed.FS
