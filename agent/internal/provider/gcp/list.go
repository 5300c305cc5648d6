package gcp

import (
	"context"
	"slices"
	"strings"

	"github.com/shoal-dev/shoal/agent/provider"
)

const opList = "list instances"

// List reads the machines of the whole project that carry the identity, and the addresses of the region. Labels are
// looked at here again: a filter that somebody ignores would give us strangers' machines to delete.
func (p *Provider) List(ctx context.Context, id provider.Identity) (provider.Listing, error) {
	found, err := p.o.Compute.ListInstances(ctx, listLabels(id))
	if err != nil {
		return provider.Listing{}, p.translate(opList, err)
	}
	listing := provider.Listing{}
	machines := map[string]bool{}
	for _, i := range found.Instances {
		instance := p.observe(i)
		if sameAgent(instance.Identity, id) {
			listing.Instances = append(listing.Instances, instance)
			machines[instance.Name] = true
		}
	}
	for _, scope := range found.Unreachable {
		if zone, ok := strings.CutPrefix(scope, "zones/"); !ok {
			listing.Missing = append(listing.Missing, scope)
		} else if strings.HasPrefix(zone, p.o.Region+"-") {
			// Machines of this member are in no other region.
			listing.Missing = append(listing.Missing, "zone "+zone)
		}
	}
	leftovers, err := p.leftovers(ctx, id, machines)
	if err != nil {
		return provider.Listing{}, err
	}
	listing.Instances = append(listing.Instances, leftovers...)
	slices.Sort(listing.Missing)
	listing.Complete = len(listing.Missing) == 0
	return listing, nil
}
