package computeclient

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/iterator"
	"k8s.io/utils/ptr"
)

// unreachable is the warning's code of a scope that could not be read. The other one that lists bring,
// NO_RESULTS_ON_PAGE, only says that a scope has nothing.
const unreachable = "UNREACHABLE"

// ListInstances reads the instances of all zones that carry the labels. An error means that nothing was learnt.
func (c *Client) ListInstances(ctx context.Context, labels map[string]string) (Listing, error) {
	if err := checkLabels(labels); err != nil {
		return Listing{}, err
	}
	filter := labelFilter(labels)
	ctx, cancel, call := c.begin(ctx, "instances.aggregatedList", "all zones")
	defer cancel()
	pages := newListing(ctx, c.transport)
	service, err := compute.NewInstancesRESTClient(ctx, c.clientOptions(pages)...)
	if err != nil {
		return Listing{}, call.end(err)
	}
	var found Listing
	each := service.AggregatedList(ctx, &computepb.AggregatedListInstancesRequest{
		Project: c.o.Project, Filter: &filter, MaxResults: ptr.To(uint32(pageSize)),
	}, retried())
	for {
		scope, err := each.Next()
		if errors.Is(err, iterator.Done) {
			break
		}
		if err != nil {
			return Listing{}, call.end(err, "filter", filter)
		}
		if scope.Value.GetWarning().GetCode() == unreachable {
			pages.missing[scope.Key] = true
		}
		for _, i := range scope.Value.GetInstances() {
			found.Instances = append(found.Instances, instance(i))
		}
	}
	found.Unreachable = slices.Sorted(maps.Keys(pages.missing))
	return found, call.end(nil, "filter", filter, "instances", len(found.Instances), "pages", pages.read, "unreachable", found.Unreachable)
}

// labelFilter asks for all of the labels. Values hold no quote: checkLabels has seen them.
func labelFilter(labels map[string]string) string {
	var terms []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		terms = append(terms, `(labels.`+key+`="`+labels[key]+`")`)
	}
	return strings.Join(terms, " ")
}
