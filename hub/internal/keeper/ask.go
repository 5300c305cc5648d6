package keeper

import (
	"context"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// ask does a command whose result is of a known type.
func ask[R lease.Result](ctx context.Context, k *Keeper, cmd lease.Command) (R, error) {
	var none R
	result, err := k.Do(ctx, cmd)
	if err != nil {
		return none, err
	}
	return result.(R), nil
}

// Acquire does [lease.Acquire].
func (k *Keeper) Acquire(ctx context.Context, cmd lease.Acquire) (lease.Granted, error) {
	return ask[lease.Granted](ctx, k, cmd)
}

// Renew does [lease.Renew].
func (k *Keeper) Renew(ctx context.Context, cmd lease.Renew) (lease.Renewed, error) {
	return ask[lease.Renewed](ctx, k, cmd)
}

// Release does [lease.Release].
func (k *Keeper) Release(ctx context.Context, cmd lease.Release) (lease.Released, error) {
	return ask[lease.Released](ctx, k, cmd)
}

// Report does [lease.Report].
func (k *Keeper) Report(ctx context.Context, cmd lease.Report) (lease.Reported, error) {
	return ask[lease.Reported](ctx, k, cmd)
}

// Get does [lease.Get].
func (k *Keeper) Get(ctx context.Context, cmd lease.Get) (lease.Found, error) {
	return ask[lease.Found](ctx, k, cmd)
}

// List does [lease.List].
func (k *Keeper) List(ctx context.Context, cmd lease.List) (lease.Page, error) {
	return ask[lease.Page](ctx, k, cmd)
}

// Stats does [lease.ReadStats].
func (k *Keeper) Stats(ctx context.Context, fleet lease.FleetID) (lease.Stats, error) {
	return ask[lease.Stats](ctx, k, lease.ReadStats{Fleet: fleet})
}

// Use does [lease.ReadUse].
func (k *Keeper) Use(ctx context.Context, fleet lease.FleetID) (lease.UseList, error) {
	return ask[lease.UseList](ctx, k, lease.ReadUse{Fleet: fleet})
}

// Busy does [lease.ReadBusy].
func (k *Keeper) Busy(ctx context.Context) (lease.Busy, error) {
	return ask[lease.Busy](ctx, k, lease.ReadBusy{})
}

// Drain does [lease.Drain].
func (k *Keeper) Drain(ctx context.Context, cmd lease.Drain) (lease.Drained, error) {
	return ask[lease.Drained](ctx, k, cmd)
}

// Queued tells how many commands wait for the engine.
func (k *Keeper) Queued() int { return len(k.queue) }
