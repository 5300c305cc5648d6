package identity

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// HubSecretName is the name of the Secret that holds the hub's identity. It is what a backup of the hub must contain.
const HubSecretName = "shoal-hub-identity"

// Keys of the Secret.
const (
	keyHubUID   = "hub-uid"
	keyCACert   = "ca.crt"
	keyCAKey    = "ca.key"
	keyLeaseKey = "lease.key"
)

var uidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Hub is the hub's own identity. It is immutable.
type Hub struct {
	uid       string
	authority *Authority
	leaseKey  ed25519.PrivateKey
}

// NewHub makes a new identity.
func NewHub(now time.Time) (*Hub, error) {
	uid := string(uuid.NewUUID())
	authority, err := NewAuthority(uid[:8], now)
	if err != nil {
		return nil, err
	}
	_, leaseKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key that signs credentials: %w", err)
	}
	return &Hub{uid: uid, authority: authority, leaseKey: leaseKey}, nil
}

// UID tells this hub from every other.
func (h *Hub) UID() string { return h.uid }

// Authority issues the hub's certificates.
func (h *Hub) Authority() *Authority { return h.authority }

// LeaseKey signs the credentials of leases.
func (h *Hub) LeaseKey() ed25519.PrivateKey { return h.leaseKey }

// String names the hub without its keys.
func (h *Hub) String() string { return "hub " + h.uid }

// GoString is String.
func (h *Hub) GoString() string { return h.String() }

// Encode returns the identity as the data of a Secret.
func (h *Hub) Encode() (map[string][]byte, error) {
	caKey, err := encodePrivateKey(h.authority.key)
	if err != nil {
		return nil, err
	}
	leaseKey, err := encodePrivateKey(h.leaseKey)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		keyHubUID:   []byte(h.uid),
		keyCACert:   h.authority.Bundle(),
		keyCAKey:    caKey,
		keyLeaseKey: leaseKey,
	}, nil
}

// DecodeHub reads an identity from the data of a Secret. It is strict: what is not exactly as [Hub.Encode] writes it
// is an error that wraps [ErrDamaged] and says what is wrong.
func DecodeHub(data map[string][]byte, now time.Time) (*Hub, error) {
	for _, key := range []string{keyHubUID, keyCACert, keyCAKey, keyLeaseKey} {
		if len(data[key]) == 0 {
			return nil, fmt.Errorf("%w: %s is missing", ErrDamaged, key)
		}
	}
	uid := string(data[keyHubUID])
	if !uidPattern.MatchString(uid) {
		return nil, fmt.Errorf("%w: %s is not a UUID in lower case", ErrDamaged, keyHubUID)
	}
	authority, err := decodeAuthority(data[keyCACert], data[keyCAKey], now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	private, err := decodePrivateKey(data[keyLeaseKey])
	if err != nil {
		return nil, fmt.Errorf("%w: %s %w", ErrDamaged, keyLeaseKey, err)
	}
	leaseKey, ok := private.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%w: %s is not an Ed25519 key", ErrDamaged, keyLeaseKey)
	}
	return &Hub{uid: uid, authority: authority, leaseKey: leaseKey}, nil
}

// EnsureHub returns the hub's identity from its Secret in the namespace, and makes it if there is none; created says
// that this call did, so that nothing can have been signed with its keys before. Several hubs may start at once:
// whoever creates the Secret decides. The client must not read from a cache. A Secret that is there but damaged is an
// error that wraps [ErrDamaged]: a new identity would cut off every agent and refuse every credential in use, so only a
// person may decide that.
func EnsureHub(ctx context.Context, c client.Client, namespace string, now time.Time) (hub *Hub, created bool, err error) {
	key := client.ObjectKey{Namespace: namespace, Name: HubSecretName}
	hub, err = readHub(ctx, c, key, now)
	if !errors.Is(err, errNoHub) {
		return hub, false, err
	}
	hub, err = NewHub(now)
	if err != nil {
		return nil, false, err
	}
	data, err := hub.Encode()
	if err != nil {
		return nil, false, err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      HubSecretName,
			Labels:    map[string]string{v1alpha1.LabelComponent: v1alpha1.ComponentIdentity},
		},
		Data: data,
	}
	err = c.Create(ctx, secret)
	switch {
	case apierrors.IsAlreadyExists(err):
		hub, err = readHub(ctx, c, key, now)
		return hub, false, err
	case err != nil:
		return nil, false, fmt.Errorf("create Secret %s for the hub's identity: %w", key, err)
	}
	return hub, true, nil
}

// ReadHub returns the hub's identity from its Secret, and never makes one.
func ReadHub(ctx context.Context, c client.Reader, namespace string, now time.Time) (*Hub, error) {
	hub, err := readHub(ctx, c, client.ObjectKey{Namespace: namespace, Name: HubSecretName}, now)
	if errors.Is(err, errNoHub) {
		return nil, fmt.Errorf("%w: start the hub there once, or name its namespace", err)
	}
	return hub, err
}

var errNoHub = errors.New("no hub identity")

func readHub(ctx context.Context, c client.Reader, key client.ObjectKey, now time.Time) (*Hub, error) {
	var secret corev1.Secret
	err := c.Get(ctx, key, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: there is no Secret %s", errNoHub, key)
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	hub, err := DecodeHub(secret.Data, now)
	if err != nil {
		return nil, fmt.Errorf("use Secret %s: %w; restore it from the backup of the hub: it is never made anew, because every agent and every credential in use depends on it", key, err)
	}
	return hub, nil
}
