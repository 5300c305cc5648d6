package agentapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/dispatch"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1/agentv1connect"
	"github.com/shoal-dev/shoal/proto/session"
)

const (
	// maxMessage bounds a message of an agent. The greatest are a Hello, with some 150 bytes for each ProxySet, and a
	// spec.
	maxMessage = 8 << 20
	// compressFrom is the size from which compressing a message pays.
	compressFrom = 1 << 10
)

// Membership knows which agent may speak for which member.
type Membership interface {
	// Authorize returns the UID of the member if the agent may speak for it. It may take its time, within ctx. Its
	// refusals wrap the errors of package identity; any other error means that it does not know at the moment.
	Authorize(ctx context.Context, agent, member string, id *agentv1.MemberIdentity) (memberUID string, err error)
}

// Dispatcher holds what members are wanted to have. Its methods return at once and are safe for concurrent use.
type Dispatcher interface {
	Desired(member string) (items []dispatch.Item, tombstones []string, ready bool)
	Watch(member string) (changed <-chan struct{}, cancel func())
	Acked(member, uid string, generation int64, hash, problem string)
	TombstoneAcked(member, uid string)
}

// Inventory takes what members report. Its methods return at once and are safe for concurrent use. Everything that a
// session has is observed between Connected and the first Resynced.
type Inventory interface {
	Connected(member string, s inventory.Session, now time.Time)
	Heard(member string, now time.Time)
	Disconnected(member string, epoch uint64, now time.Time)
	ObserveProxy(member, uid string, r *agentv1.ProxyReport, now time.Time)
	ObserveProxySet(member, placementUID string, r *agentv1.ProxySetReport, now time.Time)
	Gone(member, uid string, now time.Time)
	Resynced(member string, now time.Time)
	// Doubted tells whether another snapshot is needed to believe the last one.
	Doubted(member string) bool
}

// Leases knows which proxies are leased. *busy.Board does. Its methods return at once and are safe for concurrent use.
type Leases interface {
	Leased(member string) (proxies []string, known bool)
	Watch(member string) (changed <-chan struct{}, cancel func())
}

// Certificates are the calls by which agents get theirs; [Registrar] has them.
type Certificates interface {
	Register(ctx context.Context, req *agentv1.RegisterRequest) (*agentv1.RegisterResponse, error)
	Renew(ctx context.Context, req *agentv1.RenewRequest) (*agentv1.RenewResponse, error)
}

// Options are what a [Service] is made with. HubUID, Membership, Dispatcher, Inventory, Leases, Certificates, Keys and
// Clock are required.
type Options struct {
	// HubUID is told to agents.
	HubUID       string
	Membership   Membership
	Dispatcher   Dispatcher
	Inventory    Inventory
	Leases       Leases
	Certificates Certificates
	// Keys returns the public keys and the deny list that credentials of leases are checked with, as the JSON document
	// of package credential.
	Keys func() []byte
	// KeysChanged signals when Keys gives something else; cancel is called in the end. Without it sessions hear of new keys
	// when they begin.
	KeysChanged func() (changed <-chan struct{}, cancel func())
	// Clock is the hub's. Nothing that an agent says of time counts.
	Clock clock.Clock
	// Logger gets the beginnings and ends of sessions: discarded by default.
	Logger *slog.Logger

	// Agent returns the name of the agent that calls, or the error to answer with. By default it is taken from the
	// verified client certificate.
	Agent func(ctx context.Context) (string, error)
	// MaxResyncs is how many sessions may be between Welcome and their first complete snapshot at a time; 32.
	MaxResyncs int
	// MaxAge is the mean age at which a session is ended, so that agents spread over hubs again; 45 min. Each lives a
	// random two thirds to four thirds of it.
	MaxAge time.Duration
	// Recheck is how often Membership is asked again for a live session; 30 s.
	Recheck time.Duration
	// Session holds the figures of the protocol.
	Session session.Config
}

// Service is AgentService. It is safe for concurrent use.
type Service struct {
	Certificates
	o       Options
	members *members
	resyncs chan struct{}
}

var _ agentv1connect.AgentServiceHandler = (*Service)(nil)

// New returns a service, or says which option is missing.
func New(o Options) (*Service, error) {
	if o.HubUID == "" || o.Membership == nil || o.Dispatcher == nil || o.Inventory == nil || o.Leases == nil ||
		o.Certificates == nil || o.Keys == nil || o.Clock == nil {
		return nil, errors.New("agentapi: Options need HubUID, Membership, Dispatcher, Inventory, Leases, Certificates, Keys and Clock")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Agent == nil {
		o.Agent = callingAgent
	}
	if o.MaxResyncs <= 0 {
		o.MaxResyncs = 32
	}
	if o.MaxAge <= 0 {
		o.MaxAge = 45 * time.Minute
	}
	if o.Recheck <= 0 {
		o.Recheck = 30 * time.Second
	}
	if o.Session.HeartbeatInterval <= 0 {
		o.Session.HeartbeatInterval = inventory.HeartbeatInterval
	}
	return &Service{
		Certificates: o.Certificates,
		o:            o,
		members:      newMembers(),
		resyncs:      make(chan struct{}, o.MaxResyncs),
	}, nil
}

// Handler returns the service for an HTTP server that [ConfigureServer] has set up and whose listener verifies client
// certificates if they are given.
func (s *Service) Handler() http.Handler {
	server := connect.NewServer()
	agentv1connect.RegisterAgentServiceHandler(server, s)
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server, connecthttp.WithReadMaxBytes(maxMessage), connecthttp.WithCompressMinBytes(compressFrom))
	return withControl(mux)
}

// Shutdown ends all sessions and refuses new ones: agents are told to come back. It returns when all have ended, or
// with the error of ctx. Call it before http.Server.Shutdown, which waits for streams and does not end them.
func (s *Service) Shutdown(ctx context.Context) error { return s.members.shutdown(ctx) }
