package engage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const (
	// callTimeout bounds one call of a pre-flight, and flightTimeout all of them.
	callTimeout, flightTimeout = 5 * time.Second, 20 * time.Second
	// callsAtOnce is how many questions about rights are asked at a time.
	callsAtOnce = 8
)

// right is what the agent must be allowed to do in a member's namespace, or in its whole cluster.
type right struct {
	group, resource, subresource string
	everywhere                   bool
	verbs                        []string
}

// rights are those of agent/doc.go and docs/operations/members.md that a cluster beside the agent's own must grant.
var rights = []right{
	{group: v1alpha1.GroupVersion.Group, resource: "proxysets", verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
	{group: v1alpha1.GroupVersion.Group, resource: "proxies", verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
	{group: v1alpha1.GroupVersion.Group, resource: "proxysets", subresource: "status", verbs: []string{"patch"}},
	{group: v1alpha1.GroupVersion.Group, resource: "proxies", subresource: "status", verbs: []string{"patch"}},
	{group: v1alpha1.GroupVersion.Group, resource: "proxysets", subresource: "finalizers", verbs: []string{"update"}},
	{group: v1alpha1.GroupVersion.Group, resource: "proxies", subresource: "finalizers", verbs: []string{"update"}},
	{resource: "pods", verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
	{resource: "resourcequotas", verbs: []string{"list"}},
	{resource: "limitranges", verbs: []string{"list"}},
	{resource: "configmaps", verbs: []string{"get", "create", "patch", "delete"}},
	{resource: "nodes", everywhere: true, verbs: []string{"get", "list", "watch"}},
}

// externalRights come on top where the member probes proxies that someone else runs: their credentials are in Secrets.
var externalRights = []right{{resource: "secrets", verbs: []string{"get", "create", "patch"}}}

// Flight is what a cluster is looked at for.
type Flight struct {
	// Namespace is where the member's objects are.
	Namespace string
	// External says that the member probes proxies that someone else runs.
	External bool
}

func (f Flight) rights() []right {
	if f.External {
		return slices.Concat(rights, externalRights)
	}
	return rights
}

// Preflight looks whether a cluster can be a member: its API server answers, Shoal's kinds are installed, and the agent
// has the rights that it needs in the namespace. It gives the UID of the cluster. Its errors are [Problem]s.
func Preflight(ctx context.Context, config *rest.Config, f Flight) (clusterUID string, err error) {
	ctx, cancel := context.WithTimeout(ctx, flightTimeout)
	defer cancel()
	config = rest.CopyConfig(config)
	config.Timeout, config.QPS = callTimeout, -1
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", &Problem{Reason: ReasonUnreachable, Err: err}
	}
	system, err := api.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", &Problem{Reason: ReasonNoRights, Err: errors.New("the agent may not get the namespace kube-system, whose UID is the cluster's; grant it")}
	case apierrors.IsUnauthorized(err):
		return "", &Problem{Reason: ReasonNoRights, Err: errors.New("it does not know the kubeconfig's user any more; write another")}
	case err != nil:
		return "", &Problem{Reason: ReasonUnreachable, Err: fmt.Errorf("its API server does not answer: %w", err)}
	}
	if err := checkKinds(ctx, api); err != nil {
		return "", err
	}
	missing, err := missingRights(ctx, api, f)
	if err != nil {
		return "", &Problem{Reason: ReasonUnreachable, Err: fmt.Errorf("ask for the agent's rights: %w", err)}
	}
	if len(missing) > 0 {
		return "", &Problem{Reason: ReasonNoRights, Err: fmt.Errorf("in namespace %s the agent may not %s; grant that, see docs/operations/members.md",
			f.Namespace, strings.Join(missing, ", "))}
	}
	return string(system.UID), nil
}

func checkKinds(_ context.Context, api *kubernetes.Clientset) error {
	found, err := api.Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	if err != nil && !apierrors.IsNotFound(err) {
		return &Problem{Reason: ReasonUnreachable, Err: fmt.Errorf("ask for its kinds: %w", err)}
	}
	var missing []string
	for _, kind := range []string{"ProxySet", "Proxy"} {
		known := func(r metav1.APIResource) bool { return r.Kind == kind && !strings.Contains(r.Name, "/") }
		if found == nil || !slices.ContainsFunc(found.APIResources, known) {
			missing = append(missing, kind)
		}
	}
	if len(missing) > 0 {
		return &Problem{Reason: ReasonNoKinds, Err: fmt.Errorf("it does not have %s of %s; install the CRDs of the agent's chart there",
			strings.Join(missing, " and "), v1alpha1.GroupVersion)}
	}
	return nil
}

func missingRights(ctx context.Context, api *kubernetes.Clientset, f Flight) ([]string, error) {
	var asked []authorizationv1.ResourceAttributes
	for _, r := range f.rights() {
		within := f.Namespace
		if r.everywhere {
			within = ""
		}
		for _, verb := range r.verbs {
			asked = append(asked, authorizationv1.ResourceAttributes{Namespace: within, Verb: verb, Group: r.group, Resource: r.resource, Subresource: r.subresource})
		}
	}
	allowed := make([]bool, len(asked))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(callsAtOnce)
	for i := range asked {
		group.Go(func() error {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &asked[i]}}
			answer, err := api.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			allowed[i] = answer.Status.Allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var missing []string
	for i, a := range asked {
		if !allowed[i] {
			missing = append(missing, strings.TrimSuffix(a.Verb+" "+a.Resource+"/"+a.Subresource, "/"))
		}
	}
	return missing, nil
}
