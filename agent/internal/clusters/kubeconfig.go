package clusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/shoal-dev/shoal/agent/internal/regions"
	"github.com/shoal-dev/shoal/agent/internal/settings"
)

// The keys of a Secret.
const (
	KeyKubeconfig = "kubeconfig"
	KeyMember     = "member.yaml"
)

// callTimeout bounds calls to a cluster's API server that no watch is behind: the controllers have few goroutines, for all
// members.
const callTimeout = 10 * time.Second

// Cluster is what a Secret says.
type Cluster struct {
	settings.Cluster
	// Config reaches its API server.
	Config *rest.Config
}

// Read reads and checks a Secret, for an agent in a namespace and with settings. Its error names all that is wrong, and
// nothing of the kubeconfig's content.
func Read(secret *corev1.Secret, namespace string, s *settings.Settings) (*Cluster, error) {
	var wrong []error
	for key := range secret.Data {
		if key != KeyKubeconfig && key != KeyMember {
			wrong = append(wrong, fmt.Errorf("%q is no key that is known; write %s and %s", key, KeyKubeconfig, KeyMember))
		}
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	described, err := settings.ReadCluster(secret.Data[KeyMember], s)
	if err != nil {
		wrong = append(wrong, fmt.Errorf("%s: %w", KeyMember, err))
	}
	config, contextNamespace, err := readKubeconfig(secret.Data[KeyKubeconfig])
	if err != nil {
		wrong = append(wrong, fmt.Errorf("%s: %w", KeyKubeconfig, err))
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	described.Namespace = cmp.Or(described.Namespace, contextNamespace, namespace)
	return &Cluster{Cluster: *described, Config: config}, nil
}

// readKubeconfig takes only what is complete in itself. What would run a program, or read a file, would do so as the
// agent. Causes are left out of errors: they could quote what nobody may read.
func readKubeconfig(text []byte) (config *rest.Config, namespace string, err error) {
	if len(text) == 0 {
		return nil, "", errors.New("it is missing; write a kubeconfig of an account for the agent in that cluster")
	}
	all, err := clientcmd.Load(text)
	if err != nil {
		return nil, "", errors.New("it is no kubeconfig that can be read")
	}
	current, ok := all.Contexts[all.CurrentContext]
	if !ok {
		return nil, "", errors.New("its current-context is none of its contexts")
	}
	server, user := all.Clusters[current.Cluster], all.AuthInfos[current.AuthInfo]
	if server == nil || user == nil {
		return nil, "", errors.New("the cluster or the user of its current context is missing")
	}
	if err := errors.Join(checkServer(server), checkUser(user)); err != nil {
		return nil, "", err
	}
	config, err = clientcmd.NewDefaultClientConfig(*all, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, "", errors.New("it names no way to reach a cluster")
	}
	config.QPS = -1
	return config, current.Namespace, nil
}

func checkServer(s *clientcmdapi.Cluster) error {
	switch {
	case !strings.HasPrefix(s.Server, "https://"):
		return errors.New("its server does not begin with https://")
	case s.InsecureSkipTLSVerify:
		return errors.New("it has insecure-skip-tls-verify; write certificate-authority-data instead")
	case s.CertificateAuthority != "":
		return errors.New("it has certificate-authority, a file that is not here; write certificate-authority-data")
	}
	return nil
}

func checkUser(u *clientcmdapi.AuthInfo) error {
	switch {
	case u.Exec != nil || u.AuthProvider != nil:
		return errors.New("its user is authenticated by a program, which the agent does not run; write a token, or a client certificate")
	case u.TokenFile != "" || u.ClientCertificate != "" || u.ClientKey != "":
		return errors.New("its user's credentials are in a file that is not here; write token, or client-certificate-data and client-key-data")
	}
	return nil
}

// Open makes the cluster, and a client of it without a cache. It calls nobody.
func (k *Cluster) Open(kinds *runtime.Scheme) (cluster.Cluster, client.Client, error) {
	// Watches last; only calls are bounded.
	bounded := rest.CopyConfig(k.Config)
	bounded.Timeout = callTimeout
	direct, err := client.New(bounded, client.Options{Scheme: kinds})
	if err != nil {
		return nil, nil, err
	}
	cl, err := cluster.New(k.Config, func(o *cluster.Options) {
		o.Scheme = kinds
		o.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{k.Namespace: {}}, ByObject: regions.OnlyObjects(k.Member)}
		o.NewClient = func(_ *rest.Config, options client.Options) (client.Client, error) {
			options.HTTPClient = (*http.Client)(nil)
			return client.New(bounded, options)
		}
	})
	return cl, direct, err
}

// Answers asks the cluster's API server for a sign of life.
func Answers(ctx context.Context, direct client.Client) error {
	return direct.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &corev1.Namespace{})
}
