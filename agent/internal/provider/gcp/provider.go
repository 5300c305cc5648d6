package gcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/provider"
)

// Instances are the calls about machines that the provider makes. *computeclient.Client has them.
type Instances interface {
	InsertInstance(ctx context.Context, zone, requestID string, spec computeclient.InstanceSpec) (computeclient.Operation, error)
	GetInstance(ctx context.Context, zone, name string) (computeclient.Instance, error)
	DeleteInstance(ctx context.Context, zone, name string, atOnce bool) (computeclient.Operation, error)
	ListInstances(ctx context.Context, labels map[string]string) (computeclient.Listing, error)
	SetMetadata(ctx context.Context, zone, name, fingerprint string, all []computeclient.Item) (computeclient.Operation, error)
	ZoneOperation(ctx context.Context, zone, name string) (computeclient.Operation, error)
}

// Addresses are the calls about reserved addresses that the provider makes. *computeclient.Client has them.
type Addresses interface {
	InsertAddress(ctx context.Context, region, requestID string, spec computeclient.AddressSpec) (computeclient.Operation, error)
	GetAddress(ctx context.Context, region, name string) (computeclient.Address, error)
	DeleteAddress(ctx context.Context, region, name string) (computeclient.Operation, error)
	ListAddresses(ctx context.Context, region string) ([]computeclient.Address, error)
}

// Compute is Compute Engine, as far as the provider needs it.
type Compute interface {
	Instances
	Addresses
}

var _ Compute = (*computeclient.Client)(nil)

// Keys are the documents that credentials are checked with. Both are public.
type Keys struct {
	// Hub is of the hub's keys and denials, Agent of the agent's own for its probes. Either is empty while it is not known.
	Hub, Agent string
}

// Options configures a Provider.
type Options struct {
	// Compute calls Compute Engine with the entry's own credentials.
	Compute Compute
	// Settings is the entry, checked.
	Settings Settings
	// Region is where machines are made, and Zones are the zones of it that may be used.
	Region string
	Zones  []string
	// Secrets reads the users' part of cloud-init from Secrets of Namespace, the agent's own. It reads no cache.
	Secrets   client.Reader
	Namespace string
	// Keys gives what credentials are checked with now.
	Keys func(ctx context.Context) (Keys, error)
}

// Provider runs proxies as virtual machines of one region. It implements [provider.Provider] and [provider.Zoned], and is
// safe for concurrent use.
type Provider struct {
	o Options
}

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Zoned    = (*Provider)(nil)
)

// New makes a Provider.
func New(o Options) (*Provider, error) {
	if o.Compute == nil || o.Secrets == nil || o.Namespace == "" || o.Keys == nil {
		return nil, errors.New("gcp provider: Compute, Secrets, Namespace and Keys are required")
	}
	var wrong []error
	o.Settings.Check(func(field, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("gcp provider: %s: "+format, append([]any{field}, args...)...))
	})
	if !computeclient.ValidName(o.Region) {
		wrong = append(wrong, fmt.Errorf("gcp provider: %q is no region; write such as europe-west1", o.Region))
	}
	if len(o.Zones) == 0 {
		wrong = append(wrong, errors.New("gcp provider: no zones; write at least one, such as europe-west1-b"))
	}
	for _, zone := range o.Zones {
		if !computeclient.ValidName(zone) || !strings.HasPrefix(zone, o.Region+"-") {
			wrong = append(wrong, fmt.Errorf("gcp provider: %q is no zone of region %s; write such as %s-b", zone, o.Region, o.Region))
		}
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	o.Settings = o.Settings.withDefaults()
	o.Zones = slices.Clone(o.Zones)
	return &Provider{o: o}, nil
}

// providerID names a machine and needs nothing beside it.
func (p *Provider) providerID(zone, name string) string {
	return p.o.Settings.Project + "/" + zone + "/" + name
}

// places are the zones in which the instance of a ref may be: the one that was written down, or any.
func (p *Provider) places(ref provider.Ref) []string {
	if ref.Zone != "" {
		return []string{ref.Zone}
	}
	return p.o.Zones
}
