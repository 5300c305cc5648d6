package computeclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	compute "cloud.google.com/go/compute/apiv1"
	"github.com/go-logr/logr"
	"google.golang.org/api/option"
	htransport "google.golang.org/api/transport/http"
	"k8s.io/utils/clock"
)

const (
	// DefaultEndpoint is Google's own.
	DefaultEndpoint = "https://compute.googleapis.com"
	// DefaultTimeout bounds one request, its body included. The client's own bound is ten minutes, and none for lists.
	DefaultTimeout = 30 * time.Second
	// scope is all that a token of ours may be used for; what it may do is for the service account's roles to say.
	scope = "https://www.googleapis.com/auth/compute"
)

// Options configures a Client.
type Options struct {
	// Project is the project of all calls.
	Project string
	// Endpoint is the address of the API, without a path; empty means DefaultEndpoint. One that begins with http:// is
	// called without credentials, since they would travel in the clear.
	Endpoint string
	// CredentialsFile is a file with credentials of Google's JSON form; empty means the environment's own
	// (application default credentials).
	CredentialsFile string
	// Timeout bounds one request; 0 means DefaultTimeout.
	Timeout time.Duration
	// UserAgent names the program to the API.
	UserAgent string
	// Logger takes one line for each call (V(1)), details (V(2)) and bodies (V(5)). A logger in a call's context is
	// taken instead of it: it knows whom the call is for.
	Logger logr.Logger
	// WireLogFullPayloads logs long strings of bodies in full. What a virtual machine is booted with is never logged.
	WireLogFullPayloads bool
	// Transport is what requests are sent with, below credentials; nil means one of Go's own. It is for tests.
	Transport http.RoundTripper
	// Clock times calls; nil means the real one.
	Clock clock.PassiveClock
}

// Client calls Compute Engine in one project with one set of credentials. It is safe for concurrent use.
type Client struct {
	o Options
	// transport authenticates and logs; lists go through it as well.
	transport      http.RoundTripper
	instances      *compute.InstancesClient
	zoneOperations *compute.ZoneOperationsClient
	addresses      *compute.AddressesClient
}

// New makes a Client. It reads the credentials and calls nobody.
func New(ctx context.Context, o Options) (*Client, error) {
	if o.Project == "" || o.UserAgent == "" {
		return nil, errors.New("compute client: Project and UserAgent are required")
	}
	if err := checkNames("project", o.Project); err != nil {
		return nil, err
	}
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	endpoint, err := url.Parse(o.Endpoint)
	if err != nil || endpoint.Host == "" || (endpoint.Scheme != "https" && endpoint.Scheme != "http") {
		return nil, fmt.Errorf("compute client: endpoint %q is no address; write https://host", o.Endpoint)
	}
	if endpoint.Scheme == "http" && o.CredentialsFile != "" {
		return nil, fmt.Errorf("compute client: endpoint %s is not encrypted, and credentials would travel in the clear; write https://, or leave the credentials out", o.Endpoint)
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	c := &Client{o: o}
	if c.transport, err = newTransport(ctx, o, endpoint); err != nil {
		return nil, fmt.Errorf("compute client: %w", err)
	}
	options := c.clientOptions(c.transport)
	if c.instances, err = compute.NewInstancesRESTClient(ctx, options...); err != nil {
		return nil, fmt.Errorf("compute client: %w", err)
	}
	if c.zoneOperations, err = compute.NewZoneOperationsRESTClient(ctx, options...); err != nil {
		return nil, fmt.Errorf("compute client: %w", err)
	}
	if c.addresses, err = compute.NewAddressesRESTClient(ctx, options...); err != nil {
		return nil, fmt.Errorf("compute client: %w", err)
	}
	return c, nil
}

// Project is the project of all calls.
func (c *Client) Project() string { return c.o.Project }

// clientOptions are those of a service's client that sends with t. The library's own logger would log headers and tokens;
// it gets one that drops everything, whatever the environment asks of it.
func (c *Client) clientOptions(t http.RoundTripper) []option.ClientOption {
	return []option.ClientOption{
		option.WithHTTPClient(&http.Client{Transport: t, Timeout: c.o.Timeout}),
		option.WithEndpoint(c.o.Endpoint),
		option.WithLogger(slog.New(slog.DiscardHandler)),
	}
}

// newTransport makes what all requests go through: bodies are logged above the credentials, where there are none yet.
func newTransport(ctx context.Context, o Options, endpoint *url.URL) (http.RoundTripper, error) {
	base := o.Transport
	if base == nil {
		base = http.DefaultTransport.(*http.Transport).Clone()
	}
	options := []option.ClientOption{
		option.WithUserAgent(o.UserAgent),
		option.WithLogger(slog.New(slog.DiscardHandler)),
		option.WithTelemetryDisabled(),
	}
	if endpoint.Scheme == "http" {
		options = append(options, option.WithoutAuthentication())
	} else {
		credentials, err := credentialsOption(o.CredentialsFile)
		if err != nil {
			return nil, err
		}
		options = append(options, credentials, option.WithScopes(scope))
	}
	authenticated, err := htransport.NewTransport(ctx, base, options...)
	if err != nil {
		return nil, err
	}
	return &wire{base: authenticated, host: endpoint.Host, logger: o.Logger, full: o.WireLogFullPayloads}, nil
}

// credentialsOption reads a file of credentials. Its type is said aloud, because a file of type external_account may name
// any address to fetch a token from, and the owner of the file is the owner of the agent.
func credentialsOption(file string) (option.ClientOption, error) {
	if file == "" {
		return option.WithScopes(scope), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	var form struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(text, &form); err != nil {
		return nil, fmt.Errorf("read credentials: %s is not the JSON of a service account's key", file)
	}
	switch kind := option.CredentialsType(form.Type); kind {
	case option.ServiceAccount, option.AuthorizedUser, option.ExternalAccount, option.ImpersonatedServiceAccount:
		return option.WithAuthCredentialsJSON(kind, text), nil
	default:
		return nil, fmt.Errorf("read credentials: %s is of type %q; give a file of type %s", file, form.Type, strings.Join(
			[]string{string(option.ServiceAccount), string(option.ExternalAccount), string(option.ImpersonatedServiceAccount), string(option.AuthorizedUser)}, ", "))
	}
}
