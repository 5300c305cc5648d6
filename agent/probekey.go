package agent

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/proto/credential"
)

const (
	// probeKeySecret holds the seed of the key that probes are signed with.
	probeKeySecret = "shoal-agent-probe-key"
	probeKeySeed   = "seed"
	// probeUser is the user name of probes: a label, like a lease's id.
	probeUser = "probe"
	// probeLifetime and probeWindow bound a probe's credential. It is signed anew each window.
	probeLifetime = 10 * time.Minute
	probeWindow   = time.Minute
)

// probeSigner reads the key of this agent's probes, and makes it if there is none.
func probeSigner(ctx context.Context, c client.Client, namespace string) (*credential.Signer, error) {
	seed, err := probeSeed(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	return credential.NewSigner(credential.SignerOptions{Key: ed25519.NewKeyFromSeed(seed), Use: credential.UseProbe, Window: probeWindow})
}

func probeSeed(ctx context.Context, c client.Client, namespace string) ([]byte, error) {
	key := client.ObjectKey{Namespace: namespace, Name: probeKeySecret}
	secret := &corev1.Secret{}
	err := c.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		seed := make([]byte, ed25519.SeedSize)
		if _, err := rand.Read(seed); err != nil {
			return nil, fmt.Errorf("make the key of probes: %w", err)
		}
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: probeKeySecret, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
			Data:       map[string][]byte{probeKeySeed: seed},
		}
		err = c.Create(ctx, secret)
		if apierrors.IsAlreadyExists(err) {
			err = c.Get(ctx, key, secret)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", key, err)
	}
	seed := secret.Data[probeKeySeed]
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("secret %s: %q has %d bytes and not %d; delete the Secret, and a new key is made", key, probeKeySeed, len(seed), ed25519.SeedSize)
	}
	return seed, nil
}
