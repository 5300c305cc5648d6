package gcp

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// The labels of a machine that say whose it is. Compute Engine's labels have no dots and no slashes.
const (
	labelPrefix    = "shoal-"
	labelManagedBy = labelPrefix + "managed-by"
	labelProxyUID  = labelPrefix + "proxy-uid"
	labelHubUID    = labelPrefix + "hub-uid"
	labelMemberUID = labelPrefix + "member-uid"
	labelHomeUID   = labelPrefix + "home-uid"
	labelSpecHash  = labelPrefix + "spec-hash"
)

var identityLabels = []string{labelManagedBy, labelProxyUID, labelHubUID, labelMemberUID, labelHomeUID, labelSpecHash}

// labels are all of a machine's: the owner's own, and ours, which win.
func (p *Provider) labels(r provider.Request) (map[string]string, error) {
	all := maps.Clone(p.o.Settings.Labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, listLabels(r.Identity))
	all[labelProxyUID], all[labelSpecHash] = r.Identity.ProxyUID, r.SpecHash
	for key, value := range all {
		if !computeclient.ValidLabel(key, value) {
			return nil, fmt.Errorf("%s=%q cannot be a label in Compute Engine", key, value)
		}
	}
	return all, nil
}

// listLabels are what all machines of an agent and its hub have in common.
func listLabels(id provider.Identity) map[string]string {
	return map[string]string{
		labelManagedBy: v1alpha1.ManagedBy,
		labelHubUID:    id.HubUID,
		labelMemberUID: id.MemberUID,
		labelHomeUID:   id.HomeClusterUID,
	}
}

// identityOf reads whose a machine is. One that does not say that it is managed by us is nobody's, whatever else it says.
func identityOf(labels map[string]string) provider.Identity {
	if labels[labelManagedBy] != v1alpha1.ManagedBy {
		return provider.Identity{}
	}
	return provider.Identity{
		ProxyUID:       labels[labelProxyUID],
		HubUID:         labels[labelHubUID],
		MemberUID:      labels[labelMemberUID],
		HomeClusterUID: labels[labelHomeUID],
	}
}

// sameAgent says whether both are of the same hub, member and cluster.
func sameAgent(a, b provider.Identity) bool {
	return a.HubUID == b.HubUID && a.MemberUID == b.MemberUID && a.HomeClusterUID == b.HomeClusterUID
}

// deed is the description of a reserved address: whose it is, and what it was reserved for.
type deed struct {
	ManagedBy string `json:"managedBy"`
	ProxyUID  string `json:"proxyUID"`
	HubUID    string `json:"hubUID"`
	MemberUID string `json:"memberUID"`
	HomeUID   string `json:"homeUID"`
	SpecHash  string `json:"specHash"`
	Zone      string `json:"zone"`
}

func (d deed) identity() provider.Identity {
	return provider.Identity{ProxyUID: d.ProxyUID, HubUID: d.HubUID, MemberUID: d.MemberUID, HomeClusterUID: d.HomeUID}
}

// deedOf writes an address's description.
func deedOf(r provider.Request, zone string) string {
	text, err := json.Marshal(deed{
		ManagedBy: v1alpha1.ManagedBy, ProxyUID: r.Identity.ProxyUID, HubUID: r.Identity.HubUID, MemberUID: r.Identity.MemberUID,
		HomeUID: r.Identity.HomeClusterUID, SpecHash: r.SpecHash, Zone: zone,
	})
	if err != nil {
		return "" // Plain fields always marshal.
	}
	return string(text)
}

// readDeed reads an address's description; ok is false for one that is not ours.
func readDeed(description string) (d deed, ok bool) {
	err := json.Unmarshal([]byte(description), &d)
	return d, err == nil && d.ManagedBy == v1alpha1.ManagedBy
}
