package identity

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// annotationJournal of the hub's Secret names the journal that the hub's leases are in.
const annotationJournal = "shoal.dev/journal"

// NotedJournal returns what [SwapJournal] noted last; empty if nothing was. The client must not read from a cache.
func NotedJournal(ctx context.Context, c client.Client, namespace string) (string, error) {
	key := client.ObjectKey{Namespace: namespace, Name: HubSecretName}
	var secret corev1.Secret
	if err := c.Get(ctx, key, &secret); err != nil {
		return "", fmt.Errorf("read Secret %s: %w", key, err)
	}
	return secret.Annotations[annotationJournal], nil
}

// SwapJournal notes in the hub's Secret which journal its leases are in from now on, and returns the one before; empty
// if none was noted. The client must not read from a cache.
func SwapJournal(ctx context.Context, c client.Client, namespace, journal string) (before string, err error) {
	key := client.ObjectKey{Namespace: namespace, Name: HubSecretName}
	var secret corev1.Secret
	if err := c.Get(ctx, key, &secret); err != nil {
		return "", fmt.Errorf("read Secret %s: %w", key, err)
	}
	before = secret.Annotations[annotationJournal]
	if before == journal {
		return before, nil
	}
	base := secret.DeepCopy()
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[annotationJournal] = journal
	if err := c.Patch(ctx, &secret, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return "", fmt.Errorf("note the journal in Secret %s: %w", key, err)
	}
	return before, nil
}
