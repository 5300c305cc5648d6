package hub

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/access"
	"github.com/shoal-dev/shoal/hub/internal/agentapi"
	"github.com/shoal-dev/shoal/hub/internal/busy"
	"github.com/shoal-dev/shoal/hub/internal/controller"
	"github.com/shoal-dev/shoal/hub/internal/dispatch"
	"github.com/shoal-dev/shoal/hub/internal/echo"
	"github.com/shoal-dev/shoal/hub/internal/external"
	"github.com/shoal-dev/shoal/hub/internal/identity"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/keyring"
	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	"github.com/shoal-dev/shoal/hub/internal/leasemetrics"
	"github.com/shoal-dev/shoal/proto/credential"
)

const (
	// signingWindow is how long one signature serves a principal on a proxy.
	signingWindow = time.Minute
	// rememberedTokens is how many signed credentials are kept: 10k proxies with two principals each, some 10 MB.
	rememberedTokens = 20_000
	// apiQPS and apiBurst keep the client from throttling itself; the API server has priorities of its own.
	apiQPS, apiBurst = 200, 400
	// reviewQPS and reviewBurst bound what callers of the lease service make the hub ask of the API server.
	reviewQPS, reviewBurst = 200, 400
)

// Run runs a hub until ctx ends, which is no error, or until a part of it fails. It returns when everything has
// stopped, or after Config.ShutdownTimeout.
func Run(ctx context.Context, config Config) error {
	config, err := config.complete()
	if err != nil {
		return err
	}
	open, err := openListeners(config)
	if err != nil {
		return err
	}
	h := &hub{Config: config, open: open, stages: newStages(config.Logger), measured: prometheus.NewRegistry()}
	err = h.run(ctx)
	h.ready.Store(false)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), config.ShutdownTimeout)
	defer cancel()
	if ctx.Err() != nil {
		err = nil // Asked to stop, while starting or later.
	}
	return errors.Join(err, h.stages.stop(stopping), open.close())
}

// hub holds the parts, each written by the step that makes it and read by those after it.
type hub struct {
	Config
	open   *listeners
	stages *stages
	ready  atomic.Bool
	// measured are the metrics of this hub's own parts, beside those of the libraries.
	measured *prometheus.Registry
	// room asks the lease journal what it has room for; nil before the keeper runs.
	room atomic.Pointer[func() (keeper.Room, string)]
	// standsBy is true while another hub may be at work, and all that does not need the office is done.
	standsBy atomic.Bool

	live       client.Client
	manager    ctrl.Manager
	cache      cache.Cache
	identity   *identity.Hub
	created    bool
	signer     *credential.Signer
	keys       *keyring.Ring
	keeper     *keeper.Keeper
	startedAt  time.Time // from then on the keeper knows every lease
	complete   bool      // and there was none before
	dispatcher *dispatch.Dispatcher
	owners     *external.Store
	inventory  *inventory.Inventory
	serving    *identity.Serving
	membership *identity.Membership
	sessions   *gate
}

// run starts the parts in order and waits until one fails or ctx ends.
func (h *hub) run(ctx context.Context) error {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		// the state of this list → /healthz, /readyz, /metrics
		{"health", h.serveHealth},
		// API server → a client, caches of fleets, placements, members and API tokens
		{"cluster", h.connect},
		// Secret → the hub's UID, certificate authority and signing key
		{"identity", h.identify},
		// calls of crawlers → lease commands, refused for now; leases → signed credentials
		{"leases", h.serveLeases},
		// sessions → refused for now
		{"agents", h.serveAgents},
		// probes → the address they come from
		{"echo", h.serveEcho},
		// Lease object → from here on no other hub is at work
		{"election", h.elect},
		// lease commands → records to the journal, answers, notices
		{"keeper", h.keep},
		// objects and reports → placements, desired state, status, what may be leased
		{"controllers", h.control},
		// sessions ↔ desired state and reports; join tokens → certificates
		{"sessions", h.openSessions},
		// the hub's pod → where Services lead to
		{"label", h.label},
	}
	for _, step := range steps {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("start %s: %w", step.name, err)
		}
	}
	h.ready.Store(true)
	h.Logger.InfoContext(ctx, "hub is ready", "hubUID", h.identity.UID(), "caPin", h.identity.Authority().Pin(),
		"agents", h.open.agents.Addr().String(), "leases", h.open.leases.Addr().String(), "echo", h.open.echo.Addr().String())
	return h.stages.await(ctx, nil)
}

