package feed

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// world is what the hub's objects say, in the engine's words.
type world struct {
	fleets     map[lease.FleetID]lease.Fleet
	placements map[string]placed
	sites      map[string]site
}

// site is a member.
type site struct {
	region, country string
	accepted        bool
}

// placed is a placement: what its proxies have in common.
type placed struct {
	fleet  lease.FleetID
	member string
	site   site
	labels map[string]string
	// going says that the placement is being deleted.
	going bool
	drain map[string]time.Time
	// endpoints are those of proxies that someone else runs, by name; nil for a placement of our own.
	endpoints map[string]v1alpha1.PlacedEndpoint
}

func (p placed) equal(q placed) bool {
	return p.fleet == q.fleet && p.member == q.member && p.site == q.site && p.going == q.going &&
		maps.Equal(p.labels, q.labels) && maps.EqualFunc(p.drain, q.drain, time.Time.Equal) &&
		(p.endpoints == nil) == (q.endpoints == nil) && maps.EqualFunc(p.endpoints, q.endpoints, sameEndpoint)
}

// readWorld reads all objects. served are the UIDs of fleets that a hub has taken up already, this one or another.
func readWorld(
	ctx context.Context, reader client.Reader, heldBefore func(types.UID) (before, known bool), startedAt time.Time,
) (world, map[types.UID]struct{}, error) {
	w := world{
		fleets: map[lease.FleetID]lease.Fleet{}, placements: map[string]placed{}, sites: map[string]site{},
	}
	var fleets v1alpha1.ProxyFleetList
	if err := reader.List(ctx, &fleets); err != nil {
		return w, nil, fmt.Errorf("list fleets for the lease engine: %w", err)
	}
	var members v1alpha1.MemberClusterList
	if err := reader.List(ctx, &members); err != nil {
		return w, nil, fmt.Errorf("list members for the lease engine: %w", err)
	}
	var placements v1alpha1.ProxyPlacementList
	if err := reader.List(ctx, &placements); err != nil {
		return w, nil, fmt.Errorf("list placements for the lease engine: %w", err)
	}
	served := map[types.UID]struct{}{}
	for i := range placements.Items {
		served[placements.Items[i].Spec.Fleet.UID] = struct{}{}
	}
	for i := range fleets.Items {
		fleet := &fleets.Items[i]
		if controllerutil.ContainsFinalizer(fleet, v1alpha1.FinalizerFleet) || fleet.Status.ObservedGeneration > 0 {
			served[fleet.UID] = struct{}{}
		}
	}
	if heldBefore == nil {
		heldBefore = func(uid types.UID) (bool, bool) {
			_, before := served[uid]
			return before, true
		}
	}
	for i := range fleets.Items {
		fleet := &fleets.Items[i]
		if !fleet.DeletionTimestamp.IsZero() {
			continue // nothing of it may be granted
		}
		before, _ := heldBefore(fleet.UID)
		id := FleetID(fleet.Namespace, fleet.Name)
		w.fleets[id] = lease.Fleet{ID: id, Created: created(fleet, before, startedAt), Policy: policy(&fleet.Spec.Leasing)}
	}
	for i := range members.Items {
		m := &members.Items[i]
		w.sites[m.Name] = site{
			region: m.Spec.Region, country: m.Spec.Country,
			accepted: m.Spec.Accepted && m.DeletionTimestamp.IsZero(),
		}
	}
	for i := range placements.Items {
		p := &placements.Items[i]
		drain := make(map[string]time.Time, len(p.Spec.Drain))
		for _, d := range p.Spec.Drain {
			drain[d.Name] = d.Deadline.Time
		}
		w.placements[string(p.UID)] = placed{
			fleet: FleetID(p.Namespace, p.Spec.Fleet.Name), member: p.Spec.Member, site: w.sites[p.Spec.Member],
			labels: p.Spec.Template.Metadata.Labels, going: !p.DeletionTimestamp.IsZero(), drain: drain,
			endpoints: endpointsOf(p),
		}
	}
	return w, served, nil
}

// FleetID is how the lease engine names a fleet.
func FleetID(namespace, name string) lease.FleetID { return lease.FleetID(namespace + "/" + name) }

