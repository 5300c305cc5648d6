package hub

import (
	"context"
	"errors"
	"fmt"

	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/hub/internal/identity"
	"github.com/shoal-dev/shoal/hub/internal/keeper/disk"
	"github.com/shoal-dev/shoal/hub/internal/keeper/valkey"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// CopyJournal copies the disk journal in directory from to the server of config.Valkey, which must have none under its
// prefix, and notes in the hub's Secret that the hub's leases are there from now on: a hub that starts with
// [JournalValkey] goes on as if nothing had happened. The hub must not run: its directory is locked otherwise. It returns
// how many records were copied. If it fails, the disk journal is still the one in use.
func CopyJournal(ctx context.Context, config Config, from string) (records int, err error) {
	config.JournalType = JournalValkey
	if len(config.Names) == 0 {
		config.Names = []string{"none"} // nothing is served
	}
	if config, err = config.complete(); err != nil {
		return 0, err
	}
	live, err := client.New(config.RestConfig, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return 0, fmt.Errorf("make a client of the API server: %w", err)
	}
	now := config.Clock.Now()
	hub, err := identity.ReadHub(ctx, live, config.Namespace, now)
	if err != nil {
		return 0, err
	}
	noted, err := identity.NotedJournal(ctx, live, config.Namespace)
	if err != nil {
		return 0, err
	}
	source, err := disk.Open(disk.Options{Dir: from, Owner: hub.UID(), Now: now, Logger: config.Logger})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	switch {
	case source.Fresh():
		return 0, fmt.Errorf("there is no journal in %s; name the directory that --journal-dir named", from)
	case noted != JournalDisk+"/"+source.ID():
		return 0, fmt.Errorf("the journal in %s is not the one in use, which is %q: start the hub with --journal=valkey, and it begins a new one", from, noted)
	}
	server, err := config.Valkey.server()
	if err != nil {
		return 0, err
	}
	since, whole := source.Since()
	target, err := valkey.Open(ctx, valkey.Options{
		Server: server, Prefix: config.Valkey.Prefix, Owner: hub.UID(), Now: now, New: whole, Since: since, LeastEpoch: source.Epoch(),
		Logger: config.Logger, Patience: config.Valkey.Patience, EverySecond: config.Valkey.EverySecond, Unchecked: config.Valkey.Unchecked,
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if !target.Fresh() {
		return 0, fmt.Errorf("the server has a journal of this hub under the prefix %q already; choose another --journal-valkey-prefix, or delete its keys", config.Valkey.Prefix)
	}
	err = target.Rewrite(ctx, func(emit func(lease.Record) error) error {
		return source.Load(ctx, func(rec lease.Record) error {
			records++
			return emit(rec)
		})
	})
	if err != nil {
		return 0, fmt.Errorf("copy the journal in %s; delete what is on the server before another attempt: %w", from, err)
	}
	if _, err := identity.SwapJournal(ctx, live, config.Namespace, valkeyName(target.ID(), target.Epoch())); err != nil {
		return 0, err
	}
	return records, nil
}
