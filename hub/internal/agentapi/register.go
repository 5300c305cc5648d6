package agentapi

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/identity"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// Register is open to everybody who can reach the listener, and each call of it costs the API server a few reads. These
// bounds let a hundred members join in a minute and keep a stranger from being a burden.
const (
	registerPerSecond = 5
	registerBurst     = 50
	// maxField bounds the texts of a request: the longest, a token, has 65 characters.
	maxField = 256
)

// JoinTokens knows the tokens that members join with.
type JoinTokens interface {
	// Redeem returns what the token allows the member. See [identity.JoinTokens.Redeem] for its errors.
	Redeem(ctx context.Context, token, member string) (identity.JoinGrant, error)
}

// Claims gives members to agents.
type Claims interface {
	// Claim returns the name of the agent that may speak for the member from now on. See [identity.Membership.Claim]
	// for its errors.
	Claim(ctx context.Context, claim identity.Claim) (agent string, err error)
	// MayRenew returns nil if the agent still speaks for somebody. See [identity.Membership.MayRenew] for its errors.
	MayRenew(ctx context.Context, agent string) error
}

// Issuer signs agents' certificates.
type Issuer interface {
	// IssueAgent returns a certificate chain for the public key of the request, PEM, leaf first.
	IssueAgent(now time.Time, csr []byte, agent string) ([]byte, error)
	// Bundle returns the certificates to trust the hub by, PEM.
	Bundle() []byte
}

// RegistrarOptions are what a [Registrar] is made with. All but Logger are required.
type RegistrarOptions struct {
	// HubUID is told to agents.
	HubUID string
	// Tokens authenticates members that join.
	Tokens JoinTokens
	// Claims gives them their members.
	Claims Claims
	// Issuer signs their certificates.
	Issuer Issuer
	// Clock dates the certificates and limits the rate of Register.
	Clock clock.PassiveClock
	// Logger gets who joined, who was refused, and why: discarded by default.
	Logger *slog.Logger
}

// Registrar serves the two calls by which agents get certificates: Register and Renew. It is safe for concurrent use.
type Registrar struct {
	o       RegistrarOptions
	limiter *rate.Limiter
}

