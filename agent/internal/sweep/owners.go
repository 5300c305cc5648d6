package sweep

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// ownersPage bounds one answer of the API server.
const ownersPage = 1000

// Owners reads the UIDs of all Proxies of a namespace, of whichever member: who looks at too few takes the rest for
// orphans. The reader must have no cache, and see all of them. Only metadata travels.
func Owners(ctx context.Context, r client.Reader, namespace string) (map[string]struct{}, error) {
	owners := map[string]struct{}{}
	list := &metav1.PartialObjectMetadataList{}
	for {
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ProxyList"))
		if err := r.List(ctx, list, client.InNamespace(namespace), client.Limit(ownersPage), client.Continue(list.GetContinue())); err != nil {
			return nil, fmt.Errorf("list the proxies of namespace %s: %w", namespace, err)
		}
		for i := range list.Items {
			owners[string(list.Items[i].UID)] = struct{}{}
		}
		if list.GetContinue() == "" {
			return owners, nil
		}
	}
}
