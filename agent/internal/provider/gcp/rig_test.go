package gcp_test

import (
	"context"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
)

// deafCompute is Compute Engine with a filter that is ignored, and a hand that is quicker than ours.
type deafCompute struct {
	*computeclient.Client
	settings          gcp.Settings
	keys              func(context.Context) (gcp.Keys, error)
	beforeSetMetadata func()
}

// ListInstances gives all instances there are.
func (c *deafCompute) ListInstances(ctx context.Context, _ map[string]string) (computeclient.Listing, error) {
	return c.Client.ListInstances(ctx, nil)
}

// SetMetadata comes too late, if a test wants that.
func (c *deafCompute) SetMetadata(ctx context.Context, zone, name, fingerprint string, all []computeclient.Item) (computeclient.Operation, error) {
	if c.beforeSetMetadata != nil {
		c.beforeSetMetadata()
	}
	return c.Client.SetMetadata(ctx, zone, name, fingerprint, all)
}

// rig makes a second provider over the same Compute Engine.
func rig(w *world, how func(*deafCompute)) *gcp.Provider {
	w.t.Helper()
	c := &deafCompute{Client: w.client, settings: w.settings, keys: func(context.Context) (gcp.Keys, error) { return w.keys, nil }}
	how(c)
	p, err := gcp.New(gcp.Options{Compute: c, Settings: c.settings, Region: region, Zones: []string{zoneB}, Secrets: newSecrets(), Namespace: namespace, Keys: c.keys})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func metadataItem(key, value string) computeclient.Item {
	return computeclient.Item{Key: key, Value: value}
}

// reserveForeign reserves an address that is not ours.
func (w *world) reserveForeign(name string) {
	w.t.Helper()
	if _, err := w.client.InsertAddress(w.t.Context(), region, "", computeclient.AddressSpec{Name: name, Description: "of the bank", NetworkTier: "PREMIUM"}); err != nil {
		w.t.Fatal(err)
	}
}
