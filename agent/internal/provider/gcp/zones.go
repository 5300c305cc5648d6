package gcp

import (
	"hash/fnv"
	"slices"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Zones gives the configured zones in an order that depends on the proxy, so that proxies spread without anybody counting
// them. A zone that the settings name leaves no choice.
func (p *Provider) Zones(settings v1alpha1.ProxySettings, proxyUID string) ([]string, error) {
	if at := settings.Placement; at != nil {
		if at.Region != "" && at.Region != p.o.Region {
			return nil, provider.Errorf(provider.KindInvalidSpec, "choose zone", "region %s is asked for, and this member is region %s; change placement.region, or place the fleet in another member", at.Region, p.o.Region)
		}
		if at.Zone != "" {
			if !slices.Contains(p.o.Zones, at.Zone) {
				return nil, provider.Errorf(provider.KindInvalidSpec, "choose zone", "zone %s is asked for, and this member has %v; change placement.zone, or let the member's owner add the zone", at.Zone, p.o.Zones)
			}
			return []string{at.Zone}, nil
		}
	}
	h := fnv.New32a()
	h.Write([]byte(proxyUID))
	first := int(h.Sum32() % uint32(len(p.o.Zones))) //nolint:gosec // a configuration has few zones
	return append(slices.Clone(p.o.Zones[first:]), p.o.Zones[:first]...), nil
}