func (h *hub) serveHealth(ctx context.Context) error {
	server := &http.Server{Handler: healthHandler(h.readiness, h.measured), ReadHeaderTimeout: 5 * time.Second}
	h.stages.start(ctx, "health", serve(server, h.open.health, h.Logger, nil))
	return nil
}

// readiness tells whether the hub is ready, and what there is to say about it. One whose journal's disk is full stays ready:
// what its callers hold must be renewed, released and reported here and nowhere else.
func (h *hub) readiness() (ready bool, note string) {
	switch {
	case h.ready.Load():
	case h.standsBy.Load() && h.JournalType == JournalValkey:
		// Services find the hub that works by its label. Without the label a ready hub is one that is called.
		return true, "ok, standing by"
	default:
		return false, "starting, waiting to be elected, or stopping"
	}
	if ask := h.room.Load(); ask != nil {
		if room, why := (*ask)(); room != keeper.RoomForAll {
			return true, "ok, but nothing is leased (READ_ONLY): " + why
		}
	}
	return true, "ok"
}

func (h *hub) elect(ctx context.Context) error {
	if !h.LeaderElection {
		return nil
	}
	run, won, err := newElection(h.RestConfig, h.Namespace, h.LeaderLease)
	if err != nil {
		return err
	}
	h.stages.start(ctx, "election", run)
	h.standsBy.Store(true)
	defer h.standsBy.Store(false)
	return h.stages.await(ctx, won)
}

func (h *hub) connect(ctx context.Context) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddHubToScheme(scheme)); err != nil {
		return err
	}
	config := rest.CopyConfig(h.RestConfig)
	if config.QPS == 0 {
		config.QPS, config.Burst = apiQPS, apiBurst
	}
	var err error
	if h.live, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}
	tokens := labels.SelectorFromSet(labels.Set{v1alpha1.LabelComponent: v1alpha1.ComponentAPIToken})
	shared := true
	h.manager, err = ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme,
		Logger: logr.FromSlogHandler(h.Logger.Handler()),
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				// Of all Secrets only those that callers are looked up in, at every call: nobody changes what they read.
				&corev1.Secret{}: {
					Namespaces:            map[string]cache.Config{h.Namespace: {LabelSelector: tokens}},
					UnsafeDisableDeepCopy: &shared,
				},
			},
		},
		NewCache: func(config *rest.Config, opts cache.Options) (cache.Cache, error) {
			var err error
			h.cache, err = cache.New(config, opts)
			return startedCache{h.cache}, err
		},
		// The hub serves both itself.
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		GracefulShutdownTimeout: &h.ShutdownTimeout,
	})
	if err != nil {
		return fmt.Errorf("make a manager: %w", err)
	}
	return h.warm(ctx)
}

func (h *hub) identify(ctx context.Context) error {
	var err error
	if h.identity, h.created, err = identity.EnsureHub(ctx, h.live, h.Namespace, h.Clock.Now()); err != nil {
		return err
	}
	h.signer, err = credential.NewSigner(credential.SignerOptions{Key: h.identity.LeaseKey(), Use: credential.UseLease, Window: signingWindow})
	if err != nil {
		return err
	}
	h.serving, err = identity.NewServing(h.identity.Authority(), h.Names, h.Clock)
	h.membership = identity.NewMembership(identity.MembershipOptions{Client: h.live, Cache: h.manager.GetClient()})
	metrics := keeper.NewMetrics()
	h.measured.MustRegister(metrics)
	h.keeper = keeper.New(keeper.Options{Clock: h.Clock, Logger: h.Logger.With("part", "keeper"), Metrics: metrics})
	h.owners = external.New(external.Options{Reader: h.live, Clock: h.Clock})
	return err
}

