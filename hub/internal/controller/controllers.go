// Package controller lists the loops of the hub: what each takes in and what it gives out.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/controller/fleet"
	"github.com/shoal-dev/shoal/hub/internal/controller/member"
	"github.com/shoal-dev/shoal/hub/internal/controller/placement"
	"github.com/shoal-dev/shoal/hub/internal/dispatch"
	"github.com/shoal-dev/shoal/hub/internal/external"
	"github.com/shoal-dev/shoal/hub/internal/feed"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
)

// Options are what the loops share. All but HistoryComplete, GiveUpAfter and SkipNameValidation are required.
type Options struct {
	// Dispatcher takes desired state. Inventory gives observed state; Setup runs its clock too.
	Dispatcher *dispatch.Dispatcher
	Inventory  *inventory.Inventory
	// Keeper answers for the lease engine. It may start later than the loops: they try again.
	Keeper feed.Keeper
	// Credentials are those of proxies that someone else runs.
	Credentials *external.Store
	// StartedAt is when the lease engine's history begins, as in lease.Options; HistoryComplete says that its journal
	// survives a restart of the hub.
	StartedAt       time.Time
	HistoryComplete bool
	// Clock is the hub's.
	Clock clock.WithTicker
	// GiveUpAfter is how long a deletion waits for a lost member: 10 min if zero.
	GiveUpAfter time.Duration
	// SkipNameValidation lets several hubs run in one process, in tests.
	SkipNameValidation bool
}

// Setup adds every loop to the manager, whose scheme must know the hub's kinds. It starts nothing.
func Setup(mgr ctrl.Manager, opts Options) error {
	if opts.Dispatcher == nil || opts.Inventory == nil || opts.Keeper == nil || opts.Credentials == nil || opts.Clock == nil ||
		opts.StartedAt.IsZero() {
		return errors.New("set Dispatcher, Inventory, Keeper, Credentials, Clock and StartedAt of controller.Options")
	}
	s := &setup{mgr: mgr, opts: opts}
	steps := []struct {
		name string
		add  func() error
	}{
		{"index placements by uid", s.index},
		// time → changes of the members' states
		{"inventory clock", func() error { return mgr.Add(manager.RunnableFunc(opts.Inventory.Run)) }},
		// fleets, placements, members, inventory → what may be leased, to the lease engine
		{"feed", s.feed},
		// fleets, members, inventory, leases → placements, status of fleets
		{"fleet", s.fleet},
		// placements → desired state of members; acks and reports → status of placements
		{"placement", s.placement},
		// inventory → status of members
		{"member", s.member},
	}
	for _, step := range steps {
		if err := step.add(); err != nil {
			return fmt.Errorf("set up %s: %w", step.name, err)
		}
	}
	return nil
}

type setup struct {
	mgr  ctrl.Manager
	opts Options
	fed  *feed.Feed
}

// indexUID finds a placement by its UID, the only name that members know it by.
const indexUID = "metadata.uid"

func (s *setup) index() error {
	return s.mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.ProxyPlacement{}, indexUID,
		func(o client.Object) []string { return []string{string(o.GetUID())} })
}

func (s *setup) feed() error {
	s.fed = feed.New(feed.Options{
		Keeper: s.opts.Keeper, Inventory: s.opts.Inventory, Reader: s.mgr.GetClient(), Clock: s.opts.Clock,
		StartedAt: s.opts.StartedAt, Logger: s.mgr.GetLogger().WithName("feed"),
	})
	return s.mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		for _, kind := range []client.Object{&v1alpha1.ProxyFleet{}, &v1alpha1.ProxyPlacement{}, &v1alpha1.MemberCluster{}} {
			informer, err := s.mgr.GetCache().GetInformer(ctx, kind)
			if err != nil {
				return fmt.Errorf("watch %T for the lease engine: %w", kind, err)
			}
			if _, err := informer.AddEventHandler(onAnyChange(s.fed.ObjectsChanged)); err != nil {
				return fmt.Errorf("watch %T for the lease engine: %w", kind, err)
			}
		}
		return s.fed.Start(ctx)
	}))
}

func (s *setup) fleet() error {
	return s.watchFleets(fleet.New(fleet.Options{
		Client: s.mgr.GetClient(), Live: s.mgr.GetAPIReader(), Inventory: s.opts.Inventory, Keeper: s.opts.Keeper,
		History: s.fed, Credentials: s.opts.Credentials, HistoryComplete: s.opts.HistoryComplete, StartedAt: s.opts.StartedAt, Clock: s.opts.Clock,
		Recorder: s.mgr.GetEventRecorder("fleet"),
	}))
}

func (s *setup) placement() error {
	r := placement.New(placement.Options{
		Client: s.mgr.GetClient(), Dispatcher: s.opts.Dispatcher, Inventory: s.opts.Inventory, Credentials: s.opts.Credentials,
		Clock: s.opts.Clock, GiveUpAfter: s.opts.GiveUpAfter,
	})
	if err := s.mgr.Add(manager.RunnableFunc(r.Load)); err != nil {
		return err
	}
	return s.watchPlacements(r)
}

func (s *setup) member() error {
	return s.watchMembers(member.New(member.Options{
		Client: s.mgr.GetClient(), Inventory: s.opts.Inventory, Dispatcher: s.opts.Dispatcher, Clock: s.opts.Clock,
		Recorder: s.mgr.GetEventRecorder("member"), GiveUpAfter: s.opts.GiveUpAfter,
	}))
}
