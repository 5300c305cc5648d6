package computeclient

import (
	"context"
	"errors"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/iterator"
	"k8s.io/utils/ptr"
)

// InsertAddress asks for an address of the internet to be reserved. The operation may fail later; the same requestID
// gives the same operation.
func (c *Client) InsertAddress(ctx context.Context, region, requestID string, spec AddressSpec) (Operation, error) {
	if err := checkNames("region", region, "address", spec.Name); err != nil {
		return Operation{}, err
	}
	ctx, cancel, call := c.begin(ctx, "addresses.insert", region+"/"+spec.Name)
	defer cancel()
	request := &computepb.InsertAddressRequest{Project: c.o.Project, Region: region, AddressResource: &computepb.Address{
		Name: &spec.Name, Description: &spec.Description, AddressType: ptr.To("EXTERNAL"), NetworkTier: &spec.NetworkTier,
	}}
	if requestID != "" {
		request.RequestId = &requestID
	}
	answer, err := c.addresses.Insert(ctx, request)
	if err != nil {
		return Operation{}, call.end(err, "requestID", requestID)
	}
	o := operation(answer.Proto())
	return o, call.end(nil, append(o.details(), "requestID", requestID)...)
}

// GetAddress reads a reserved address.
func (c *Client) GetAddress(ctx context.Context, region, name string) (Address, error) {
	if err := checkNames("region", region, "address", name); err != nil {
		return Address{}, err
	}
	ctx, cancel, call := c.begin(ctx, "addresses.get", region+"/"+name)
	defer cancel()
	answer, err := c.addresses.Get(ctx, &computepb.GetAddressRequest{Project: c.o.Project, Region: region, Address: name}, retried())
	if err != nil {
		return Address{}, call.end(err)
	}
	a := address(answer)
	return a, call.end(nil, "status", a.Status)
}

// DeleteAddress gives a reserved address back. It fails while an instance has it.
func (c *Client) DeleteAddress(ctx context.Context, region, name string) (Operation, error) {
	if err := checkNames("region", region, "address", name); err != nil {
		return Operation{}, err
	}
	ctx, cancel, call := c.begin(ctx, "addresses.delete", region+"/"+name)
	defer cancel()
	answer, err := c.addresses.Delete(ctx, &computepb.DeleteAddressRequest{Project: c.o.Project, Region: region, Address: name})
	if err != nil {
		return Operation{}, call.end(err)
	}
	o := operation(answer.Proto())
	return o, call.end(nil, o.details()...)
}

// ListAddresses reads all reserved addresses of a region. It is complete or an error.
func (c *Client) ListAddresses(ctx context.Context, region string) ([]Address, error) {
	if err := checkNames("region", region); err != nil {
		return nil, err
	}
	ctx, cancel, call := c.begin(ctx, "addresses.list", region)
	defer cancel()
	pages := newListing(ctx, c.transport)
	service, err := compute.NewAddressesRESTClient(ctx, c.clientOptions(pages)...)
	if err != nil {
		return nil, call.end(err)
	}
	var found []Address
	each := service.List(ctx, &computepb.ListAddressesRequest{Project: c.o.Project, Region: region, MaxResults: ptr.To(uint32(pageSize))}, retried())
	for {
		a, err := each.Next()
		if errors.Is(err, iterator.Done) {
			break
		}
		if err != nil {
			return nil, call.end(err)
		}
		found = append(found, address(a))
	}
	if len(pages.missing) > 0 {
		return nil, call.end(errors.New("a part of the region's addresses could not be read"))
	}
	return found, call.end(nil, "addresses", len(found), "pages", pages.read)
}

func address(from *computepb.Address) Address {
	return Address{
		Name: from.GetName(), Description: from.GetDescription(), Address: from.GetAddress(), Status: from.GetStatus(),
		CreatedAt: timestamp(from.GetCreationTimestamp()),
	}
}
