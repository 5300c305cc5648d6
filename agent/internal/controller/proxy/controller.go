package proxy

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Name is the controller's name, in logs and metrics.
const Name = "proxy"

// backoffFirst and backoffMost bound the wait after an error. It doubles.
const (
	backoffFirst = 200 * time.Millisecond
	backoffMost  = time.Minute
)

// Prober probes proxies and keeps verdicts. *probe.Runner is one.
type Prober interface {
	Upsert(p probe.Proxy)
	Remove(uid probe.UID)
	Verdict(uid probe.UID) (probe.Verdict, bool)
}

// Entry is an entry of the provider file.
type Entry struct {
	// Provider makes the instances.
	Provider provider.Provider
	// Salt is hashed with a Proxy's spec, so that a changed entry replaces the instances made from it.
	Salt string
	// FirstPort and LastPort are the range of ports on the member's nodes; 0 where proxies are not exposed that way.
	FirstPort, LastPort int32
}

// Member is what the controller must know of the member it works in.
type Member interface {
	// Identity gives the UIDs of hub and member, and whether they are known yet.
	Identity() (hubUID, memberUID string, ok bool)
}

// Credential makes the user name and password of a probe through one proxy.
type Credential func(now time.Time, proxyUID string) (user, pass string, err error)

// Site is all that the controller must know of one engaged member: a cluster, or a region of a cloud.
type Site struct {
	// Client reads and writes the member's objects.
	Client client.Client
	// Reader reads past the cache: single Secrets, which no cache may list.
	Reader client.Reader
	// Entries are the entries of the provider file that the member offers, by the names that fleets use.
	Entries map[string]Entry
	// Member tells whose the instances are.
	Member Member
	// Policy is the owner's ceiling for the member, asked anew in each pass: node addresses come and go.
	Policy func() ceiling.Policy
	// Prober probes the member's proxies. Each member has one of its own, because verdicts freeze member by member.
	Prober Prober
	// Credential makes credentials for probes.
	Credential Credential
	// Busy is what the hub says of the member's leases; nil where nobody hears it.
	Busy *Busy
}

// Options configures a Reconciler.
type Options struct {
	// Clock dates transitions.
	Clock clock.PassiveClock
	// Site gives a member by the name it is engaged under.
	Site func(ctx context.Context, cluster string) (Site, error)
	// HomeClusterUID is the UID of the cluster that the agent runs in.
	HomeClusterUID string
	// Echoes are the probe targets, open to every proxy.
	Echoes []netip.AddrPort
	// Verdicts is told by who runs the Probers when a verdict has changed.
	Verdicts *Verdicts
	// Started is a source without events: whoever engages members waits until it was started, for what is engaged before
	// can end the whole manager where it fails. Nil where nobody waits.
	Started source.TypedSource[mcreconcile.Request]
	// Recorder takes events on transitions; nil takes none.
	Recorder events.EventRecorder
}

// Reconciler leads Proxies through their life.
type Reconciler struct {
	o Options
	// started is when this process began to lead.
	started time.Time
	census  *census
	blocks  *blocks
	asks    *asks
	moves   *moves
	lists   *lister
	// names holds the UID of each Proxy by its request, for when there is nothing left but the request.
	names sync.Map
	// owners holds the credentials of proxies that someone else runs, by the UID of the Proxy.
	owners sync.Map
}

// New makes a Reconciler.
func New(o Options) (*Reconciler, error) {
	if o.Clock == nil || o.Site == nil || o.Verdicts == nil || o.HomeClusterUID == "" {
		return nil, errors.New("proxy controller: Clock, Site, HomeClusterUID and Verdicts are required")
	}
	return &Reconciler{o: o, started: o.Clock.Now(), census: newCensus(), blocks: newBlocks(), asks: newAsks(), moves: newMoves(), lists: newLister(o.Clock)}, nil
}

// SetupWithManager adds the controller to mgr.
func (r *Reconciler) SetupWithManager(mgr mcmanager.Manager) error {
	b := mcbuilder.ControllerManagedBy(mgr).Named(Name).
		For(&v1alpha1.Proxy{}).
		Owns(&corev1.Pod{}).
		WatchesRawSource(r.o.Verdicts).
		// The manager's own controller options are ignored by multicluster-runtime v0.24.1: they belong here.
		WithOptions(mccontroller.Options{
			MaxConcurrentReconciles: 8, CacheSyncTimeout: 2 * time.Minute, ReconciliationTimeout: time.Minute,
			// Several agents may run in one process: in tests they do.
			SkipNameValidation: ptr.To(true),
			RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](backoffFirst, backoffMost),
		}).
		// multicluster-runtime's own leaves out who a line is about.
		WithLogConstructor(func(req *mcreconcile.Request) logr.Logger {
			log := mgr.GetLocalManager().GetLogger().WithName(Name)
			if req != nil {
				log = log.WithValues("member", req.ClusterName, "proxy", req.NamespacedName)
			}
			return log
		})
	if r.o.Started != nil {
		b = b.WatchesRawSource(r.o.Started)
	}
	return b.Complete(r)
}

// Reconcile makes one pass over one Proxy.
func (r *Reconciler) Reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	site, err := r.o.Site(ctx, string(req.ClusterName))
	if err != nil {
		return ctrl.Result{}, err
	}
	proxy := &v1alpha1.Proxy{}
	switch err := site.Client.Get(ctx, req.NamespacedName, proxy); {
	case apierrors.IsNotFound(err):
		r.vanished(site, req)
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	r.names.Store(req, proxy.UID)
	s := r.scope(site, proxy, req)
	if proxy.DeletionTimestamp != nil {
		return r.finalize(ctx, s)
	}
	if controllerutil.AddFinalizer(proxy, v1alpha1.FinalizerProxy) {
		// Nothing else in this pass: no provider is called before the finalizer is durable. The update asks for the next.
		before := proxy.DeepCopy()
		before.Finalizers = before.Finalizers[:len(before.Finalizers)-1]
		return quiet(site.Client.Patch(ctx, proxy, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	}
	if err := r.gather(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	result := smallest{}
	for _, phase := range []func(context.Context, *scope) (time.Duration, error){r.checkCeiling, r.provision, r.watch, r.prove, r.mark} {
		after, phaseErr := phase(ctx, s)
		result.add(after, phaseErr)
	}
	if err := r.patchStatus(ctx, s, result.err == nil); err != nil {
		return quiet(err)
	}
	return result.done()
}

// quiet turns a conflict into another pass: somebody else wrote, and the cache will tell.
func quiet(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 200 * time.Millisecond}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// smallest keeps the smallest requeue of the phases, and their errors.
type smallest struct {
	after time.Duration
	err   error
}

func (s *smallest) add(after time.Duration, err error) {
	s.err = errors.Join(s.err, err)
	if after > 0 && (s.after == 0 || after < s.after) {
		s.after = after
	}
}

// done gives the result of the pass. A provider that named its own time is asked again then; any other error backs off.
func (s *smallest) done() (ctrl.Result, error) {
	if s.err != nil {
		if wait := provider.RetryAfter(s.err); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		return ctrl.Result{}, s.err
	}
	return ctrl.Result{RequeueAfter: s.after}, nil
}
