package gcp

import (
	"context"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/provider"
)

const (
	opReserve = "reserve address"
	opRelease = "release address"
)

// addressSuffix ends the names of addresses. Those of machines have no dash but the first.
const addressSuffix = "-ip"

// addressOf gives the name of a machine's address. What is left of a machine is told under the address's own name, and
// whoever wants that removed names it: an address is its own address.
func addressOf(name string) string { return strings.TrimSuffix(name, addressSuffix) + addressSuffix }

// reserve gives the machine's static address, and asks for it where there is none. It takes a few calls until it is there;
// each but the last is KindUnavailable. The request's ID makes another one for the address, so that a request for it that
// has failed is found again by asking again.
func (p *Provider) reserve(ctx context.Context, r provider.Request, zone string) (string, error) {
	name := addressOf(r.Name)
	have, err := p.o.Compute.GetAddress(ctx, p.o.Region, name)
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
		Name: name, Description: deedOf(r, zone), NetworkTier: string(p.o.Settings.NetworkTier),
	})
	switch {
	case computeclient.StatusOf(err) == http.StatusConflict:
	case err != nil:
		return "", p.translate(opReserve, err)
	case operation.Failed():
		return "", p.failure("", operation)
	}
	if have, err = p.o.Compute.GetAddress(ctx, p.o.Region, name); err == nil {
		return p.reserved(have, r)
	}
	if computeclient.IsNotFound(err) {
		return "", provider.Errorf(provider.KindUnavailable, opReserve, "address %s has been asked for and is not there yet", name)
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
	name := addressOf(ref.Name)
	have, err := p.o.Compute.GetAddress(ctx, p.o.Region, name)
	switch {
	case computeclient.IsNotFound(err), p.noAddresses(err):
		return nil
	case err != nil:
		return p.translate(opRelease, err)
	}
	if d, ours := readDeed(have.Description); !ours || !d.identity().SameProxy(id) {
		return nil
	}
	if _, err := p.o.Compute.DeleteAddress(ctx, p.o.Region, name); err != nil && !computeclient.IsNotFound(err) {
		return p.translate(opRelease, err)
	}
	return nil
}

// noAddresses says that the agent may not see addresses, and needs none.
func (p *Provider) noAddresses(err error) bool {
	return p.o.Settings.Address != AddressStatic && provider.KindOf(p.translate(opList, err)) == provider.KindUnauthorized
}

// leftovers are the addresses of the identity that no machine has any more. Each is told as an instance that has failed,
// so that whoever removes instances that nobody wants, or that nobody wrote down, removes it too. It has another name than
// the machine had: that one is gone, and whoever waits for it must see so.
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
		if !ours || !sameAgent(d.identity(), id) || machines[strings.TrimSuffix(a.Name, addressSuffix)] || a.Status == "IN_USE" {
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
