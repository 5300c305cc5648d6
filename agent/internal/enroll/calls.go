package enroll

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1/agentv1connect"
)

// maxAnswer bounds what is read of the hub's answer. A real one has about 3 KB.
const maxAnswer = 256 << 10

// errNotYet means that the hub waits for a person, who must first act as the error's text says.
var errNotYet = errors.New("not yet")

// register trades the join token for a certificate.
func (e *Enroller) register(ctx context.Context) error {
	switch {
	case e.o.Token == "":
		return fmt.Errorf("%w: make one with `shoalctl member join-token %s` and set join.token", ErrNoToken, e.o.Member)
	case e.o.CAPin == "":
		return fmt.Errorf("%w: set hub.caPin, as printed by `shoalctl member join-token %s`", ErrWrongHub, e.o.Member)
	}
	key, csr, err := newRequest()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, done := e.dial(e.pinnedConfig())
	defer done()
	answer, err := client.Register(ctx, &agentv1.RegisterRequest{
		Token:        e.o.Token,
		Csr:          csr,
		Member:       e.o.Member,
		Identity:     e.o.Identity,
		AgentVersion: e.o.Version,
		Region:       e.o.Region,
		Country:      e.o.Country,
	})
	if err != nil {
		return classify(err)
	}
	err = e.adopt(ctx, State{
		Key:    key,
		Chain:  answer.GetCertificateChain(),
		Bundle: answer.GetCaBundle(),
		Agent:  answer.GetAgentName(),
		HubUID: answer.GetHubUid(),
		Member: e.o.Member,
		Pin:    e.o.CAPin,
	})
	if err != nil {
		return err
	}
	e.o.Logger.InfoContext(ctx, "registered", "member", e.o.Member, "agent", answer.GetAgentName(), "hubUID", answer.GetHubUid(), "notAfter", e.NotAfter())
	return nil
}

// Join makes the enrolled agent speak for one more member, if the hub lets it. It is no error if it does already. The
// token may be empty or have ended: then the hub waits for a person who accepts the member, and the error says so. Errors
// that wrap [ErrRefused] change only when a person acts. It is safe for concurrent use.
func (e *Enroller) Join(ctx context.Context, m Member, token string) error {
	current := e.current.Load()
	if current == nil {
		return errors.New("the agent is not enrolled yet")
	}
	// The answer has a certificate, as for any who register; the agent goes on with the one it has, and keeps no key of
	// this request.
	_, csr, err := newRequest()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, done := e.dial(e.TLSConfig())
	defer done()
	answer, err := client.Register(ctx, &agentv1.RegisterRequest{
		Token: token, Csr: csr, Member: m.Name, Identity: m.Identity, AgentVersion: e.o.Version, Region: m.Region, Country: m.Country,
	})
	if err != nil {
		return classify(err)
	}
	if got := answer.GetAgentName(); got != current.state.Agent {
		return fmt.Errorf("%w: member %q belongs to agent %q, and this is %q", ErrRefused, m.Name, got, current.state.Agent)
	}
	e.o.Logger.InfoContext(ctx, "joined", "member", m.Name, "agent", current.state.Agent)
	return nil
}

// renew trades the current certificate for the next. The key is a new one each time.
func (e *Enroller) renew(ctx context.Context) error {
	key, csr, err := newRequest()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, done := e.dial(e.TLSConfig())
	defer done()
	answer, err := client.Renew(ctx, &agentv1.RenewRequest{Csr: csr})
	if err != nil {
		return classify(err)
	}
	state := e.current.Load().state
	state.Key, state.Chain, state.Bundle = key, answer.GetCertificateChain(), answer.GetCaBundle()
	if err := e.adopt(ctx, state); err != nil {
		return err
	}
	e.o.Logger.InfoContext(ctx, "certificate renewed", "agent", state.Agent, "notAfter", e.NotAfter())
	return nil
}

// dial returns a client whose connections end with done: these calls are hours apart, and the next one must shake
// hands with the next certificate.
func (e *Enroller) dial(config *tls.Config) (client agentv1connect.AgentServiceClient, done func()) {
	transport := &http.Transport{TLSClientConfig: config, DialContext: e.o.Dial, ForceAttemptHTTP2: true}
	wire := connecthttp.NewTransport(&http.Client{Transport: transport}, e.baseURL, connecthttp.WithReadMaxBytes(maxAnswer))
	return agentv1connect.NewAgentServiceClient(connect.NewClient(wire)), transport.CloseIdleConnections
}

// classify says what the hub's answer means for the next attempt.
func classify(err error) error {
	if errors.Is(err, ErrWrongHub) {
		return err
	}
	var answer *connect.Error
	if !errors.As(err, &answer) || !answer.IsRemote() {
		return fmt.Errorf("the hub does not answer: %w", err)
	}
	switch answer.Code() {
	case connect.CodeFailedPrecondition:
		return fmt.Errorf("%w: %s", errNotYet, answer.Message())
	case connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeAlreadyExists,
		connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeUnimplemented:
		return fmt.Errorf("%w: %s", ErrRefused, answer.Message())
	default:
		return fmt.Errorf("the hub cannot answer now: %s: %s", answer.Code(), answer.Message())
	}
}
