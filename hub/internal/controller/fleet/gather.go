package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/feed"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/placement"
	"github.com/shoal-dev/shoal/hub/internal/rollout"
)

// scope is what one pass looks at, and what its phases found out.
type scope struct {
	// Gathered; not changed by phases.
	now      time.Time
	fleet    *v1alpha1.ProxyFleet
	revision string
	// members are all MemberClusters that there are, by name.
	members []*member
	// placements are the fleet's that are not being deleted and whose member exists, in order of name.
	placements []*placed
	// orphans are those whose member exists no more, going those that are being deleted.
	orphans []*v1alpha1.ProxyPlacement
	going   []*placed
	// use is how proxies are leased, by UID. It is empty while the lease engine does not know the fleet.
	use   map[string]lease.Use
	stats lease.Stats
	// outside is of a fleet of proxies that someone else runs; nil for others.
	outside *outside
	// graceUntil is until when leases may live that the engine has never heard of; zero if none may.
	graceUntil time.Time

	// accepted is by accept.
	accepted metav1.Condition
	// decision is by plan; nil if the fleet was not accepted.
	decision *placement.Decision
	// held is by hold: why nothing may be removed. Empty if it may.
	held string
	// step is by roll; nil if nothing is to be changed.
	step *rollout.Plan

	requeue time.Duration
}

// member is a MemberCluster and what is heard of it.
type member struct {
	*v1alpha1.MemberCluster
	view inventory.MemberView
	// fits says that the fleet selects the member and that it is accepted and here to stay.
	fits bool
	// unfit says why not.
	unfit string
	// have is how many proxies of the fleet are assigned to it, haveHere of those with the template's provider.
	have, haveHere int32
}

// placed is a placement and what its member reported.
type placed struct {
	*v1alpha1.ProxyPlacement
	proxies []inventory.ProxyView
	view    inventory.MemberView
}

// gather reads everything a pass looks at. Placements come from reader, the rest from caches.
func (r *Reconciler) gather(ctx context.Context, reader client.Reader, fleet *v1alpha1.ProxyFleet) (*scope, error) {
	s := &scope{now: r.opts.Clock.Now(), fleet: fleet, use: map[string]lease.Use{}, requeue: pollInterval}
	if fleet.Spec.External != nil {
		s.revision = v1alpha1.RevisionExternal
	}
	if fleet.Spec.Template != nil {
		revision, err := revisionOf(fleet.Spec.Template)
		if err != nil {
			return nil, err
		}
		s.revision = revision
	}
	if err := r.gatherMembers(ctx, s); err != nil {
		return nil, err
	}
	if err := r.gatherPlacements(ctx, reader, s); err != nil {
		return nil, err
	}
	if err := r.gatherLeases(ctx, s); err != nil {
		return nil, err
	}
	if err := r.gatherOutside(ctx, s); err != nil {
		return nil, err
	}
	return s, nil
}

func (r *Reconciler) gatherMembers(ctx context.Context, s *scope) error {
	var list v1alpha1.MemberClusterList
	if err := r.opts.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("list members: %w", err)
	}
	for i := range list.Items {
		mc := &list.Items[i]
		s.members = append(s.members, &member{MemberCluster: mc, view: r.opts.Inventory.Member(mc.Name)})
	}
	slices.SortFunc(s.members, func(a, b *member) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// listPlacements lists the placements of this very fleet, not of an earlier one of the same name.
func listPlacements(
	ctx context.Context, reader client.Reader, fleet *v1alpha1.ProxyFleet,
) ([]*v1alpha1.ProxyPlacement, error) {
	var list v1alpha1.ProxyPlacementList
	err := reader.List(ctx, &list,
		client.InNamespace(fleet.Namespace), client.MatchingLabels{v1alpha1.LabelFleet: fleet.Name})
	if err != nil {
		return nil, fmt.Errorf("list placements: %w", err)
	}
	var own []*v1alpha1.ProxyPlacement
	for i := range list.Items {
		if list.Items[i].Spec.Fleet.UID == fleet.UID {
			own = append(own, &list.Items[i])
		}
	}
	slices.SortFunc(own, func(a, b *v1alpha1.ProxyPlacement) int { return cmp.Compare(a.Name, b.Name) })
	return own, nil
}

func (r *Reconciler) gatherPlacements(ctx context.Context, reader client.Reader, s *scope) error {
	own, err := listPlacements(ctx, reader, s.fleet)
	if err != nil {
		return err
	}
	for _, pp := range own {
		m := s.member(pp.Spec.Member)
		view := r.opts.Inventory.Member(pp.Spec.Member)
		if m != nil {
			view = m.view // one verdict a pass
		}
		p := r.placed(pp, view)
		switch {
		case !pp.DeletionTimestamp.IsZero():
			s.going = append(s.going, p)
		case m == nil:
			s.orphans = append(s.orphans, pp)
		default:
			s.placements = append(s.placements, p)
			m.have += pp.Spec.Replicas
			if s.fleet.Spec.Template != nil && pp.Spec.Template.Spec.Provider == s.fleet.Spec.Template.Spec.Provider {
				m.haveHere += pp.Spec.Replicas
			}
		}
	}
	return nil
}

// placed joins a placement with the reports on it. Reports by another member than the placement's are not believed.
func (r *Reconciler) placed(pp *v1alpha1.ProxyPlacement, view inventory.MemberView) *placed {
	p := &placed{ProxyPlacement: pp, view: view}
	for _, proxy := range r.opts.Inventory.Proxies(string(pp.UID)) {
		if proxy.Member == pp.Spec.Member {
			p.proxies = append(p.proxies, proxy)
		}
	}
	return p
}

func (r *Reconciler) gatherLeases(ctx context.Context, s *scope) error {
	id := feed.FleetID(s.fleet.Namespace, s.fleet.Name)
	if !r.opts.HistoryComplete {
		if before, _ := r.opts.History.HeldBefore(s.fleet.UID); before {
			s.graceUntil = r.opts.StartedAt.Add(s.fleet.Spec.Leasing.MaxTTL.Duration)
		}
	}
	stats, err := ask[lease.Stats](ctx, r.opts.Keeper, lease.ReadStats{Fleet: id})
	if err != nil {
		return err
	}
	s.stats = stats
	uses, err := ask[lease.UseList](ctx, r.opts.Keeper, lease.ReadUse{Fleet: id})
	if err != nil {
		return err
	}
	for _, use := range uses.Proxies {
		s.use[string(use.UID)] = use
	}
	return nil
}

func (s *scope) member(name string) *member {
	for _, m := range s.members {
		if m.Name == name {
			return m
		}
	}
	return nil
}
