package leaseapi

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// MaxBody is the greatest size of a request's body in bytes, decompressed.
const MaxBody = 64 << 10

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
	server  *connect.Server
	rest    *rest
	connect http.Handler
}

// New makes a handler, or says which option is missing.
func New(o Options) (*Handler, error) {
	if o.Keeper == nil || o.Authenticator == nil || o.Signer == nil {
		return nil, errors.New("leaseapi: Options need a Keeper, an Authenticator and a Signer")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	interceptors := []connect.ServerInterceptor{recovery(o.Logger)}
	interceptors = append(interceptors, o.Interceptors...)
	interceptors = append(interceptors, faults(), authenticate(o.Authenticator, o.Logger))
	server := connect.NewServer(interceptors...)
	leasev1connect.RegisterLeaseServiceHandler(server, &service{keeper: o.Keeper, signer: o.Signer, owners: o.Owners, log: o.Logger})
	leasev1connect.RegisterOperatorServiceHandler(server, &operators{keeper: o.Keeper, revoked: o.Revoked, log: o.Logger})

	codec := newJSONCodec()
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server,
		connecthttp.WithCodecs(connectproto.NewBinaryCodec(), codec),
		connecthttp.WithReadMaxBytes(MaxBody),
		connecthttp.WithCompressMinBytes(compressFrom),
	)
	return &Handler{
		server:  server,
		rest:    &rest{server: server, codec: codec, routes: routes},
		connect: gate(server, mux),
	}, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, restPrefix):
		h.rest.ServeHTTP(w, r)
	case strings.HasPrefix(r.URL.Path, connectPrefix), strings.HasPrefix(r.URL.Path, operatorPrefix):
		h.connect.ServeHTTP(w, r)
	default:
		writeNotFound(w, r)
	}
}

// NewServer returns an HTTP server for a handler of this package, with HTTP/1.1 and HTTP/2 and limits that keep slow
// and idle clients from piling up. Serve it with ServeTLS(listener, "", ""). Every call so far is short; one that is
// to last longer lifts its deadlines with an [http.ResponseController].
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
	}
}
