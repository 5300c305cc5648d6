package gcp

import (
	"context"
	"errors"
	"slices"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/provider"
)

const opKeys = "write keys"

// SyncKeys brings the keys and denials of all of an identity's machines to what they are now. It writes only where they
// differ, and leaves all other metadata as it is; a machine whose metadata somebody else has just changed is left for the
// next time. What has not been reached is in the error, and it stops at a rate limit: call it again after a while, as
// after every change of the keys.
func (p *Provider) SyncKeys(ctx context.Context, id provider.Identity) error {
	keys, err := p.o.Keys(ctx)
	if err != nil {
		return &provider.Error{Kind: provider.KindUnavailable, Op: opKeys, Err: err}
	}
	want := keyItems(keys)
	found, err := p.o.Compute.ListInstances(ctx, listLabels(id))
	if err != nil {
		return p.translate(opKeys, err)
	}
	var failed []error
	for _, i := range found.Instances {
		state, _ := stateOf(i)
		going := state == provider.StateStopping || state == provider.StateFailed
		all, changed := merge(i.Metadata, want)
		if going || !changed || !sameAgent(identityOf(i.Labels), id) {
			continue
		}
		_, err := p.o.Compute.SetMetadata(ctx, i.Zone, i.Name, i.MetadataFingerprint, all)
		if err == nil || computeclient.IsNotFound(err) {
			continue
		}
		err = p.translate(opKeys, err)
		failed = append(failed, err)
		if provider.KindOf(err) == provider.KindThrottled || ctx.Err() != nil {
			break
		}
	}
	for _, scope := range found.Unreachable {
		failed = append(failed, provider.Errorf(provider.KindUnavailable, opKeys, "%s could not be read", scope))
	}
	return errors.Join(failed...)
}

// keyItems are the items of metadata that hold what is known of the keys. What is not known is left as it is: an empty
// document would let nobody in.
func keyItems(keys Keys) []computeclient.Item {
	var items []computeclient.Item
	if keys.Hub != "" {
		items = append(items, computeclient.Item{Key: itemHubKeys, Value: keys.Hub})
	}
	if keys.Agent != "" {
		items = append(items, computeclient.Item{Key: itemAgentKeys, Value: keys.Agent})
	}
	return items
}

// merge puts items into others, and says whether that changes anything.
func merge(into, items []computeclient.Item) (all []computeclient.Item, changed bool) {
	all = slices.Clone(into)
	for _, item := range items {
		at := slices.IndexFunc(all, func(have computeclient.Item) bool { return have.Key == item.Key })
		switch {
		case at < 0:
			all, changed = append(all, item), true
		case all[at].Value != item.Value:
			all[at].Value, changed = item.Value, true
		}
	}
	return all, changed
}
