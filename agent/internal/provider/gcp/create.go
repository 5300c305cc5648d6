package gcp

import (
	"context"
	"net/http"
	"path"
	"strings"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/provider"
)

const opCreate = "create instance"

// Create asks for a machine, and for its address before it where that is to be static. The receipt's operation is the only
// place where Compute Engine says why it could not make the machine.
func (p *Provider) Create(ctx context.Context, r provider.Request) (provider.Receipt, error) {
	zone := r.Zone
	if zone == "" {
		zones, err := p.Zones(r.Settings, r.Identity.ProxyUID)
		if err != nil {
			return provider.Receipt{}, err
		}
		zone = zones[0]
	}
	spec, err := p.spec(ctx, r)
	if err != nil {
		return provider.Receipt{}, err
	}
	if p.o.Settings.Address == AddressStatic {
		if spec.Address, err = p.reserve(ctx, r, zone); err != nil {
			return provider.Receipt{}, err
		}
	}
	operation, err := p.o.Compute.InsertInstance(ctx, zone, r.RequestID, spec)
	switch computeclient.StatusOf(err) {
	case http.StatusConflict:
		return provider.Receipt{}, p.adopt(ctx, zone, r)
	case http.StatusNotFound:
		// Nothing is made that could be missing: the zone, the image, the network or the project is.
		return provider.Receipt{}, &provider.Error{Kind: provider.KindInvalidSpec, Op: opCreate, Err: err}
	}
	if err != nil {
		return provider.Receipt{}, p.translate(opCreate, err)
	}
	return provider.Receipt{Operation: operation.Name}, nil
}

// adopt looks whose the machine is that has the name already: ours is what was wanted.
func (p *Provider) adopt(ctx context.Context, zone string, r provider.Request) error {
	instance, err := p.o.Compute.GetInstance(ctx, zone, r.Name)
	switch {
	case computeclient.IsNotFound(err):
		return provider.Errorf(provider.KindUnavailable, opCreate, "instance %s has just gone, or is not to be seen yet", p.providerID(zone, r.Name))
	case err != nil:
		return p.translate(opCreate, err)
	case !identityOf(instance.Labels).SameProxy(r.Identity):
		return provider.Errorf(provider.KindAlreadyExists, opCreate, "instance %s exists and is not this proxy's; remove it, or let the proxy go", p.providerID(zone, r.Name))
	case leaving(instance.Status):
		return provider.Errorf(provider.KindUnavailable, opCreate, "instance %s is still being removed (%s)", p.providerID(zone, r.Name), instance.Status)
	}
	return nil
}

// spec is the machine of a request, without its address.
func (p *Provider) spec(ctx context.Context, r provider.Request) (computeclient.InstanceSpec, error) {
	labels, err := p.labels(r)
	if err != nil {
		return computeclient.InstanceSpec{}, &provider.Error{Kind: provider.KindInvalidSpec, Op: opCreate, Err: err}
	}
	metadata, err := p.metadata(ctx, r)
	if err != nil {
		return computeclient.InstanceSpec{}, err
	}
	s := p.o.Settings
	spec := computeclient.InstanceSpec{
		Name:           r.Name,
		Description:    "Shoal proxy " + r.Owner.Namespace + "/" + r.Owner.Name,
		MachineType:    s.MachineType,
		Image:          s.Image,
		DiskGB:         s.DiskGB,
		Network:        partial(s.Network, "global/networks/"),
		Subnetwork:     partial(s.Subnetwork, path.Join("regions", p.o.Region, "subnetworks")+"/"),
		External:       s.Address != AddressNone,
		NetworkTier:    string(s.NetworkTier),
		Tags:           s.Tags,
		Labels:         labels,
		Metadata:       metadata,
		Spot:           s.Spot,
		MaxRunDuration: *s.MaxRunDuration,
	}
	return spec, nil
}

// partial makes a partial URL of a name; what is one already stays as it is.
func partial(name, prefix string) string {
	if name == "" || strings.Contains(name, "/") {
		return name
	}
	return prefix + name
}
