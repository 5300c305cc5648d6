package ctl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

const (
	// tokenAudience is whom tokens for the hub are meant for.
	tokenAudience = "shoal"
	// operatorTokenSeconds is how long a token for one command lives: the shortest that Kubernetes makes.
	operatorTokenSeconds = 600
	// operatorTimeout bounds one call.
	operatorTimeout = time.Minute
)

// operator is how the commands of operators reach the hub.
type operator struct {
	url, serverName, caFile, tokenFile, account string
}

func (o *operator) add(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&o.url, "url", "", "where crawlers reach the hub, https://host:port; $"+leaseURLVariable+" by default")
	flags.StringVar(&o.serverName, "server-name", "", "name that the hub's certificate is checked for, where it is another than that of --url: through a port-forward")
	flags.StringVar(&o.caFile, "ca-file", "", "certificates to trust the hub by, PEM; the hub's own by default")
	flags.StringVar(&o.tokenFile, "token-file", "", "ServiceAccount token with audience "+tokenAudience+", in a file; by default one is asked for --as-account")
	flags.StringVar(&o.account, "as-account", "shoal-operator", "ServiceAccount in the hub's namespace to act as; the chart makes shoal-operator")
}

// operators is what the long text of each group says of the way to the hub.
const operators = "\n\nThe hub is called at --url with a token of ten minutes for a ServiceAccount that may operate it; to ask for one takes the\n" +
	"right to create serviceaccounts/token in the hub's namespace. Where the service cannot be reached from here:\n\n" +
	"  kubectl -n shoal-system port-forward svc/shoal-hub-leases 8444 &\n" +
	"  shoalctl … --url https://localhost:8444 --server-name shoal-hub.shoal-system.svc\n\n" +
	"Every change is in the hub's audit log."

// call makes one call of the hub's OperatorService.
func (t *tool) call(ctx context.Context, o *operator, do func(context.Context, leasev1connect.OperatorServiceClient) error) error {
	url := fromEnvironment(o.url, leaseURLVariable)
	if !strings.HasPrefix(url, "https://") {
		return errors.New("say where the hub is with --url https://host:port, or set " + leaseURLVariable)
	}
	roots, err := t.leaseRoots(ctx, o.caFile)
	if err != nil {
		return err
	}
	token, err := t.operatorToken(ctx, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: o.serverName, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
	}
	defer transport.CloseIdleConnections()
	wire := connecthttp.NewTransport(&http.Client{Transport: bearer{next: transport, token: token}}, strings.TrimSuffix(url, "/"))
	return do(ctx, leasev1connect.NewOperatorServiceClient(connect.NewClient(wire)))
}

// operatorToken reads a token, or has one made that ends soon.
func (t *tool) operatorToken(ctx context.Context, o *operator) (string, error) {
	if o.tokenFile != "" {
		data, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return "", fmt.Errorf("read --token-file: %w", err)
		}
		return strings.TrimSpace(string(data)), nil
	}
	c, _, err := t.Client()
	if err != nil {
		return "", err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: t.hubNamespace, Name: o.account}}
	seconds := int64(operatorTokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{tokenAudience}, ExpirationSeconds: &seconds}}
	err = c.SubResource("token").Create(ctx, account, request)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("there is no ServiceAccount %s in namespace %s; name another with --as-account and --hub-namespace, or set --token-file", o.account, t.hubNamespace)
	}
	if err != nil {
		return "", fmt.Errorf("ask for a token of ServiceAccount %s/%s; you need the right to create serviceaccounts/token there, or set --token-file: %w", t.hubNamespace, o.account, err)
	}
	return request.Status.Token, nil
}
