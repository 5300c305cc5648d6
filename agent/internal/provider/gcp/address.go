package gcp

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/provider"
)

const (
	opReserve = "reserve address"
	opRelease = "release address"
)

// reserve gives the machine's static address, and asks for it where there is none. It has the machine's own name. It takes
// a few calls until it is there; each but the last is KindUnavailable. The request's ID makes another one for the address,
// so that a request for it that has failed is found again by asking again.
func (p *Provider) reserve(ctx context.Context, r provider.Request, zone string) (string, error) {
	have, err := p.o.Compute.GetAddress(ctx, p.o.Region, r.Name)
	switch {
	case err == nil:
		return p.reserved(have, r)
	case !computeclient.IsNotFound(err):
		return "", p.translate(opReserve, err)
	}
	requestID := ""
	if r.RequestID != "" {
		requestID = uuid.NewSHA1(uuid.NameSpaceOID, []byte(r.RequestID+"/address")).String()
	}
	operation, err := p.o.Compute.InsertAddress(ctx, p.o.Region, requestID, computeclient.AddressSpec{
		Name: r.Name, Description: deedOf(r, zone), NetworkTier: string(p.o.Settings.NetworkTier),
	})
	switch {
	case computeclient.StatusOf(err) == http.StatusConflict:
	case err != nil:
		return "", p.translate(opReserve, err)
	case operation.Failed():
		return "", p.failure("", operation)
	}
	if have, err = p.o.Compute.GetAddress(ctx, p.o.Region, r.Name); err == nil {
		return p.reserved(have, r)
	}
	if computeclient.IsNotFound(err) {
		return "", provider.Errorf(provider.KindUnavailable, opReserve, "address %s has been asked for and is not there yet", r.Name)
	}
	return "", p.translate(opReserve, err)
}

func (p *Provider) reserved(have computeclient.Address, r provider.Request) (string, error) {
	d, ours := readDeed(have.Description)
	switch {
	case !ours || !d.identity().SameProxy(r.Identity):
		return "", provider.Errorf(provider.KindAlreadyExists, opReserve, "address %s in %s exists and is not this proxy's; release it, or let the proxy go", have.Name, p.o.Region)
	case have.Address == "" || have.Status == "RESERVING":
		return "", provider.Errorf(provider.KindUnavailable, opReserve, "address %s is being reserved", have.Name)
	}
	return have.Address, nil
}

// release gives a machine's address back, if it has one. That does not depend on the settings: they may have said
// otherwise when the machine was made. Where they never did, the agent may lack the right to look, and has nothing there.
func (p *Provider) release(ctx context.Context, ref provider.Ref, id provider.Identity) error {
	have, err := p.o.Compute.GetAddress(ctx, p.o.Region, ref.Name)
	switch {
	case computeclient.IsNotFound(err), p.noAddresses(err):
		return nil
	case err != nil:
		return p.translate(opRelease, err)
	}
	if d, ours := readDeed(have.Description); !ours || !d.identity().SameProxy(id) {
		return nil
	}
	if _, err := p.o.Compute.DeleteAddress(ctx, p.o.Region, ref.Name); err != nil && !computeclient.IsNotFound(err) {
		return p.translate(opRelease, err)
	}
	return nil
}

// noAddresses says that the agent may not see addresses, and needs none.
func (p *Provider) noAddresses(err error) bool {
	return p.o.Settings.Address != AddressStatic && provider.KindOf(p.translate(opList, err)) == provider.KindUnauthorized
}

// leftovers are the addresses of the identity that no machine has any more. Each is told as an instance that has failed,
// under the name that its machine had, so that whoever removes instances that nobody wants removes it too.
func (p *Provider) leftovers(ctx context.Context, id provider.Identity, machines map[string]bool) ([]provider.Instance, error) {
	all, err := p.o.Compute.ListAddresses(ctx, p.o.Region)
	switch {
	case err != nil && p.noAddresses(err):
		return nil, nil
	case err != nil:
		return nil, p.translate("list addresses", err)
	}
	var left []provider.Instance
	for _, a := range all {
		d, ours := readDeed(a.Description)
		if !ours || !sameAgent(d.identity(), id) || machines[a.Name] || a.Status == "IN_USE" {
			continue
		}
		left = append(left, provider.Instance{
			Name: a.Name, Zone: d.Zone, ProviderID: p.providerID(d.Zone, a.Name),
			State: provider.StateFailed, Reason: "only its address is left",
			Identity: d.identity(), SpecHash: d.SpecHash, CreatedAt: a.CreatedAt,
		})
	}
	return left, nil
}
