package leaseapi

import (
	"encoding/base64"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/proto/credential"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// noProxy is what programs reach directly, in the notation that most of them understand.
const noProxy = "localhost,127.0.0.1,::1,.svc,.cluster.local"

// answer describes a live lease with all that a client needs, credentials included.
func (s *service) answer(l *lease.Lease) (*leasev1.Lease, error) {
	username, password, err := s.credentials(l)
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if l.Endpoint.TLS {
		scheme = "https"
	}
	address := net.JoinHostPort(l.Endpoint.Host, strconv.Itoa(int(l.Endpoint.Port)))
	server := scheme + "://" + address
	proxyURL, authorization := server, ""
	if username != "" {
		proxyURL = scheme + "://" + escaped(username) + ":" + escaped(password) + "@" + address
		authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(username+":"+password))
	}
	exits := exitTexts(l.Exits)
	answer := &leasev1.Lease{
		LeaseId:            string(l.ID),
		Token:              l.Token.String(),
		TtlSeconds:         seconds(l.TTL),
		ExpiresAt:          timestamppb.New(l.Expires),
		RenewAfterSeconds:  seconds(l.RenewAfter),
		Fleet:              string(l.Fleet),
		Target:             l.Target.Host(),
		ProxyId:            string(l.Proxy),
		Region:             l.Region,
		Country:            l.Country,
		Network:            string(l.Endpoint.Network),
		Exits:              exits,
		ProxyUrl:           proxyURL,
		Server:             server,
		Host:               l.Endpoint.Host,
		Port:               int32(l.Endpoint.Port),
		Username:           username,
		Password:           password,
		ProxyAuthorization: authorization,
		Playwright:         &leasev1.Playwright{Server: server, Username: username, Password: password},
		Env: map[string]string{
			"HTTP_PROXY": proxyURL, "http_proxy": proxyURL,
			"HTTPS_PROXY": proxyURL, "https_proxy": proxyURL,
			"NO_PROXY": noProxy, "no_proxy": noProxy,
		},
		Draining: l.Draining,
		Limits:   limits(l),
	}
	if len(exits) > 0 {
		answer.Exit = exits[0]
	}
	return answer, nil
}

// credentials are what a lease's proxy asks for: signed ones, or its owner's where someone else runs it; empty where that
// one asks for none.
func (s *service) credentials(l *lease.Lease) (username, password string, err error) {
	if l.Endpoint.Network == networkExternal {
		return s.ownersOf(l)
	}
	// By the time of the grant, so that asking again gives the same password and never one that lives longer.
	token, err := s.signer.Sign(l.Granted, credential.ProxyUID(l.Proxy), credential.Principal(l.Principal), l.LifetimeEnd.Sub(l.Granted))
	if err != nil {
		return "", "", fmt.Errorf("sign the credentials of lease %s: %w", l.ID, err)
	}
	return string(l.ID), token.Password, nil
}

// limits are what the holder should keep to, or nil where nothing is known.
func limits(l *lease.Lease) *leasev1.Limits {
	if l.Limits == (lease.Limits{}) {
		return nil
	}
	limits := &leasev1.Limits{MaxConcurrency: int32(l.Limits.MaxConcurrency)}
	if l.Limits.MinInterval > 0 {
		limits.MinInterval = durationpb.New(l.Limits.MinInterval)
	}
	return limits
}

func renewed(l *lease.Lease) *leasev1.RenewResponse {
	answer := &leasev1.RenewResponse{
		LeaseId:           string(l.ID),
		TtlSeconds:        seconds(l.TTL),
		ExpiresAt:         timestamppb.New(l.Expires),
		RenewAfterSeconds: seconds(l.RenewAfter),
		Draining:          l.Draining,
		ExitChanged:       l.ExitsChanged,
		Limits:            limits(l),
		Exits:             exitTexts(l.Exits),
	}
	if len(answer.Exits) > 0 {
		answer.Exit = answer.Exits[0]
	}
	return answer
}

func listed(p *lease.Listed) *leasev1.Proxy {
	answer := &leasev1.Proxy{
		ProxyId:   string(p.Proxy.UID),
		Name:      p.Proxy.Name,
		Fleet:     string(p.Proxy.Fleet),
		Member:    string(p.Proxy.Member),
		Region:    p.Proxy.Region,
		Country:   p.Proxy.Country,
		Labels:    p.Proxy.Labels,
		Exits:     exitTexts(p.Exits),
		Ready:     p.Proxy.Ready,
		Draining:  p.Proxy.Draining,
		Saturated: p.Proxy.Saturated,
		Leased:    int32(p.Leases),
		Slots:     int32(p.SlotsTotal),
	}
	for _, endpoint := range p.Proxy.Endpoints {
		answer.Endpoints = append(answer.Endpoints, &leasev1.Endpoint{
			Network: string(endpoint.Network), Host: endpoint.Host, Port: int32(endpoint.Port), Tls: endpoint.TLS,
		})
	}
	return answer
}

func exitTexts(exits []lease.Exit) []string {
	texts := make([]string, len(exits))
	for i, exit := range exits {
		texts[i] = exit.String()
	}
	return texts
}

// seconds rounds down: a client that counts them must not believe that it has more time than it has.
func seconds(d time.Duration) int32 { return int32(d / time.Second) }
