package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/provider"
)

// leasesOutlive is how long what the hub said of leases stands while nothing more is heard of it: the hub repeats itself
// every minute, and a lease that nobody can renew has ended by then. Nodes must not be held for ever by a hub that is
// gone.
const leasesOutlive = time.Hour

// Busy is what the hub says of the leases of one member. It is safe for concurrent use.
type Busy struct {
	clock   clock.PassiveClock
	changed func(probe.UID)

	mu     sync.Mutex
	leased map[types.UID]struct{}
	all    bool
	heard  time.Time
}

// NewBusy makes a Busy that has heard nothing. A pass is asked for of verdicts for each Proxy that begins or ends to be
// leased.
func NewBusy(c clock.PassiveClock, verdicts *Verdicts) *Busy {
	return &Busy{clock: c, changed: verdicts.Changed, leased: map[types.UID]struct{}{}}
}

// Set takes the UIDs of all Proxies that are leased, or that all must be taken for leased.
func (b *Busy) Set(proxies []string, all bool) {
	next := make(map[types.UID]struct{}, len(proxies))
	for _, uid := range proxies {
		next[types.UID(uid)] = struct{}{}
	}
	b.mu.Lock()
	before := b.leased
	b.leased, b.all, b.heard = next, all, b.clock.Now()
	b.mu.Unlock()
	for uid := range next {
		if _, was := before[uid]; !was {
			b.changed(probe.UID(uid))
		}
	}
	for uid := range before {
		if _, is := next[uid]; !is {
			b.changed(probe.UID(uid))
		}
	}
}

// of says whether a Proxy is leased. Until the hub has said so, nothing is known.
func (b *Busy) of(uid types.UID) (leased, known bool) {
	if b == nil {
		return false, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.heard.IsZero() {
		return false, false
	}
	_, leased = b.leased[uid]
	return (leased || b.all) && b.clock.Since(b.heard) < leasesOutlive, true
}

// mark keeps others away from the instance while the proxy is leased, where the provider can. A mark that fails is set
// in another pass, and is no reason to hold anything else up.
func (r *Reconciler) mark(ctx context.Context, s *scope) (time.Duration, error) {
	leased, known := s.site.Busy.of(s.proxy.UID)
	if !known || s.entry == nil || s.instance == nil || s.instance.State == provider.StateFailed {
		return 0, nil
	}
	marker, ok := s.entry.Provider.(provider.Marker)
	if !ok {
		return 0, nil
	}
	err := marker.Mark(ctx, provider.Ref{Name: s.instance.Name, Zone: s.instance.Zone}, s.identity, leased)
	if err != nil && !provider.IsNotFound(err) {
		logr.FromContextOrDiscard(ctx).Error(err, "cannot mark the instance", "leased", leased)
		return look, nil
	}
	return 0, nil
}
