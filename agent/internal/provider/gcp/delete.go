package gcp

import (
	"context"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/provider"
)

const opDelete = "delete instance"

// Delete looks before it asks, since a second request for the same end is answered with a rate limit at best. A machine
// that is stopped is deleted too: its disk is billed. Its address is given back once it is gone.
func (p *Provider) Delete(ctx context.Context, ref provider.Ref, id provider.Identity, o provider.DeleteOptions) error {
	for _, zone := range p.places(ref) {
		instance, err := p.o.Compute.GetInstance(ctx, zone, ref.Name)
		switch {
		case computeclient.IsNotFound(err):
			continue
		case err != nil:
			return p.translate(opDelete, err)
		case !identityOf(instance.Labels).SameProxy(id):
			// The address may be ours all the same: it is reserved before the name turns out to be taken.
			if err := p.release(ctx, ref, id); err != nil {
				return err
			}
			return provider.Errorf(provider.KindAlreadyExists, opDelete, "instance %s is not this proxy's and is left alone", p.providerID(zone, ref.Name))
		case leaving(instance.Status):
			return nil
		}
		_, err = p.o.Compute.DeleteInstance(ctx, zone, ref.Name, o.Drained)
		if err != nil && !computeclient.IsNotFound(err) {
			return p.translate(opDelete, err)
		}
		return nil
	}
	return p.release(ctx, ref, id)
}
