package leaseapi

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/proto/gen/grpc/health/v1/healthv1connect"
	"github.com/shoal-dev/shoal/proto/gen/grpc/reflection/v1/reflectionv1connect"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// MaxBody is the greatest size of a request's body in bytes, decompressed.
const MaxBody = 64 << 10

// maxConcurrent is how many calls one HTTP/2 connection may have open, as Go's own server has it: a client with more opens
// another connection.
const maxConcurrent = 250

// compressFrom keeps answers with a few leases uncompressed: gzip costs more than the grant itself.
const compressFrom = 16 << 10

// Keeper is the engine's shell. An error is a *[lease.Refusal], the context's own, or says that this hub cannot
// answer for leases at the moment.
type Keeper interface {
	Do(ctx context.Context, cmd lease.Command) (lease.Result, error)
}

// Options are what a [Handler] is made with.
type Options struct {
	// Keeper holds the leases. Required.
	Keeper Keeper
	// Authenticator knows who calls. Required.
	Authenticator Authenticator
	// Signer makes the credentials. Required.
	Signer Signer
	// Notices tell watches what happens. Without them there are no watches.
	Notices Notices
	// Serving tells whether this hub answers for leases, for gRPC's health service: always by default.
	Serving func() bool
	// Clock is for heartbeats: the real one by default.
	Clock clock.WithTicker
	// Owners knows the credentials of proxies that someone else runs. Without it none of them is answered.
	Owners Owners
	// Revoked is told that an operator has changed who is revoked; it must return at once. It may be nil.
	Revoked func()
	// Logger gets unforeseen errors: discarded by default.
	Logger *slog.Logger
	// Interceptors run around every authenticated and refused call, inside of the recovery: metrics go here.
	Interceptors []connect.ServerInterceptor
}

// Handler serves the lease API on all its protocols. It is made by [New].
type Handler struct {
	streams  *streams
	rest     *rest
	connect  http.Handler
	endWaits context.CancelFunc
}

// New makes a handler, or says which option is missing.
func New(o Options) (*Handler, error) {
	if o.Keeper == nil || o.Authenticator == nil || o.Signer == nil {
		return nil, errors.New("leaseapi: Options need a Keeper, an Authenticator and a Signer")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Serving == nil {
		o.Serving = func() bool { return true }
	}
	interceptors := []connect.ServerInterceptor{recovery(o.Logger)}
	interceptors = append(interceptors, o.Interceptors...)
	interceptors = append(interceptors, faults(), authenticate(gatekeeper{o.Authenticator, o.Logger}))
	server := connect.NewServer(interceptors...)
	stopping, endWaits := context.WithCancel(context.Background())
	s := &service{
		stopping: stopping,
		keeper:   o.Keeper, signer: o.Signer, owners: o.Owners, log: o.Logger,
		notices: o.Notices, clock: o.Clock, gatekeeper: gatekeeper{o.Authenticator, o.Logger}, streams: newStreams(),
		boards: &boards{keeper: o.Keeper, notices: o.Notices, open: map[lease.FleetID]*board{}},
	}
	// The commands of a stream pass what calls pass, but for the authentication, which the stream has behind it.
	s.commands = s.commandServer(interceptors[:len(interceptors)-1])
	leasev1connect.RegisterLeaseServiceHandler(server, s)
	leasev1connect.RegisterOperatorServiceHandler(server, &operators{keeper: o.Keeper, revoked: o.Revoked, log: o.Logger})

	codec := newJSONCodec()
	mux := http.NewServeMux()
	mount := func(server *connect.Server) {
		connecthttp.Mount(mux, server,
			connecthttp.WithCodecs(connectproto.NewBinaryCodec(), codec),
			connecthttp.WithReadMaxBytes(MaxBody),
			connecthttp.WithCompressMinBytes(compressFrom),
			connecthttp.WithConditionalOptions(func(spec connect.Spec) []connecthttp.Option {
				if spec.StreamType == connect.StreamTypeUnary {
					return nil
				}
				// A third of what a command costs on a stream would be compression.
				return []connecthttp.Option{connecthttp.WithCompressMinBytes(math.MaxInt)}
			}),
		)
	}
	mount(server)
	// What needs no token, and tells nothing that is not public.
	public := connect.NewServer(recovery(o.Logger), faults())
	healthv1connect.RegisterHealthHandler(public, &health{serving: o.Serving, streams: s.streams, clock: o.Clock})
	described := newReflection(s.streams)
	reflectionv1connect.RegisterServerReflectionHandler(public, described)
	described.describes(server, public)
	mount(public)
	return &Handler{
		streams:  s.streams,
		rest:     &rest{server: server, codec: codec, routes: routes},
		connect:  gate(mux, server, public),
		endWaits: endWaits,
	}, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == acquirePath || r.URL.Path == leasev1connect.LeaseServiceAcquireProcedure {
		r = withController(w, r) // it may wait
	}
	switch {
	case r.URL.Path == documentPath:
		serveDocument(w, r)
	case strings.HasPrefix(r.URL.Path, restPrefix):
		h.rest.ServeHTTP(w, r)
	case strings.HasPrefix(r.URL.Path, connectPrefix), strings.HasPrefix(r.URL.Path, operatorPrefix), strings.HasPrefix(r.URL.Path, grpcPrefix):
		h.connect.ServeHTTP(w, r)
	default:
		writeNotFound(w, r)
	}
}

// Shutdown ends the watches and streams that are open: their callers are told to connect again, and commands of streams
// that are under way are answered first. An Acquire that waits is answered with UNAVAILABLE. Call it before that of the HTTP server, which waits for them. It returns an error
// if ctx ends first.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.endWaits()
	return h.streams.stop(ctx)
}

// NewServer returns an HTTP server for a handler of this package, with HTTP/1.1 and HTTP/2 and limits that keep slow
// and idle clients from piling up. Serve it with ServeTLS(listener, "", ""). Its deadlines are for short calls; watches and
// streams move theirs as they go on, and an Acquire that waits has them lifted once the caller is known.
func NewServer(handler http.Handler, config *tls.Config) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           handler,
		TLSConfig:         config,
		Protocols:         protocols,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxConcurrent,
			// A peer that is gone without a word is noticed, though its watches may have nothing to say.
			SendPingTimeout: 30 * time.Second,
			PingTimeout:     15 * time.Second,
		},
	}
}
