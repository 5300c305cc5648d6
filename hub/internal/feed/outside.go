package feed

import (
	"maps"
	"strings"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// endpointsOf are a placement's endpoints of proxies that someone else runs, by name; nil for a placement of our own.
func endpointsOf(p *v1alpha1.ProxyPlacement) map[string]v1alpha1.PlacedEndpoint {
	if p.Spec.External == nil {
		return nil
	}
	endpoints := make(map[string]v1alpha1.PlacedEndpoint, len(p.Spec.External.Endpoints))
	for i := range p.Spec.External.Endpoints {
		endpoints[p.Spec.External.Endpoints[i].Name] = p.Spec.External.Endpoints[i]
	}
	return endpoints
}

// sameEndpoint tells whether two endpoints are the same to the lease engine. Their credentials are no part of what it
// knows.
func sameEndpoint(a, b v1alpha1.PlacedEndpoint) bool {
	return a.Name == b.Name && a.Host == b.Host && a.Port == b.Port && a.Region == b.Region && a.Country == b.Country &&
		maps.Equal(a.Labels, b.Labels)
}

// outside completes the description of a proxy that someone else runs with what its fleet says of it. What the member
// reports as its address is not believed: the owner's credentials are sent there. One whose endpoint is not listed has
// none, so that it is never leased.
func (p placed) outside(proxy *lease.Proxy) {
	e, ok := p.endpoints[proxy.Name[strings.LastIndexByte(proxy.Name, '-')+1:]]
	if !ok {
		return
	}
	proxy.Endpoints = []lease.Endpoint{{
		Network: lease.Network(v1alpha1.NetworkExternal), Host: e.Host, Port: uint16(e.Port), //nolint:gosec // 1 to 65535, by validation
	}}
	proxy.Labels = e.Labels
	if e.Region != "" {
		proxy.Region = e.Region
	}
	if e.Country != "" {
		proxy.Country = e.Country
	}
}