// created places the fleet before or after the beginning of the engine's history. The API server's clock and its whole
// seconds do not decide it; what was there when the hub started does.
func created(fleet *v1alpha1.ProxyFleet, before bool, startedAt time.Time) time.Time {
	at := fleet.CreationTimestamp.Time
	switch {
	case before && at.After(startedAt):
		return startedAt
	case !before && !at.After(startedAt):
		return startedAt.Add(time.Nanosecond)
	}
	return at
}

func policy(l *v1alpha1.FleetLeasing) lease.Policy {
	const defaultSlots = 5 // as in the API's schema, for objects that were never defaulted
	slots := defaultSlots
	if l.MaxLeasesPerProxy != nil {
		slots = int(*l.MaxLeasesPerProxy)
	}
	targets := make([]lease.TargetRule, 0, len(l.Targets)+1)
	general := true
	for i := range l.Targets {
		targets = append(targets, targetRule(&l.Targets[i]))
		general = general && l.Targets[i].Match != lease.AnyTarget
	}
	if general {
		targets = append(targets, lease.TargetRule{Match: lease.AnyTarget, Implied: true})
	}
	return lease.Policy{
		Targets:           targets,
		MaxLeasesPerProxy: slots,
		DefaultTTL:        l.DefaultTTL.Duration,
		MaxTTL:            l.MaxTTL.Duration,
		MaxLifetime:       l.MaxLifetime.Duration,
		ReuseDelay:        l.ReuseDelay.Duration,
		Cooldown: lease.Cooldown{
			Base: l.Cooldown.Base.Duration, Factor: float64(l.Cooldown.Factor), Max: l.Cooldown.Max.Duration,
		},
	}
}

func targetRule(r *v1alpha1.TargetRule) lease.TargetRule {
	rule := lease.TargetRule{Match: r.Match, MaxConcurrentPerExit: int(r.MaxConcurrentPerExit), MinInterval: r.MinInterval.Duration}
	switch r.Pace {
	case v1alpha1.TargetPaceFixed:
		rule.Pace = lease.PaceFixed
	case v1alpha1.TargetPaceOff:
		rule.Pace = lease.PaceOff
	case v1alpha1.TargetPaceAuto: // as is an object that was never defaulted
	}
	if c := r.Cooldown; c != nil {
		rule.Cooldown = lease.Cooldown{Base: c.Base.Duration, Factor: float64(c.Factor), Max: c.Max.Duration}
	}
	return rule
}

// changedPlacements yields the UIDs of placements that differ from those of old.
func (w world) changedPlacements(old world) iter.Seq[string] {
	return func(yield func(string) bool) {
		for uid, p := range w.placements {
			if was, ok := old.placements[uid]; (!ok || !p.equal(was)) && !yield(uid) {
				return
			}
		}
		for uid := range old.placements {
			if _, ok := w.placements[uid]; !ok && !yield(uid) {
				return
			}
		}
	}
}

// proxy describes a proxy to the engine; false if its placement is unknown or on another member.
func (w world) proxy(view inventory.ProxyView) (lease.Proxy, bool) {
	r := view.Report
	of, ok := w.placements[r.GetPlacementUid()]
	if !ok || of.member != view.Member {
		return lease.Proxy{}, false
	}
	deadline, drains := of.drain[r.GetName()]
	p := lease.Proxy{
		UID: lease.ProxyUID(view.UID), Fleet: of.fleet, Member: lease.MemberID(view.Member), Name: r.GetName(),
		Region: of.site.region, Country: of.site.country, Labels: of.labels,
		Ready: view.Ready, Saturated: r.GetSaturated(),
		Draining: drains || of.going || r.GetDraining(), DrainDeadline: deadline,
		LastSeen: view.ReceivedAt, LastReady: view.LastReady,
	}
	if of.endpoints != nil {
		of.outside(&p)
	}
	for _, e := range r.GetEndpoints() {
		if e.GetPort() == 0 || e.GetPort() > 65535 || e.GetHost() == "" {
			continue // not a place anybody can reach
		}
		if of.endpoints != nil || e.GetNetwork() == string(v1alpha1.NetworkExternal) {
			continue // where someone else's proxy is, its fleet says and no member
		}
		p.Endpoints = append(p.Endpoints, lease.Endpoint{
			Network: lease.Network(e.GetNetwork()), Host: e.GetHost(), Port: uint16(e.GetPort()), TLS: e.GetTls(),
		})
	}
	for _, text := range r.GetExits() {
		if addr, err := netip.ParseAddr(text); err == nil {
			p.Exits = append(p.Exits, addr.Unmap())
		}
	}
	return p, true
}