// NewRegistrar returns a registrar, or says which option is missing.
func NewRegistrar(o RegistrarOptions) (*Registrar, error) {
	if o.HubUID == "" || o.Tokens == nil || o.Claims == nil || o.Issuer == nil || o.Clock == nil {
		return nil, errors.New("agentapi: RegistrarOptions need HubUID, Tokens, Claims, Issuer and Clock")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Registrar{o: o, limiter: rate.NewLimiter(registerPerSecond, registerBurst)}, nil
}

// Register trades a join token and a certificate request for a certificate. Everything is checked before anything is
// written, in the order: rate, form, token, key, member.
//
// A caller that has a certificate asks for a further member, and is answered with another certificate of its own name. It
// needs no token for what it speaks for already. For anything else without a token that is good, a person is waited for.
func (r *Registrar) Register(ctx context.Context, req *agentv1.RegisterRequest) (*agentv1.RegisterResponse, error) {
	now := r.o.Clock.Now()
	if !r.limiter.AllowN(now, 1) {
		return nil, connect.NewError(connect.CodeResourceExhausted, "too many agents register at once; try again in some seconds")
	}
	for field, value := range map[string]string{
		"token": req.GetToken(), "member": req.GetMember(), "agent_version": req.GetAgentVersion(),
		"region": req.GetRegion(), "country": req.GetCountry(),
	} {
		if len(value) > maxField {
			return nil, connect.Errorf(connect.CodeInvalidArgument, "%s has %d bytes; at most %d are taken", field, len(value), maxField)
		}
	}
	log := r.o.Logger.With("member", req.GetMember(), "clusterUID", req.GetIdentity().GetClusterUid(),
		"namespace", req.GetIdentity().GetNamespace(), "agentVersion", req.GetAgentVersion())
	caller := ""
	if agent, err := callingAgent(ctx); err == nil {
		caller, log = agent, log.With("agent", agent)
	}
	grant, noToken := r.o.Tokens.Redeem(ctx, req.GetToken(), req.GetMember())
	if noToken != nil && (caller == "" || !isRefusedToken(noToken)) {
		return nil, r.refuse(ctx, log, "register", noToken)
	}
	if err := identity.CheckCSR(req.GetCsr()); err != nil {
		return nil, r.refuse(ctx, log, "register", err)
	}
	agent, err := r.o.Claims.Claim(ctx, identity.Claim{
		Member:   req.GetMember(),
		Identity: req.GetIdentity(),
		Region:   req.GetRegion(),
		Country:  req.GetCountry(),
		Grant:    grant,
		Agent:    caller,
		NoToken:  noToken,
	})
	if err != nil {
		return nil, r.refuse(ctx, log, "register", err)
	}
	chain, err := r.o.Issuer.IssueAgent(now, req.GetCsr(), agent)
	if err != nil {
		return nil, r.refuse(ctx, log, "register", err)
	}
	log.InfoContext(ctx, "agent registered", "agent", agent)
	return &agentv1.RegisterResponse{
		CertificateChain: chain,
		CaBundle:         r.o.Issuer.Bundle(),
		AgentName:        agent,
		HubUid:           r.o.HubUID,
	}, nil
}

// Renew trades a certificate request for the next certificate of the agent whose certificate the connection has.
func (r *Registrar) Renew(ctx context.Context, req *agentv1.RenewRequest) (*agentv1.RenewResponse, error) {
	agent, err := callingAgent(ctx)
	if err != nil {
		return nil, err
	}
	log := r.o.Logger.With("agent", agent)
	if err := identity.CheckCSR(req.GetCsr()); err != nil {
		return nil, r.refuse(ctx, log, "renew", err)
	}
	if err := r.o.Claims.MayRenew(ctx, agent); err != nil {
		return nil, r.refuse(ctx, log, "renew", err)
	}
	chain, err := r.o.Issuer.IssueAgent(r.o.Clock.Now(), req.GetCsr(), agent)
	if err != nil {
		return nil, r.refuse(ctx, log, "renew", err)
	}
	log.InfoContext(ctx, "agent renewed its certificate")
	return &agentv1.RenewResponse{CertificateChain: chain, CaBundle: r.o.Issuer.Bundle()}, nil
}

// callingAgent returns the agent whose verified certificate the call's connection has, or an error for it.
func callingAgent(ctx context.Context) (string, error) {
	const how = "this call needs the certificate that Register gave the agent"
	info, ok := connecthttp.ServerInfoForContext(ctx)
	if !ok {
		return "", connect.NewError(connect.CodeUnauthenticated, how)
	}
	agent, err := identity.AgentOfConnection(info.TLS())
	if err != nil {
		return "", connect.Errorf(connect.CodeUnauthenticated, "%s: %v", how, err)
	}
	return agent, nil
}

// refuse translates an error of package identity for the wire. What is not a refusal is logged and hidden: it speaks of
// the hub's API server, which is no business of a stranger.
func (r *Registrar) refuse(ctx context.Context, log *slog.Logger, call string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	code, known := codeOf(err)
	if !known {
		log.WarnContext(ctx, "cannot answer an agent", "call", call, "err", err)
		return connect.NewError(connect.CodeUnavailable, "the hub cannot read or write its objects at the moment; try again")
	}
	log.InfoContext(ctx, "agent refused", "call", call, "code", code.String(), "err", err)
	return connect.NewError(code, err.Error())
}

// isRefusedToken tells a token that is of no use from one that could not be looked up.
func isRefusedToken(err error) bool {
	for _, refusal := range []error{identity.ErrMalformedToken, identity.ErrUnknownToken, identity.ErrExpiredToken, identity.ErrOtherMember} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// codeOf is the one place that knows which code a refusal of package identity becomes.
func codeOf(err error) (code connect.Code, known bool) {
	for _, refusal := range []struct {
		err  error
		code connect.Code
	}{
		{identity.ErrMalformedToken, connect.CodeUnauthenticated},
		{identity.ErrUnknownToken, connect.CodeUnauthenticated},
		{identity.ErrExpiredToken, connect.CodeUnauthenticated},
		{identity.ErrOtherMember, connect.CodePermissionDenied},
		{identity.ErrNotYours, connect.CodePermissionDenied},
		{identity.ErrIdentityConflict, connect.CodeAlreadyExists},
		// Both pass once somebody or something else acts: agents come back for it slowly.
		{identity.ErrNotAccepted, connect.CodeFailedPrecondition},
		{identity.ErrUnknownMember, connect.CodeFailedPrecondition},
		{identity.ErrInvalid, connect.CodeInvalidArgument},
		{identity.ErrDamaged, connect.CodeInternal},
	} {
		if errors.Is(err, refusal.err) {
			return refusal.code, true
		}
	}
	return connect.CodeUnavailable, false
}