func (h *hub) keep(ctx context.Context) error {
	p, err := h.openPast(ctx)
	if err != nil {
		return err
	}
	h.startedAt, h.complete = p.since, p.complete
	engine := lease.New(lease.Options{
		IDs:             lease.NewRandomIDs(bufio.NewReader(rand.Reader)),
		Epoch:           p.epoch,
		StartedAt:       h.startedAt,
		HistoryComplete: h.complete,
	})
	if p.collector != nil {
		h.measured.MustRegister(p.collector)
	}
	if limited, ok := p.journal.(keeper.Limited); ok {
		room := limited.Room
		h.room.Store(&room)
	}
	h.keeper.Take(engine, p.journal)
	h.stages.start(ctx, "keeper", func(ctx context.Context) error {
		return errors.Join(h.keeper.Run(ctx), p.close())
	})
	return h.stages.await(ctx, h.keeper.Ready())
}

func (h *hub) control(ctx context.Context) error {
	h.dispatcher = dispatch.New()
	h.inventory = inventory.New(inventory.Options{Clock: h.Clock})
	err := controller.Setup(h.manager, controller.Options{
		Dispatcher: h.dispatcher, Inventory: h.inventory, Keeper: h.keeper, Credentials: h.owners,
		StartedAt: h.startedAt, HistoryComplete: h.complete,
		Clock: h.Clock, SkipNameValidation: h.SeveralInProcess,
	})
	if err != nil {
		return err
	}
	h.stages.start(ctx, "controllers", h.manager.Start)
	return h.awaitCaches(ctx)
}

func (h *hub) serveAgents(ctx context.Context) error {
	h.sessions = new(gate)
	server := &http.Server{Handler: h.sessions, TLSConfig: h.serving.AgentTLS()} //nolint:gosec // ConfigureServer sets the timeouts
	agentapi.ConfigureServer(server)
	h.stages.start(ctx, "agents", serve(server, h.open.agents, h.Logger.With("part", "agents"), h.sessions.shutdown))
	return nil
}

func (h *hub) openSessions(ctx context.Context) error {
	log := h.Logger.With("part", "agents")
	registrar, err := agentapi.NewRegistrar(agentapi.RegistrarOptions{
		HubUID: h.identity.UID(),
		Tokens: identity.NewJoinTokens(identity.JoinTokensOptions{Reader: h.live, Namespace: h.Namespace, Clock: h.Clock}),
		Claims: h.membership,
		Issuer: h.identity.Authority(),
		Clock:  h.Clock,
		Logger: log,
	})
	if err != nil {
		return err
	}
	h.keys, err = keyring.New(ctx, keyring.Options{
		Keys: []credential.Key{h.signer.PublicKey()}, Keeper: h.keeper, Clock: h.Clock, Logger: logr.FromSlogHandler(log.Handler()),
	})
	if err != nil {
		return err
	}
	h.stages.start(ctx, "keys", h.keys.Run)
	leased := busy.New(busy.Options{Keeper: h.keeper, Clock: h.Clock, Logger: logr.FromSlogHandler(log.Handler())})
	h.stages.start(ctx, "busy", leased.Run)
	service, err := agentapi.New(agentapi.Options{
		HubUID: h.identity.UID(), Membership: h.membership, Dispatcher: h.dispatcher, Inventory: h.inventory, Leases: leased,
		Certificates: registrar, Keys: h.keys.Document, KeysChanged: h.keys.Watch, Clock: h.Clock, Logger: log,
	})
	if err != nil {
		return err
	}
	h.sessions.open(service.Handler(), service.Shutdown)
	// Calls end before what carries them out.
	h.stages.first("agents")
	h.stages.first("leases")
	return nil
}

