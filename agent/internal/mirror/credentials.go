package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/uplink"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// keepCredentials keeps what a set's endpoints name as credentials in a Secret that goes with the set. What came with the
// item is written, what did not and is there already stays, and what no endpoint names is dropped. What neither came nor
// is there is left to the hub: it sends the item again once it knows.
func (m *Mirror) keepCredentials(ctx context.Context, set *v1alpha1.ProxySet, spec v1alpha1.ProxySetSpec, item uplink.Item) error {
	if spec.External == nil {
		return nil
	}
	came := make(map[string][]byte, len(item.Credentials))
	for _, c := range item.Credentials {
		if len(validation.IsConfigMapKey(c.Key)) > 0 || c.Username == "" || strings.ContainsAny(c.Username, ":\r\n\x00") || strings.ContainsAny(c.Password, "\r\n\x00") {
			return errors.New("the hub sent credentials that no proxy can be given; it must check what it reads")
		}
		came[c.Key] = []byte(c.Username + ":" + c.Password)
	}
	name := types.NamespacedName{Namespace: m.o.Namespace, Name: v1alpha1.CredentialsSecretName(set.Name)}
	secret := &corev1.Secret{}
	err := m.o.Reader.Get(ctx, name, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("get Secret %s: %w", name.Name, err)
	}
	data := map[string][]byte{}
	for i := range spec.External.Endpoints {
		key := spec.External.Endpoints[i].Credentials
		if key == "" {
			continue
		}
		if value, ok := came[key]; ok {
			data[key] = value
		} else if value, ok := secret.Data[key]; ok {
			data[key] = value
		}
	}
	switch {
	case missing && len(data) == 0:
		return nil
	case missing:
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: name.Namespace, Name: name.Name,
				Labels: map[string]string{
					v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelComponent: v1alpha1.ComponentCredentials,
					v1alpha1.LabelMember: m.o.Member, v1alpha1.LabelProxySet: set.Name,
				},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: v1alpha1.GroupVersion.String(), Kind: "ProxySet", Name: set.Name, UID: set.UID, Controller: ptr.To(true),
				}},
			},
			Data: data,
		}
		if err := m.o.Client.Create(ctx, secret); err != nil {
			return fmt.Errorf("keep credentials in Secret %s: %w", name.Name, err)
		}
		return nil
	case secret.Labels[v1alpha1.LabelProxySet] != set.Name || !metav1.IsControlledBy(secret, set):
		return fmt.Errorf("secret %s is not this proxy set's; remove it if nobody needs it", name.Name)
	case maps.EqualFunc(secret.Data, data, bytes.Equal):
		return nil
	}
	before := secret.DeepCopy()
	secret.Data = data
	if err := m.o.Client.Patch(ctx, secret, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("keep credentials in Secret %s: %w", name.Name, err)
	}
	return nil
}
