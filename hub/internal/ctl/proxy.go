package ctl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/spf13/cobra"

	"github.com/shoal-dev/shoal/hub/internal/identity"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// Variables in which the lease service and a token for it are found.
const (
	leaseURLVariable   = "SHOAL_URL"
	leaseTokenVariable = "SHOAL_TOKEN"
	listTimeout        = time.Minute
)

func (t *tool) caCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "ca",
		Short:   "Print the certificate to trust the hub by, PEM",
		Example: "  shoalctl ca >hub.pem; curl --cacert hub.pem https://hub.example.com:8444/v1/leases …",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bundle, err := t.bundle(cmd.Context())
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(bundle)
			return err
		},
	}
}

func (t *tool) bundle(ctx context.Context) ([]byte, error) {
	c, _, err := t.Client()
	if err != nil {
		return nil, err
	}
	hub, err := identity.ReadHub(ctx, c, t.hubNamespace, t.Now())
	if err != nil {
		return nil, fmt.Errorf("%w (--hub-namespace)", err)
	}
	return hub.Authority().Bundle(), nil
}

func (t *tool) proxyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "proxy", Short: "List proxies, and have them tried again", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(t.proxyListCommand(), t.proxyRetryCommand())
	return cmd
}

func (t *tool) proxyListCommand() *cobra.Command {
	var fleet, url, token, caFile string
	cmd := &cobra.Command{
		Use:     "list --fleet NAMESPACE/FLEET",
		Aliases: []string{"ls"},
		Short:   "List the proxies of a fleet, as the lease service sees them",
		Long: "List the proxies of a fleet, as the lease service sees them. It needs the address of the service and a token,\n" +
			"like a crawler. The service is trusted by the hub's certificate, which is read from the hub's cluster.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, token = fromEnvironment(url, leaseURLVariable), fromEnvironment(token, leaseTokenVariable)
			switch {
			case fleet == "":
				return errors.New("say which fleet with --fleet NAMESPACE/FLEET")
			case !strings.HasPrefix(url, "https://"):
				return errors.New("say where the lease service is with --url https://host:port, or set " + leaseURLVariable)
			case token == "":
				return errors.New("set " + leaseTokenVariable + " to a token from `shoalctl token create`")
			}
			roots, err := t.leaseRoots(cmd.Context(), caFile)
			if err != nil {
				return err
			}
			proxies, err := listProxies(cmd.Context(), url, token, fleet, roots)
			if err != nil {
				return err
			}
			rows := [][]string{{"PROXY", "MEMBER", "REGION", "STATE", "LEASED", "ENDPOINT", "EXITS"}}
			for _, p := range proxies {
				rows = append(rows, proxyRow(p))
			}
			return table(cmd.OutOrStdout(), rows)
		},
	}
	cmd.Flags().StringVar(&fleet, "fleet", "", "fleet, namespace/name")
	cmd.Flags().StringVar(&url, "url", "", "where crawlers reach the hub, https://host:port; $"+leaseURLVariable+" by default")
	cmd.Flags().StringVar(&token, "token", "", "token of a crawler; better set $"+leaseTokenVariable+", which others on the machine do not see")
	cmd.Flags().StringVar(&caFile, "ca-file", "", "certificates to trust the service by, PEM; the hub's own by default")
	return cmd
}

func (t *tool) leaseRoots(ctx context.Context, caFile string) (*x509.CertPool, error) {
	var bundle []byte
	var err error
	if caFile != "" {
		bundle, err = os.ReadFile(caFile)
	} else {
		bundle, err = t.bundle(ctx)
	}
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("--ca-file %s has no certificate in PEM", caFile)
	}
	return roots, nil
}

// bearer sends the token with every request.
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

func listProxies(ctx context.Context, url, token, fleet string, roots *x509.CertPool) ([]*leasev1.Proxy, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	wire := connecthttp.NewTransport(&http.Client{Transport: bearer{next: transport, token: token}}, strings.TrimSuffix(url, "/"))
	service := leasev1connect.NewLeaseServiceClient(connect.NewClient(wire))
	var all []*leasev1.Proxy
	for page := ""; ; {
		answer, err := service.ListProxies(ctx, &leasev1.ListProxiesRequest{Fleet: fleet, PageSize: 1000, PageToken: page})
		if err != nil {
			return nil, fmt.Errorf("list the proxies of %s: %w", fleet, err)
		}
		all = append(all, answer.GetProxies()...)
		if page = answer.GetNextPageToken(); page == "" {
			return all, nil
		}
	}
}

func proxyRow(p *leasev1.Proxy) []string {
	state := "NotReady"
	switch {
	case p.GetDraining():
		state = "Draining"
	case p.GetSaturated():
		state = "Saturated"
	case p.GetReady():
		state = "Ready"
	}
	var endpoints []string
	for _, e := range p.GetEndpoints() {
		endpoints = append(endpoints, e.GetNetwork()+"="+net.JoinHostPort(e.GetHost(), strconv.Itoa(int(e.GetPort()))))
	}
	return []string{
		p.GetProxyId(), p.GetMember(), p.GetRegion(), state, fmt.Sprintf("%d/%d", p.GetLeased(), p.GetSlots()),
		strings.Join(endpoints, ","), strings.Join(p.GetExits(), ","),
	}
}
