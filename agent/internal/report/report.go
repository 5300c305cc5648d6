// Package report tells the hub what a member has: one report a Proxy, one a ProxySet, latest-wins.
//
// Transitions come from the objects and are reported at once. What changes with every probe (how long ago the last one
// came through, and how long it took) comes from the probe engine and is refreshed every few seconds; it never touches
// the API server.
package report

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/api/v1alpha1"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// refreshInterval is how often the ages and latencies of ready proxies are told.
const refreshInterval = 5 * time.Second

// Outbox takes reports. *uplink.Outbox is one.
type Outbox interface {
	Put(u *agentv1.Upsert)
	Delete(uid string)
	MarkReady()
}

// Prober tells verdicts. *probe.Runner is one.
type Prober interface {
	Verdict(uid probe.UID) (probe.Verdict, bool)
	Freeze() probe.Freeze
}

// Options configures a Reporter.
type Options struct {
	// Cache tells of the member's objects.
	Cache cache.Cache
	// Namespace is the agent's own.
	Namespace string
	// Outbox takes the reports.
	Outbox Outbox
	// Prober tells verdicts.
	Prober Prober
	// Clock tells how old a verdict is.
	Clock clock.WithTicker
}

// Reporter tells the hub what a member has.
type Reporter struct {
	o Options

	mu      sync.Mutex // guards what follows
	proxies map[string]*v1alpha1.Proxy
	sets    map[string]*v1alpha1.ProxySet // by the UID of their placements
	freeze  probe.Freeze                  // as it was told
}

// New makes a Reporter.
func New(o Options) (*Reporter, error) {
	if o.Cache == nil || o.Namespace == "" || o.Outbox == nil || o.Prober == nil || o.Clock == nil {
		return nil, errors.New("report: Cache, Namespace, Outbox, Prober and Clock are required")
	}
	return &Reporter{o: o, proxies: map[string]*v1alpha1.Proxy{}, sets: map[string]*v1alpha1.ProxySet{}}, nil
}

// Run reports until ctx ends. It says that the reports are complete once it has put everything that there is.
func (r *Reporter) Run(ctx context.Context) error {
	synced, err := r.subscribe(ctx)
	if err != nil {
		return err
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	r.o.Outbox.MarkReady()
	ticker := r.o.Clock.NewTicker(refreshInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			r.refresh()
		}
	}
}

