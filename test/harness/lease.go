package harness

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// Lease is a lease as REST and Connect's JSON give it.
type Lease struct {
	LeaseID       string `json:"leaseId"`
	Token         string `json:"token"`
	TTLSeconds    int    `json:"ttlSeconds"`
	Fleet         string `json:"fleet"`
	ProxyID       string `json:"proxyId"`
	Region        string `json:"region"`
	Network       string `json:"network"`
	Exit          string `json:"exit"`
	ProxyURL      string `json:"proxyUrl"`
	Server        string `json:"server"`
	Username      string `json:"username"`
	Password      string `json:"password"`
	Draining      bool   `json:"draining"`
	RenewAfterSec int    `json:"renewAfterSeconds"`
}

// Leases is the answer to Acquire.
type Leases struct {
	Leases []Lease `json:"leases"`
}

// Refusal is an error of the lease API on REST.
type Refusal struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	Reason     string `json:"reason"`
	RetryAfter string `json:"retryAfter"`
	Fields     []struct {
		Field   string `json:"field"`
		Message string `json:"message"`
	} `json:"fields"`
}

// Crawler calls the lease API with a token of its own. Its methods are safe for concurrent use.
type Crawler struct {
	env   *Env
	token string
}

// Crawler returns a crawler with the token.
func (e *Env) Crawler(token string) *Crawler { return &Crawler{env: e, token: token} }

// Curl calls the lease API with curl: a method, a path, and a JSON body unless it is empty.
func (c *Crawler) Curl(ctx context.Context, method, path, body string, more ...string) (Reply, error) {
	args := []string{
		"--cacert", c.env.CAFile, "--request", method, "--header", "Authorization: Bearer " + c.token,
		c.env.LeaseURL + path,
	}
	if body != "" {
		args = append(args, "--data-binary", body)
	}
	return Curl(ctx, append(args, more...)...)
}

// Acquire acquires leases over REST. The error is a *RefusedError if the hub refuses.
func (c *Crawler) Acquire(ctx context.Context, body string) ([]Lease, error) {
	reply, err := c.Curl(ctx, http.MethodPost, "/v1/leases", body)
	if err != nil {
		return nil, err
	}
	if reply.Status != http.StatusOK {
		return nil, &RefusedError{Reply: reply}
	}
	var answer Leases
	if err := reply.JSON(&answer); err != nil {
		return nil, err
	}
	if len(answer.Leases) == 0 {
		return nil, errors.New("the answer has no lease")
	}
	return answer.Leases, nil
}

// Release ends a lease over REST.
func (c *Crawler) Release(ctx context.Context, id string) error {
	reply, err := c.Curl(ctx, http.MethodDelete, "/v1/leases/"+id, "")
	if err == nil && reply.Status != http.StatusOK {
		return &RefusedError{Reply: reply}
	}
	return err
}

// RefusedError is an answer of the hub other than 200.
type RefusedError struct{ Reply Reply }

// Error returns the answer.
func (e *RefusedError) Error() string { return "the hub answered " + e.Reply.String() }

// GRPC returns a client of the lease API over gRPC, and a function that closes its connections.
func (c *Crawler) GRPC() (leasev1connect.LeaseServiceClient, func(), error) {
	bundle, err := os.ReadFile(c.env.CAFile)
	if err != nil {
		return nil, nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, nil, fmt.Errorf("%s has no certificate", c.env.CAFile)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, Protocols: protocols,
	}
	wire := connecthttp.NewTransport(&http.Client{Transport: bearer{next: transport, token: c.token}}, c.env.LeaseURL, connecthttp.WithGRPC())
	return leasev1connect.NewLeaseServiceClient(connect.NewClient(wire)), transport.CloseIdleConnections, nil
}

// bearer sends a token with every request.
type bearer struct {
	next  http.RoundTripper
	token string
}

// RoundTrip implements [http.RoundTripper].
func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(req)
}

// HostPort is where the lease's proxy is reached.
func (l Lease) HostPort() string {
	_, address, _ := strings.Cut(l.Server, "://")
	return address
}
