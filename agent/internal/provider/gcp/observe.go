package gcp

import (
	"context"
	"fmt"
	"net/http"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const opGet = "get instance"

// Get looks for the machine, and where there is none, for what became of the operation that was to make it.
func (p *Provider) Get(ctx context.Context, ref provider.Ref) (provider.Instance, error) {
	for _, zone := range p.places(ref) {
		instance, err := p.o.Compute.GetInstance(ctx, zone, ref.Name)
		if err == nil {
			return p.observe(instance), nil
		}
		if !computeclient.IsNotFound(err) {
			return provider.Instance{}, p.translate(opGet, err)
		}
	}
	absent := provider.Errorf(provider.KindNotFound, opGet, "there is no instance %s in %v", ref.Name, p.places(ref))
	if ref.Operation == "" || ref.Zone == "" {
		return provider.Instance{}, absent
	}
	operation, err := p.o.Compute.ZoneOperation(ctx, ref.Zone, ref.Operation)
	switch {
	case computeclient.IsNotFound(err):
		// Compute Engine forgets operations after weeks; none that goes on is ever forgotten.
		return provider.Instance{}, absent
	case err != nil:
		// Nothing is known, and least of all that it has failed.
		return provider.Instance{}, p.translate("get operation", err)
	}
	told := provider.Instance{Name: ref.Name, ProviderID: p.providerID(ref.Zone, ref.Name), Zone: ref.Zone}
	switch {
	case operation.Failed() && operation.HTTPStatus == http.StatusConflict:
		// Somebody has removed the machine while it was being made.
		return provider.Instance{}, absent
	case operation.Failed():
		told.State, told.Failure = provider.StateRefused, p.failure(ref.Zone, operation)
		told.Reason = told.Failure.Error()
		return told, nil
	case !operation.Done:
		told.State, told.Reason = provider.StatePending, fmt.Sprintf("operation %s is %s", operation.Name, operation.Status)
		return told, nil
	}
	// It has succeeded, perhaps between the two looks. What is absent now has been removed since.
	instance, err := p.o.Compute.GetInstance(ctx, ref.Zone, ref.Name)
	switch {
	case computeclient.IsNotFound(err):
		return provider.Instance{}, absent
	case err != nil:
		return provider.Instance{}, p.translate(opGet, err)
	}
	return p.observe(instance), nil
}

// observe translates a machine.
func (p *Provider) observe(i computeclient.Instance) provider.Instance {
	state, reason := stateOf(i)
	told := provider.Instance{
		Name:       i.Name,
		ProviderID: p.providerID(i.Zone, i.Name),
		State:      state,
		Reason:     reason,
		Zone:       i.Zone,
		Identity:   identityOf(i.Labels),
		SpecHash:   i.Labels[labelSpecHash],
		CreatedAt:  i.CreatedAt,
		// Compute Engine does not say who lets a machine go. One that may be taken back is taken back, as a rule: nobody
		// stops machines of ours, and those that we delete are not asked about.
		Preempted: i.Spot && (state == provider.StateStopping || state == provider.StateFailed),
	}
	if state == provider.StateRunning {
		host := i.ExternalIP
		if p.o.Settings.Endpoint == ExposureInternal {
			host = i.InternalIP
		}
		if port := portOf(i.Metadata); host != "" && port != 0 {
			told.Endpoints = []v1alpha1.Endpoint{{Network: v1alpha1.NetworkVM, Host: host, Port: port}}
		}
	}
	return told
}

// stateOf sums up a status. A status that is not known counts as a machine that is there.
func stateOf(i computeclient.Instance) (provider.State, string) {
	reason := i.Status
	if i.StatusMessage != "" {
		reason += ": " + i.StatusMessage
	}
	switch i.Status {
	case "RUNNING":
		return provider.StateRunning, ""
	case "PENDING", "PROVISIONING", "STAGING":
		return provider.StatePending, reason
	case "PENDING_STOP", "STOPPING", "DEPROVISIONING":
		return provider.StateStopping, reason
	case "STOPPED", "TERMINATED", "SUSPENDED":
		// It would run again only if somebody started it. It is billed for its disk, and must be deleted.
		return provider.StateFailed, reason
	default: // REPAIRING and SUSPENDING among them: they pass.
		return provider.StateUnknown, reason
	}
}

// leaving says whether a machine is being removed or stopped, so that nothing is to be asked for until that has ended:
// asking again brings a rate limit.
func leaving(status string) bool {
	switch status {
	case "PENDING_STOP", "STOPPING", "DEPROVISIONING":
		return true
	default:
		return false
	}
}
