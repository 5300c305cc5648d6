package regions

import (
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// ViewOptions configures a view. All are required.
type ViewOptions struct {
	// Config reaches the home cluster's API server.
	Config *rest.Config
	// Home lends its connections and what it knows of the API server's kinds.
	Home cluster.Cluster
	// Namespace is the agent's own.
	Namespace string
	// Member is whose objects are seen.
	Member string
}

// NewView makes the cluster that a region is engaged as: the home cluster, in which only the objects of one member are
// seen.
func NewView(o ViewOptions) (cluster.Cluster, error) {
	if o.Config == nil || o.Home == nil || o.Namespace == "" || o.Member == "" {
		return nil, errors.New("regions: ViewOptions need Config, Home, Namespace and Member")
	}
	view, err := cluster.New(o.Config, func(c *cluster.Options) {
		c.Scheme, c.HTTPClient = o.Home.GetScheme(), o.Home.GetHTTPClient()
		c.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return o.Home.GetRESTMapper(), nil }
		c.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{o.Namespace: {}}, ByObject: Only(o.Member)}
	})
	if err != nil {
		return nil, fmt.Errorf("regions: view of member %s: %w", o.Member, err)
	}
	return view, nil
}

// Only restricts a cache to one member's objects. Pods are the home cluster's own: no other member of its namespace has
// any.
func Only(member string) map[client.Object]cache.ByObject {
	objects := OnlyObjects(member)
	objects[&corev1.Pod{}] = cache.ByObject{Label: labels.SelectorFromSet(labels.Set{v1alpha1.LabelMember: member})}
	return objects
}

// OnlyObjects is Only without pods.
func OnlyObjects(member string) map[client.Object]cache.ByObject {
	only := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{v1alpha1.LabelMember: member})}
	return map[client.Object]cache.ByObject{&v1alpha1.ProxySet{}: only, &v1alpha1.Proxy{}: only}
}
