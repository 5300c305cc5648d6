package leaseclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// Service is the part of the lease API that this package calls. A [leasev1connect.LeaseServiceClient] is one.
type Service interface {
	Acquire(context.Context, *leasev1.AcquireRequest) (*leasev1.AcquireResponse, error)
	Renew(context.Context, *leasev1.RenewRequest) (*leasev1.RenewResponse, error)
	Report(context.Context, *leasev1.ReportRequest) (*leasev1.ReportResponse, error)
	Release(context.Context, *leasev1.ReleaseRequest) (*leasev1.ReleaseResponse, error)
}

// Hub says where a hub is and who calls it.
type Hub struct {
	// URL is the address of the crawlers' listener, such as https://leases.shoal.example:8444. Required.
	URL string
	// Token gives the bearer token. It is asked before each call, so it may read a file that changes, as a
	// ServiceAccount's does. Required; see [Token].
	Token func(ctx context.Context) (string, error)
	// HTTP makes the calls. By default it trusts the system's authorities, speaks HTTP/2, and uses no proxy whatever the
	// environment says: the proxies there may be the leased ones.
	HTTP *http.Client
}

// Token returns the same token each time.
func Token(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}

// HubFromEnvironment reads SHOAL (the URL), SHOAL_TOKEN and SHOAL_CA, a file with the authority that the hub's
// certificate is of; without SHOAL_CA the system's authorities are trusted.
func HubFromEnvironment() (Hub, error) {
	hub := Hub{URL: os.Getenv("SHOAL"), Token: Token(os.Getenv("SHOAL_TOKEN"))}
	if hub.URL == "" || os.Getenv("SHOAL_TOKEN") == "" {
		return Hub{}, errors.New("leaseclient: set SHOAL to the address of the lease API and SHOAL_TOKEN to a token (shoalctl token create)")
	}
	var roots *x509.CertPool
	if path := os.Getenv("SHOAL_CA"); path != "" {
		bundle, err := os.ReadFile(path)
		if err != nil {
			return Hub{}, fmt.Errorf("leaseclient: SHOAL_CA: %w", err)
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(bundle) {
			return Hub{}, fmt.Errorf("leaseclient: SHOAL_CA: %s holds no certificate; write what shoalctl ca prints into it", path)
		}
	}
	hub.HTTP = &http.Client{Transport: direct(roots)}
	return hub, nil
}

// Service returns the lease API of the hub, whole: what this package does not call is there to be called.
func (h Hub) Service() (leasev1connect.LeaseServiceClient, error) {
	if h.URL == "" || h.Token == nil {
		return nil, errors.New("leaseclient: a Hub needs a URL and a Token")
	}
	if h.HTTP == nil {
		h.HTTP = &http.Client{Transport: direct(nil)}
	}
	authorize := func(next connect.ClientFunc) connect.ClientFunc {
		return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
			token, err := h.Token(ctx)
			if err != nil {
				return nil, fmt.Errorf("get a token for the hub: %w", err)
			}
			if info, ok := connect.CallInfoForClientContext(ctx); ok {
				info.RequestHeader().Set("Authorization", "Bearer "+token)
			}
			return next(ctx, spec)
		}
	}
	return leasev1connect.NewLeaseServiceClient(connect.NewClient(connecthttp.NewTransport(h.HTTP, h.URL), authorize)), nil
}

// direct is a transport that no environment sends through a proxy.
func direct(roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
	}
}