func (h *hub) serveLeases(ctx context.Context) error {
	log := h.Logger.With("part", "leases")
	signer, err := leaseapi.NewSharedSigner(h.signer, rememberedTokens)
	if err != nil {
		return err
	}
	gate, err := h.gate()
	if err != nil {
		return err
	}
	figures := leasemetrics.New(h.Clock)
	overseen, err := h.overseen(ctx, figures)
	if err != nil {
		return err
	}
	handler, err := leaseapi.New(leaseapi.Options{
		Keeper:        overseen,
		Interceptors:  []connect.ServerInterceptor{figures.Interceptor()},
		Authenticator: callers(gate, log),
		Signer:        signer,
		Owners:        ownersOf(h.owners),
		Revoked:       func() { h.keys.Refresh() }, // made with the sessions, before any call is served
		Notices:       h.keeper,
		Serving:       h.ready.Load,
		Clock:         h.Clock,
		Logger:        log,
	})
	if err != nil {
		return err
	}
	config := h.serving.TLS()
	if h.LeaseCertFile != "" {
		own, follow, err := ownCertificate(h.LeaseCertFile, h.LeaseKeyFile)
		if err != nil {
			return err
		}
		h.stages.start(ctx, "leases certificate", follow)
		config = own
	}
	h.stages.start(ctx, "leases", serve(leaseapi.NewServer(h.elsewhere(handler), config), h.open.leases, log, handler.Shutdown))
	return nil
}

// gate returns who may lease. It asks the API server with a limit of its own: callers must not hold up the controllers.
func (h *hub) gate() (*access.Gate, error) {
	config := rest.CopyConfig(h.RestConfig)
	config.QPS, config.Burst = reviewQPS, reviewBurst
	reviews, err := client.New(config, client.Options{Scheme: h.live.Scheme(), Mapper: h.live.RESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("make a client for reviews of tokens: %w", err)
	}
	tokens := identity.NewTokenStore(identity.TokenStoreOptions{Reader: h.manager.GetClient(), Namespace: h.Namespace, Clock: h.Clock})
	return access.New(access.Options{Kubernetes: access.NewKubernetes(reviews), APITokens: tokens, Clock: h.Clock}), nil
}

func (h *hub) serveEcho(ctx context.Context) error {
	h.stages.start(ctx, "echo", serve(echo.NewServer(h.serving.TLS()), h.open.echo, h.Logger.With("part", "echo"), nil))
	return nil
}

// ownersOf lets the lease service know the credentials of proxies that someone else runs.
func ownersOf(store *external.Store) leaseapi.Owners {
	return leaseapi.OwnersFunc(func(fleet lease.FleetID, host string, port uint16) (username, password string, known bool) {
		namespace, name, _ := strings.Cut(string(fleet), "/")
		credentials, known := store.Lookup(types.NamespacedName{Namespace: namespace, Name: name}, host, port)
		return credentials.Username, credentials.Password, known
	})
}

// callers lets the lease service know its callers.
func callers(gate *access.Gate, log *slog.Logger) leaseapi.Authenticator {
	return leaseapi.AuthenticatorFunc(func(ctx context.Context, bearer string) (leaseapi.Caller, error) {
		caller, err := gate.Authenticate(ctx, bearer)
		switch {
		case errors.Is(err, access.ErrRefused):
			// The caller is not told why; whoever looks after the hub is.
			log.InfoContext(ctx, "caller refused", "err", err)
			return leaseapi.Caller{}, leaseapi.ErrUnknownToken
		case err != nil:
			return leaseapi.Caller{}, err
		}
		return leaseapi.Caller{Principal: caller.Principal, AllowsFleet: caller.AllowsFleet, MayOperate: caller.MayOperate}, nil
	})
}
