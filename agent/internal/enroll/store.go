package enroll

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// SecretName is the name of the Secret that a [SecretStore] keeps.
const SecretName = "shoal-agent-identity"

// Keys of the Secret.
const (
	keyKey    = "tls.key"
	keyChain  = "tls.crt"
	keyBundle = "ca.crt"
	keyAgent  = "agent-name"
	keyHubUID = "hub-uid"
	keyMember = "member"
	keyPin    = "hub-pin"
)

// SecretStore is a [Store] in a Secret named [SecretName]. It is safe for concurrent use.
type SecretStore struct {
	client    client.Client
	namespace string
}

// NewSecretStore returns a store in the namespace. The client must not read from a cache.
func NewSecretStore(c client.Client, namespace string) *SecretStore {
	return &SecretStore{client: c, namespace: namespace}
}

// Load implements [Store].
func (s *SecretStore) Load(ctx context.Context) (State, error) {
	key := client.ObjectKey{Namespace: s.namespace, Name: SecretName}
	var secret corev1.Secret
	err := s.client.Get(ctx, key, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return State{}, fmt.Errorf("%w: there is no Secret %s", ErrNoState, key)
	case err != nil:
		return State{}, fmt.Errorf("read Secret %s: %w", key, err)
	}
	return State{
		Key:    secret.Data[keyKey],
		Chain:  secret.Data[keyChain],
		Bundle: secret.Data[keyBundle],
		Agent:  string(secret.Data[keyAgent]),
		HubUID: string(secret.Data[keyHubUID]),
		Member: string(secret.Data[keyMember]),
		Pin:    string(secret.Data[keyPin]),
	}, nil
}

// Save implements [Store]. The agent is the only one who writes the Secret, so what is there is replaced.
func (s *SecretStore) Save(ctx context.Context, state State) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace,
			Name:      SecretName,
			Labels:    map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
		},
		Data: map[string][]byte{
			keyKey:    state.Key,
			keyChain:  state.Chain,
			keyBundle: state.Bundle,
			keyAgent:  []byte(state.Agent),
			keyHubUID: []byte(state.HubUID),
			keyMember: []byte(state.Member),
			keyPin:    []byte(state.Pin),
		},
	}
	err := s.client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		err = s.client.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("save Secret %s/%s: %w", s.namespace, SecretName, err)
	}
	return nil
}