// subscribe hears of every object, those that are there first.
func (r *Reporter) subscribe(ctx context.Context) ([]toolscache.InformerSynced, error) {
	handlers := map[client.Object]toolscache.ResourceEventHandlerFuncs{
		&v1alpha1.Proxy{}: {
			AddFunc:    func(o any) { r.seeProxy(o) },
			UpdateFunc: func(_, o any) { r.seeProxy(o) },
			DeleteFunc: func(o any) { r.loseProxy(o) },
		},
		&v1alpha1.ProxySet{}: {
			AddFunc:    func(o any) { r.seeSet(o) },
			UpdateFunc: func(_, o any) { r.seeSet(o) },
			DeleteFunc: func(o any) { r.loseSet(o) },
		},
	}
	var synced []toolscache.InformerSynced
	for object, handler := range handlers {
		informer, err := r.o.Cache.GetInformer(ctx, object)
		if err != nil {
			return nil, fmt.Errorf("report: watch %T: %w", object, err)
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, fmt.Errorf("report: watch %T: %w", object, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	return synced, nil
}

func (r *Reporter) seeProxy(o any) {
	p, ok := o.(*v1alpha1.Proxy)
	if !ok || p.Namespace != r.o.Namespace {
		return
	}
	r.mu.Lock()
	r.proxies[string(p.UID)] = p
	r.mu.Unlock()
	r.putProxy(p)
}

func (r *Reporter) loseProxy(o any) {
	p, ok := last(o).(*v1alpha1.Proxy)
	if !ok {
		return
	}
	r.mu.Lock()
	delete(r.proxies, string(p.UID))
	r.mu.Unlock()
	r.o.Outbox.Delete(string(p.UID))
}

func (r *Reporter) seeSet(o any) {
	if set, ok := o.(*v1alpha1.ProxySet); ok && set.Namespace == r.o.Namespace {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sets[string(set.Spec.PlacementUID)] = set
		r.putSet(set)
	}
}

// putSet is called with the lock held, so that no older state follows a newer one.
func (r *Reporter) putSet(set *v1alpha1.ProxySet) {
	report := SetReport(set, r.freeze)
	r.o.Outbox.Put(&agentv1.Upsert{
		Uid:        string(set.Spec.PlacementUID),
		Generation: set.Generation,
		Hash:       hash(report),
		Body:       &agentv1.Upsert_ProxySet{ProxySet: report},
	})
}

func (r *Reporter) loseSet(o any) {
	if set, ok := last(o).(*v1alpha1.ProxySet); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.sets, string(set.Spec.PlacementUID))
		r.o.Outbox.Delete(string(set.Spec.PlacementUID))
	}
}

// last gives the last known state of an object that is gone, also where the event of that was missed.
func last(o any) any {
	if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return o
}

// refresh tells the ages and latencies anew, and whether verdicts are frozen if that has changed.
func (r *Reporter) refresh() {
	freeze := r.o.Prober.Freeze()
	r.mu.Lock()
	if freeze.Frozen != r.freeze.Frozen || freeze.Reason != r.freeze.Reason {
		r.freeze = freeze
		for _, set := range r.sets {
			r.putSet(set)
		}
	}
	proxies := make([]*v1alpha1.Proxy, 0, len(r.proxies))
	for _, p := range r.proxies {
		proxies = append(proxies, p)
	}
	r.mu.Unlock()
	for _, p := range proxies {
		r.putProxy(p)
	}
}

func (r *Reporter) putProxy(p *v1alpha1.Proxy) {
	verdict, judged := r.o.Prober.Verdict(probe.UID(p.UID))
	report := ProxyReport(p, verdict, judged, r.o.Clock.Now())
	r.o.Outbox.Put(&agentv1.Upsert{
		Uid:        string(p.UID),
		Generation: p.Generation,
		Hash:       hash(report),
		Body:       &agentv1.Upsert_Proxy{Proxy: report},
	})
	// The object may have gone while this was made.
	r.mu.Lock()
	_, there := r.proxies[string(p.UID)]
	r.mu.Unlock()
	if !there {
		r.o.Outbox.Delete(string(p.UID))
	}
}

// ProxyReport makes the report of one Proxy at now.
func ProxyReport(p *v1alpha1.Proxy, verdict probe.Verdict, judged bool, now time.Time) *agentv1.ProxyReport {
	is := func(t string) bool { return meta.IsStatusConditionTrue(p.Status.Conditions, t) }
	report := &agentv1.ProxyReport{
		PlacementUid: p.Labels[v1alpha1.LabelPlacementUID],
		Name:         p.Name,
		Phase:        string(p.Status.Phase),
		Ready:        is(v1alpha1.ConditionReady) && p.DeletionTimestamp == nil,
		Saturated:    is(v1alpha1.ConditionSaturated),
		Draining:     is(v1alpha1.ConditionDraining) || p.Spec.Drain != nil || p.DeletionTimestamp != nil,
		Exits:        p.Status.Exits,
		ProbeClass:   p.Status.Probe.Class,
		CreatedAt:    timestamppb.New(p.CreationTimestamp.Time),
		Conditions:   conditions(p.Status.Conditions),
	}
	for _, e := range p.Status.Endpoints {
		report.Endpoints = append(report.Endpoints, &agentv1.Endpoint{Network: string(e.Network), Host: e.Host, Port: uint32(e.Port), Tls: e.TLS}) //nolint:gosec // a port
	}
	if judged {
		report.ProbeClass = string(verdict.Class)
		// Another exit is another identity, and must not wait for an API server that is slow to take the status.
		if len(verdict.Exits) > 0 {
			report.Exits = nil
			for _, exit := range verdict.Exits {
				report.Exits = append(report.Exits, exit.String())
			}
		}
		if !verdict.LastOK.IsZero() {
			report.ReadyAge = durationpb.New(max(now.Sub(verdict.LastOK), 0).Truncate(time.Second))
			report.Latency = durationpb.New(verdict.Latency.Truncate(time.Millisecond))
		}
	}
	return report
}

// SetReport makes the report of one ProxySet. While verdicts are frozen it is Degraded and says why.
func SetReport(set *v1alpha1.ProxySet, freeze probe.Freeze) *agentv1.ProxySetReport {
	return &agentv1.ProxySetReport{
		PlacementUid:        string(set.Spec.PlacementUID),
		PlacementGeneration: set.Status.PlacementGeneration,
		Replicas:            set.Status.Replicas,
		Ready:               set.Status.Ready,
		Draining:            set.Status.Draining,
		Conditions:          append(conditions(set.Status.Conditions), frozen(freeze)...),
	}
}

// frozen tells no counts: they change with every probe.
func frozen(freeze probe.Freeze) []*agentv1.Condition {
	if !freeze.Frozen {
		return nil
	}
	why := "most proxies fail their probes together; see to what they share, such as the agent's way to them"
	if freeze.Reason == probe.FreezeTargets {
		why = "most proxies reach no probe target; see to the targets and the member's way to them"
	}
	return []*agentv1.Condition{{
		Type: v1alpha1.ConditionDegraded, Status: string(metav1.ConditionTrue), Reason: v1alpha1.ReasonVerdictsFrozen,
		Message: why + ": until that ends no proxy is judged unhealthy",
	}}
}

func conditions(from []metav1.Condition) []*agentv1.Condition {
	to := make([]*agentv1.Condition, 0, len(from))
	for _, c := range from {
		to = append(to, &agentv1.Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message})
	}
	return to
}

// hash changes whenever a report does.
func hash(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		// A message of strings that are not UTF-8. What cannot be sent must not be taken for sent.
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}
